"""Several requests on one connection before the first is answered: answers in order, not too many, none left behind."""

import asyncio
import json

import pytest
from starlette.types import Receive, Scope, Send

from pegboard import Catalog, http_app
from pegboard.server.http_connection import PIPELINED_REQUESTS
from tests.server.test_one_go import Wire, answered, connected
from tests.timing import PATIENCE_S

REVISION = "2025-11-25"


class Desk:
    """An app that answers each path with it, when it may."""

    def __init__(self) -> None:
        self.asked, self.left = list[str](), list[str]()
        self.may_answer = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        self.asked.append(path)
        if path == "/slow":
            await receive()
            going = asyncio.ensure_future(receive())
            await asyncio.wait({going, asyncio.ensure_future(self.may_answer.wait())}, return_when="FIRST_COMPLETED")
            if going.done():
                self.left.append(path)
                return
            going.cancel()
        body = path.encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
        await send({"type": "http.response.body", "body": body})


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nhost: x\r\n\r\n".encode()


def bodies(wire: Wire) -> list[str]:
    return [part.partition(b"\r\n\r\n")[2].decode() for part in b"".join(wire.writes).split(b"HTTP/1.1 ")[1:]]


async def closed(wire: Wire) -> None:
    async with asyncio.timeout(PATIENCE_S):
        await wire.closed.wait()


async def test_answers_come_in_the_order_of_their_requests_however_long_the_first_takes() -> None:
    desk = Desk()
    connection, wire = connected(desk)
    connection.data_received(get("/slow") + get("/a") + get("/b")[:9])
    connection.data_received(get("/b")[9:])
    desk.may_answer.set()
    await answered(connection, wire, b"", ends=b"/b")
    assert (bodies(wire), desk.asked) == (["/slow", "/a", "/b"], ["/slow", "/a", "/b"])


async def test_of_endless_requests_some_are_answered_and_the_last_of_them_ends_the_connection() -> None:
    desk = Desk()
    connection, wire = connected(desk)
    connection.data_received(get("/slow") + get("/a") * 1_000)
    connection.data_received(get("/b"))
    desk.may_answer.set()
    await closed(wire)
    assert bodies(wire) == ["/slow", *["/a"] * PIPELINED_REQUESTS]
    assert b"".join(wire.writes).count(b"connection: close") == 1


async def test_what_is_no_request_gets_no_answer_that_would_pass_for_that_of_one_before() -> None:
    desk = Desk()
    connection, wire = connected(desk)
    connection.data_received(get("/slow") + get("/a") + b"no request\r\n\r\n")
    desk.may_answer.set()
    await closed(wire)
    assert bodies(wire) == ["/slow", "/a"]


OFFERS = {
    "h2c": "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__",
    "websocket": "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13",
}


@pytest.mark.parametrize("offer", OFFERS.values(), ids=OFFERS)
async def test_the_body_of_who_offers_another_protocol_is_no_request_wherever_it_is_cut(offer: str) -> None:
    """Java's HttpClient offers h2c with each request; to a proxy that passes it on, what follows is one body."""
    asked = list[bytes]()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        body, is_more = b"", True
        while is_more:
            message = await receive()
            body, is_more = body + message.get("body", b""), message.get("more_body", False)
        asked.append(scope["path"].encode() + b" " + body)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
        await send({"type": "http.response.body", "body": b"done"})

    hidden = get("/hidden")
    head = f"POST /a HTTP/1.1\r\nhost: x\r\n{offer}\r\n".encode()
    framings = [
        b"Content-Length: %d\r\n\r\n%b" % (len(hidden), hidden),
        b"Transfer-Encoding: chunked\r\n\r\n%x;a=b\r\n%b\r\n0\r\nhost: y\r\n\r\n" % (len(hidden), hidden),
    ]
    for sent in [2 * (head + framing) + head + b"\r\n" + get("/b") for framing in framings]:
        for place in range(0, len(sent), 7):
            connection, wire = connected(app)
            asked.clear()
            connection.data_received(sent[:place])
            await asyncio.sleep(0)
            connection.data_received(sent[place:])
            async with asyncio.timeout(PATIENCE_S):
                while len(asked) < 4:
                    await asyncio.sleep(0)
            assert asked == [b"/a " + hidden, b"/a " + hidden, b"/a ", b"/b "], sent[:place]
            connection.connection_lost(None)
    # What is wrong there ends the connection, and of endless ones so many are read, each to its end.
    for unlike, count in [(b"Transfer-Encoding: chunked\r\n", 0), (b"", PIPELINED_REQUESTS + 1)]:
        connection, wire = connected(app)
        asked.clear()
        connection.data_received((head + unlike + b"Content-Length: 1\r\n\r\nx") * 1_000)
        await closed(wire)
        assert asked == [b"/a x"] * count


async def test_who_leaves_is_missed_by_the_request_that_is_answered_though_others_wait_behind_it() -> None:
    desk = Desk()
    connection, wire = connected(desk)
    connection.data_received(get("/slow") + get("/a"))
    await asyncio.sleep(0)
    connection.connection_lost(None)
    async with asyncio.timeout(PATIENCE_S):
        while not desk.left:
            await asyncio.sleep(0)
    assert (desk.left, desk.asked, wire.writes) == (["/slow"], ["/slow"], [])


def of_session(method: str, session: str, message: object = None) -> bytes:
    body = b"" if message is None else json.dumps(message).encode()
    heads = {
        "host": "127.0.0.1:8420",
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        **({"mcp-session-id": session, "mcp-protocol-version": REVISION} if session else {}),
        "content-length": str(len(body)),
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in heads.items())
    return f"{method} /mcp HTTP/1.1\r\n{lines}\r\n".encode() + body


async def test_an_open_stream_takes_no_task_and_is_over_as_soon_as_its_client_leaves() -> None:
    app = http_app(Catalog("desk"))
    async with app.router.lifespan_context(app):
        connection, wire = connected(app)
        info = {"protocolVersion": REVISION, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
        hello = of_session("POST", "", {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": info})
        (opened,) = await answered(connection, wire, hello, ends=b"}}")
        session = opened.partition(b"mcp-session-id: ")[2].partition(b"\r")[0].decode()
        before = len(asyncio.all_tasks())
        stream = of_session("GET", session)
        await answered(connection, wire, stream, ends=b"\r\n\r\n")
        async with asyncio.timeout(PATIENCE_S):
            while len(asyncio.all_tasks()) > before:
                await asyncio.sleep(0)
        # There is one such stream, until its client has gone.
        other, its_wire = connected(app)
        (refused,) = await answered(other, its_wire, stream, ends=b"}")
        assert refused.startswith(b"HTTP/1.1 409")
        connection.connection_lost(None)
        await answered(other, its_wire, stream, ends=b"\r\n\r\n")
        # Whoever ends the session ends the stream, and its connection serves on.
        third, whose_wire = connected(app)
        await answered(third, whose_wire, of_session("DELETE", session), ends=b"\r\n\r\n")
        await answered(other, its_wire, b"", ends=b"0\r\n\r\n")
        assert (await answered(other, its_wire, stream, ends=b"}"))[0].startswith(b"HTTP/1.1 404")


@pytest.mark.parametrize("before", [b"", get("/a")], ids=["first", "later"])
async def test_a_head_that_never_ends_is_not_waited_for_whatever_came_before(before: bytes) -> None:
    connection, wire = connected(Desk(), header_s=0.01)
    if before:
        await answered(connection, wire, before, ends=b"/a")
    connection.data_received(get("/b")[:9])
    await closed(wire)
