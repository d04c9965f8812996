"""A stream ends with the credential that opened it: revoked, expired, or without its rights."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from pegboard import CallContext, Catalog, Profile, Tasks, http_app
from pegboard.auth.keys import KeyStore, id_of
from pegboard.auth.present_rights import Standing, ended_standings
from pegboard.auth.rule_matching import grant_of
from pegboard.auth.rules import Credential, IdentityRules
from pegboard.model.record import replace
from pegboard.server.credential_watch import CREDENTIAL_CHECK_S
from tests.auth.parts import ISSUER, Issuer, bearer, rule
from tests.server.doors import META, VERSION, listening, served
from tests.timing import PATIENCE_S

EARLIER = "2025-11-25"
HELLO = {
    "protocolVersion": EARLIER,
    "capabilities": {"tasks": {"requests": {"elicitation": {"create": {}}}}},
    "clientInfo": {"name": "c", "version": "1"},
}


class Board:
    """A server with two people, and what an operator can do to one of them."""

    def __init__(self, folder: Path) -> None:
        self.keys = KeyStore(folder / "keys.db")
        self.catalog = catalog = Catalog("board", tasks=Tasks("memory"))
        catalog.profile(Profile(name="desk", include=("core",)))
        self.allow("ann", "bob", "cid")

        @catalog.tool(task="optional")
        async def wait(ctx: CallContext) -> str:
            """Wait for good."""
            await asyncio.Event().wait()
            return "never"

        self.url = ""

    def allow(self, *names: str) -> None:
        rules = tuple(rule(key=name, user=name, profiles=("desk",)) for name in names)
        self.catalog.identity = IdentityRules(key_store=self.keys.path, map=rules)

    @asynccontextmanager
    async def served(self, *, by_uvicorn: bool = False) -> AsyncGenerator[Board]:
        app = http_app(self.catalog)
        async with served(app) if by_uvicorn else listening(app, starts=app) as self.url:
            yield self


@pytest.fixture(params=["pegboard serve", "an app under uvicorn"])
async def board(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Board]:
    async with Board(tmp_path).served(by_uvicorn=request.param == "an app under uvicorn") as board:
        yield board


Stream = Callable[[Board, httpx2.AsyncClient, str, asyncio.Event], Any]


async def _read(http: httpx2.AsyncClient, method: str, url: str, is_open: asyncio.Event, **options: Any) -> str:
    """Read a stream to its end, and tell when it has begun."""
    async with http.stream(method, url, **options) as answer:
        assert answer.status_code == 200, await answer.aread()
        is_open.set()
        return "".join([part async for part in answer.aiter_text()])


async def _events(board: Board, http: httpx2.AsyncClient, key: str, is_open: asyncio.Event) -> str:
    return await _read(http, "GET", f"{board.url}/v1/events", is_open, headers=bearer(key))


async def _listening(board: Board, http: httpx2.AsyncClient, key: str, is_open: asyncio.Event) -> str:
    heads = {
        "accept": "application/json, text/event-stream", "mcp-protocol-version": VERSION,
        "mcp-method": "subscriptions/listen", **bearer(key),
    }  # fmt: skip
    params = {"notifications": {"toolsListChanged": True}, "_meta": META}
    body = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params}
    return await _read(http, "POST", f"{board.url}/mcp", is_open, headers=heads, json=body)


async def _session(board: Board, http: httpx2.AsyncClient, key: str) -> dict[str, str]:
    """Open a session of an earlier revision; return the headers of its requests."""
    heads = {"accept": "application/json, text/event-stream", "mcp-protocol-version": EARLIER, **bearer(key)}
    body = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": HELLO}
    answer = await http.post(f"{board.url}/mcp", headers=heads, json=body)
    assert answer.status_code == 200, answer.text
    heads["mcp-session-id"] = answer.headers["mcp-session-id"]
    await http.post(f"{board.url}/mcp", headers=heads, json={"jsonrpc": "2.0", "method": "notifications/initialized"})
    return heads


async def _session_stream(board: Board, http: httpx2.AsyncClient, key: str, is_open: asyncio.Event) -> str:
    heads = await _session(board, http, key)
    return await _read(http, "GET", f"{board.url}/mcp", is_open, headers=heads)


async def _result(board: Board, http: httpx2.AsyncClient, key: str, is_open: asyncio.Event) -> str:
    heads = await _session(board, http, key)
    params: dict[str, Any] = {"name": "wait", "arguments": {}, "task": {}}
    begun = await http.post(
        f"{board.url}/mcp", headers=heads, json={"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    )
    [message] = [json.loads(line[6:]) for line in begun.text.splitlines() if line.startswith("data: {")] or [
        begun.json()
    ]
    params = {"taskId": message["result"]["task"]["taskId"]}
    waiting = {"jsonrpc": "2.0", "id": 2, "method": "tasks/result", "params": params}
    answer = await _read(http, "POST", f"{board.url}/mcp", is_open, headers=heads, json=waiting)
    assert "no longer valid" in answer
    return answer


STREAMS: dict[str, Stream] = {
    "/v1/events": _events,
    "subscriptions/listen": _listening,
    "the stream of a session": _session_stream,
    "tasks/result": _result,
}
ENDS: dict[str, Callable[[Board, str], object]] = {
    "the key is revoked": lambda board, _: board.keys.revoke("ann"),
    "the rule of the key goes": lambda board, _: board.allow("bob"),
    "all rules go": lambda board, _: setattr(board.catalog, "identity", None),
    "the store of keys is gone": lambda board, _: board.keys.path.unlink(),
}


def test_a_check_leaves_time_to_end_a_stream_within_five_seconds() -> None:
    assert CREDENTIAL_CHECK_S <= 2.5


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("stream", STREAMS.values(), ids=STREAMS)
async def test_a_stream_ends_with_its_credential(
    board: Board, stream: Stream, end: Callable[[Board, str], object]
) -> None:
    key = board.keys.add("ann")[0]
    async with asyncio.timeout(PATIENCE_S), httpx2.AsyncClient(timeout=PATIENCE_S) as http:
        is_open = asyncio.Event()
        reading = asyncio.create_task(stream(board, http, key, is_open))
        await is_open.wait()
        end(board, key)
        await reading


async def test_the_streams_of_others_and_of_the_next_key_stay_open(board: Board) -> None:
    old, bobs = board.keys.add("ann")[0], board.keys.add("bob")[0]
    new = board.keys.rotate("ann", overlap_s=3600)[0]
    cids = board.keys.add("cid")[0]
    async with asyncio.timeout(PATIENCE_S), httpx2.AsyncClient(timeout=PATIENCE_S) as http:
        opened = {key: asyncio.Event() for key in (old, bobs, new, cids)}
        reading = {key: asyncio.create_task(_events(board, http, key, opened[key])) for key in opened}
        for event in opened.values():
            await event.wait()
        board.keys.revoke(str(id_of(old)))
        await reading.pop(old)
        # This one ends only after another check, in which the other two were judged again.
        board.keys.revoke("cid")
        await reading.pop(cids)
        assert not any(task.done() for task in reading.values())
        for task in reading.values():
            task.cancel()
        await asyncio.gather(*reading.values(), return_exceptions=True)


@pytest.mark.parametrize("profile", ["desk", None])
async def test_a_token_stands_until_it_expires_and_while_its_claims_match(profile: str | None) -> None:
    issuer = Issuer()
    rules = IdentityRules(tokens=issuer.rules(), map=(rule(claim={"sub": "ann"}, user="ann", profiles=("desk",)),))
    claims = {"iss": ISSUER, "sub": "ann"}
    credential = Credential(owner="jwt:ann", claims=claims, ends_at=1_000.0)
    grant = grant_of(rules.map, credential)
    assert grant is not None
    standing = Standing(grant.proof, grant.key_id, grant.ends_at, profile)
    assert await ended_standings(rules, [standing], wall_clock=lambda: 999.0) == set()
    assert await ended_standings(rules, [standing], wall_clock=lambda: 1_000.0) == {standing}
    others = replace(rules, map=(rule(claim={"sub": "bob"}, user="bob", profiles=("desk",)),))
    assert await ended_standings(others, [standing], wall_clock=lambda: 999.0) == {standing}


async def test_a_stream_opened_without_a_credential_ends_when_one_is_asked_for(tmp_path: Path) -> None:
    board = Board(tmp_path)
    board.catalog.identity = None
    async with board.served(), asyncio.timeout(PATIENCE_S), httpx2.AsyncClient(timeout=PATIENCE_S) as http:
        is_open = asyncio.Event()
        reading = asyncio.create_task(_events(board, http, "none", is_open))
        await is_open.wait()
        board.allow("ann")
        await reading


async def test_a_change_of_the_store_that_takes_nothing_ends_no_stream(board: Board) -> None:
    key = board.keys.add("ann")[0]
    async with asyncio.timeout(PATIENCE_S), httpx2.AsyncClient(timeout=PATIENCE_S) as http:
        is_open, other = asyncio.Event(), asyncio.Event()
        reading = asyncio.create_task(_events(board, http, key, is_open))
        await is_open.wait()
        bobs = board.keys.add("bob")[0]
        ending = asyncio.create_task(_events(board, http, bobs, other))
        await other.wait()
        board.keys.revoke("bob")
        await ending
        assert not reading.done()
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
