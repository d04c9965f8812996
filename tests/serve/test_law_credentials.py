"""The law over HTTP with two credentials: each lists exactly what it can call and what `why` calls visible to it."""

import asyncio
import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pegboard import Catalog, Policy, Profile, ToolContext
from pegboard.auth.keys import KeyStore
from pegboard.auth.rules import IdentityRules
from pegboard.serve import http_app
from pegboard.serve.identity import Visit
from tests.auth.parts import rule
from tests.properties.test_law import ASYNC, GROUPS, SYNC, World, catalog_of, context_of, every_name, worlds
from tests.serve.asgi import send_raw
from tests.serve.doors import JSON_HEADERS, META, VERSION

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


async def assert_law(world: World, granted: Granted, store: KeyStore, keys: dict[str, str]) -> None:
    catalog = declare(world, granted, store)

    def context(user: str | None, roles: tuple[str, ...]) -> ToolContext:
        return replace(context_of(world), user_id=user, roles=frozenset(roles))

    def contexts(visit: Visit) -> ToolContext:
        return context(visit.identity.user, visit.identity.roles)

    app = http_app(catalog, config=contexts)
    async with app.router.lifespan_context(app):
        for user, (roles, profiles) in granted.items():
            for profile in (*PROFILES, "nope"):
                status, answer = await ask(app, keys[user], f"/mcp/{profile}", "tools/list", {})
                if profile not in profiles:
                    assert status == (404 if profiles else 403)
                    continue
                view = await catalog.aview(context(user, roles), profile=profile)
                assert [tool["name"] for tool in answer["result"]["tools"]] == [one.wire_name for one in view.tools()]
                for name in every_name(catalog):
                    params = {"name": name, "arguments": {}}
                    _, called = await ask(app, keys[user], f"/mcp/{profile}", "tools/call", params)
                    visible = (await view.awhy(name)).visible
                    assert (called.get("error", {}).get("code") != UNKNOWN) == visible, (user, profile, name, called)
            if profiles:
                bare = (await ask(app, keys[user], "/mcp", "tools/list", {}))[1]
                named = (await ask(app, keys[user], f"/mcp/{profiles[0]}", "tools/list", {}))[1]
                assert bare == named


RIGHTS = st.tuples(
    st.sampled_from([(), ("operator",)]), st.lists(st.sampled_from(PROFILES), unique=True, max_size=2).map(tuple)
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(world=worlds(SYNC + ASYNC), ann=RIGHTS, bob=RIGHTS)
def test_each_credential_lists_what_it_can_call_and_nothing_of_the_others_profiles(
    keys: tuple[KeyStore, dict[str, str]], world: World, ann: Any, bob: Any
) -> None:
    asyncio.run(assert_law(world, {"ann": ann, "bob": bob}, *keys))
