"""Whether the server behind a URL reacts: any sign of life counts, and silence does not."""

import asyncio

import pytest

from pegboard.egress.destinations import only_host_of
from pegboard.egress.reachability import check_reachable
from tests.egress.loopback import RawServer, answer
from tests.timing import PATIENCE_S


async def check(url: str, *, timeout_s: float = PATIENCE_S) -> None:
    await check_reachable(url, only_host_of(url), timeout_s=timeout_s)


async def test_a_server_that_answers_or_hangs_up_is_reachable_and_no_resource_is_requested() -> None:
    async with RawServer(answer(status="405 Method Not Allowed")) as server:
        await check(f"{server.url}/orders?all=1")
        assert (server.hits, server.heads) == (1, [])

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with server:
        await check(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/x")


async def test_a_server_that_accepts_connections_and_stays_silent_is_not_reachable() -> None:
    # The kernel accepts, as it does for a program that is stopped.
    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(wait, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ConnectionError, match=f"^127.0.0.1:{port} accepts connections, but does not answer within"):
            await check(f"http://127.0.0.1:{port}/x", timeout_s=0.2)
