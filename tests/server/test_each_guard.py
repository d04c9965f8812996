"""Guards of the server that another one stands behind, each seen by itself: broken alone, it would not be missed."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette

from pegboard import CallContext, Catalog, Profile, http_app
from pegboard.auth.rules import AnonymousRule, IdentityRules, TokenRules
from pegboard.model.error import DefinitionError
from pegboard.server import sealing as sealing_module
from pegboard.server.authenticator import CREDENTIAL_CHARS
from pegboard.server.challenges import METADATA_PATH, metadata_of
from pegboard.server.mcp.sessions import session_streams, sessions
from pegboard.server.mcp.sessions.session_streams import SessionStream, SessionStreams
from pegboard.server.sealing import CURSOR_CHARS, Sealing, UnknownCursorError, sealing_with
from tests.auth.parts import bearer, guarded
from tests.server.doors import FORM, JSON_HEADERS, answer_of, call, inside, post, workshop
from tests.server.test_consent import CAN_ASK, asked_to_wipe, shop, shopping, to_whom

Headers = list[tuple[bytes, bytes]]
CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "echo", "arguments": {"text": "a"}}}
HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}


def heads(**more: str) -> Headers:
    said = {"host": "127.0.0.1", **JSON_HEADERS, **{name.replace("_", "-"): text for name, text in more.items()}}
    return [(name.encode(), text.encode()) for name, text in said.items()]


async def sent(
    app: Starlette, path: str, headers: Headers, body: Any = None, *, client: str = "127.0.0.1"
) -> tuple[int, bytes, Headers]:
    """Send one request; return the status, the body, and what is left of the headers behind the app's guards."""
    said = body if isinstance(body, bytes) else json.dumps(CALL if body is None else body).encode()
    scope: dict[str, Any] = {
        "type": "http", "http_version": "1.1", "method": "POST", "scheme": "http", "path": path,
        "raw_path": path.encode(), "query_string": b"", "root_path": "", "headers": headers, "client": (client, 1),
        "server": ("127.0.0.1", 80),
    }  # fmt: skip
    waiting, answer = [{"type": "http.request", "body": said, "more_body": False}], list[Any]()

    async def receive() -> Any:
        return waiting.pop() if waiting else await asyncio.Event().wait()

    async def send(message: Any) -> None:
        answer.append(message)

    async with app.router.lifespan_context(app):
        await app(scope, receive, send)
    return answer[0]["status"], b"".join(part.get("body", b"") for part in answer[1:]), scope["headers"]


# ---------------------------------------------------------------- who is let in


@pytest.mark.parametrize("path", ["/mcp", "/v1/tools/echo/call"])
async def test_a_request_with_two_hosts_is_refused_though_both_are_ours(path: str) -> None:
    catalog, _ = workshop()
    status, text, _ = await sent(http_app(catalog), path, [*heads(), (b"host", b"localhost")])
    assert (status, b"more than one" in text) == (421, True)


@pytest.mark.parametrize("path", ["/mcp", "/mcp/chat", "/v1/tools/echo/call"])
async def test_what_says_who_somebody_is_gets_behind_no_guard(path: str, tmp_path: Path) -> None:
    private = {"authorization": "Bearer secret", "cookie": "session=secret"}
    catalog, _ = workshop()
    if path.startswith("/mcp"):
        # Where nobody is asked, a door has no use for it either.
        assert b"secret" not in repr((await sent(http_app(catalog), path, heads(**private)))[2]).encode()
    opened = http_app(catalog, identify=lambda request: {"user": "ann", "profiles": ["chat"]})
    assert b"secret" not in repr((await sent(opened, path, heads(**private)))[2]).encode()
    catalog, _, _, keys = guarded(tmp_path)
    left = (await sent(http_app(catalog), path, heads(**bearer(keys["bob-phone"]))))[2]
    assert "authorization" not in repr(left)


async def test_strangers_are_local_only_without_a_proxy_and_under_a_local_name() -> None:
    catalog, _ = workshop()
    catalog.identity = IdentityRules(anonymous=AnonymousRule(profiles=("chat",)))
    app = http_app(catalog, allowed_hosts=("127.0.0.1", "tools.example.com"))
    outcomes: list[tuple[Headers, str, int]] = [
        (heads(), "127.0.0.1", 200), (heads(), "::1", 200), (heads(), "192.0.2.1", 401),
        (heads(x_forwarded_for="192.0.2.1"), "127.0.0.1", 401), (heads(forwarded="for=192.0.2.1"), "127.0.0.1", 401),
        (heads(via="1.1 proxy"), "127.0.0.1", 401), (heads(host="tools.example.com"), "127.0.0.1", 401),
    ]  # fmt: skip
    for headers, client, status in outcomes:
        for path in ("/mcp", "/v1/tools/echo/call"):
            body = {"text": "a"} if path.startswith("/v1") else begin()
            assert (await sent(app, path, headers, body, client=client))[0] == status, (headers, client, path)


def begin() -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}


