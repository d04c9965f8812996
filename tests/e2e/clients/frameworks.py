"""The MCP clients of agent frameworks: `frameworks.py NAME URL` prints what one saw."""

import asyncio
import json
import sys
from typing import Any

WRONG: list[tuple[str, dict[str, Any]]] = [("who", {"x": 1}), ("up__add", {"a": "x", "b": 1}), ("up__fail", {})]


class Changes:
    """Hears of changes.

    Of a call that a framework gives up its server hears nothing: its client says no word, and leaves the stream open.
    """

    def __init__(self) -> None:
        self._heard = asyncio.Event()

    async def __call__(self, message: object) -> None:
        if "ToolListChanged" in type(getattr(message, "root", message)).__name__:
            self._heard.set()

    async def follow(self) -> None:
        print("changing", flush=True)
        await asyncio.wait_for(self._heard.wait(), 60)


async def pydantic_ai(url: str) -> dict[str, Any]:
    from pydantic_ai import Agent
    from pydantic_ai.mcp import MCPToolset
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    names: list[str] = []
    wanted = [*[("who", {})] * 8, *[("ask", {})] * 4, ("steps", {}), *WRONG]

    def answer(messages: list[Any], info: Any) -> ModelResponse:
        names[:] = [tool.name for tool in info.function_tools]
        parts = [part for message in messages for part in message.parts]
        done = sum(part.part_kind in ("tool-return", "retry-prompt") for part in parts)
        if done < len(wanted):
            return ModelResponse(parts=[ToolCallPart(*wanted[done])])
        return ModelResponse(parts=[TextPart("done")])

    async def on_question(*_: object) -> dict[str, str]:
        return {"answer": "Ann"}

    told: list[float] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        told.append(round(progress, 2))

    changes = Changes()
    tools = MCPToolset(
        f"{url}/mcp", elicitation_handler=on_question, progress_handler=on_progress, message_handler=changes
    )
    ran = await Agent(FunctionModel(answer), toolsets=[tools]).run("go")
    kinds = ("tool-return", "retry-prompt")
    parts = [part for message in ran.all_messages() for part in message.parts if part.part_kind in kinds]
    parts, wrong = parts[: -len(WRONG)], [str(part.content) for part in parts[-len(WRONG) :]]
    pids = {str(part.content) for part in parts if part.tool_name == "who"}
    asked = [part.content["said"] for part in parts if part.tool_name == "ask"]
    async with tools:
        await tools.client.call_tool("steps", {})
        await changes.follow()
    return {"names": names, "pids": len(pids), "asked": asked, "told": told[-3:], "wrong": wrong}


async def openai_agents(url: str) -> dict[str, Any]:
    from agents.mcp import MCPServerStreamableHttp

    changes, params = Changes(), {"url": f"{url}/mcp"}
    async with MCPServerStreamableHttp(params, client_session_timeout_seconds=60, message_handler=changes) as server:
        names = [tool.name for tool in await server.list_tools()]
        pids = {(await server.call_tool("who", {})).content[0].text for _ in range(8)}
        refused = await server.call_tool("ask", {})
        wrong = [(await server.call_tool(*call)).content[0].text for call in WRONG]
        await changes.follow()
    # It cannot ask anybody, so the tool is told so.
    return {"names": names, "pids": len(pids), "asked": [] if refused.isError else ["?"], "wrong": wrong}


async def langchain(url: str) -> dict[str, Any]:
    from langchain_core.tools import ToolException
    from langchain_mcp_adapters.callbacks import Callbacks
    from langchain_mcp_adapters.client import MultiServerMCPClient
    from langchain_mcp_adapters.tools import load_mcp_tools
    from mcp.types import ElicitResult

    told: list[float] = []

    async def on_progress(progress: float, total: float | None, message: str | None, context: object) -> None:
        told.append(round(progress, 2))

    async def on_question(*_: object) -> ElicitResult:
        return ElicitResult(action="accept", content={"answer": "Ann"})

    changes = Changes()
    session_kwargs = {"message_handler": changes}
    connection: Any = {"transport": "streamable_http", "url": f"{url}/mcp", "session_kwargs": session_kwargs}
    callbacks = Callbacks(on_progress=on_progress, on_elicitation=on_question)
    client = MultiServerMCPClient({"pair": connection}, callbacks=callbacks)
    async with client.session("pair") as session:
        tools = {tool.name: tool for tool in await load_mcp_tools(session, callbacks=callbacks)}

        async def call(name: str) -> str:
            return (await tools[name].ainvoke({}))[0]["text"]

        pids = {await call("who") for _ in range(8)}
        asked = [json.loads(await call("ask"))["said"] for _ in range(4)]
        wrong = list[str]()
        for name, arguments in WRONG:
            try:
                wrong.append(f"no error: {await tools[name].ainvoke(arguments)}")
            except ToolException as error:
                wrong.append(str(error))
        await call("steps")
        await changes.follow()
    return {"names": list(tools), "pids": len(pids), "asked": asked, "told": told, "wrong": wrong}


print(json.dumps(asyncio.run(globals()[sys.argv[1]](sys.argv[2]))))
