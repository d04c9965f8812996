"""Lists: the bytes of a thousand tools, for a caller who was never here before.

Ours is filtered: a new context, a profile with a policy, and a predicate on every tenth tool. The
peers filter nothing. Then the same tools as one provider wants them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import mcp_types
import orjson

from bench import peers, tools
from bench.measure import THOROUGH, Effort, Row, awaited, compared, looped


def run(effort: Effort = THOROUGH) -> list[Row]:
    """Measure the lists for MCP and for one provider."""
    return mcp_lists(effort) + provider_lists(effort)


def written(listed: list[mcp_types.Tool]) -> bytes:
    return mcp_types.ListToolsResult(tools=listed).model_dump_json(by_alias=True, exclude_none=True).encode()


def mcp_lists(effort: Effort) -> list[Row]:
    drawn = tools.definitions()
    catalog = tools.catalog()

    def pegboard() -> bytes:
        return catalog.view(tools.caller(), profile="all").export_bytes("mcp")

    def mcp() -> bytes:
        # As MCPServer.list_tools does: a model a tool, for every list.
        return written(
            [
                mcp_types.Tool(name=tool["name"], description=tool["description"], input_schema=tool["inputSchema"])
                for tool in drawn
            ]
        )

    floor, ours = "mcp ListToolsResult, 1,000 tools", "pegboard export_bytes('mcp'), filtered, new caller"
    assert len(orjson.loads(mcp())["tools"]) == len(orjson.loads(pegboard())) == tools.COUNT
    with asyncio.Runner() as runner:
        ways = {floor: looped(mcp, effort.times(5)), ours: looped(pegboard, effort.times(300))}
        if peers.HAS_FASTMCP:
            ways["fastmcp FastMCP.list_tools"] = awaited(fastmcp_list(drawn), effort.times(2), runner)
        return compared(ways, effort, floor=floor, held={ours: (0.03, 0.015)})


def fastmcp_list(drawn: list[dict]) -> Callable[[], Awaitable[bytes]]:
    async def nothing() -> str:
        return ""

    server = peers.load("fastmcp").FastMCP("bench")
    declare = peers.load("fastmcp.tools").FunctionTool
    for tool in drawn:
        given = {"name": tool["name"], "description": tool["description"], "parameters": tool["inputSchema"]}
        server.add_tool(declare(**given, fn=nothing))

    async def listed() -> bytes:
        return written([tool.to_mcp_tool() for tool in await server.list_tools()])

    return listed


def provider_lists(effort: Effort) -> list[Row]:
    catalog = tools.catalog()
    drawn = catalog.view(tools.caller(), profile="all").export("openai")

    def pegboard() -> bytes:
        return catalog.view(tools.caller(), profile="all").export_bytes("openai")

    floor, ours = "orjson.dumps of the same", "pegboard export_bytes('openai'), filtered, new caller"
    assert pegboard() == orjson.dumps(drawn)
    ways = {floor: looped(lambda: orjson.dumps(drawn), effort.times(100)), ours: looped(pegboard, effort.times(300))}
    return compared(ways, effort, floor=floor, held={ours: (0.5, 0.1)})
