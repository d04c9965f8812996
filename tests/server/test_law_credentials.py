"""The law with two credentials, over MCP and plain HTTP: each lists what it can call and `why` calls visible to it."""

import asyncio
import json
import logging
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pegboard import Catalog, Policy, Profile, ToolContext, http_app
from pegboard.auth.keys import KeyStore
from pegboard.auth.rules import IdentityRules
from pegboard.model.record import replace
from pegboard.server.principal import Principal
from tests.auth.parts import rule
from tests.properties.test_law import ASYNC, GROUPS, SYNC, World, catalog_of, context_of, every_name, worlds
from tests.server.asgi import send_raw
from tests.server.doors import JSON_HEADERS, META, VERSION
from tests.sizes import examples

UNKNOWN = -32602
PROFILES = ("p", "q", "r")
Granted = dict[str, tuple[tuple[str, ...], tuple[str, ...]]]
"""roles and profiles of each user"""
USERS = ("ann", "bob")


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.CRITICAL, logger="pegboard"):
        yield


@pytest.fixture(name="keys", scope="module")
def _keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[KeyStore, dict[str, str]]:
    store = KeyStore(tmp_path_factory.mktemp("keys") / "keys.db")
    return store, {user: store.add(user)[0] for user in USERS}


def declare(world: World, granted: Granted, store: KeyStore) -> Catalog:
    """Return a catalog of the world, with tools beside it that only some callers see, and a rule for each user."""
    catalog, _ = catalog_of(world)
    catalog.predicate(name="is_operator")(lambda ctx: "operator" in ctx.roles)
    catalog.predicate(name="is_ann")(lambda ctx: ctx.user_id == "ann")
    for number, asked in enumerate(("is_operator", "is_ann", {"not": "is_ann"}, {"all": ["is_operator", "is_ann"]})):
        catalog.tool(name=f"personal_{number}", groups=GROUPS[number % len(GROUPS)], available=asked)(lambda: "yes")
    catalog.profile(Profile(name="p", include=world.include, policy=world.policy))
    catalog.profile(Profile(name="q", include=GROUPS, policy=Policy(deny=("*write*",))))
    catalog.profile(Profile(name="r", include=GROUPS))
    rules = tuple(
        rule(key=user, user=user, roles=roles, profiles=profiles)
        for user, (roles, profiles) in granted.items()
        if profiles
    )
    catalog.identity = IdentityRules(key_store=store.path, map=rules)
    return catalog


async def ask(app: Any, key: str, path: str, method: str, params: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    sent = {**params, "_meta": META}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": sent}).encode()
    heads = {**JSON_HEADERS, "host": "127.0.0.1:8420", "mcp-protocol-version": VERSION, "mcp-method": method,
             "authorization": f"Bearer {key}"}  # fmt: skip
    if "name" in params:
        heads["mcp-name"] = params["name"]
    status, _, answer = await send_raw(app, body, [(k.encode(), v.encode()) for k, v in heads.items()], path=path)
    return status, json.loads(answer)


async def look(app: Any, key: str, method: str, path: str, **query: str) -> tuple[int, dict[str, Any]]:
    """Ask over plain HTTP."""
    heads = [(b"host", b"127.0.0.1:8420"), (b"authorization", f"Bearer {key}".encode())]
    status, _, answer = await send_raw(app, b"", heads, path=path, method=method, query=urlencode(query).encode())
    return status, json.loads(answer)


async def assert_law_over_http(
    app: Any, key: str, profile: str, *, is_operator: bool, visible: dict[str, bool]
) -> None:
    """A credential lists, is shown, is told of and can call the same tools through plain HTTP."""
    listed = {
        tool["name"] for tool in (await look(app, key, "GET", "/v1/tools", profile=profile, limit="1000"))[1]["tools"]
    }
    drawn = (await look(app, key, "GET", "/openapi.json", profile=profile))[1]["paths"]
    assert {path.split("/")[3] for path in drawn if path.endswith("/call")} == listed
    for name, is_visible in visible.items():
        shown, tool = await look(app, key, "GET", f"/v1/tools/{name}", profile=profile)
        called, told = await look(app, key, "POST", f"/v1/tools/{name}/call", profile=profile)
        why = (await look(app, key, "GET", f"/v1/tools/{name}/why", profile=profile))[1]
        assert (shown == 200, called != 404, why["visible"]) == (is_visible,) * 3, (profile, name, told)
        if is_visible:
            assert tool["name"] in listed
        else:
            assert tool["detail"] == told["detail"]
            assert is_operator or (why["code"], why["reason"]) == ("unknown", tool["detail"])


async def assert_law(world: World, granted: Granted, store: KeyStore, keys: dict[str, str]) -> None:
    catalog = declare(world, granted, store)

    def context(user: str | None, roles: tuple[str, ...]) -> ToolContext:
        return replace(context_of(world), user_id=user, roles=frozenset(roles))

    def contexts(principal: Principal) -> ToolContext:
        return context(principal.identity.user, principal.identity.roles)

    app = http_app(catalog, config=contexts)
    async with app.router.lifespan_context(app):
        for user, (roles, profiles) in granted.items():
            for profile in (*PROFILES, "nope"):
                status, answer = await ask(app, keys[user], f"/mcp/{profile}", "tools/list", {})
                if profile not in profiles:
                    assert status == (404 if profiles else 403)
                    told = [await look(app, keys[user], "GET", "/v1/tools", profile=one) for one in (profile, "nope")]
                    assert told[0] == told[1]
                    assert told[0][0] == status
                    continue
                view = await catalog.aview(context(user, roles), profile=profile)
                assert [tool["name"] for tool in answer["result"]["tools"]] == [one.wire_name for one in view.tools()]
                seen: dict[str, bool] = {}
                for name in every_name(catalog):
                    params = {"name": name, "arguments": {}}
                    _, called = await ask(app, keys[user], f"/mcp/{profile}", "tools/call", params)
                    visible = (await view.awhy(name)).visible
                    assert (called.get("error", {}).get("code") != UNKNOWN) == visible, (user, profile, name, called)
                    seen[name] = visible
                await assert_law_over_http(app, keys[user], profile, is_operator="operator" in roles, visible=seen)
            if profiles:
                bare = (await ask(app, keys[user], "/mcp", "tools/list", {}))[1]
                named = (await ask(app, keys[user], f"/mcp/{profiles[0]}", "tools/list", {}))[1]
                assert bare == named


RIGHTS = st.tuples(
    st.sampled_from([(), ("operator",)]), st.lists(st.sampled_from(PROFILES), unique=True, max_size=2).map(tuple)
)


@settings(
    max_examples=examples(40, few=5), suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(world=worlds(SYNC + ASYNC), ann=RIGHTS, bob=RIGHTS)
def test_each_credential_lists_what_it_can_call_and_nothing_of_the_others_profiles(
    keys: tuple[KeyStore, dict[str, str]], world: World, ann: Any, bob: Any
) -> None:
    asyncio.run(assert_law(world, {"ann": ann, "bob": bob}, *keys))
