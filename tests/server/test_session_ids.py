"""Session ids: sealed, so that every worker with the keys opens them, and nobody else makes or lends one."""

import base64
import json
import re
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from typing import Any

import pytest

from pegboard import CallContext, Catalog, http_app
from pegboard.server.mcp.sessions.session_ids import (
    SESSION_ID_CHARS,
    SESSION_S,
    SESSIONS_ENDED,
    Client,
    SessionIds,
    name_of,
)
from pegboard.server.mcp.sessions.sessions import SESSION_IDLE_S, SESSIONS_OF_ONE, Sessions
from pegboard.server.principal import Identity, Principal
from pegboard.server.sealing import sealing_with
from tests.server.asgi import send_raw
from tests.server.doors import JSON_HEADERS

REVISION = "2025-11-25"
KEY, OTHER_KEY = b"k" * 32, b"o" * 32
ANN = Principal(identity=Identity(credential="ann"), profile="chat")
EVERYTHING: dict[str, Any] = {
    "elicitation": {"form": {}, "url": {}, "later": {"x": "y" * 9_000}},
    "sampling": {"tools": {}, "context": {}},
    "roots": {"listChanged": True},
    "extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app", "z" * 9_000]}},
    "experimental": {"padding": {"w": "v" * 9_000}},
}


def ids(key: bytes = KEY, *, audience: str = "shop", now: float = 0.0) -> SessionIds:
    return SessionIds(sealing_with((key,), audience=audience), wall_clock=lambda: now)


# -- what an id is


def test_an_id_says_of_a_client_what_is_asked_for_and_stays_short() -> None:
    session_id, _ = ids().seal("ann", Client(REVISION, EVERYTHING))
    assert len(session_id) <= 600 < SESSION_ID_CHARS
    assert re.fullmatch(r"[\x21-\x7e]+", session_id)
    opened = ids().open(session_id, "ann")
    assert opened is not None
    assert opened.client.version == REVISION
    assert opened.client.capabilities == {
        "elicitation": {"form": {}, "url": {}},
        "sampling": {"tools": {}, "context": {}},
        "roots": {},
        "extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}},
    }


@pytest.mark.parametrize(
    ("declared", "kept"),
    [({}, {}), ({"form": {}}, {"form": {}}), ({"url": {}}, {"url": {}}), ({"voice": {}}, None), ("yes", None)],
)
def test_what_a_client_said_of_questions_means_the_same_afterwards(declared: Any, kept: Any) -> None:
    session_id, _ = ids().seal("ann", Client(REVISION, {"elicitation": declared}))
    opened = ids().open(session_id, "ann")
    assert opened is not None
    assert opened.client.capabilities.get("elicitation") == kept


def test_an_id_opens_for_its_owner_its_server_and_its_time_alone() -> None:
    session_id, _ = ids().seal("ann", Client(REVISION, {}))
    assert ids(now=SESSION_S - 1).open(session_id, "ann") is not None
    assert ids(now=SESSION_S).open(session_id, "ann") is None
    assert ids().open(session_id, "bob") is None
    assert ids(OTHER_KEY).open(session_id, "ann") is None
    assert ids(audience="bank").open(session_id, "ann") is None


def test_no_change_of_an_id_opens_anything() -> None:
    session_id, _ = ids().seal("ann", Client(REVISION, {}))
    raw = base64.urlsafe_b64decode(session_id[3:] + "==")
    for at in range(0, len(raw), 3):
        bent = bytes((*raw[:at], raw[at] ^ 1, *raw[at + 1 :]))
        assert ids().open("v1." + base64.urlsafe_b64encode(bent).decode().rstrip("="), "ann") is None
    for made_up in (
        "",
        "0" * 32,
        "v1.",
        "v1.\xe9",
        session_id[:-2],
        session_id + "AA",
        session_id * 9,
        "v1." + "A" * 400,
    ):
        assert ids().open(made_up, "ann") is None


def test_what_was_sealed_for_another_use_is_no_id() -> None:
    sealing = sealing_with((KEY,), audience="shop")
    known = SessionIds(sealing)
    cursor = sealing.page("tools", "ann", size=1, length=2, cursor=None).next_cursor
    assert cursor is not None
    assert known.open(cursor, "ann") is None
    session_id, _ = known.seal("ann", Client(REVISION, {}))
    with pytest.raises(LookupError):
        sealing.page("tools", "ann", size=1, length=2, cursor=session_id)


def test_ids_that_were_ended_are_remembered_up_to_a_number_and_until_their_time() -> None:
    clock = [0.0]
    known = SessionIds(sealing_with((KEY,), audience="shop"), wall_clock=lambda: clock[0])
    session_id, opened = known.seal("ann", Client(REVISION, {}))
    known.end(name_of(session_id), opened.ends_at)
    for number in range(SESSIONS_ENDED - 1):
        known.end(b"%d" % number, opened.ends_at)
    assert known.open(session_id, "ann") is None
    known.end(b"one more", opened.ends_at)
    assert known.open(session_id, "ann") is not None
    clock[0] = SESSION_S
    known.end(b"the first of another week", 2 * SESSION_S)
    assert len(known._ended) == 1


# -- what a worker keeps of it


def test_a_session_that_was_forgotten_goes_on_and_one_that_was_ended_does_not() -> None:
    now = [0.0]
    sessions = Sessions(ids(), clock=lambda: now[0])
    idle, busy = sessions.open(ANN, Client(REVISION, {})), sessions.open(ANN, Client(REVISION, {}))
    with busy:
        now[0] = SESSION_IDLE_S + 1
        assert sessions.idle() == [idle]
    sessions.forget(idle)
    assert sessions.find(idle.session_id, ANN.owner) is None
    again = sessions.reopen(idle.session_id, ANN)
    assert again is not None
    assert again.name == idle.name
    sessions.end(again)
    assert sessions.reopen(idle.session_id, ANN) is None


