"""How answers are written: one that is ready in one call of the system, others by ASGI's messages."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from pegboard import Catalog, http_app
from pegboard.model.bounds import DEFAULT_BOUNDS
from pegboard.server.http_connection import HttpConnection, ServerState
from tests.server.doors import META


class Wire:
    """A transport that keeps what each write gave it, as one call of the system; its client leaves at the end."""

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
        self.writes.append(b"".join(data))

    def close(self) -> None:
        self.closed.set()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.closed.set()

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


def connected(app: Any, *, header_s: float = DEFAULT_BOUNDS.header_s) -> tuple[HttpConnection, Wire]:
    connection, wire = HttpConnection(ServerState(app, header_s=header_s)), Wire()
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


async def test_an_answer_by_asgi_messages_ends_its_connection_only_when_the_client_wants_that() -> None:
    connection, wire = connected(OTHERS)
    request = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
    for _ in range(2):
        writes = await answered(connection, wire, request, ends=b"hello")
        assert writes[0].startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"connection:" not in writes[0]
    last = await answered(connection, wire, request.replace(b"\r\n", b"\r\nconnection: close\r\n", 1), ends=b"hello")
    assert b"connection: close" in last[0]
    assert wire.closed.is_set()


async def test_what_a_stream_says_later_is_not_waited_for() -> None:
    connection, wire = connected(OTHERS)
    request = b"GET /parts HTTP/1.1\r\nhost: x\r\n\r\n"
    writes = await answered(connection, wire, request, ends=b"0\r\n\r\n")
    assert writes[0].endswith(b"transfer-encoding: chunked\r\n\r\n")
    assert writes[1:] == [b"3\r\none\r\n", b"3\r\ntwo\r\n", b"0\r\n\r\n"]


async def test_an_answer_has_no_body_where_http_has_none() -> None:
    async def empty(_request: Request) -> Response:
        return Response(status_code=204)

    app = Starlette(routes=[Route("/", plain), Route("/empty", empty)])
    connection, wire = connected(app)
    (head, *rest) = await answered(connection, wire, b"HEAD / HTTP/1.1\r\nhost: x\r\n\r\n", ends=b"\r\n\r\n")
    assert b"content-length: 5\r\n" in head
    assert b"".join(rest) == b""
    (head, *rest) = await answered(connection, wire, b"GET /empty HTTP/1.1\r\nhost: x\r\n\r\n", ends=b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 204 No Content\r\n")
    assert b"transfer-encoding" not in head
    assert b"".join(rest) == b""


@pytest.mark.parametrize(
    ("headers", "body", "is_refused_before_it_is_written"),
    [
        ([(b"x-a", b"b\r\nset-cookie: c")], b"", True),
        ([(b"x a", b"b")], b"", True),
        ([(b"content-length", b"4")], b"hello", False),
        ([(b"content-length", b"6")], b"hello", False),
    ],
)
async def test_an_app_whose_answer_would_break_the_protocol_is_stopped(
    headers: Any, body: bytes, is_refused_before_it_is_written: bool
) -> None:
    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    connection, wire = connected(app)
    connection.data_received(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    async with asyncio.timeout(30):
        await wire.closed.wait()
    written = b"".join(wire.writes)
    assert b"set-cookie" not in written
    assert written.startswith(b"HTTP/1.1 500 ") is is_refused_before_it_is_written


async def test_an_app_that_returns_without_an_answer_is_answered_for() -> None:
    async def app(_scope: Any, _receive: Any, _send: Any) -> None: ...

    connection, wire = connected(app)
    (head, body) = await answered(connection, wire, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", ends=b"Error")
    assert head.startswith(b"HTTP/1.1 500 ")
    assert body == b"Internal Server Error"
    assert wire.closed.is_set()


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
        (fast,), (head, body) = ways
        # The second may pass between them.
        fast, ordinary = (re.sub(rb"(?<=\ndate: )[^\r]+", b"now", way) for way in (fast, head + body))
        assert b"date: now" in fast
        # The one that ends its connection goes by ASGI's messages, and says so; the rest is the same.
        assert sorted(ordinary.replace(b"connection: close\r\n", b"").split(b"\r\n")) == sorted(fast.split(b"\r\n"))
        assert b"connection: close" in ordinary


async def test_a_large_answer_goes_out_whole() -> None:
    catalog = Catalog("desk")
    catalog.tool(name="work")(lambda: "x" * 100_000)
    app = http_app(catalog)
    async with app.router.lifespan_context(app):
        connection, wire = connected(app)
        for _ in range(2):
            (write,) = await answered(connection, wire, call_of("work"), ends=b"}")
            head, _, body = write.partition(b"\r\n\r\n")
            assert b"content-length: %d\r\n" % len(body) in head + b"\r\n"
            assert json.loads(body)["result"]["content"][0]["text"] == "x" * 100_000
