"""Identity at the door: who is let in over HTTP, as whom, and what the others are told."""

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from pegboard import Catalog, DefinitionError, Profile, http_app
from pegboard.auth.rules import AnonymousRule, IdentityRules
from pegboard.model.record import replace
from pegboard.server.host_guard import hosts_of
from tests.auth.parts import AUDIENCE, ISSUER, KEY_RULES, Issuer, bearer, guarded, rule
from tests.server.asgi import send_raw
from tests.server.doors import JSON_HEADERS, META, VERSION, answer_of, call, inside, post, workshop

LIST = {**JSON_HEADERS, "mcp-protocol-version": VERSION, "mcp-method": "tools/list"}
BODY = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": META}}).encode()
METADATA = "/.well-known/oauth-protected-resource"


async def listed(client: httpx2.AsyncClient, key: str, path: str = "/mcp", meta: Any = None) -> list[str]:
    answer = answer_of(await post(client, "tools/list", path=path, headers=bearer(key), meta=meta))
    return [tool["name"] for tool in answer["result"]["tools"]]


async def status(client: httpx2.AsyncClient, path: str = "/mcp", **headers: str) -> int:
    return (await post(client, "tools/list", path=path, headers=headers)).status_code


# -- as whom


@pytest.mark.parametrize("meta", [{}, {"progressToken": 1}], ids=["door", "sdk"])
async def test_each_credential_is_who_its_rule_says_with_the_profiles_that_it_gives(
    tmp_path: Path, meta: dict[str, Any]
) -> None:
    catalog, _, _, keys = guarded(tmp_path)
    ann, bob = bearer(keys["ann-laptop"]), bearer(keys["bob-phone"])
    async with inside(http_app(catalog)) as client:
        whoami = [
            (await call(client, "whoami", headers=who, meta=meta))["result"]["structuredContent"] for who in (ann, bob)
        ]
        assert whoami == [
            {"user": "ann", "space": "s1", "roles": ["operator"]},
            {"user": "bob", "space": "s1", "roles": []},
        ]
        # The first profile of Ann's rule is `admin`, which has no `echo`.
        assert "wipe" in await listed(client, keys["ann-laptop"], meta=meta)
        assert "echo" in await listed(client, keys["ann-laptop"], "/mcp/chat", meta=meta)
        assert "wipe" not in await listed(client, keys["bob-phone"], meta=meta)
        assert (await call(client, "wipe", {"what": "x"}, headers=bob, meta=meta))["error"]["code"] == -32602


async def test_the_profile_named_at_start_stands_behind_the_bare_path_for_those_who_have_it(tmp_path: Path) -> None:
    catalog, _, _, keys = guarded(tmp_path)
    async with inside(http_app(catalog, profile="chat")) as client:
        assert "echo" in await listed(client, keys["ann-laptop"])
    async with inside(http_app(catalog, profile="admin")) as client:
        assert "wipe" not in await listed(client, keys["bob-phone"])


async def test_a_profile_that_a_credential_lacks_is_not_found_like_one_that_does_not_exist(tmp_path: Path) -> None:
    catalog, _, _, keys = guarded(tmp_path)
    async with inside(http_app(catalog)) as client:
        lacking = await post(client, "tools/list", path="/mcp/admin", headers=bearer(keys["bob-phone"]))
        unknown = await post(client, "tools/list", path="/mcp/nope", headers=bearer(keys["bob-phone"]))
        assert (
            (lacking.status_code, lacking.content) == (unknown.status_code, unknown.content) == (404, unknown.content)
        )
        assert dict(lacking.headers) == dict(unknown.headers)
        assert await status(client, "/mcp/admin") == await status(client, "/mcp/nope") == 401


async def test_a_catalog_without_profiles_shows_all_it_has_to_whom_it_lets_in(tmp_path: Path) -> None:
    _, _, store, keys = guarded(tmp_path)
    catalog = Catalog()
    catalog.tool(name="hello", groups="any")(lambda: "hello")
    catalog.identity = IdentityRules(key_store=store.path, map=(rule(key="ann-laptop", user="ann"),))
    async with inside(http_app(catalog)) as client:
        assert await listed(client, keys["ann-laptop"]) == ["hello"]
        assert await status(client, "/mcp/any", **bearer(keys["ann-laptop"])) == 404
        assert await status(client, **bearer(keys["bob-phone"])) == 403
        assert await status(client) == 401
        # With the first profile the rule no longer says what it gives.
        catalog.profile(Profile(name="late", include=("any",)))
        assert await status(client, **bearer(keys["ann-laptop"])) == 403


