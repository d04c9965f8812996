"""Answers of services that miss their own schema, from an API, a webhook and a server to clients that check them."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.client import Client

from pegboard import Catalog, ToolContext, http_app
from tests.builtin.web import Asked, Site, as_json
from tests.config.project import Project
from tests.server.doors import served

SDK = Path(__file__).parents[1] / "upstream_mcp/node_modules/@modelcontextprotocol/sdk"
CARD: Any = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "made": {"type": "string", "format": "date-time"},
        "site": {"type": ["string", "null"], "format": "uri"},
        "cvc": {"type": "string", "writeOnly": True},
        "lines": {
            "type": "array",
            "items": {"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False},
        },
    },
    "required": ["id", "cvc"],
    "additionalProperties": False,
}
ANSWERS: dict[str, Any] = {
    "right": {"id": 1, "cvc": "1", "made": "2026-01-02T03:04:05Z"},
    "format": {"id": 1, "cvc": "1", "made": "2026-01-02 03:04"},
    "address": {"id": 1, "cvc": "1", "site": "not an address"},
    "extra": {"id": 1, "cvc": "1", "more": True},
    "inner": {"id": 1, "cvc": "1", "lines": [{"n": 1, "m": 2}]},
    "writeOnly": {"id": 1},
    "kind": {"id": 1.5, "cvc": "1"},
}
BROKEN: dict[str, Any] = {"type": {"id": "1", "cvc": "1"}, "shape": {"id": 1, "cvc": "1", "lines": {}}}
NAMES = ["hook", "api__card", "up__card"]
SLIP = {"slip": {"type": "string", "required": True}}
SERVER = """
import json, sys
ANSWERS, CARD = json.loads(sys.argv[1]), json.loads(sys.argv[2])
TAKES = {"type": "object", "properties": {"slip": {"type": "string"}}}
TOOL = {"name": "card", "inputSchema": TAKES, "outputSchema": CARD}
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked: continue
    reply = {"jsonrpc": "2.0", "id": asked["id"]}
    if asked["method"] == "initialize":
        said = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}}
        said["serverInfo"] = {"name": "e", "version": "1"}
    elif asked["method"] == "tools/list":
        said = {"tools": [TOOL]}
    elif asked["method"] == "tools/call":
        answer = ANSWERS[asked["params"]["arguments"]["slip"]]
        said = {"content": [{"type": "text", "text": json.dumps(answer)}], "structuredContent": answer}
    else:
        said = None
    reply |= {"error": {"code": -32601, "message": "no"}} if said is None else {"result": said}
    print(json.dumps(reply), flush=True)
"""
SCRIPT = """
const [sdk, url, slips] = process.argv.slice(1);
const { Client } = await import(`${sdk}/dist/esm/client/index.js`);
const { StreamableHTTPClientTransport } = await import(`${sdk}/dist/esm/client/streamableHttp.js`);
const client = new Client({ name: "t", version: "1" });
await client.connect(new StreamableHTTPClientTransport(new URL(url)));
const { tools } = await client.listTools();
const found = {};
for (const { name } of tools) for (const slip of JSON.parse(slips)) {
  try { found[`${name} ${slip}`] = (await client.callTool({ name, arguments: { slip } })).structuredContent; }
  catch (error) { found[`${name} ${slip}`] = String(error); }
}
console.log(JSON.stringify(found));
await client.close();
"""


def answers(asked: Asked) -> bytes:
    return as_json({**ANSWERS, **BROKEN}[asked.query["slip"]])


@asynccontextmanager
async def declared(folder: Path, check: str | None) -> AsyncGenerator[Catalog]:
    """Give a started catalog with a webhook, an API and a server that give the same answers."""
    slip = {"name": "slip", "in": "query", "required": True, "schema": {"type": "string"}}
    responses = {"200": {"description": "A card", "content": {"application/json": {"schema": CARD}}}}
    operation = {"operationId": "card", "parameters": [slip], "responses": responses}
    api = {"openapi": "3.1.0", "info": {"title": "c", "version": "1"}, "paths": {"/card": {"get": operation}}}
    more = {} if check is None else {"output_check": check}
    async with Site(answers).server() as server:
        hook = {"url": f"{server.url}/hook", "method": "GET"}
        words = [json.dumps({**ANSWERS, **BROKEN}), json.dumps(CARD)]
        mcp = {"transport": "stdio", "command": sys.executable, "args": ["-Sc", SERVER, *words], "trust": "any"}
        tools: list[Any] = [
            {"name": "hook", "type": "webhook", "description": "x", "parameters": SLIP, "output": CARD,
             "webhook": hook},
            {"name": "api", "type": "openapi",
             "openapi": {"spec": "api.json", "base_url": server.url}},
            {"name": "up", "type": "mcp", "mcp": mcp},
        ]  # fmt: skip
        Project(folder).file("api.json", json.dumps(api))
        catalog = Project(folder).write(json.dumps({"tools": [{**tool, **more} for tool in tools]})).catalog()
        await catalog.start()
        try:
            for source in catalog.registry.sources.values():
                await source.listed()  # type: ignore[attr-defined] - both list
            yield catalog
        finally:
            await catalog.close(grace_s=0)


def is_slip(name: str, answer: str) -> bool:
    """Tell whether an answer misses the schema: that of an API's response has no write-only members to begin with."""
    return answer != ("writeOnly" if name == "api__card" else "right")


