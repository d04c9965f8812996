"""The shared cases MCPS-08, MCPS-09 and MCPS-22: what a client carries for us, and many clients at once."""

import asyncio
import json
import logging
import re
import time
from typing import Any

import pytest

from pegboard import Bounds, CallContext, Catalog, Profile, http_app
from pegboard.core.steady_clock import steady_time
from tests.server.asgi import ask, send_raw
from tests.server.doors import JSON_HEADERS, META, VERSION, workshop

CAN_ASK = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
YES = {"pegboard.consent": {"action": "accept", "content": {}}}
WIPE: dict[str, Any] = {"name": "wipe", "arguments": {"what": "disk"}}
EARLIER = "2025-11-25"


async def asked(app: Any) -> str:
    """Return the state of a call that waits for a yes."""
    return (await ask(app, "tools/call", WIPE, path="/mcp/admin", meta=CAN_ASK))["result"]["requestState"]


async def again(app: Any, state: Any, *, path: str = "/mcp/admin", method: str = "tools/call", **said: Any) -> str:
    """Call again with a yes and a state; return `done`, or why it was refused."""
    params = {**WIPE, "inputResponses": YES, "requestState": state, **said}
    answer = await ask(app, method, params, path=path, meta=CAN_ASK)
    return answer["error"]["message"] if "error" in answer else "done"


REFUSED = "Invalid or expired requestState"


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)