async def test_a_rule_that_leads_to_an_unknown_profile_lets_nobody_in() -> None:
    async with Issuer().running() as issuer:
        catalog, _ = workshop()
        rules = (rule(claim={"team": "*"}, user="{sub}", profiles=("{team}",)),)
        catalog.identity = IdentityRules(tokens=issuer.rules(), map=rules)
        async with inside(http_app(catalog)) as client:
            assert "echo" in await listed(client, issuer.token(team="chat"))
            for team in ("nope", ["chat", "nope"], [], "", "{team}", "*"):
                assert await status(client, **bearer(issuer.token(team=team))) == 403
            assert await status(client, **bearer(issuer.token())) == 403


# -- what others are told


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "PUT", "HEAD", "OPTIONS"])
async def test_nobody_comes_in_without_a_credential_by_any_method(tmp_path: Path, method: str) -> None:
    catalog, _, _, _ = guarded(tmp_path)
    async with inside(http_app(catalog)) as client:
        for path in ("/mcp", "/mcp/chat", "/mcp/nope"):
            response = await client.request(method, path, headers=LIST, content=BODY)
            # Starlette answers methods that a route has not; nothing of ours has run then.
            assert response.status_code in (401, 405), (method, path)


WRONG = ["Bearer", "Bearer ", "Bearer x", "bearer", "Basic YTpi", "Bearer a b", "Token {key}", "{key}", "Bearer: {key}",
         "Bearer {key}x", "Bearer x{key}", "Bearer {key},{key}", "Digest {key}", "Bearer pgb_", "Bearer ..",
         "Bearer é"]  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
async def test_a_credential_that_is_shown_must_be_good_even_where_nobody_needs_one(tmp_path: Path, wrong: str) -> None:
    catalog, _, _, keys = guarded(tmp_path)
    assert catalog.identity is not None
    catalog.identity = replace(catalog.identity, anonymous=AnonymousRule(profiles=("chat",)))
    header = wrong.format(key=keys["ann-laptop"]).encode()
    headers = [*((k.encode(), v.encode()) for k, v in LIST.items()), (b"host", b"127.0.0.1:8420")]
    app = http_app(catalog)
    async with app.router.lifespan_context(app):
        assert (await send_raw(app, BODY, headers))[0] == 200
        told: dict[str, str] = {}
        code, _, body = await send_raw(app, BODY, [*headers, (b"authorization", header)], told=told)
        assert (code, told["www-authenticate"]) == (401, 'Bearer error="invalid_token"')
        assert json.loads(body)["error"]["message"] == "The credential is not valid."
        good = (b"authorization", f"bEaReR   {keys['ann-laptop']} ".encode())
        assert (await send_raw(app, BODY, [*headers, good]))[0] == 200
        assert (await send_raw(app, BODY, [*headers, good, good]))[0] == 401
        assert (await send_raw(app, BODY, [*headers, good, (b"authorization", b"")]))[0] == 401


async def test_a_client_is_told_where_to_get_a_token() -> None:
    async with Issuer().running() as issuer:
        catalog, _ = workshop()
        rules = (rule(claim={"sub": "*"}, user="{sub}", profiles=("chat",)),)
        catalog.identity = IdentityRules(tokens=issuer.rules(scopes=("tools",)), map=rules)
        async with inside(http_app(catalog)) as client:
            where = f"https://tools.example.com{METADATA}/mcp"
            missing = await post(client, "tools/list")
            assert missing.headers["www-authenticate"] == f'Bearer scope="tools", resource_metadata="{where}"'
            bad = await post(client, "tools/list", headers=bearer("a.b.c"))
            shown = f'Bearer error="invalid_token", scope="tools", resource_metadata="{where}"'
            assert (bad.status_code, bad.headers["www-authenticate"]) == (401, shown)
            narrow = await post(client, "tools/list", headers=bearer(issuer.token(scope="other")))
            shown = f'Bearer error="insufficient_scope", scope="tools", resource_metadata="{where}"'
            assert (narrow.status_code, narrow.headers["www-authenticate"]) == (403, shown)
            assert "echo" in await listed(client, issuer.token(scope="tools"))
            for path in (METADATA, f"{METADATA}/mcp", f"{METADATA}/mcp/chat", f"{METADATA}/mcp/nope"):
                assert (await client.get(path)).json() == {
                    "resource": AUDIENCE,
                    "resource_name": "workshop",
                    "authorization_servers": [ISSUER],
                    "bearer_methods_supported": ["header"],
                    "scopes_supported": ["tools"],
                }
            assert (await client.get(METADATA, headers={"host": "evil.example"})).status_code == 421


