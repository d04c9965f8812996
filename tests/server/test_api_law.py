"""The law through plain HTTP: list, show, search, document, `why` and call agree for two callers of random catalogs."""

import asyncio
import json
import logging
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from starlette.applications import Starlette

from pegboard import Catalog, Policy, Profile, ToolContext, http_app
from pegboard.server.principal import Principal
from tests.properties.test_law import ASYNC, GROUPS, SYNC, World, catalog_of, context_of, every_name, worlds
from tests.server.asgi import send_raw
from tests.server.http_callers import USER, known_callers
from tests.sizes import examples


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    # Thousands of failing predicates and builders are meant here.
    with caplog.at_level(logging.CRITICAL, logger="pegboard"):
        yield


class Caller:
    """One caller of the app."""

    def __init__(self, app: Any, user: str, profile: str) -> None:
        self._app, self.user, self.profile = app, user, profile

    async def ask(self, method: str, path: str, **query: object) -> tuple[int, Any]:
        heads = [(b"host", b"127.0.0.1:8420"), (b"x-user", self.user.encode())]
        said = "&".join(f"{name}={quote(str(value))}" for name, value in {"profile": self.profile, **query}.items())
        status, _, body = await send_raw(self._app, b"", heads, path=path, method=method, query=said.encode())
        return status, json.loads(body)


async def assert_law(world: World, catalog: Catalog) -> None:
    """The one caller has the rights of the world, the other may use nothing of `main` beside."""

    def context(user: str | None) -> ToolContext:
        ctx = context_of(world)
        return ctx if user == "ann" else ctx.child(policy=Policy(deny=("main.*",)))

    def contexts(_principal: Principal) -> ToolContext:
        return context(USER.get())

    app: Starlette = http_app(catalog, config=contexts)
    behind = known_callers(app)
    async with app.router.lifespan_context(app):
        for user in ("ann", "bob"):
            for profile in catalog.registry.profiles:
                await assert_law_of(catalog, Caller(behind, user, profile), context(user))


async def assert_law_of(catalog: Catalog, caller: Caller, ctx: ToolContext) -> None:
    view = await catalog.aview(ctx, profile=caller.profile)
    entries = {name: entry for entry in view.tools() for name in entry.names}
    wire_names = [entry.wire_name for entry in view.tools()]
    _, page = await caller.ask("GET", "/v1/tools", limit=1000)
    assert [tool["name"] for tool in page["tools"]] == wire_names
    _, drawn = await caller.ask("GET", "/openapi.json")
    assert [path for path in drawn["paths"] if path.endswith("/call")] == [f"/v1/tools/{n}/call" for n in wire_names]
    _, found = await caller.ask("GET", "/v1/search", q="read write send list", limit=50)
    assert {hit["name"] for hit in found["hits"]} <= set(wire_names)
    for name in every_name(catalog):
        shown, tool = await caller.ask("GET", f"/v1/tools/{name}")
        why, decision = await caller.ask("GET", f"/v1/tools/{name}/why")
        called, told = await caller.ask("POST", f"/v1/tools/{name}/call")
        visible = name in entries
        agree = (shown == 200, why == 200 and decision["visible"], told.get("kind") != "not_found", called != 404)
        assert agree == (visible,) * 4, (caller.user, caller.profile, name)
        if visible:
            assert tool["inputSchema"] == entries[name].spec.input_schema
        else:
            assert (shown, called, decision["code"]) == (404, 404, "unknown")
            assert tool["detail"] == told["detail"] == decision["reason"]


@settings(
    max_examples=examples(80, few=10), suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(world=worlds(SYNC + ASYNC))
def test_every_path_agrees_for_both_callers(world: World) -> None:
    catalog, _ = catalog_of(world)
    catalog.profile(Profile(name="p", include=world.include, policy=world.policy))
    catalog.profile(Profile(name="q", include=GROUPS, policy=Policy(deny=("*write*",))))
    asyncio.run(assert_law(world, catalog))
