"""Calls: one guarded call in this process, against what any call must do, and against the servers of the peers.

The tool has three parameters and an output schema. Ours also has one rate limit, one before- and one
after-hook and one observer; the peers have none of these. The floor reads the arguments, validates
them, calls the function and writes its value. The output schema is given as it is; where it is drawn
from a TypedDict, pydantic also turns the value into JSON, with us as with the peers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import jsonschema_rs
import orjson
from mcp.server.mcpserver import MCPServer
from typing_extensions import TypedDict

from bench import peers
from bench.measure import THOROUGH, Effort, Row, awaited, compared
from pegboard import Catalog, Event, RateLimit, ToolContext, View

ARGUMENTS = b'{"a": 1, "b": 2, "text": "hey"}'
INPUT = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}, "text": {"type": "string", "default": "x"}},
    "required": ["a", "b"],
}
OUTPUT = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


class Sum(TypedDict):
    """What the tool gives."""

    n: int


async def add(a: int, b: int, text: str = "x") -> Sum:
    """Add two numbers."""
    return {"n": a + b}


class Silent:
    """An observer that wants every event and does nothing with it."""

    def on_tool_call(self, event: Event) -> None: ...

    def on_tool_result(self, event: Event) -> None: ...


def guarded_view(output: object = OUTPUT) -> View:
    catalog = Catalog()
    catalog.tool(output=output, rate_limit=RateLimit(max_calls=10**9, window_s=0.01))(add)
    catalog.before("add")(lambda call: None)
    catalog.after("add")(lambda call, result: None)
    catalog.observe(Silent())
    # Without a budget, since one request makes all these calls.
    return catalog.view(ToolContext(user_id="ann", budget=None))


def run(effort: Effort = THOROUGH) -> list[Row]:
    """Measure one call in each of the ways."""
    validator = jsonschema_rs.validator_for(INPUT)
    view, typed = guarded_view(), guarded_view(Sum)
    sdk = MCPServer("bench")
    sdk.add_tool(add)

    async def floor() -> bytes:
        arguments = orjson.loads(ARGUMENTS)
        validator.validate(arguments)
        return orjson.dumps(await add(**arguments))

    async def pegboard() -> object:
        return await view.call("add", orjson.loads(ARGUMENTS))

    async def pegboard_typed() -> object:
        return await typed.call("add", orjson.loads(ARGUMENTS))

    async def mcp() -> object:
        return await sdk.call_tool("add", orjson.loads(ARGUMENTS))

    with asyncio.Runner() as runner:
        ways = {
            "loads, validate, call, dumps": awaited(floor, effort.times(5_000), runner),
            "pegboard view.call": awaited(pegboard, effort.times(1_000), runner),
            "pegboard view.call, output a TypedDict": awaited(pegboard_typed, effort.times(1_000), runner),
            "mcp MCPServer.call_tool": awaited(mcp, effort.times(300), runner),
        }
        if peers.HAS_FASTMCP:
            ways["fastmcp FastMCP.call_tool"] = awaited(fastmcp_call(), effort.times(100), runner)
        return compared(ways, effort, floor="loads, validate, call, dumps", held={"pegboard view.call": (16, 9)})


def fastmcp_call() -> Callable[[], Awaitable[object]]:
    server = peers.load("fastmcp").FastMCP("bench")
    server.tool(add)
    return lambda: server.call_tool("add", orjson.loads(ARGUMENTS))
