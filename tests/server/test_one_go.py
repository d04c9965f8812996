"""An answer goes out in one go: a call of the system and a packet for head and body together."""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from uvicorn.server import ServerState

from pegboard import Catalog, http_app
from pegboard.server.http_connection import HttpConnection, WrittenTogether
from tests.server.doors import META


class Wire:
    """A transport that keeps what each write gave it."""

    def __init__(self) -> None:
        self.writes = list[bytes]()
        self.closed = asyncio.Event()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("127.0.0.1", 5), "sockname": ("127.0.0.1", 8420)}.get(name, default)

    def is_closing(self) -> bool:
        return self.closed.is_set()

    def write(self, data: bytes) -> None:
        assert not self.closed.is_set()
        self.writes.append(data)

    def writelines(self, data: list[bytes]) -> None:
        assert not self.closed.is_set()
        self.writes += data

    def close(self) -> None:
        self.closed.set()

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


def connected(app: Any) -> tuple[HttpConnection, Wire]:
    config = uvicorn.Config(app, http=HttpConnection, log_config=None, ws="none", server_header=False)
    config.load()
    connection, wire = HttpConnection(config, ServerState(), {}), Wire()
    connection.connection_made(wire)
    return connection, wire


async def answered(connection: HttpConnection, wire: Wire, request: bytes, *, ends: bytes) -> list[bytes]:
    """Return the writes of one answer, which ends with these bytes."""
    wire.writes.clear()
    connection.data_received(request)
    async with asyncio.timeout(30):
        while not b"".join(wire.writes).endswith(ends):
            await asyncio.sleep(0)
    return list(wire.writes)


def call_of(tool: str) -> bytes:
    params = {"name": tool, "arguments": {}, "_meta": META}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    heads = {
        "host": "127.0.0.1:8420",
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "tools/call",
        "mcp-name": tool,
        "content-length": str(len(body)),
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in heads.items())
    return f"POST /mcp HTTP/1.1\r\n{lines}\r\n".encode() + body


async def plain(_request: Request) -> Response:
    return PlainTextResponse("hello")


async def parts(_request: Request) -> Response:
    async def said() -> AsyncGenerator[bytes]:
        yield b"one"
        await asyncio.sleep(0)
        yield b"two"

    return StreamingResponse(said())


OTHERS = Starlette(routes=[Route("/", plain), Route("/parts", parts)])


async def test_head_and_body_of_an_answer_are_one_write_and_so_is_one_that_ends_its_connection() -> None:
    connection, wire = connected(OTHERS)
    for _ in range(2):
        (write,) = await answered(connection, wire, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", ends=b"hello")
        assert write.startswith(b"HTTP/1.1 200 OK\r\n")
    last = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    (write,) = await answered(connection, wire, last, ends=b"hello")
    assert b"connection: close" in write
    assert wire.closed.is_set()


async def test_what_a_stream_says_later_is_not_waited_for() -> None:
    connection, wire = connected(OTHERS)
    request = b"GET /parts HTTP/1.1\r\nhost: x\r\n\r\n"
    writes = await answered(connection, wire, request, ends=b"0\r\n\r\n")
    assert len(writes) > 1
    assert b"one" in writes[0]
    assert b"two" not in writes[0]


async def test_a_call_is_answered_in_one_write_with_the_headers_that_every_answer_has() -> None:
    catalog = Catalog("desk")
    catalog.tool(name="work")(lambda: "done")
    app = http_app(catalog)
    async with app.router.lifespan_context(app):
        connection, wire = connected(app)
        request = call_of("work")
        ways = list[list[bytes]]()
        for more in (b"", b"connection: close\r\n"):
            ways.append(await answered(connection, wire, request.replace(b"\r\n", b"\r\n" + more, 1), ends=b"}"))
        (fast,), (ordinary,) = ways
        # The one that ends its connection goes by ASGI's messages, and says so; the rest is the same.
        assert sorted(ordinary.replace(b"connection: close\r\n", b"").split(b"\r\n")) == sorted(fast.split(b"\r\n"))
        assert b"connection: close" in ordinary


async def test_a_large_answer_is_not_copied_behind_its_head() -> None:
    catalog = Catalog("desk")
    catalog.tool(name="work")(lambda: "x" * 100_000)
    app = http_app(catalog)
    async with app.router.lifespan_context(app):
        connection, wire = connected(app)
        for _ in range(2):
            head, body = await answered(connection, wire, call_of("work"), ends=b"}")
            assert b"content-length: %d\r\n" % len(body) in head
            assert head.endswith(b"\r\n\r\n")
            assert json.loads(body)["result"]["content"][0]["text"] == "x" * 100_000


async def test_what_waits_for_a_client_that_has_gone_is_dropped_in_silence() -> None:
    loop, wire, raised = asyncio.get_running_loop(), Wire(), list[Any]()
    loop.set_exception_handler(lambda _, context: raised.append(context))
    try:
        together = WrittenTogether(wire, loop, lambda: False)
        together.write(b"HTTP/1.1 200 OK\r\n")
        wire.closed.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    finally:
        loop.set_exception_handler(None)
    assert (wire.writes, raised) == ([], [])
