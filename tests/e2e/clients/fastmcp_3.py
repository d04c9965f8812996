"""fastmcp's client: `fastmcp_3.py URL` prints what it saw."""

import asyncio
import json
import sys

from fastmcp import Client
from fastmcp.exceptions import ToolError


async def main(url: str) -> None:
    told: list[float] = []
    changed = asyncio.Event()

    async def on_question(message: str, response_type: object, params: object, context: object) -> dict[str, str]:
        return {"answer": "Ann"}

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        told.append(round(progress, 2))

    async def on_message(message: object) -> None:
        if "ToolListChanged" in type(getattr(message, "root", message)).__name__:
            changed.set()

    async with Client(
        f"{url}/mcp", elicitation_handler=on_question, progress_handler=on_progress, message_handler=on_message
    ) as client:
        names = [tool.name for tool in await client.list_tools()]
        pids = {(await client.call_tool("who", {})).content[0].text for _ in range(8)}
        asked = [json.loads((await client.call_tool("ask", {})).content[0].text)["said"] for _ in range(4)]
        wrong = [await error_of(client, "who", x=1), await error_of(client, "up__add", a="x", b=1)]
        wrong.append(await error_of(client, "up__fail"))
        decided = [await task(client) for _ in range(6)]
        await client.call_tool("steps", {})
        held = asyncio.create_task(client.call_tool("hold", {"name": "fastmcp_3"}))
        print("holding", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        await client.cancel(client.session._request_id - 1, "enough")
        outcome = await asyncio.gather(held, return_exceptions=True)
        print("changing", flush=True)
        await asyncio.wait_for(changed.wait(), 60)
        saw = {"names": names, "pids": len(pids), "asked": asked, "told": told, "held": type(outcome[0]).__name__}
        print(json.dumps({**saw, "wrong": wrong, "decided": decided}))


async def task(client: Client) -> object:
    """Complete a task that asks: whoever asks for its result is asked, and `Task.result` waits for the end first."""
    made = await client.call_tool("decide", {}, task=True)
    await made.wait(state="input_required")
    return json.loads((await client.get_task_result(made.task_id))["content"][0]["text"])


async def error_of(client: Client, name: str, **arguments: object) -> str:
    try:
        return f"no error: {await client.call_tool(name, arguments)}"
    except ToolError as error:
        return str(error)


asyncio.run(main(sys.argv[1]))
