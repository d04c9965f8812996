"""Fair shares over HTTP: one caller leaves room to others; of those whom nobody vouches for, each network is one."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.applications import Starlette

from pegboard import Catalog, ToolContext, http_app, runtime
from pegboard.model.bounds import Bounds
from pegboard.server.authenticator import network_of
from pegboard.server.http_api.event_stream import API_STREAMS_OF_ONE
from pegboard.server.mcp.sessions import sessions
from tests.core.parts import kind_of
from tests.server.asgi import send_raw
from tests.server.doors import JSON_HEADERS, META, VERSION
from tests.timing import PATIENCE_S

HERE, THERE = "192.0.2.1", "192.0.2.2"
HOUSE, SAME_HOUSE, NEXT_HOUSE = "2001:db8:1:2::1", "2001:db8:1:2:ffff::9", "2001:db8:1:3::1"
Called = tuple[int, dict[str, Any]]


def heads(**more: str) -> list[tuple[bytes, bytes]]:
    said = {**JSON_HEADERS, "host": "127.0.0.1", **{name.replace("_", "-"): value for name, value in more.items()}}
    return [(name.encode(), value.encode()) for name, value in said.items()]


async def by_api(app: Any, tool: str, arguments: Any, address: str) -> Called:
    body = json.dumps(arguments).encode()
    status, _, answer = await send_raw(app, body, heads(), path=f"/v1/tools/{tool}/call", address=address)
    return status, json.loads(answer)


async def by_mcp(app: Any, tool: str, arguments: Any, address: str) -> Called:
    params = {"name": tool, "arguments": arguments, "_meta": META}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    named = heads(mcp_protocol_version=VERSION, mcp_method="tools/call", mcp_name=tool)
    status, _, answer = await send_raw(app, body, named, address=address)
    said = json.loads(answer)
    return status, said["result"]["_meta"]["pegboard/error"] if said.get("result", {}).get("isError") else said


def holding(**bounds: int) -> tuple[Catalog, list[str], asyncio.Event]:
    """Return a catalog whose tool waits for the event, and who began to run it."""
    catalog, began, go = Catalog(bounds=Bounds(**bounds)), list[str](), asyncio.Event()

    @catalog.tool
    async def hold(ctx: ToolContext) -> str:
        """Hold."""
        began.append(ctx.caller.address)
        await go.wait()
        return "held"

    @catalog.tool
    async def add(a: int) -> int:
        """Add."""
        return a + 1

    return catalog, began, go


async def until(holds: Any) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(0)


@asynccontextmanager
async def running(catalog: Catalog) -> AsyncGenerator[Starlette]:
    app = http_app(catalog)
    async with app.router.lifespan_context(app):
        yield app


@pytest.mark.parametrize("call", [by_api, by_mcp])
async def test_bad_calls_of_one_network_are_not_counted_to_another(call: Any) -> None:
    catalog, _, _ = holding(invalid_calls_per_minute=3)
    async with running(catalog) as app:
        for _ in range(5):
            await call(app, "add", {"a": "x"}, HOUSE)
        assert (await call(app, "add", {"a": 1}, HOUSE))[1]["kind"] == "rate_limited"
        assert (await call(app, "add", {"a": 1}, SAME_HOUSE))[1]["kind"] == "rate_limited"
        for other in (NEXT_HOUSE, HERE, "::ffff:192.0.2.9", "::1"):
            status, answer = await call(app, "add", {"a": 1}, other)
            assert (status, "kind" in answer) == (200, False), (other, answer)


async def test_bad_calls_from_many_networks_have_nobody_else_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "FLOODING_CALLERS", 20)
    catalog, _, _ = holding(invalid_calls_per_minute=2)
    async with running(catalog) as app:
        for number in range(40):
            await by_api(app, "add", {"a": "x"}, f"2001:db8:0:{number:x}::1")
        assert (await by_api(app, "add", {"a": 1}, HERE))[0] == 200
        # Those who go on are still told apart, and stopped.
        for _ in range(3):
            await by_api(app, "add", {"a": "x"}, THERE)
        assert (await by_api(app, "add", {"a": 1}, THERE))[1]["kind"] == "rate_limited"
        assert (await by_api(app, "add", {"a": 1}, HERE))[0] == 200


@pytest.mark.parametrize("call", [by_api, by_mcp])
async def test_one_network_leaves_a_quarter_of_the_calls_in_flight_to_others(call: Any) -> None:
    catalog, began, go = holding(calls_in_flight=8)
    async with running(catalog) as app:
        held = [asyncio.create_task(call(app, "hold", {}, HERE)) for _ in range(6)]
        await until(lambda: len(began) == 6)
        for _ in range(3):
            assert (await call(app, "hold", {}, HERE))[0] == 503
        held += [asyncio.create_task(call(app, "hold", {}, THERE)) for _ in range(2)]
        await until(lambda: len(began) == 8)
        assert (await call(app, "add", {"a": 1}, NEXT_HOUSE))[0] == 503
        go.set()
        assert {status for status, _ in await asyncio.gather(*held)} == {200}
        assert (await call(app, "add", {"a": 1}, HERE))[0] == 200
    assert began == [HERE] * 6 + [THERE] * 2


async def test_a_caller_has_one_share_at_both_doors_together() -> None:
    catalog, began, go = holding(calls_in_flight=8)
    async with running(catalog) as app:
        held = [asyncio.create_task(by(app, "hold", {}, HERE)) for by in (by_api, by_mcp) for _ in range(3)]
        await until(lambda: len(began) == 6)
        for by in (by_api, by_mcp):
            assert (await by(app, "add", {"a": 1}, HERE))[1]["kind"] == "busy"
            assert "kind" not in (await by(app, "add", {"a": 1}, THERE))[1]
        go.set()
        await asyncio.gather(*held)


async def test_one_network_opens_no_sessions_or_event_streams_for_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "SESSIONS_OF_ONE", 2)
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}).encode()
    catalog, _, _ = holding()
    async with running(catalog) as app:
        told: dict[str, str] = {}
        statuses = [(await send_raw(app, body, heads(), address=HERE, told=told))[0] for _ in range(3)]
        assert statuses == [200, 200, 503]
        assert (await send_raw(app, body, heads(), address=THERE, told=told))[0] == 200
        # Whose session it is says the credential, as before: who changes networks keeps it.
        named = heads(mcp_session_id=told["mcp-session-id"], mcp_protocol_version="2025-06-18")
        ping = json.dumps({"jsonrpc": "2.0", "id": 2, "method": "ping"}).encode()
        assert (await send_raw(app, ping, named, address=NEXT_HOUSE))[0] == 200
        opened: list[bytes] = []
        listening = [
            asyncio.create_task(
                send_raw(app, b"", heads(), path="/v1/events", method="GET", address=HERE, heard=opened.append)
            )
            for _ in range(API_STREAMS_OF_ONE)
        ]
        await until(lambda: len([part for part in opened if part]) == API_STREAMS_OF_ONE)
        assert (await send_raw(app, b"", heads(), path="/v1/events", method="GET", address=HERE))[0] == 429
        other = asyncio.create_task(
            send_raw(app, b"", heads(), path="/v1/events", method="GET", address=THERE, heard=opened.append)
        )
        await until(lambda: len([part for part in opened if part]) == API_STREAMS_OF_ONE + 1)
        for task in (*listening, other):
            task.cancel()
        await asyncio.gather(*listening, other, return_exceptions=True)
        # What ended counts no longer.
        last = asyncio.create_task(
            send_raw(app, b"", heads(), path="/v1/events", method="GET", address=HERE, heard=opened.append)
        )
        await until(lambda: len([part for part in opened if part]) == API_STREAMS_OF_ONE + 2)
        last.cancel()


async def test_a_single_caller_in_process_has_all_places_until_there_is_another() -> None:
    catalog, began, go = holding(calls_in_flight=4)
    ann, bob = ToolContext(user_id="ann"), ToolContext(user_id="bob")
    alone = [asyncio.create_task(catalog.view(ann).call("hold")) for _ in range(4)]
    await until(lambda: len(began) == 4)
    assert kind_of(await catalog.view(ann).call("hold")) == "busy"
    go.set()
    assert {kind_of(result) for result in await asyncio.gather(*alone)} == {"ok"}
    go.clear()
    both = [asyncio.create_task(catalog.view(who).call("hold")) for who in (bob, ann, ann)]
    await until(lambda: len(began) == 7)
    fourth = asyncio.create_task(catalog.view(ann).call("hold"))
    await until(lambda: len(began) == 8 or fourth.done())
    refused = await catalog.view(ann).call("add", {"a": 1})
    assert kind_of(refused) == "busy"
    go.set()
    assert {kind_of(result) for result in await asyncio.gather(*both, fourth)} == {"ok"}


def test_addresses_count_by_their_network() -> None:
    assert network_of(HOUSE) == network_of(SAME_HOUSE) == "2001:db8:1:2::/64"
    assert network_of("fe80::1%eth0") == "fe80::/64"
    assert network_of("::ffff:192.0.2.9") == network_of("192.0.2.9") == "192.0.2.9"
    assert [network_of(host) for host in ("", "testclient", "unix:", "192.0.2.9:80")] == [""] * 4