@pytest.mark.parametrize("path", ["/mcp/chat", "/v1/tools/echo/call"])
async def test_one_good_credential_in_the_one_scheme_that_there_is_lets_in(
    path: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    catalog, _, _, keys = guarded(tmp_path)
    good, app = keys["bob-phone"].encode(), http_app(catalog)
    for shown, status in (
        ([b"Bearer " + good], 200),
        ([b"bearer  " + good], 200),
        ([b"Basic " + good], 401),
        ([b"Token " + good], 401),
        ([b"Bearer " + good, b"Bearer " + good], 401),
        ([b"Bearer " + good, b"Bearer bad"], 401),
        ([good], 401),
    ):
        body = {"text": "a"} if path.startswith("/v1") else begin()
        headers = [*heads(), *((b"authorization", value) for value in shown)]
        assert (await sent(app, path, headers, body))[0] == status, shown
    with caplog.at_level("INFO", "pegboard.serve"):
        caplog.clear()
        too_long = f"pgb_{'a' * CREDENTIAL_CHARS}"
        assert (await sent(app, path, heads(**bearer(too_long)), begin()))[0] == 401
        assert "credential_refused" not in caplog.text, "it was not even looked up"


async def test_a_profile_that_is_not_ones_own_is_not_found_and_a_store_that_is_away_makes_nobody_anonymous(
    tmp_path: Path,
) -> None:
    catalog, _, _, keys = guarded(tmp_path)
    app = http_app(catalog)
    for profile, status in (("chat", 200), ("admin", 404), ("nowhere", 404)):
        assert (await sent(app, f"/mcp/{profile}", heads(**bearer(keys["bob-phone"])), begin()))[0] == status
    rules = IdentityRules(key_store=tmp_path / "none.db", anonymous=AnonymousRule(profiles=("chat",), is_anywhere=True))
    catalog.identity = rules
    assert (await sent(app, "/mcp", heads(), begin()))[0] == 200
    assert (await sent(app, "/mcp", heads(**bearer(keys["bob-phone"])), begin()))[0] == 503


def test_a_server_below_a_prefix_names_its_resource_without_it() -> None:
    rules = TokenRules(issuer="https://issuer.example", audience="pegboard", jwks_url="https://issuer.example/keys")
    scope = {"path": f"/tools{METADATA_PATH}/mcp", "root_path": "/tools", "headers": [(b"host", b"a.example")]}
    assert metadata_of(rules, scope, name="t")["resource"] == "http://a.example/mcp"


# ---------------------------------------------------------------- bodies


@pytest.mark.parametrize("path", ["/mcp", "/v1/tools/echo/call"])
async def test_a_body_that_says_nothing_of_its_length_or_kind_is_held_to_both(path: str) -> None:
    catalog, seen = workshop()
    app = http_app(catalog)
    longest = catalog.registry.bounds.request_body_bytes
    assert (await sent(app, path, heads(), b" " * (longest + 1)))[0] == 413
    for kind in ("text/plain", "application/x-www-form-urlencoded", "application/jsonp", ""):
        body = {"text": "a"} if path.startswith("/v1") else begin()
        assert (await sent(app, path, heads(content_type=kind), body))[0] == 415, kind
    assert seen.runs == []


# ---------------------------------------------------------------- what clients carry for us


class CountingCodec:
    def __init__(self) -> None:
        self.opened = 0

    def seal(self, payload: bytes) -> str:
        return payload.hex()

    def open(self, token: str) -> bytes | None:
        self.opened += 1
        return bytes.fromhex(token)


def test_a_cursor_is_for_its_server_and_one_that_is_too_long_is_not_opened() -> None:
    codec = CountingCodec()
    ours, theirs = Sealing(codec, audience="ours"), Sealing(codec, audience="theirs")
    cursor = ours.page("tools", "ann", size=1, length=3, cursor=None).next_cursor
    assert ours.page("tools", "ann", size=1, length=3, cursor=cursor).first == 1
    for sealing, bound_to in ((theirs, ("tools", "ann")), (ours, ("tools", "bob")), (ours, ("prompts", "ann"))):
        with pytest.raises(UnknownCursorError):
            sealing.page(*bound_to, size=1, length=3, cursor=cursor)
    codec.opened = 0
    with pytest.raises(UnknownCursorError):
        ours.page("tools", "ann", size=1, length=3, cursor="ab" * CURSOR_CHARS)
    assert codec.opened == 0


def test_what_was_used_is_not_forgotten_for_want_of_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing_module, "USED_STATES", 2)
    now = [0.0]
    sealing = Sealing(CountingCodec(), audience="a", clock=lambda: now[0])
    assert [sealing.use_up(mark) for mark in "aabcab"] == [True, False, True, False, False, False]
    now[0] = 10_000.0
    assert [sealing.use_up(mark) for mark in "cc"] == [True, False]


def test_a_sealing_key_that_could_be_guessed_is_refused() -> None:
    with pytest.raises(DefinitionError, match="key 2 has 31 bytes"):
        sealing_with((b"k" * 32, b"k" * 31), audience="a")