async def test_mcps_08_a_state_with_a_bit_flipped_or_a_part_missing_is_refused() -> None:
    catalog, seen = workshop()
    app = http_app(catalog)
    async with app.router.lifespan_context(app):
        state = await asked(app)
        for at, char in enumerate(state):
            flipped = state[:at] + chr(ord(char) ^ (1 << at % 7)) + state[at + 1 :]
            assert await again(app, flipped) == REFUSED, at
        for short in (state[:-1], state[1:], state[: len(state) // 2], state + "A", state + "=", "", "v1.", state * 2):
            assert await again(app, short) == REFUSED, short
        assert seen.runs == []
        assert await again(app, state) == "done"
    assert seen.runs == ["wipe disk"]


async def test_mcps_08_a_state_is_good_for_its_own_call_and_caller_alone() -> None:
    catalog, seen = workshop()

    @catalog.prompt(name="wipe", groups="admin")
    def wipe(what: str) -> str:
        return f"How to wipe {what}."

    app, other = http_app(catalog), http_app(workshop()[0])
    async with app.router.lifespan_context(app), other.router.lifespan_context(other):
        state = await asked(app)
        attempts = [
            again(app, state, arguments={"what": "everything"}),
            again(app, state, arguments={}),
            again(app, state, arguments={"what": "disk", "more": 1}),
            again(app, state, name="add"),
            again(app, state, name="main.wipe"),
            again(app, state, path="/mcp/chat"),
            again(app, state, method="prompts/get"),
            # Another server, with a key of its own.
            again(other, state),
        ]
        assert [await attempt for attempt in attempts] == [REFUSED] * len(attempts)
        assert seen.runs == []


async def test_mcps_08_a_cursor_is_no_state_and_a_state_no_cursor() -> None:
    catalog = workshop()[0]
    for number in range(2_001):
        catalog.tool(name=f"tool_{number}", groups="core")(lambda: "here")
    catalog.profile(Profile(name="all", include=("core", "admin"), exposure="direct"))
    app = http_app(catalog)
    async with app.router.lifespan_context(app):
        cursor = (await ask(app, "tools/list", {}, path="/mcp/all"))["result"]["nextCursor"]
        state = (await ask(app, "tools/call", WIPE, path="/mcp/all", meta=CAN_ASK))["result"]["requestState"]
        assert await again(app, cursor, path="/mcp/all") == REFUSED
        mixed = await ask(app, "tools/list", {"cursor": state}, path="/mcp/all")
        made_up = await ask(app, "tools/list", {"cursor": "2000"}, path="/mcp/all")
        assert mixed["error"] == made_up["error"]


async def test_mcps_08_a_state_ends_after_ten_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    catalog, seen = workshop()
    app = http_app(catalog)
    monkeypatch.setattr(steady_time, "_started_at", steady_time() - time.monotonic())  # restored at the end
    async with app.router.lifespan_context(app):
        early, late = await asked(app), await asked(app)
        monkeypatch.setattr(steady_time, "_wall_clock", lambda: time.time() + 590)
        assert await again(app, early) == "done"
        monkeypatch.setattr(steady_time, "_wall_clock", lambda: time.time() + 601)
        assert await again(app, late) == REFUSED
    assert seen.runs == ["wipe disk"]


async def test_mcps_08_of_a_hundred_retries_at_once_one_is_taken() -> None:
    catalog, seen = workshop()
    app = http_app(catalog)
    async with app.router.lifespan_context(app):
        state = await asked(app)
        told = await asyncio.gather(*(again(app, state) for _ in range(100)))
        assert sorted(told) == [REFUSED] * 99 + ["done"]
        # A second yes to the same call is asked for anew.
        assert await asked(app) != state
    assert seen.runs == ["wipe disk"]


# -- MCPS-09


def speaking() -> Catalog:
    catalog = Catalog("speaking")

    @catalog.tool(groups="core")
    async def speak(ctx: CallContext, nonce: str) -> str:
        """Say the nonce in every way there is."""
        client: Any = ctx.client
        for step in range(3):
            await ctx.progress(step / 3, f"{nonce} progress")
            await client.log(f"{nonce} log")
            await asyncio.sleep(0)
        return f"{nonce} result"

    catalog.profile(Profile(name="chat", include=("core",)))
    return catalog


async def sent(app: Any, message: dict[str, Any], heads: dict[str, str], told: dict[str, str] | None = None) -> str:
    """Send one message; return all that comes back on its stream."""
    said = {**JSON_HEADERS, "host": "127.0.0.1", **heads}
    body = json.dumps({"jsonrpc": "2.0", **message}).encode()
    return (await send_raw(app, body, [(k.encode(), v.encode()) for k, v in said.items()], told=told))[2].decode()


async def session_of(app: Any) -> dict[str, str]:
    told: dict[str, str] = {}
    hello = {"protocolVersion": EARLIER, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    await sent(app, {"id": 1, "method": "initialize", "params": hello}, {}, told)
    heads = {"mcp-session-id": told["mcp-session-id"], "mcp-protocol-version": EARLIER}
    await sent(app, {"method": "notifications/initialized"}, heads)
    return heads


@pytest.mark.parametrize("version", [VERSION, EARLIER])
async def test_mcps_09_a_hundred_clients_with_one_id_each_hear_their_own_words_alone(version: str) -> None:
    app = http_app(speaking())

    async def one(nonce: str) -> str:
        params: dict[str, Any] = {"name": "speak", "arguments": {"nonce": nonce}, "_meta": {"progressToken": 1}}
        if version == VERSION:
            heads = {"mcp-protocol-version": VERSION, "mcp-method": "tools/call", "mcp-name": "speak"}
            params["_meta"] |= {**META, "io.modelcontextprotocol/logLevel": "debug"}
        else:
            heads = await session_of(app)
        return await sent(app, {"id": 1, "method": "tools/call", "params": params}, heads)

    nonces = [f"nonce-{number}-" for number in range(100)]
    async with app.router.lifespan_context(app):
        heard = await asyncio.gather(*map(one, nonces))
    for nonce, text in zip(nonces, heard, strict=True):
        assert set(re.findall(r"nonce-\d+-", text)) == {nonce}
        # Three times progress and log, and the result, which may be there twice, as text and as a value.
        assert len(re.findall(f"{nonce} (?:progress|log)", text)) == 6
        assert f"{nonce} result" in text


async def test_an_id_that_is_open_in_a_session_is_refused_and_the_first_answer_reaches_its_own_request() -> None:
    catalog = Catalog("waiting")
    began, go, runs = asyncio.Event(), asyncio.Event(), list[str]()

    @catalog.tool(groups="core")
    async def hold(nonce: str) -> str:
        """Wait."""
        runs.append(nonce)
        began.set()
        await go.wait()
        return nonce

    catalog.profile(Profile(name="chat", include=("core",)))
    app = http_app(catalog)
    async with app.router.lifespan_context(app):
        heads = await session_of(app)

        def call(nonce: str, request_id: Any) -> dict[str, Any]:
            return {"id": request_id, "method": "tools/call", "params": {"name": "hold", "arguments": {"nonce": nonce}}}

        first = asyncio.create_task(sent(app, call("first", 7), heads))
        await began.wait()
        for request_id in (7, "7"):
            refused = json.loads(await sent(app, call("second", request_id), heads))
            assert (refused["id"], refused["error"]["code"]) == (request_id, -32600)
            assert "already open in this session" in refused["error"]["message"]
        others = [asyncio.create_task(sent(app, call("text", 8), heads))]
        others.append(asyncio.create_task(sent(app, call("elsewhere", 7), await session_of(app))))
        while len(runs) < 3:
            await asyncio.sleep(0)
        go.set()
        assert "first" in await first
        text, elsewhere = await asyncio.gather(*others)
        assert ("text" in text, "elsewhere" in elsewhere) == (True, True)
        assert "again" in await sent(app, call("again", 7), heads)
    assert runs == ["first", "text", "elsewhere", "again"]


# -- MCPS-22


async def test_mcps_22_of_ten_thousand_calls_at_once_as_many_run_as_may_and_the_rest_come_back_later() -> None:
    """Of one caller three quarters run: the last one is for others, who find it free, and are busy when it is full."""
    catalog, running, go = Catalog(bounds=Bounds(calls_in_flight=50)), list[int](), asyncio.Event()

    @catalog.tool(groups="core")
    async def hold() -> str:
        """Hold."""
        running.append(1)
        await go.wait()
        return "held"

    app = http_app(catalog)
    params = {"name": "hold", "arguments": {}, "_meta": META}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    heads = {**JSON_HEADERS, "host": "127.0.0.1", "mcp-protocol-version": VERSION, "mcp-method": "tools/call"}
    named = [(name.encode(), value.encode()) for name, value in {**heads, "mcp-name": "hold"}.items()]
    async with app.router.lifespan_context(app):
        held = [asyncio.create_task(send_raw(app, body, named)) for _ in range(50)]
        while len(running) < 37:
            await asyncio.sleep(0)
        assert {status for status, _, _ in await asyncio.gather(*held[37:])} == {503}
        held = held[:37]
        held += [asyncio.create_task(send_raw(app, body, named, address="192.0.2.7")) for _ in range(13)]
        while len(running) < 50:
            await asyncio.sleep(0)
        told: dict[str, str] = {}
        for _ in range(9_950):
            status, _, answer = await send_raw(app, body, named, told=told)
            assert (status, told["retry-after"]) == (503, "1")
            assert json.loads(answer)["error"]["code"] == -32000
        assert len(running) == 50
        go.set()
        assert {status for status, _, _ in await asyncio.gather(*held)} == {200}
        assert (await send_raw(app, body, named))[0] == 200