def test_a_session_whose_time_is_over_is_forgotten_even_in_use() -> None:
    now = [0.0]
    sessions = Sessions(SessionIds(sealing_with((KEY,), audience="shop"), wall_clock=lambda: now[0]))
    session = sessions.open(ANN, Client(REVISION, {}))
    with session:
        assert sessions.idle() == []
        now[0] = SESSION_S
        assert sessions.idle() == [session]


def test_who_has_many_sessions_goes_on_with_each_of_them_within_the_same_memory() -> None:
    elsewhere = Sessions(ids())
    opened = [elsewhere.open(ANN, Client(REVISION, {})).session_id for _ in range(SESSIONS_OF_ONE)]
    here = Sessions(ids())
    mine = [here.open(ANN, Client(REVISION, {})) for _ in range(SESSIONS_OF_ONE)]
    assert here.is_full_for(ANN.shares_as)
    assert all(here.reopen(session_id, ANN) is not None for session_id in opened)
    named = [*opened, *(one.session_id for one in mine)]
    known = [one for session_id in named if (one := here.find(session_id, ANN.owner)) is not None]
    assert len(known) == SESSIONS_OF_ONE
    # One that has a request open is never forgotten for another.
    with ExitStack() as held:
        for one in known:
            held.enter_context(one)
        assert here.reopen(mine[0].session_id, ANN) is None


# -- over HTTP, on two workers


def catalog() -> Catalog:
    made = Catalog("same")

    @made.tool
    async def whose(ctx: CallContext) -> dict[str, Any]:
        """Tell what this worker knows of the session."""
        return {"session": ctx.session_id, "asks": ctx.client is not None and ctx.client.can("elicitation")}

    return made


@asynccontextmanager
async def workers(*keys: bytes) -> AsyncGenerator[list[Any]]:
    async with AsyncExitStack() as stack:
        apps = [http_app(catalog(), keys=(key,)) for key in keys]
        for app in apps:
            await stack.enter_async_context(app.router.lifespan_context(app))
        yield apps


def heads(session: str | None = None) -> list[tuple[bytes, bytes]]:
    said = {**JSON_HEADERS, "host": "127.0.0.1", "mcp-protocol-version": REVISION}
    return [
        (name.encode(), value.encode())
        for name, value in (said | ({"mcp-session-id": session} if session else {})).items()
    ]


async def send(app: Any, message: dict[str, Any], session: str | None = None) -> tuple[int, Any, dict[str, str]]:
    told: dict[str, str] = {}
    status, _, body = await send_raw(app, json.dumps({"jsonrpc": "2.0", **message}).encode(), heads(session), told=told)
    events = [line[6:] for line in body.splitlines() if line.startswith(b"data: {")]
    return status, json.loads(events[-1] if events else body or b"null"), told


async def opened(app: Any) -> str:
    hello = {
        "protocolVersion": REVISION,
        "capabilities": {"elicitation": {}},
        "clientInfo": {"name": "c", "version": "1"},
    }
    status, _, told = await send(app, {"id": 1, "method": "initialize", "params": hello})
    assert status == 200
    assert (await send(app, {"method": "notifications/initialized"}, told["mcp-session-id"]))[0] == 202
    return told["mcp-session-id"]


CALL = {"id": 2, "method": "tools/call", "params": {"name": "whose", "arguments": {}}}


async def test_a_session_begun_at_one_worker_goes_on_at_the_other_as_the_same() -> None:
    async with workers(KEY, KEY) as (one, other):
        session = await opened(one)
        listed = [await send(app, {"id": 3, "method": "tools/list"}, session) for app in (other, one)]
        assert [(status, [tool["name"] for tool in body["result"]["tools"]]) for status, body, _ in listed] == [
            (200, ["whose"])
        ] * 2
        told = [(await send(app, CALL, session))[1]["result"]["structuredContent"] for app in (one, other)]
        assert told[0] == told[1]
        assert told[0]["asks"] is True
        assert told[0]["session"] not in session
        # What the SDK answers, too: it is told there what the client had said at the first.
        leveled = {"id": 4, "method": "logging/setLevel", "params": {"level": "error"}}
        assert [(await send(app, leveled, session))[0] for app in (other, one)] == [200, 200]


async def test_a_session_that_nobody_with_these_keys_made_is_not_found_whatever_is_asked() -> None:
    async with workers(KEY, OTHER_KEY) as (one, other):
        session = await opened(one)
        unknown = await send(other, CALL, "0" * 32)
        assert unknown[0] == 404
        for strange in (session, session[:-2], "x" * (SESSION_ID_CHARS + 1)):
            assert (await send(other, CALL, strange))[:2] == unknown[:2]
            assert (await send_raw(other, b"", heads(strange), method="GET"))[0] == 404
            assert (await send_raw(other, b"", heads(strange), method="DELETE"))[0] == 404


async def test_a_session_that_was_deleted_is_opened_no_more() -> None:
    async with workers(KEY) as (app,):
        session = await opened(app)
        assert (await send_raw(app, b"", heads(session), method="DELETE"))[0] == 200
        assert (await send(app, CALL, session))[0] == 404
        assert (await send_raw(app, b"", heads(session), method="DELETE"))[0] == 404
