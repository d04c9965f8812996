"""What a bad network does to calls of a server behind it: slow, cut, half-closed, closed or swallowed on the way."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pegboard.core.view import View
from pegboard.model.record import replace
from pegboard.model.result import ToolResult
from tests.evil.faults import Faults, fault_proxy
from tests.security.test_mcp_http_client import evil_http, on_http
from tests.upstream_mcp.parts import EVIL, free_port, on_stdio, running, until, view_of

# Long enough for any machine; what hangs is seen all the same.
PATIENCE_S = 60.0


@pytest.fixture(params=["http", "sse"])
def transport(request: pytest.FixtureRequest) -> str:
    return request.param


@asynccontextmanager
async def behind(transport: str, **said: Any) -> AsyncGenerator[tuple[View, Any, Faults]]:
    """Give a view of a server, its source, and what stands between them."""
    port, faults = free_port(), Faults()
    async with evil_http(port), fault_proxy(port, faults):
        calm = on_stdio(EVIL, name="calm", trust="any")
        path = {"http": "mcp", "sse": "sse"}[transport]
        there = replace(on_http(faults.port, **said), transport=transport, url=f"http://127.0.0.1:{faults.port}/{path}")
        async with running(there, calm) as (catalog, (source, _)):
            async with asyncio.timeout(PATIENCE_S):
                yield view_of(catalog), source, faults


def kind_of(result: ToolResult) -> str:
    return "ok" if result.error is None else result.error.kind


async def ten(view: View) -> set[str]:
    return {kind_of(one) for one in await asyncio.gather(*(view.call("up__write", {"text": "x"}) for _ in range(10)))}


async def works_again(view: View) -> None:
    assert kind_of(await view.call("calm__echo", {"text": "hi"})) == "ok"
    while kind_of(await view.call("up__echo", {"text": "hi"})) != "ok":
        await asyncio.sleep(0.01)


def drop(faults: Faults) -> None:
    """End the connections that are open: each counts its bytes from its own beginning."""
    for task in tuple(faults.open_connections):
        task.cancel()


async def test_a_slow_way_delays_calls_and_changes_nothing_else(transport: str) -> None:
    async with behind(transport) as (view, source, faults):
        for faults.latency_s, faults.bytes_per_s in ((0.1, None), (0.0, 4_000.0)):
            assert await ten(view) == {"ok"}
        assert source.state().status == "ok"


async def test_a_black_hole_ends_each_call_at_its_deadline_and_the_server_is_found_again(transport: str) -> None:
    # Over SSE the message that is on its way blocks those behind it until it is given up, after the `timeout`.
    async with behind(transport, timeout_s=1.5, own={"timeout_s": 1.0}) as (view, _, faults):
        faults.is_black_hole = True
        lost = asyncio.create_task(ten(view))
        assert kind_of(await view.call("calm__echo", {"text": "hi"})) == "ok"
        assert await lost == {"timeout"}
        faults.is_black_hole = False
        await works_again(view)


@pytest.mark.parametrize("fault", ["reset_at_byte", "half_close_at_byte"])
async def test_a_cut_in_mid_answer_is_a_definite_end(transport: str, fault: str) -> None:
    async with behind(transport) as (view, _, faults):
        setattr(faults, fault, 40)
        drop(faults)
        assert await ten(view) <= {"upstream_lost", "upstream_unavailable"}
        setattr(faults, fault, None)
        drop(faults)
        await works_again(view)


async def test_a_way_that_is_closed_makes_the_server_unreachable_until_it_is_open_again(transport: str) -> None:
    async with behind(transport) as (view, source, faults):
        faults.is_refusing = True
        drop(faults)
        assert await ten(view) <= {"upstream_lost", "upstream_unavailable"}
        # It accepts connections and drops them; asking for the list again and again would never end.
        await until(lambda: source.state().status == "unreachable", within_s=PATIENCE_S)
        assert kind_of(await view.call("up__echo", {"text": "hi"})) == "upstream_unavailable"
        faults.is_refusing = False
        await works_again(view)
