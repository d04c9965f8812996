"""STD-02: nobody starts a process through a door of the server; only the operator's config on disk names commands."""

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.routing import Route

from pegboard import Catalog, http_app
from tests.server.doors import inside

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
FILLED = {"{profile}": "default", "{name}": "note", "{id}": "1-1", "{rest:path}": "sources"}
GUESSES = ("/v1/sources", "/v1/servers", "/v1/config", "/v1/sources/test", "/v1/doctor", "/config", "/mcp/config")


def paths_of(app: Any) -> list[str]:
    """Return the path of every route, filled in, and paths that other servers have for this."""
    paths = [route.path for route in app.routes if isinstance(route, Route)]
    for placeholder, value in FILLED.items():
        paths = [path.replace(placeholder, value) for path in paths]
    return [*(path for path in paths if path != "/v1/events"), *GUESSES]


def bodies(marker: Path) -> list[tuple[str, bytes]]:
    """Return requests to add a server that leaves a mark, as (content type, body)."""
    server = {"transport": "stdio", "command": "/usr/bin/touch", "args": [str(marker)]}
    entry = {"name": "mine", "type": "mcp", "mcp": server}
    calls = [
        {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"name": "note", "arguments": {"text": "a", **entry}}}
        for method in ("tools/call", "tools/register", "servers/add")
    ]
    told = [entry, server, {"text": "a", **entry}, {"tools": [entry]}, {"mcpServers": {"mine": server}}, *calls]
    yaml = f"tools: [{json.dumps(entry)}]\n".encode()
    return [("application/json", json.dumps(one).encode()) for one in told] + [("application/yaml", yaml)]


@pytest.mark.parametrize("method", METHODS)
async def test_std_02_no_request_starts_a_process(method: str, tmp_path: Path) -> None:
    catalog, marker = Catalog("shop"), tmp_path / "started"

    @catalog.tool(groups="core")
    async def note(text: str) -> str:
        """Write a note."""
        return text

    before = catalog.registry.sources.keys()
    async with inside(http_app(catalog)) as client:
        for path in paths_of(http_app(catalog)):
            for content_type, body in bodies(marker):
                answer = await _asked(client, method, path, content_type, body)
                assert answer.status_code < 500, (path, body, answer.text)
        names = [tool["name"] for tool in (await client.get("/v1/tools")).json()["tools"]]

    assert names == ["note"]
    assert catalog.registry.sources.keys() == before
    assert not marker.exists()


async def _asked(client: httpx2.AsyncClient, method: str, path: str, content_type: str, body: bytes) -> httpx2.Response:
    headers = {"content-type": content_type, "accept": "application/json, text/event-stream"}
    return await client.request(method, path, content=body, headers=headers)
