"""The Python SDK 1.x: `mcp_1_tasks.py URL` completes a task that asks, and two approvals; prints what it saw."""

import asyncio
import json
import sys

from mcp import ClientSession, types
from mcp.client.streamable_http import streamablehttp_client


async def main(url: str) -> None:
    asked: list[str] = []

    async def on_question(context: object, params: types.ElicitRequestFormParams) -> types.ElicitResult:
        asked.append(params.message)
        content = {"answer": True} if params.requestedSchema["properties"] else {}
        return types.ElicitResult(action="accept", content=content)

    async with (
        streamablehttp_client(f"{url}/mcp") as (read, write, _),
        ClientSession(read, write, elicitation_callback=on_question) as session,
    ):
        await session.initialize()
        ended = {}
        for name, arguments in (("import_orders", {"source": "web"}), ("pay", {"to": "task"})):
            made = await session.experimental.call_tool_as_task(name, arguments)
            waiting = None
            states = []
            async for state in session.experimental.poll_task(made.task.taskId):
                states.append(state.status)
                if state.status == "input_required" and waiting is None:
                    # Who waits for the result is asked what the task asks.
                    result = session.experimental.get_task_result(made.task.taskId, types.CallToolResult)
                    waiting = asyncio.create_task(result)
            result = await session.experimental.get_task_result(made.task.taskId, types.CallToolResult)
            ended[name] = [states[-1], result.content[0].text]
        paid = await session.call_tool("pay", {"to": "call"})
        print(json.dumps({"ended": ended, "paid": paid.content[0].text, "asked": len(asked)}))


asyncio.run(main(sys.argv[1]))