@pytest.mark.parametrize(("check", "names"), [(None, NAMES[:2]), ("relax", NAMES)])
async def test_a_slip_of_a_foreign_answer_reaches_the_clients_of_both_sdks_which_hold_it_against_its_schema(
    tmp_path: Path, check: str | None, names: list[str]
) -> None:
    async with declared(tmp_path, check) as catalog, served(http_app(catalog)) as url:
        async with Client(f"{url}/mcp", cache=None) as client:
            assert sorted(tool.name for tool in (await client.list_tools()).tools) == sorted(NAMES)
            for name in names:
                for slip, answer in ANSWERS.items():
                    result = await client.call_tool(name, {"slip": slip})
                    assert (result.structured_content, result.is_error) == (answer, False), (name, slip)
                    assert bool("output_mismatch" in str(result.meta)) is is_slip(name, slip), (name, slip)
                    assert "not an argument" not in str(result.meta)
                for slip in BROKEN:
                    result = await client.call_tool(name, {"slip": slip})
                    assert result.is_error, (name, slip)
                    assert "output schema" in str(result.content)
        if not SDK.is_dir():
            pytest.skip("`make setup` brings the other SDK")
        found = await in_node(url)
    expected = {f"{name} {slip}": answer for name in names for slip, answer in ANSWERS.items()}
    assert {key: found[key] for key in expected} == expected


async def test_a_tool_of_a_server_is_listed_with_the_schema_that_the_server_wrote(tmp_path: Path) -> None:
    async with declared(tmp_path, None) as catalog, served(http_app(catalog)) as url:
        async with Client(f"{url}/mcp", cache=None) as client:
            schemas = {tool.name: tool.output_schema for tool in (await client.list_tools()).tools}
            assert schemas["up__card"] == CARD
            assert (await client.call_tool("up__card", {"slip": "right"})).structured_content == ANSWERS["right"]
            # A client that checks refuses a slip, as it does without Pegboard; all others have it with a warning.
            with pytest.raises(RuntimeError, match="Invalid structured content"):
                await client.call_tool("up__card", {"slip": "extra"})
        answer = await catalog.view(ToolContext()).call("up__card", {"slip": "extra"})
        assert (answer.structured, "output_mismatch" in answer.meta) == (ANSWERS["extra"], True)


async def in_node(url: str) -> Any:
    """Return what the TypeScript client has of each call."""
    words = ("--input-type=module", "-e", SCRIPT, str(SDK), f"{url}/mcp", json.dumps(list(ANSWERS)))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    node = await asyncio.create_subprocess_exec(
        "node", *words, stdout=asyncio.subprocess.PIPE, env={**os.environ, "PATH": path}
    )
    out, _ = await asyncio.wait_for(node.communicate(), 60)
    return json.loads(out)


async def test_a_strict_setting_refuses_each_slip_of_a_foreign_answer_after_the_call(tmp_path: Path) -> None:
    async with declared(tmp_path, "strict") as catalog, served(http_app(catalog)) as url:
        async with Client(f"{url}/mcp", cache=None) as client:
            schemas = {tool.name: tool.output_schema for tool in (await client.list_tools()).tools}
            for name in NAMES:
                assert (schemas[name] or {}).get("additionalProperties") is False
                for slip in ANSWERS:
                    result = await client.call_tool(name, {"slip": slip})
                    assert result.is_error is is_slip(name, slip), (name, slip)
                    assert not result.is_error or "breaks its own output schema" in str(result.content)
