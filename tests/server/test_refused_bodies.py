"""A body that is refused while it is still being sent: its client reads why, whatever it goes on to send."""

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.server.doors import listening
from tests.server.processes import serving
from tests.timing import PATIENCE_S

LIMIT = "limits: {request_body_bytes: 100000}\npython: [patient]\ntools: [{name: datetime_now, type: builtin}]\n"
# A client that may not run for two seconds has not read its answer by then.
PATIENT = f"from pegboard.server import http_connection\n\nhttp_connection.LINGER_S = {PATIENCE_S}\n"
BODY = b"x" * 8_000_000


async def test_the_answer_to_a_body_that_is_too_long_reaches_a_client_that_reads_last(tmp_path: Path) -> None:
    (tmp_path / "pegboard.yaml").write_text(LIMIT)
    (tmp_path / "patient.py").write_text(PATIENT)
    async with serving(tmp_path) as server:
        host, port = server.url.removeprefix("http://").split(":")
        for path in ("/mcp", "/v1/tools/datetime_now/call") * 5:
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(
                f"POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
                f"Accept: application/json, text/event-stream\r\nContent-Length: {len(BODY)}\r\n\r\n".encode()
            )
            # All of it is written before anything is read, as many clients do.
            writer.write(BODY)
            await writer.drain()
            async with asyncio.timeout(60):
                answer = await reader.read()
            assert answer.startswith(b"HTTP/1.1 413"), answer[:200]
            assert b"100000" in answer
            writer.close()


class Reading:
    """An app that reads the request and then answers; `/started` and `/answered` answer, in part or in full, first."""

    def __init__(self) -> None:
        self.left = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http"
        if scope["path"] != "/":
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
            await send({"type": "http.response.body", "body": b"do", "more_body": True})
        if scope["path"] == "/answered":
            await send({"type": "http.response.body", "body": b"ne"})
            return
        while (message := await receive())["type"] == "http.request" and message["more_body"]:
            pass
        if message["type"] == "http.disconnect":
            self.left.set()


def answer_to(url: str, first: bytes, then: bytes, *, reads_between: bool = False) -> bytes:
    """Send two parts of a request, the second whole before reading on, as simple clients do; return all answers."""
    host, port = url.removeprefix("http://").split(":")
    answer = b""
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as client:
        client.sendall(first)
        while reads_between and not answer.partition(b"\r\n\r\n")[2]:
            answer += client.recv(65536)
        try:
            client.sendall(then)
            while part := client.recv(65536):
                answer += part
        except ConnectionError:
            answer += b" and a reset"
    return answer


def chunked(path: str) -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n".encode()


REST = b"x" * 3_000_000
INVALID = {
    "a chunk": (chunked("/"), b"no chunk\r\n" + REST),
    "extensions of chunks": (chunked("/"), b"1;" + REST),
    "a header": (b"GET / HTTP/1.1\r\n", b"no header\r\n\r\n" + REST),
    "headers": (b"GET / HTTP/1.1\r\n", b"X: " + REST),
    "no HTTP": (b"", REST),
}


@pytest.mark.parametrize(("first", "then"), INVALID.values(), ids=INVALID)
async def test_the_answer_to_invalid_http_reaches_a_client_that_sends_all_before_it_reads(
    first: bytes, then: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pegboard.server.http_connection.LINGER_S", PATIENCE_S)
    app = Reading()
    async with listening(app) as url:
        for _ in range(5):
            answer = await asyncio.to_thread(answer_to, url, first, then)
            assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n"), answer
            assert answer.endswith((b"received.", b"around them.", b"too long.")), answer
    assert app.left.is_set() is first.startswith(b"POST")


@pytest.mark.parametrize(("path", "body"), [("/started", b"do"), ("/answered", b"done")])
async def test_invalid_chunks_get_no_second_answer_when_the_first_has_begun(path: str, body: bytes) -> None:
    async with listening(Reading()) as url:
        answer = await asyncio.to_thread(answer_to, url, chunked(path), b"no chunk\r\n", reads_between=True)
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.partition(b"\r\n\r\n")[2] == body