async def test_an_answer_given_to_a_tool_that_changed_meanwhile_is_asked_for_anew() -> None:
    catalog, seen = workshop()
    async with inside(http_app(catalog)) as client:
        first = (await call(client, "greet", meta=CAN_ASK))["result"]
        (key,) = first["inputRequests"]

        @catalog.tool(groups="core", replace=True)
        async def greet(ctx: CallContext) -> str:
            """Ask for a name, and do something else with it."""
            answer = await ctx.ask("What is your name?", schema=FORM)
            seen.runs.append("changed")
            return str(answer)

        said = {key: {"action": "accept", "content": {"name": "Ann"}}}
        params = {"name": "greet", "inputResponses": said, "requestState": first["requestState"]}
        second = answer_of(await post(client, "tools/call", params, meta=CAN_ASK))["result"]
    assert (second["resultType"], seen.runs) == ("input_required", [])


async def test_a_yes_of_an_ended_call_is_spent_in_all_later_rounds() -> None:
    async def buys(ctx: CallContext, pay_to: Any) -> None:
        await pay_to("bob")
        await ctx.ask("More?", schema=FORM)

    catalog, paid = shop(buys)
    async with inside(http_app(catalog)) as client:
        asked = await shopping(client, ["accept", "accept", "cancel"])
    assert (to_whom(asked), paid) == (["bob", "?", "bob"], ["bob"])


@pytest.mark.parametrize("content", ["yes", ["yes"], 1])
async def test_a_yes_in_a_form_that_was_not_asked_for_is_none(content: Any) -> None:
    catalog, seen = workshop()
    async with inside(http_app(catalog)) as client:
        state = (await asked_to_wipe(client))["requestState"]
        said = {"pegboard.consent": {"action": "accept", "content": content}}
        params = {"name": "wipe", "arguments": {"what": "disk"}, "inputResponses": said, "requestState": state}
        answer = answer_of(await post(client, "tools/call", params, path="/mcp/admin", meta=CAN_ASK))
    assert seen.runs == []
    assert "error" in answer or answer["result"]["resultType"] == "input_required"


async def test_a_tool_cannot_ask_under_the_key_of_consent() -> None:
    catalog = Catalog()

    @catalog.tool(groups="core")
    async def sly(ctx: CallContext) -> str:
        """Ask in the name of consent."""
        assert ctx.client is not None
        return str(await ctx.client.elicit("Fine?", key="pegboard.consent"))

    catalog.profile(Profile(name="chat", include=("core",)))
    async with inside(http_app(catalog)) as client:
        result = (await call(client, "sly", meta=CAN_ASK))["result"]
    assert result["_meta"]["pegboard/error"]["kind"] == "tool_error"
    assert "is kept for consent" in result["_meta"]["pegboard/error"]["message"]


# ---------------------------------------------------------------- sessions


async def test_all_sessions_together_have_a_limit_and_so_has_what_one_subscribes_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sessions, "SESSIONS", 2)
    monkeypatch.setattr(sessions, "SESSION_SUBSCRIPTIONS", 2)
    catalog, _ = workshop()
    for name in "abc":
        catalog.resource(f"note://{name}", name=name, groups="core")(lambda: "text")
    async with inside(http_app(catalog)) as client:
        opened = [await client.post("/mcp", headers=JSON_HEADERS, json=begin()) for _ in range(3)]
        assert [answer.status_code for answer in opened] == [200, 200, 503]
        headers = {**JSON_HEADERS, "mcp-session-id": opened[0].headers["mcp-session-id"]}
        await client.post("/mcp", headers=headers, json={"jsonrpc": "2.0", "method": "notifications/initialized"})
        told: list[bool] = []
        for number, name in enumerate("abc", 2):
            asked = {
                "jsonrpc": "2.0",
                "id": number,
                "method": "resources/subscribe",
                "params": {"uri": f"note://{name}"},
            }
            told.append("error" in answer_of(await client.post("/mcp", headers=headers, json=asked)))
    assert told == [False, False, True]


def test_what_is_kept_for_a_session_that_lost_its_connection_is_bounded_and_each_streams_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session_streams, "SESSION_MESSAGES", 4)
    monkeypatch.setattr(session_streams, "SESSION_BYTES", 2_000)
    streams = SessionStreams("s")
    one, other = SessionStream(streams, None, is_primed=True), SessionStream(streams, None, is_primed=True)
    for number in range(3):
        streams.keep(one, b"", b"one %d" % number)
        streams.keep(other, b"", b"other %d" % number)
    kept = [event for _, event in streams.after(one, "p0")]
    assert [b"one" in event for event in kept] == [True] * len(kept) == [True, True]
    assert streams.stream_of("p1") is None
    streams.keep(one, b"", b"x" * 1_500)
    streams.keep(one, b"", b"y" * 1_500)
    assert [b"yyy" in event for _, event in streams.after(one, "p0")] == [True]
    assert streams.after(other, "p0") == []