async def test_where_the_audience_is_no_address_the_request_says_it() -> None:
    async with Issuer().running() as issuer:
        catalog, _ = workshop()
        catalog.identity = IdentityRules(
            tokens=replace(issuer.rules(), audience="api://tools"), map=(rule(claim={"sub": "*"}, profiles=("chat",)),)
        )
        async with inside(http_app(catalog)) as client:
            shown = (await post(client, "tools/list")).headers["www-authenticate"]
            assert shown == f'Bearer resource_metadata="http://127.0.0.1:8420{METADATA}/mcp"'
            assert (await client.get(f"{METADATA}/mcp/chat")).json()["resource"] == "http://127.0.0.1:8420/mcp/chat"
            assert "echo" in await listed(client, issuer.token(aud="api://tools"))


@pytest.mark.parametrize("path", [METADATA, f"{METADATA}/mcp", f"{METADATA}/mcp/chat"])
async def test_without_tokens_there_is_no_place_to_get_one(tmp_path: Path, path: str) -> None:
    for catalog in (guarded(tmp_path)[0], workshop()[0]):
        async with inside(http_app(catalog)) as client:
            assert (await client.get(path)).status_code == 404


async def test_what_cannot_be_judged_is_not_let_in_and_may_come_again(tmp_path: Path) -> None:
    catalog, seen, store, keys = guarded(tmp_path)
    assert catalog.identity is not None
    catalog.identity = replace(catalog.identity, anonymous=AnonymousRule(profiles=("chat",)))
    async with inside(http_app(catalog)) as client:
        whole = store.path.read_bytes()
        store.path.write_bytes(b"x" * 4096)
        response = await post(client, "tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}},
                              headers=bearer(keys["ann-laptop"]))  # fmt: skip
        assert (response.status_code, response.headers["retry-after"]) == (503, "5")
        assert seen.runs == []
        store.path.write_bytes(whole)
        assert await status(client, **bearer(keys["ann-laptop"])) == 200


async def test_a_revoked_key_ends_with_the_next_request(tmp_path: Path) -> None:
    catalog, seen, store, keys = guarded(tmp_path)
    async with inside(http_app(catalog)) as client:
        who = bearer(keys["bob-phone"])
        assert (await call(client, "add", {"a": 1, "b": 2}, headers=who))["result"]["isError"] is False
        store.revoke("bob-phone")
        assert await status(client, **who) == 401
        assert (
            await post(client, "tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}, headers=who)
        ).status_code == 401
        assert await status(client, **bearer(keys["ann-laptop"])) == 200
    assert seen.runs == ["add"]


# -- without a credential


def anonymous(*, anywhere: bool = False) -> Catalog:
    catalog, _ = workshop()
    catalog.identity = IdentityRules(anonymous=AnonymousRule(profiles=("chat",), is_anywhere=anywhere))
    return catalog


async def answered(app: Starlette, client: tuple[str, int] | None, **headers: str) -> int:
    """Return the status for a request from an address."""
    sent = {"host": "127.0.0.1:8420", **LIST, **headers}
    pairs = [(name.encode(), value.encode()) for name, value in sent.items()]

    async def from_there(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, "client": client}, receive, send)

    return (await send_raw(from_there, BODY, pairs))[0]


HERE, THERE = ("127.0.0.1", 5), ("192.0.2.7", 5)


async def test_callers_without_a_credential_must_be_on_this_machine() -> None:
    names = ("127.0.0.1", "localhost", "[::1]", "tools.example.com")
    app = http_app(anonymous(), allowed_hosts=names)
    async with app.router.lifespan_context(app):
        assert await answered(app, HERE) == 200
        assert await answered(app, ("::1", 5)) == 200
        assert await answered(app, HERE, host="localhost") == 200
        for where in (THERE, None, ("", 0), ("unix", 0), ("::ffff:192.0.2.7", 1)):
            assert await answered(app, where) == 401, where
        # A proxy on this machine speaks for somebody else.
        assert await answered(app, HERE, host="tools.example.com") == 401
        for name in ("x-forwarded-for", "forwarded", "x-real-ip", "x-forwarded-proto", "via", "cf-connecting-ip"):
            assert await answered(app, HERE, **{name: "127.0.0.1"}) == 401
            assert await answered(app, THERE, **{name: "127.0.0.1"}) == 401


async def test_callers_from_elsewhere_are_let_in_when_the_words_say_so() -> None:
    app = http_app(anonymous(anywhere=True))
    async with app.router.lifespan_context(app):
        assert (await answered(app, HERE), await answered(app, THERE)) == (200, 200)


