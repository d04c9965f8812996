"""The law through MCP: what a profile lists is what it can call and what `why` calls visible, over random catalogs."""

import asyncio
import logging
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from starlette.applications import Starlette

from pegboard import Catalog, Policy, Profile, View, http_app
from pegboard.server.principal import Principal
from tests.properties.test_law import ASYNC, GROUPS, SYNC, World, catalog_of, context_of, every_name, worlds
from tests.server.asgi import ask
from tests.sizes import examples

UNKNOWN = -32602


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    # Thousands of failing predicates and builders are meant here.
    with caplog.at_level(logging.CRITICAL, logger="pegboard"):
        yield


async def assert_law(world: World, catalog: Catalog, meta: dict[str, object]) -> None:
    """`meta` decides whether our own door or the SDK answers."""

    def contexts(_principal: Principal) -> object:
        return context_of(world)

    app = http_app(catalog, config=contexts)
    async with app.router.lifespan_context(app):
        for profile in catalog.registry.profiles:
            await assert_law_of(catalog, app, profile, await catalog.aview(context_of(world), profile=profile), meta)


async def assert_law_of(catalog: Catalog, app: Starlette, profile: str, view: View, meta: dict[str, object]) -> None:
    path = f"/mcp/{profile}"
    listed = (await ask(app, "tools/list", {}, path=path, meta=meta))["result"]["tools"]
    assert [tool["name"] for tool in listed] == [entry.wire_name for entry in view.tools()]
    assert [tool["inputSchema"] for tool in listed] == [entry.spec.input_schema for entry in view.tools()]
    names = {name for entry in view.tools() for name in entry.names}
    for name in every_name(catalog):
        answer = await ask(app, "tools/call", {"name": name, "arguments": {}}, path=path, meta=meta)
        called = answer.get("error", {}).get("code") != UNKNOWN
        visible = (await view.awhy(name)).visible
        assert (called, name in names) == (visible, visible), (name, answer)


@settings(
    max_examples=examples(1_000, few=25),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(world=worlds(SYNC + ASYNC))
def test_what_is_listed_is_what_is_called_and_what_why_calls_visible(world: World) -> None:
    catalog, _ = catalog_of(world)
    catalog.profile(Profile(name="p", include=world.include, policy=world.policy))
    catalog.profile(Profile(name="q", include=GROUPS, policy=Policy(deny=("*write*",))))
    asyncio.run(assert_law(world, catalog, {}))


@settings(max_examples=examples(50), suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(world=worlds(SYNC + ASYNC))
def test_the_same_holds_where_the_sdk_answers(world: World) -> None:
    catalog, _ = catalog_of(world)
    catalog.profile(Profile(name="p", include=world.include, policy=world.policy))
    asyncio.run(assert_law(world, catalog, {"progressToken": 1}))
