"""Integers of more than 64 bits travel through every door, in arguments and results, with every digit."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from pydantic import BaseModel

from pegboard import Catalog, Profile, TextContent, Tool, ToolContext, ToolResult, http_app
from tests.discovery.calling import say
from tests.server.doors import JSON_HEADERS, answer_of, inside, post
from tests.timing import within
from tests.upstream_mcp.parts import on_stdio, running, view_of
from tests.upstream_mcp.test_foreign_metadata import TELLING, telling

LONG = [2**63, 2**64, -(2**63) - 1, 10**40, -(3**800)]


class Pair(BaseModel):
    value: int
    more: list[int] = []


class TakeField(Tool, groups="core"):
    """Take a field."""

    value: int

    async def perform(self, ctx: ToolContext) -> dict[str, int]:
        return {"value": self.value}


def numbers() -> Catalog:
    catalog = Catalog("numbers")

    @catalog.tool(groups="core")
    async def number(value: int) -> dict[str, int]:
        """Give it back."""
        return {"value": value}

    @catalog.tool(groups="core")
    def pair(pair: Pair) -> Pair:
        """Give it back as a model."""
        return Pair(value=pair.value, more=[pair.value])

    @catalog.tool(groups="core", repair=True)
    async def mended(value: int, many: list[int]) -> dict[str, Any]:
        """Give them back, whatever a model made of the list."""
        return {"value": value, "many": many}

    @catalog.tool(groups="core")
    async def block(value: int) -> ToolResult:
        """Give it beside a text."""
        return ToolResult((TextContent("here", meta={"example.com/n": value}),), meta={"n": value})

    catalog.register(TakeField)
    catalog.profile(Profile(name="all", exposure="two_tool"))
    return catalog


# By tool: arguments with a number in them, and the structured result to expect.
CALLS: dict[str, tuple[Any, Any]] = {
    "number": (lambda n: {"value": n}, lambda n: {"value": n}),
    "pair": (lambda n: {"pair": {"value": n}}, lambda n: {"value": n, "more": [n]}),
    "mended": (lambda n: {"value": str(n), "many": n}, lambda n: {"value": n, "many": [n]}),
    "take_field": (lambda n: {"value": n}, lambda n: {"value": n}),
}


async def by_python(catalog: Catalog, tool: str, arguments: Any) -> Any:
    return (await catalog.view(ToolContext(budget=None)).call(tool, arguments)).structured


async def by_text(catalog: Catalog, tool: str, arguments: Any) -> Any:
    result = await catalog.view(ToolContext(budget=None)).call(tool, json.dumps(arguments).encode())
    return json.loads(result.text)


@asynccontextmanager
async def client_of(catalog: Catalog) -> AsyncGenerator[httpx2.AsyncClient]:
    async with inside(http_app(catalog)) as client:
        yield client


async def by_mcp(catalog: Catalog, tool: str, arguments: Any) -> Any:
    async with client_of(catalog) as client:
        answered = answer_of(await post(client, "tools/call", {"name": tool, "arguments": arguments}))
        return answered["result"]["structuredContent"]


async def by_session(catalog: Catalog, tool: str, arguments: Any) -> Any:
    async with client_of(catalog) as client:
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        begin = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
        began = await client.post("/mcp", headers=JSON_HEADERS, content=json.dumps(begin))
        headers = {**JSON_HEADERS, "mcp-session-id": began.headers["mcp-session-id"]}
        ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        await client.post("/mcp", headers=headers, content=json.dumps(ready))
        params = {"name": tool, "arguments": arguments, "_meta": {"progressToken": 1}}
        sent = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}
        answered = answer_of(await client.post("/mcp", headers=headers, content=json.dumps(sent)))
        return answered["result"]["structuredContent"]


async def by_http(catalog: Catalog, tool: str, arguments: Any) -> Any:
    async with client_of(catalog) as client:
        headers = {**JSON_HEADERS, "accept": "application/json"}
        told = await client.post(f"/v1/tools/{tool}/call", headers=headers, content=json.dumps(arguments))
        return told.json()["structuredContent"]


async def by_events(catalog: Catalog, tool: str, arguments: Any) -> Any:
    async with client_of(catalog) as client:
        heads = {"accept": "text/event-stream", "content-type": "application/json"}
        told = await client.post(f"/v1/tools/{tool}/call", headers=heads, content=json.dumps(arguments))
        return json.loads(told.text.rpartition("data: ")[2])["structuredContent"]


async def by_batch(catalog: Catalog, tool: str, arguments: Any) -> Any:
    result = await say(catalog, "useTools", calls=[{"agent": "main", "tool": tool, "params": arguments}])
    return result["data"]["results"][0]["data"]


DOORS = [by_python, by_text, by_mcp, by_session, by_http, by_events, by_batch]


@pytest.mark.parametrize("door", DOORS)
async def test_an_integer_travels_with_every_digit_through(door: Any) -> None:
    catalog = numbers()
    for tool, (arguments, expected) in CALLS.items():
        for number in LONG:
            assert await door(catalog, tool, arguments(number)) == expected(number)


async def test_an_integer_beside_a_text_travels_too() -> None:
    result = await numbers().view(ToolContext(budget=None)).call("block", {"value": 2**70})
    assert not result.is_error
    assert result.content[0].meta == {"example.com/n": 2**70}
    async with client_of(numbers()) as client:
        answered = answer_of(await post(client, "tools/call", {"name": "block", "arguments": {"value": 2**70}}))
        assert answered["result"]["content"][0]["_meta"] == {"example.com/n": 2**70}


async def test_an_integer_travels_to_an_upstream_server_and_back(tmp_path: Path) -> None:
    tool = {"name": "n", "inputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}}}
    result = {
        "content": [{"type": "text", "text": "t"}],
        "structuredContent": {"n": 2**70, "rows": [-(10**30)]},
    }
    file = telling(tmp_path, {"tools": [tool], "result": result})
    async with running(on_stdio(TELLING, str(file), trust="any")) as (catalog, _):
        answered = await view_of(catalog).call("up__n", {"n": 2**80})
        assert answered.structured == result["structuredContent"]
        async with client_of(catalog) as client:
            told = answer_of(await post(client, "tools/call", {"name": "up__n", "arguments": {"n": 2**80}}))
            assert told["result"]["structuredContent"] == result["structuredContent"]


@pytest.mark.parametrize("where", ["first", "last"])
async def test_an_answer_with_a_longer_one_than_is_read_ends_the_call_at_once(tmp_path: Path, where: str) -> None:
    told = {"tools": [{"name": "n", "inputSchema": {"type": "object"}}], "result": {"content": [], "n": 10**1_500}}
    file = telling(tmp_path, told)
    async with running(on_stdio(TELLING, str(file), f"id-{where}", trust="any")) as (catalog, _):
        with within(1.0):
            answered = await view_of(catalog).call("up__n", {})
        assert answered.error is not None
        assert answered.error.kind == "protocol_error"
        file.write_text(json.dumps(told | {"result": {"content": [{"type": "text", "text": "well"}]}}))
        assert (await view_of(catalog).call("up__n", {})).text == "well"