async def test_callers_without_a_credential_have_their_profiles_and_no_other() -> None:
    async with inside(http_app(anonymous())) as client:
        assert (await status(client), await status(client, "/mcp/chat")) == (200, 200)
        assert (await status(client, "/mcp/admin"), await status(client, "/mcp/nope")) == (404, 404)


async def test_without_rules_for_them_nobody_is_anonymous() -> None:
    catalog, _ = workshop()
    catalog.identity = IdentityRules()
    async with inside(http_app(catalog)) as client:
        assert await status(client) == 401
        assert await status(client, **bearer("pgb_" + "0" * 16 + "_" + "A" * 43)) == 401


# -- what it changes elsewhere


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.7"])
def test_other_machines_are_listened_to_only_where_callers_say_who_they_are(host: str) -> None:
    with pytest.raises(DefinitionError, match="has no `identity:`"):
        hosts_of(host, ("tools.example.com",), is_open=False)
    assert hosts_of(host, ("tools.example.com",), is_open=True) == ("tools.example.com",)


async def test_rules_that_change_while_serving_hold_from_the_next_request_on(tmp_path: Path) -> None:
    catalog, _, store, keys = guarded(tmp_path)
    async with inside(http_app(catalog)) as client:
        who = bearer(keys["bob-phone"])
        assert await status(client, **who) == 200
        catalog.identity = IdentityRules(key_store=store.path, map=KEY_RULES[:1])
        assert (await status(client, **who), await status(client, **bearer(keys["ann-laptop"]))) == (403, 200)


async def test_an_app_that_mounts_ours_asks_callers_the_same(tmp_path: Path) -> None:
    catalog, _, _, keys = guarded(tmp_path)
    inner = http_app(catalog)
    outer = Starlette(routes=[Mount("/tools", app=inner)], lifespan=inner.router.lifespan_context)
    async with inside(outer) as client:
        assert await status(client, "/tools/mcp") == 401
        assert await status(client, "/tools/mcp/chat", **bearer(keys["bob-phone"])) == 200
        assert await status(client, "/tools/mcp/admin", **bearer(keys["bob-phone"])) == 404


async def test_health_is_told_without_a_credential_and_nothing_else(tmp_path: Path) -> None:
    async with inside(http_app(guarded(tmp_path)[0])) as client:
        assert [(await client.get(path)).status_code for path in ("/healthz", "/readyz")] == [200, 200]


async def test_neither_key_nor_token_is_written_down_or_handed_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    catalog, _, store, keys = guarded(tmp_path)
    async with Issuer().running() as issuer:
        catalog.identity = IdentityRules(
            key_store=store.path, tokens=issuer.rules(), map=(*KEY_RULES, rule(claim={"sub": "*"}, profiles=("chat",)))
        )
        good = [keys["ann-laptop"], issuer.token()]
        bad = [keys["ann-laptop"] + "x", issuer.token(aud="other"), issuer.token(exp=1), issuer.token(kid="two")]
        emitted: list[bytes] = []
        with caplog.at_level(logging.DEBUG):
            async with inside(http_app(catalog)) as client:
                for credential in (*good, *bad):
                    for name in ("whoami", "broken", "nope"):
                        for meta in ({}, {"progressToken": 1}):
                            answer = await post(client, "tools/call", {"name": name, "arguments": {}},
                                                headers=bearer(credential), meta=meta)  # fmt: skip
                            emitted += [answer.content, repr(answer.headers).encode()]
                store.path.write_bytes(b"x" * 4096)
                emitted.append((await post(client, "tools/list", headers=bearer(good[0]))).content)
    seen = b"".join(emitted).decode() + caplog.text
    for credential in (*good, *bad):
        assert [piece for piece in credential.split(".") if piece[-24:] in seen and len(piece) > 40] == []
        assert credential[-24:] not in seen


async def test_many_callers_at_once_are_each_taken_for_who_they_are(tmp_path: Path) -> None:
    catalog, _, _, keys = guarded(tmp_path)
    async with inside(http_app(catalog)) as client:

        async def one(number: int) -> bool:
            who = ("ann", "bob")[number % 2]
            key = keys["ann-laptop" if who == "ann" else "bob-phone"]
            answer = await call(
                client, "whoami", headers=bearer(key), meta={"progressToken": number} if number % 3 else {}
            )
            return answer["result"]["structuredContent"]["user"] == who

        assert all(await asyncio.gather(*(one(number) for number in range(60))))
