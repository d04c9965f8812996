"""The Python SDK 1.x: `mcp_1.py URL` prints what it saw."""

import asyncio
import json
import sys
from datetime import timedelta

from mcp import ClientSession, types
from mcp.client.streamable_http import streamablehttp_client


async def main(url: str) -> None:
    told: list[float] = []
    changed = asyncio.Event()

    async def on_question(context: object, params: object) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"answer": "Ann"})

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        told.append(round(progress, 2))

    async def on_message(message: object) -> None:
        if isinstance(getattr(message, "root", None), types.ToolListChangedNotification):
            changed.set()

    async with (
        streamablehttp_client(f"{url}/mcp") as (read, write, _),
        ClientSession(read, write, elicitation_callback=on_question, message_handler=on_message) as session,
    ):
        await session.initialize()
        names = [tool.name for tool in (await session.list_tools()).tools]
        pids = {(await session.call_tool("who", {})).content[0].text for _ in range(8)}
        asked = [json.loads((await session.call_tool("ask", {})).content[0].text)["said"] for _ in range(4)]
        wrong = [
            (await session.call_tool(name, arguments)).content[0].text
            for name, arguments in (("who", {"x": 1}), ("up__add", {"a": "x", "b": 1}), ("up__fail", {}))
        ]
        decided = [await task(session) for _ in range(6)]
        await session.call_tool("steps", {}, progress_callback=on_progress)
        held = asyncio.create_task(
            session.call_tool("hold", {"name": "mcp_1"}, read_timeout_seconds=timedelta(seconds=60))
        )
        print("holding", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        number = session._request_id - 1
        cancelled = types.CancelledNotificationParams(requestId=number, reason="enough")
        await session.send_notification(types.ClientNotification(types.CancelledNotification(params=cancelled)))
        outcome = await asyncio.gather(held, return_exceptions=True)
        print("changing", flush=True)
        await asyncio.wait_for(changed.wait(), 60)
        saw = {"names": names, "pids": len(pids), "asked": asked, "told": told, "held": type(outcome[0]).__name__}
        print(json.dumps({**saw, "wrong": wrong, "decided": decided}))


async def task(session: ClientSession) -> object:
    """Complete a task that asks."""
    task_id = (await session.experimental.call_tool_as_task("decide", {})).task.taskId
    async for state in session.experimental.poll_task(task_id):
        if state.status == "input_required":
            break
    return json.loads((await session.experimental.get_task_result(task_id, types.CallToolResult)).content[0].text)


asyncio.run(main(sys.argv[1]))
