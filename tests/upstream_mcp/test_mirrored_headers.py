"""An argument that a server wants in a header as well is sent there, whatever of its list the SDK has read."""

from __future__ import annotations

from typing import Any

import pytest

from pegboard import Catalog, ToolContext, ToolSpec, http_app
from pegboard.sources.mcp.server_settings import ServerSettings
from tests.server.doors import served
from tests.upstream_mcp.parts import running

REGION = {"type": "string", "x-mcp-header": "Region"}
SCHEMAS: dict[str, Any] = {
    "beside others": {"type": "object", "properties": {"region": REGION, "query": {"type": "string"}}},
    "alone": {"type": "object", "properties": {"region": REGION}, "required": ["region"]},
}


@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS)
@pytest.mark.parametrize("tools", [1, 250])
async def test_an_argument_is_mirrored_into_the_header_that_its_server_wants(schema: Any, tools: int) -> None:
    heard: list[str | None] = []
    upstream = Catalog("upstream")
    for number in range(tools):
        upstream.register(ToolSpec(name=f"plain_{number}", input_schema={"type": "object"}), lambda ctx, args: "")
    upstream.register(ToolSpec(name="sought", input_schema=schema), lambda ctx, args: args)
    app = http_app(upstream)
    answer = app.__call__

    class Listening(type(app)):  # type: ignore[misc] - the class of our app, whichever it is
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "http":
                heard.extend(value.decode() for name, value in scope["headers"] if name == b"mcp-param-region")
            await answer(scope, receive, send)

    app.__class__ = Listening
    async with served(app) as url:
        settings = ServerSettings(name="up", transport="http", url=f"{url}/mcp", trust="any")
        async with running(settings) as (catalog, _):
            view = catalog.view(ToolContext(user_id="ann", budget=None))
            result = await view.call("up__sought", {"region": "north"})
            assert (result.error, result.structured) == (None, {"region": "north"})
            assert len(heard) == 1
            assert heard[0] is not None
            assert "north" in heard[0] or "bm9ydGg=" in heard[0]
