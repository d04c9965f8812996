"""Embedding: the app in somebody else's, with contexts of their own making."""

from typing import Any

import httpx2
import pytest
from mcp import Client
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from pegboard import Catalog, Profile, ToolContext, http_app
from pegboard.server.mcp import event_streams as watch
from pegboard.server.principal import Identity, Principal
from tests.server.doors import JSON_HEADERS, META, VERSION, answer_of, call, inside, names, post, served, workshop


async def home(_request: Request) -> PlainTextResponse:
    return PlainTextResponse("home")


@pytest.mark.parametrize("era", ["2026-07-28", "legacy"])
async def test_it_hangs_below_a_path_of_another_app(era: Any) -> None:
    inner = http_app(workshop()[0])
    outer = Starlette(routes=[Route("/", home), Mount("/tools", app=inner)], lifespan=inner.router.lifespan_context)
    outer.state.end_streams = inner.state.end_streams
    async with served(outer) as url:
        async with Client(f"{url}/tools/mcp/admin", mode=era) as client:
            assert "wipe" in {tool.name for tool in (await client.list_tools()).tools}
        async with httpx2.AsyncClient(base_url=url) as client:
            assert (await client.get("/")).text == "home"
            assert (await client.get("/tools/healthz")).text == "ok"


async def test_the_host_makes_the_context_of_each_request() -> None:
    catalog = Catalog()
    asked: list[Principal] = []

    @catalog.tool(groups="core")
    async def who(ctx: ToolContext) -> str:
        """Who."""
        return f"{ctx.user_id} {ctx.settings['city']}"

    def contexts(principal: Principal) -> ToolContext:
        asked.append(principal)
        return ToolContext(user_id="ann", settings={"city": "Ulm"})

    catalog.profile(Profile(name="chat", include=("core",)))
    async with inside(http_app(catalog, config=contexts)) as client:
        assert (await call(client, "who"))["result"]["content"][0]["text"] == "ann Ulm"
    assert [(principal.profile, principal.identity) for principal in asked] == [("chat", Identity())]


async def test_each_request_has_a_context_of_its_own() -> None:
    catalog = Catalog()
    seen: list[ToolContext] = []
    asked: list[str] = []

    @catalog.predicate
    def often(ctx: ToolContext) -> bool:
        asked.append(ctx.request_id)
        return True

    @catalog.tool(groups="core", available="often")
    async def keep(ctx: ToolContext) -> str:
        """Keep the context."""
        seen.append(ctx)
        return "kept"

    catalog.profile(Profile(name="chat", include=("core",)))
    async with inside(http_app(catalog)) as client:
        for _ in range(3):
            await call(client, "keep")
        assert await names(client) == ["keep"]
    assert len({ctx.request_id for ctx in seen}) == 3
    assert len({id(ctx.budget) for ctx in seen}) == 3
    assert len(asked) == len(set(asked)) == 4


async def test_it_is_ready_while_it_serves() -> None:
    app = http_app(workshop()[0])
    async with inside(app) as client:
        assert [(await client.get(path)).status_code for path in ("/healthz", "/readyz")] == [200, 200]
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8420") as client:
        assert [(await client.get(path)).status_code for path in ("/healthz", "/readyz")] == [200, 503]


async def test_names_of_ones_own_are_let_in_and_no_others() -> None:
    async with inside(http_app(workshop()[0], allowed_hosts=["tools.example.com"])) as client:
        own = {"host": "tools.example.com", "origin": "https://tools.example.com"}
        assert (await post(client, "tools/list", headers=own)).status_code == 200
        assert (await post(client, "tools/list")).status_code == 421


async def test_a_long_silent_call_keeps_its_connection_warm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "STREAM_PING_S", 0.1)
    catalog, seen = workshop()
    async with served(http_app(catalog)) as url, httpx2.AsyncClient(base_url=url) as client:
        params = {"name": "wait", "arguments": {}}
        async with client.stream("POST", "/mcp", **request(params)) as response:
            assert response.headers["content-type"] == "text/event-stream"
            lines = response.aiter_lines()
            assert await anext(lines) == ": ping"
            (call_id,) = catalog.executor.in_flight
            catalog.cancel(call_id)
            rest = [line async for line in lines if line.startswith("data:")]
    assert "cancelled" in rest[-1]
    assert seen.results == [("wait", "cancelled")]


def request(params: dict[str, Any]) -> dict[str, Any]:
    heads = {**JSON_HEADERS, "mcp-protocol-version": VERSION, "mcp-method": "tools/call", "mcp-name": params["name"]}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {**params, "_meta": META}}
    return {"headers": heads, "json": message}


async def test_an_answer_in_a_stream_is_the_same_answer() -> None:
    async with inside(http_app(workshop()[0])) as client:
        plain = answer_of(await post(client, "tools/call", {"name": "count", "arguments": {"to": 2}}, request_id=5))
        asked = {"progressToken": "t"}
        other = answer_of(
            await post(client, "tools/call", {"name": "count", "arguments": {"to": 2}}, meta=asked, request_id=5)
        )
        assert plain == other


async def test_an_app_that_was_shut_down_serves_again() -> None:
    catalog, seen = workshop()

    @catalog.tool(groups="core")
    def in_a_thread() -> str:
        """Run in a worker thread."""
        return "done"

    app = http_app(catalog)
    for _ in range(2):
        async with inside(app) as client:
            assert (await client.get("/readyz")).status_code == 200
            assert (await call(client, "add", {"a": 1, "b": 1}))["result"]["structuredContent"] == 2
            assert (await call(client, "in_a_thread"))["result"]["content"][0]["text"] == "done"
            async with client.stream("POST", "/v1/tools/in_a_thread/call") as response:
                assert response.status_code == 200
    assert seen.runs == ["add", "add"]


async def test_the_limit_store_is_closed_with_the_catalog() -> None:
    class Store:
        closed = 0

        def wait_s(self, hits: Any, *, charge: bool) -> float:
            return 0.0

        async def close(self) -> None:
            self.closed += 1

    store = Store()
    async with inside(http_app(Catalog(limit_store=store))):
        assert store.closed == 0
    assert store.closed == 1
