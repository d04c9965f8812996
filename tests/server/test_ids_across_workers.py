"""One JSON-RPC id, open twice: each answer goes to the stream of its own request, whichever worker has it."""

import asyncio
import json

import pytest

from pegboard import Catalog, http_app
from tests.server.asgi import send_raw
from tests.server.doors import JSON_HEADERS, META, VERSION
from tests.timing import PATIENCE_S

EARLIER = "2025-06-18"


def catalog() -> tuple[Catalog, list[str], asyncio.Event]:
    """Return one of equal workers' catalogs, whose tool waits for the event."""
    made, began, go = Catalog("same"), list[str](), asyncio.Event()

    @made.tool
    async def hold(word: str) -> str:
        """Hold."""
        began.append(word)
        await go.wait()
        return f"held {word}"

    return made, began, go


def heads(**more: str) -> list[tuple[bytes, bytes]]:
    said = {**JSON_HEADERS, "host": "127.0.0.1", **{name.replace("_", "-"): value for name, value in more.items()}}
    return [(name.encode(), value.encode()) for name, value in said.items()]


def call(word: str, **more: object) -> bytes:
    params = {"name": "hold", "arguments": {"word": word}, **more}
    return json.dumps({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}).encode()


@pytest.mark.parametrize("workers", [1, 2])
async def test_requests_without_a_session_may_share_an_id_on_one_worker_and_on_two(workers: int) -> None:
    parts = [catalog() for _ in range(workers)]
    apps = [http_app(one, keys=(b"k" * 32,)) for one, _, _ in parts]
    named = heads(mcp_protocol_version=VERSION, mcp_method="tools/call", mcp_name="hold")
    words = [f"word-{number}-" for number in range(6)]
    async with asyncio.timeout(PATIENCE_S), apps[0].router.lifespan_context(apps[0]):
        async with apps[-1].router.lifespan_context(apps[-1]):
            asked = [
                asyncio.create_task(send_raw(apps[number % workers], call(word, _meta=META), named))
                for number, word in enumerate(words)
            ]
            while sum(len(began) for _, began, _ in parts) < len(words):
                await asyncio.sleep(0)
            for _, _, go in parts:
                go.set()
            for word, (status, _, answer) in zip(words, await asyncio.gather(*asked), strict=True):
                assert (status, [one for one in words if one.encode() in answer]) == (200, [word])


async def test_a_session_on_two_workers_has_an_id_open_once_on_each_with_its_own_answer() -> None:
    (one, began, go), (other, began_there, go_there) = catalog(), catalog()
    apps = [http_app(each, keys=(b"k" * 32,)) for each in (one, other)]
    params = {"protocolVersion": EARLIER, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    begin = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}).encode()
    async with asyncio.timeout(PATIENCE_S), apps[0].router.lifespan_context(apps[0]):
        async with apps[1].router.lifespan_context(apps[1]):
            told: dict[str, str] = {}
            assert (await send_raw(apps[0], begin, heads(), told=told))[0] == 200
            named = heads(mcp_protocol_version=EARLIER, mcp_session_id=told["mcp-session-id"])
            ready = json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}).encode()
            assert (await send_raw(apps[0], ready, named))[0] == 202
            first = asyncio.create_task(send_raw(apps[0], call("first"), named))
            while not began:
                await asyncio.sleep(0)
            # Each worker has streams of its own, and no answer of one goes out on those of the other.
            second = asyncio.create_task(send_raw(apps[1], call("second"), named))
            while not began_there:
                await asyncio.sleep(0)
            for app in apps:
                refused = await send_raw(app, call("third"), named)
                assert (refused[0], b"already open in this session" in refused[2]) == (400, True)
            go.set()
            go_there.set()
            for word, asked in (("first", first), ("second", second)):
                status, _, answer = await asked
                assert (status, [one for one in ("first", "second") if one.encode() in answer]) == (200, [word])
            assert (began, began_there) == (["first"], ["second"])
