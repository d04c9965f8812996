"""Two credentials: what belongs to one of them is unknown to the other, whatever it is."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from pegboard import Catalog, Profile, http_app
from pegboard.auth.rules import IdentityRules
from pegboard.server.mcp.sessions import sessions
from tests.auth.parts import Issuer, bearer, guarded, rule
from tests.server.doors import JSON_HEADERS, Seen, answer_of, inside, post, served
from tests.server.http_callers import heard_until

CAN_ASK = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
FORM = {"inputResponses": {}}
EARLIER = "2025-11-25"


def both_in_one_profile(folder: Path) -> tuple[Catalog, Seen, dict[str, str], dict[str, str]]:
    """Return a workshop where both credentials have the same profile, and the headers of each."""
    catalog, seen, store, keys = guarded(folder)
    rules = tuple(
        rule(key=name, user=user, space="s1", profiles=("admin",))
        for name, user in (("ann-laptop", "ann"), ("bob-phone", "bob"))
    )
    catalog.identity = IdentityRules(key_store=store.path, map=rules)
    return catalog, seen, bearer(keys["ann-laptop"]), bearer(keys["bob-phone"])


async def test_a_cursor_of_one_is_unknown_to_the_other(tmp_path: Path) -> None:
    catalog, _, ann, bob = both_in_one_profile(tmp_path)
    for number in range(2_001):
        catalog.tool(name=f"tool_{number}", groups="core")(lambda: "here")
    catalog.profile(Profile(name="admin", include=("core",), exposure="direct"))
    async with inside(http_app(catalog)) as client:
        first = answer_of(await post(client, "tools/list", headers=ann))["result"]
        cursor = {"cursor": first["nextCursor"]}
        lent = await post(client, "tools/list", cursor, headers=bob)
        made_up = await post(client, "tools/list", {"cursor": "2000"}, headers=bob)
        assert lent.json()["error"] == made_up.json()["error"]
        assert "result" in answer_of(await post(client, "tools/list", cursor, headers=ann))


async def test_a_request_state_of_one_is_unknown_to_the_other(tmp_path: Path) -> None:
    catalog, seen, ann, bob = both_in_one_profile(tmp_path)
    params: dict[str, Any] = {"name": "wipe", "arguments": {"what": "disk"}}
    async with inside(http_app(catalog)) as client:
        asked = answer_of(await post(client, "tools/call", params, headers=ann, meta=CAN_ASK))["result"]
        yes = {
            **params,
            "inputResponses": {"pegboard.consent": {"action": "accept", "content": {}}},
            "requestState": asked["requestState"],
        }
        lent = await post(client, "tools/call", yes, headers=bob, meta=CAN_ASK)
        assert lent.json()["error"]["message"] == "Invalid or expired requestState"
        assert seen.runs == []
        # It is not used up by that.
        assert "result" in answer_of(await post(client, "tools/call", yes, headers=ann, meta=CAN_ASK))
    assert seen.runs == ["wipe disk"]


async def test_a_request_state_is_lost_with_the_rights_that_it_was_made_with(tmp_path: Path) -> None:
    async with Issuer().running() as issuer:
        catalog, seen, _, _ = guarded(tmp_path)
        catalog.identity = IdentityRules(
            tokens=issuer.rules(),
            map=(rule(claim={"sub": "*"}, user="{sub}", space="{org}", roles=("{groups}",), profiles=("admin",)),),
        )
        params: dict[str, Any] = {"name": "wipe", "arguments": {"what": "disk"}}
        one = bearer(issuer.token(org="a", groups=["x"]))
        same = bearer(issuer.token(org="a", groups=["x"], jti="refreshed"))
        others = [bearer(issuer.token(**claims)) for claims in (
            {"org": "b", "groups": ["x"]}, {"org": "a", "groups": []},
            {"org": "a", "groups": ["x"], "sub": "bob"})]  # fmt: skip
        async with inside(http_app(catalog)) as client:
            state = answer_of(await post(client, "tools/call", params, headers=one, meta=CAN_ASK))["result"][
                "requestState"
            ]
            yes = {**params, "requestState": state,
                   "inputResponses": {"pegboard.consent": {"action": "accept", "content": {}}}}  # fmt: skip
            for other in others:
                lent = await post(client, "tools/call", yes, headers=other, meta=CAN_ASK)
                assert lent.json()["error"]["message"] == "Invalid or expired requestState"
            assert seen.runs == []
            await post(client, "tools/call", yes, headers=same, meta=CAN_ASK)
        assert seen.runs == ["wipe disk"]


# -- sessions of the earlier revisions


async def earlier(
    client: httpx2.AsyncClient, message: dict[str, Any], who: dict[str, str], session: str | None = None
) -> httpx2.Response:
    headers = {**JSON_HEADERS, "mcp-protocol-version": EARLIER, **who}
    if session is not None:
        headers["mcp-session-id"] = session
    return await client.post("/mcp", headers=headers, content=json.dumps({"jsonrpc": "2.0", **message}), timeout=20)


async def open_session(client: httpx2.AsyncClient, who: dict[str, str]) -> str:
    params = {"protocolVersion": EARLIER, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    answer = await earlier(client, {"id": 1, "method": "initialize", "params": params}, who)
    session = answer.headers["mcp-session-id"]
    await earlier(client, {"method": "notifications/initialized"}, who, session)
    return session


async def test_a_session_of_one_is_unknown_to_the_other_by_every_method(tmp_path: Path) -> None:
    catalog, seen, ann, bob = both_in_one_profile(tmp_path)
    async with served(http_app(catalog)) as url, httpx2.AsyncClient(base_url=url) as client:
        session = await open_session(client, ann)
        call = {"id": 2, "method": "tools/call", "params": {"name": "add", "arguments": {"a": 1, "b": 2}}}
        for who in (bob, {**bob, "last-event-id": "1"}):
            lent = {**who, "mcp-session-id": session}
            made_up = {**who, "mcp-session-id": "0" * 32}
            posted = [await earlier(client, call, heads) for heads in (lent, made_up)]
            heads = {"accept": "text/event-stream", "mcp-protocol-version": EARLIER}
            got = [await client.get("/mcp", headers={**heads, **one}) for one in (lent, made_up)]
            deleted = [await client.delete("/mcp", headers={**heads, **one}) for one in (lent, made_up)]
            for known, unknown in (posted, got, deleted):
                assert known.status_code == unknown.status_code == 404
                assert known.json()["error"] == unknown.json()["error"]
        assert seen.runs == []
        assert (await earlier(client, call, ann, session)).status_code == 200
    assert seen.runs == ["add"]


async def test_a_session_ends_with_the_key_that_opened_it(tmp_path: Path) -> None:
    catalog, seen, store, keys = guarded(tmp_path)
    who = bearer(keys["bob-phone"])
    async with served(http_app(catalog)) as url, httpx2.AsyncClient(base_url=url) as client:
        session = await open_session(client, who)
        store.revoke("bob-phone")
        call = {"id": 2, "method": "tools/call", "params": {"name": "add", "arguments": {"a": 1, "b": 2}}}
        assert (await earlier(client, call, who, session)).status_code == 401
        assert (await earlier(client, call, {}, session)).status_code == 401
    assert seen.runs == []


async def test_one_cannot_cancel_nor_answer_what_the_other_is_doing(tmp_path: Path) -> None:
    catalog, seen, ann, bob = both_in_one_profile(tmp_path)
    async with served(http_app(catalog)) as url, httpx2.AsyncClient(base_url=url) as client:
        hers, his = await open_session(client, ann), await open_session(client, bob)
        waiting = asyncio.create_task(
            earlier(client, {"id": 7, "method": "tools/call", "params": {"name": "wait", "arguments": {}}}, ann, hers)
        )
        await seen.began.wait()
        cancel = {"method": "notifications/cancelled", "params": {"requestId": 7, "reason": "mine now"}}
        await earlier(client, cancel, bob, his)
        assert (await earlier(client, cancel, bob, hers)).status_code == 404
        assert (await earlier(client, {"id": 7, "result": {"content": []}}, bob, hers)).status_code == 404
        # He may use the same id for a call of his own.
        echo = {"id": 7, "method": "tools/call", "params": {"name": "add", "arguments": {"a": 1, "b": 2}}}
        assert "3" in (await earlier(client, echo, bob, his)).text
        assert not waiting.done()
        assert seen.runs == ["wait", "add"]
        await earlier(client, cancel, ann, hers)
        async with asyncio.timeout(60):
            while ("wait", "cancelled") not in seen.results:
                await asyncio.sleep(0.01)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


class Heard:
    def __init__(self) -> None:
        self.methods: list[str] = []

    async def __call__(self, message: Any) -> None:
        self.methods.append(getattr(message, "method", ""))


@asynccontextmanager
async def client_of(url: str, who: dict[str, str], heard: Heard, mode: Any) -> AsyncGenerator[Client]:
    async with (
        httpx2.AsyncClient(headers=who) as http,
        Client(streamable_http_client(f"{url}/mcp", http_client=http), mode=mode, message_handler=heard) as client,
    ):
        yield client


async def test_progress_goes_to_the_one_who_asked_for_it(tmp_path: Path) -> None:
    catalog, _, ann, bob = both_in_one_profile(tmp_path)
    told: dict[str, list[float]] = {"ann": [], "bob": []}

    def into(name: str) -> Any:
        async def on_progress(progress: float, _total: float | None, _message: str | None) -> None:
            told[name].append(progress)

        return on_progress

    async with served(http_app(catalog)) as url:
        for mode in ("legacy", "2026-07-28"):
            async with client_of(url, ann, Heard(), mode) as one, client_of(url, bob, Heard(), mode) as two:
                await asyncio.gather(
                    one.call_tool("steps", {"of": 2}, progress_callback=into("ann")),
                    two.call_tool("steps", {"of": 5}, progress_callback=into("bob")),
                )
    assert {*told["ann"]} == {0, 1 / 2}
    assert {*told["bob"]} == {0, 1 / 5, 2 / 5, 3 / 5, 4 / 5}


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_the_sdks_client_is_who_its_key_says(tmp_path: Path, mode: str) -> None:
    catalog, _, ann, bob = both_in_one_profile(tmp_path)
    async with served(http_app(catalog)) as url:
        for who, name in ((ann, "ann"), (bob, "bob")):
            async with client_of(url, who, Heard(), mode) as client:
                result = await client.call_tool("whoami", {})
                assert (result.structured_content or {})["user"] == name


# -- the HTTP API


def both_of_one_person(folder: Path) -> tuple[Catalog, Seen, dict[str, str], dict[str, str]]:
    """Return a workshop where both credentials are the same user with the same rights."""
    catalog, seen, store, keys = guarded(folder)
    rules = tuple(rule(key=name, user="ann", space="s1", profiles=("admin",)) for name in keys)
    catalog.identity = IdentityRules(key_store=store.path, map=rules)
    return catalog, seen, bearer(keys["ann-laptop"]), bearer(keys["bob-phone"])


@pytest.mark.parametrize("both", [both_in_one_profile, both_of_one_person])
async def test_a_call_of_one_is_unknown_to_the_other_over_plain_http_too(tmp_path: Path, both: Any) -> None:
    catalog, seen, ann, bob = both(tmp_path)
    async with served(http_app(catalog)) as url, httpx2.AsyncClient(base_url=url, timeout=20) as client:
        async with (
            client.stream("GET", "/v1/events", headers=ann) as hers,
            client.stream("GET", "/v1/events", headers=bob) as his,
        ):
            waiting = asyncio.create_task(client.post("/v1/tools/wait/call", headers=ann, json={}))
            await seen.began.wait()
            (call_id,) = catalog.executor.in_flight
            lent = await client.post(f"/v1/calls/{call_id}/cancel", headers=bob)
            made_up = await client.post("/v1/calls/none-1/cancel", headers=bob)
            assert lent.status_code == made_up.status_code == 404
            assert lent.text.replace(call_id, "*") == made_up.text.replace("none-1", "*")
            assert not waiting.done()
            mine = (await client.post("/v1/tools/add/call", headers=bob, json={"a": 1, "b": 2})).json()
            # The first that he hears of is his own call, although hers began before.
            assert [event.data["callId"] for event in await heard_until(his, "on_tool_result")] == [mine["callId"]] * 2
            assert (await client.post(f"/v1/calls/{call_id}/cancel", headers=ann)).status_code == 200
            events = await heard_until(hers, "on_tool_result")
            assert {event.data["callId"] for event in events} == {call_id}
            await waiting


async def test_a_cursor_of_one_is_unknown_to_the_other_over_plain_http_too(tmp_path: Path) -> None:
    catalog, _, ann, bob = both_of_one_person(tmp_path)
    async with inside(http_app(catalog)) as client:
        first = (await client.get("/v1/tools?limit=2", headers=ann)).json()
        path = f"/v1/tools?limit=2&cursor={quote(first['nextCursor'])}"
        lent, mine = await client.get(path, headers=bob), await client.get(path, headers=ann)
        assert (lent.status_code, mine.status_code) == (404, 200)
        made_up = await client.get("/v1/tools?limit=2&cursor=abc", headers=bob)
        assert lent.json() == made_up.json()


async def test_the_http_api_asks_callers_who_they_are_as_mcp_does(tmp_path: Path) -> None:
    catalog, seen, ann, _ = both_of_one_person(tmp_path)
    paths = [
        "/v1/tools",
        "/v1/tools/add",
        "/v1/tools/add/why",
        "/v1/events",
        "/openapi.json",
        "/v1/tools?profile=admin",
    ]
    async with inside(http_app(catalog)) as client:
        for headers in ({}, bearer("x"), {"authorization": "Basic YTpi"}):
            for path in paths:
                answer = await client.get(path, headers=headers)
                assert (answer.status_code, "www-authenticate" in answer.headers) == (401, True), path
            called = await client.post("/v1/tools/add/call", headers=headers, json={"a": 1, "b": 2})
            assert (called.status_code, "www-authenticate" in called.headers) == (401, True)
        assert (await client.get("/v1/tools?profile=chat", headers=ann)).status_code == 404
        assert (await client.get("/v1/tools?profile=nope", headers=ann)).status_code == 404
        assert (await client.post("/v1/tools/add/call", headers=ann, json={"a": 1, "b": 2})).status_code == 200
    assert seen.runs == ["add"]


async def test_one_cannot_take_the_room_for_sessions_from_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "SESSIONS_OF_ONE", 3)
    catalog, _, ann, bob = both_in_one_profile(tmp_path)
    begin = {
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": EARLIER, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
    }
    ping = {"id": 2, "method": "ping"}
    async with served(http_app(catalog)) as url, httpx2.AsyncClient(base_url=url) as client:
        for _ in range(5):
            # What opens no session takes no room.
            assert (await earlier(client, ping, ann)).status_code == 400
        hers = [await open_session(client, ann) for _ in range(3)]
        for who in (ann, {**ann, "mcp-protocol-version": "2025-06-18"}):
            refused = await earlier(client, begin, who)
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "60")
            assert refused.json()["error"] == {
                "code": -32000,
                "message": "This caller has as many sessions open as it may. "
                "End one with DELETE, or wait until an idle one ends.",
            }
        bare = await client.post("/mcp", headers={**JSON_HEADERS, **ann}, json={"jsonrpc": "2.0", **begin})
        assert bare.status_code == 503, "without a version it is an earlier client too"
        his = await open_session(client, bob)
        for who, session in [*((ann, one) for one in hers), (bob, his)]:
            assert (await earlier(client, ping, who, session)).status_code == 200
        assert (await post(client, "tools/list", headers=ann)).status_code == 200
        ended = {**ann, "mcp-session-id": hers[0], "mcp-protocol-version": EARLIER}
        assert (await client.delete("/mcp", headers=ended)).status_code == 200
        together = await asyncio.gather(*(earlier(client, begin, ann) for _ in range(5)))
        assert sorted(answer.status_code for answer in together) == [200, 503, 503, 503, 503]
        assert (await earlier(client, ping, bob, his)).status_code == 200
