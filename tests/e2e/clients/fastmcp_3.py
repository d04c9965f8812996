"""fastmcp's client: `fastmcp_3.py URL` prints what it saw."""

import asyncio
import json
import sys

from fastmcp import Client


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
        await client.call_tool("steps", {})
        held = asyncio.create_task(client.call_tool("hold", {"name": "fastmcp_3"}))
        print("holding", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        await client.cancel(client.session._request_id - 1, "enough")
        outcome = await asyncio.gather(held, return_exceptions=True)
        print("changing", flush=True)
        await asyncio.wait_for(changed.wait(), 60)
        told_off = type(outcome[0]).__name__
        print(json.dumps({"names": names, "pids": len(pids), "asked": asked, "told": told, "held": told_off}))


asyncio.run(main(sys.argv[1]))
