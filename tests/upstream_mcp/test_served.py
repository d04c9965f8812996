"""The reference servers behind `pegboard serve`: an MCP client sees all their tools, over stdio and over HTTP."""

import os
import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from mcp.client import Client, ClientRequestContext
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp_types import ElicitRequestParams, ElicitResult, TextContent

from pegboard import http_app
from pegboard.config import load_catalog
from tests import forking
from tests.server.doors import served
from tests.upstream_mcp.test_reference_servers import BIN

EXAMPLE = Path(__file__).parents[2] / "examples" / "reference_servers"
SERVERS = {"fs": ("filesystem", "data"), "memory": ("memory",), "everything": ("everything", "stdio")}
pytestmark = pytest.mark.skipif(not BIN.is_dir(), reason="`make setup` brings the reference servers")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{BIN}{os.pathsep}{os.environ['PATH']}")
    copy = tmp_path / "example"
    shutil.copytree(EXAMPLE, copy)
    return copy


@asynccontextmanager
async def over_stdio(folder: Path) -> AsyncGenerator[Client]:
    command, *words = forking.started("pegboard", "serve", "--stdio", "--profile", "all")
    parameters = StdioServerParameters(command=command, args=words, cwd=folder, env=dict(os.environ))
    # What is listed while the servers connect is not to be kept.
    async with Client(stdio_client(parameters), cache=None) as client:
        yield client


@asynccontextmanager
async def over_http(folder: Path) -> AsyncGenerator[Client]:
    catalog, _ = load_catalog(folder / "pegboard.yaml", env={})
    async with served(http_app(catalog)) as url, Client(f"{url}/mcp/all", cache=None) as client:
        for source in catalog.registry.sources.values():
            await source.listed()  # type: ignore[attr-defined]
        yield client


async def decline(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
    """Answer a question; what matters is that the client can, since a server may offer more to such clients."""
    return ElicitResult(action="decline")


async def own_tools(folder: Path, name: str, *args: str) -> set[str]:
    parameters = StdioServerParameters(command=str(BIN / f"mcp-server-{name}"), args=list(args), cwd=folder)
    async with Client(stdio_client(parameters), elicitation_callback=decline) as client:
        return {tool.name for tool in (await client.list_tools()).tools}


async def listed(client: Client) -> set[str]:
    """Return the names of the tools once every server is well."""
    while True:
        listing = await client.list_tools()
        if "pegboard/sources" not in (listing.meta or {}):
            return {tool.name for tool in listing.tools}


@pytest.mark.parametrize("door", [over_stdio, over_http])
async def test_all_their_tools_are_offered_and_work(folder: Path, door: object) -> None:
    expected = {
        f"{ours}__{tool}" for ours, (name, *args) in SERVERS.items() for tool in await own_tools(folder, name, *args)
    }
    async with door(folder) as client:  # type: ignore[operator]
        assert await listed(client) == expected
        note = await client.call_tool("fs__read_text_file", {"path": str(folder / "data" / "note.txt")})
        assert isinstance(note.content[0], TextContent)
        assert note.content[0].text == "Water the plants.\n"
        ann = {"name": "Ann", "entityType": "person", "observations": ["likes tea"]}
        assert not (await client.call_tool("memory__create_entities", {"entities": [ann]})).is_error
        assert "Ann" in str((await client.call_tool("memory__search_nodes", {"query": "tea"})).structured_content)
        assert "5" in str((await client.call_tool("everything__get-sum", {"a": 2, "b": 3})).content)
        refused = await client.call_tool("everything__get-sum", {"a": "2", "b": 3})
        assert refused.is_error
        assert {prompt.name for prompt in (await client.list_prompts()).prompts} > {"everything__simple-prompt"}
