"""The shared cases of the MCP server, named after their ids; 04 and 05 stand in test_mcp_server_credentials."""

import asyncio
import gc
import json
import logging
import os
import resource
import statistics
import time
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from pegboard import Bounds, CallContext, Catalog, DefinitionError, Profile, http_app, run_http
from pegboard.model.secret import Secret
from pegboard.server import http_connection
from pegboard.server.http_connection import HttpConnection
from tests.server.doors import (
    JSON_HEADERS,
    META,
    VERSION,
    answer_of,
    call,
    inside,
    listening,
    names,
    post,
    served,
    workshop,
)
from tests.server.processes import serving
from tests.sizes import IS_SOAK
from tests.timing import CPU, PATIENCE_S, is_within, running_clock

LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": META}}
HEADERS = {**JSON_HEADERS, "mcp-protocol-version": VERSION, "mcp-method": "tools/list"}


async def raw(url: str, head: list[str], body: bytes = b"", *, path: str = "/mcp") -> tuple[int, bytes]:
    """Send a request byte for byte; return the status and all that comes until the server closes or is done."""
    host, _, port = url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write("\r\n".join([f"POST {path} HTTP/1.1", *head, "", ""]).encode() + body)
        first = await asyncio.wait_for(reader.readline(), 60)
        rest = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)
        return int(first.split()[1]), rest
    finally:
        writer.close()


def lines(url: str, *more: str, size: int | None = None) -> list[str]:
    body = json.dumps(LIST)
    own = [f"{name}: {value}" for name, value in HEADERS.items()]
    host = [] if any(line.lower().startswith("host:") for line in more) else [f"Host: {url.removeprefix('http://')}"]
    return [*host, *own, f"Content-Length: {len(body) if size is None else size}", *more]


BODY = json.dumps(LIST).encode()
IDLE = """
limits: {header_s: 120}
tools: [{name: datetime_now, type: builtin}]
"""


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8420", "127.0.0.1.evil.example", "localhost@evil", ""])
async def test_mcps_01_a_foreign_host_is_refused(host: str) -> None:
    catalog, seen = workshop()
    async with served(http_app(catalog)) as url:
        status, _ = await raw(url, lines(url, f"Host: {host}"), BODY)
        assert status in (400, 421)
        twice, _ = await raw(url, [*lines(url, f"Host: {url.removeprefix('http://')}"), "Host: evil.example"], BODY)
        assert twice in (400, 421)
        good, _ = await raw(url, lines(url), BODY)
        assert good == 200
    assert seen.runs == []


@pytest.mark.parametrize("path", ["/mcp/", "/mcp/chat/", "/v1/tools/", "/healthz/", "/none/"])
async def test_a_foreign_host_is_not_redirected_to_itself(path: str) -> None:
    async with served(http_app(workshop()[0])) as url:
        status, rest = await raw(url, lines(url, "Host: evil.example"), BODY, path=path)
        assert (status, b"evil.example" in rest) == (421, False)
        status, rest = await raw(url, lines(url), BODY, path="/mcp/")
        assert (status, f"location: {url}/mcp\r\n".encode() in rest.lower()) == (307, True)


@pytest.mark.parametrize(
    "charset", ["utf-7", '"UTF-7"', "utf-16", "utf-32", "iso-2022-kr", "hz-gb-2312", "cp037", "latin-1", ""]
)
@pytest.mark.parametrize("path", ["/mcp", "/v1/tools/add/call"])
async def test_a_body_in_another_encoding_than_utf_8_is_refused_unread(path: str, charset: str) -> None:
    catalog, seen = workshop()
    async with inside(http_app(catalog)) as client:
        for media in (f"application/json; charset={charset}", f"Application/JSON;x=1; Charset = {charset}"):
            arguments = {"a": 1, "b": 2}
            call = {**LIST, "method": "tools/call", "params": {"name": "add", "arguments": arguments, "_meta": META}}
            headers = {**HEADERS, "content-type": media, "mcp-method": "tools/call", "mcp-name": "add"}
            content = json.dumps(arguments if path.startswith("/v1") else call).encode()
            assert (await client.post(path, content=content, headers=headers)).status_code == 415
            headers["content-type"] = "application/json; charset=UTF-8"
            assert (await client.post(path, content=content, headers=headers)).status_code == 200
    assert seen.runs == ["add"] * 2


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "null",
        "http://localhost.evil.example",
        "http://127.0.0.1@evil",
        "http://127.0.0.1:8420@evil.example",
        "http://localhost:1:2",
        "https://[::1]evil.example",
        "ftp://localhost",
        "",
    ],
)
@pytest.mark.parametrize("path", ["/mcp", "/mcp/admin"])
async def test_mcps_02_a_foreign_origin_is_refused(origin: str, path: str) -> None:
    async with inside(http_app(workshop()[0])) as client:
        assert (await client.post(path, headers={**HEADERS, "origin": origin}, json=LIST)).status_code == 403
        own = {**HEADERS, "origin": "http://127.0.0.1:8420"}
        assert (await client.post(path, headers=own, json=LIST)).status_code == 200


async def test_mcps_02_two_origins_are_refused() -> None:
    async with served(http_app(workshop()[0])) as url:
        status, _ = await raw(url, lines(url, "Origin: http://localhost:1", "Origin: http://localhost:1"), BODY)
        assert status == 403


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "tools.example.com"])
def test_mcps_03_nobody_listens_to_the_world_without_credentials_unless_told_in_words(host: str) -> None:
    with pytest.raises(DefinitionError, match="other machines could call every tool"):
        run_http(workshop()[0], host=host)


def test_mcps_03_a_wildcard_needs_the_names_of_the_server() -> None:
    with pytest.raises(DefinitionError, match="name the hosts that clients use"):
        run_http(workshop()[0], host="0.0.0.0", allow_anonymous_from_anywhere=True)


@pytest.mark.parametrize("size", [5_000_000, 100_000_000, 10**18])
async def test_mcps_12_a_body_that_says_it_is_too_long_is_not_read(size: int) -> None:
    async with served(http_app(workshop()[0])) as url:
        status, rest = await raw(url, lines(url, size=size), BODY)
        assert (status, b"connection: close" in rest) == (413, True)


async def test_mcps_12_a_body_that_turns_out_too_long_is_dropped_at_the_limit() -> None:
    catalog = workshop()[0]
    async with served(http_app(catalog)) as url:
        sent = 0

        async def endless() -> AsyncGenerator[bytes]:
            nonlocal sent
            while sent < 100_000_000:
                sent += 65_536
                yield b" " * 65_536

        async with httpx2.AsyncClient(base_url=url) as client:
            try:
                response = await client.post("/mcp", headers=HEADERS, content=endless())
                assert response.status_code == 413
            except httpx2.TransportError:
                pass
            assert sent < 20_000_000
            assert await names(client) != []


async def test_mcps_12_a_compressed_body_is_not_unpacked() -> None:
    async with inside(http_app(workshop()[0])) as client:
        response = await client.post("/mcp", headers={**HEADERS, "content-encoding": "gzip"}, content=b"\x1f\x8b")
        assert response.status_code == 415


async def test_mcps_12_a_body_that_never_comes_is_given_up() -> None:
    catalog = Catalog(bounds=Bounds(body_s=0.2))
    async with served(http_app(catalog)) as url:
        status, _ = await raw(url, lines(url, size=len(BODY) + 5), BODY)
        assert status == 408


DEEP = {
    "arrays": b"[" * 50_000,
    "objects": b'{"a":' * 10_000,
    "closed": b"[" * 50_000 + b"]" * 50_000,
    "arguments": json.dumps({**LIST, "params": {"name": "echo"}}).encode().replace(b'"echo"', b"[" * 90 + b"]" * 90),
}


@pytest.mark.parametrize("body", DEEP.values(), ids=DEEP.keys())
@pytest.mark.parametrize("version", [VERSION, "2025-11-25"])
async def test_mcps_13_deep_json_is_refused_at_once(body: bytes, version: str) -> None:
    async with inside(http_app(workshop()[0])) as client:
        await names(client)
        started = CPU()
        response = await client.post("/mcp", headers={**HEADERS, "mcp-protocol-version": version}, content=body)
        assert is_within(CPU() - started, 0.05, CPU)
        assert (response.status_code, response.json()["error"]["code"]) == (400, -32700)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e400", "9" * 10_000])
async def test_mcps_15_numbers_that_json_does_not_have_are_refused(number: str) -> None:
    catalog, seen = workshop()
    async with inside(http_app(catalog)) as client:
        body = json.dumps(
            {**LIST, "method": "tools/call", "params": {"name": "add", "arguments": {"a": 0}, "_meta": META}}
        )
        headers = {**HEADERS, "mcp-method": "tools/call", "mcp-name": "add"}
        response = await client.post("/mcp", headers=headers, content=body.replace('"a": 0', f'"b": 1, "a": {number}'))
        assert (response.status_code, response.json()["error"]["code"]) == (400, -32700)
        assert seen.runs == []


@pytest.mark.parametrize("meta", [{}, {"progressToken": 1}], ids=["door", "sdk"])
async def test_mcps_15_large_integers_come_back_exactly(meta: dict[str, Any]) -> None:
    async with inside(http_app(workshop()[0])) as client:
        result = (await call(client, "add", {"a": 2**53, "b": 1}, meta=meta))["result"]
        assert (result["structuredContent"], result["content"][0]["text"]) == (2**53 + 1, str(2**53 + 1))


@contextmanager
def room_for(connections: int, *, files_each: int = 1) -> Generator[int]:
    """Allow so many for the time of the block, here and in processes started there; gives how many there may be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections * files_each + 500
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, allowed), hard))
    try:
        # Fewer only where the machine allows no more open files; in whole hundreds, as they are made.
        yield (allowed - 500) // files_each // 100 * 100
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def connected(url: str, count: int) -> list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    host, _, port = url.removeprefix("http://").partition(":")
    made = list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]()
    while len(made) < count:
        async with asyncio.timeout(60):
            # As many at once as the system's queue of a listening socket holds anywhere.
            made += await asyncio.gather(*(asyncio.open_connection(host, int(port)) for _ in range(100)))
    return made


async def usual_s(client: httpx2.AsyncClient) -> float:
    """Return how long a list takes, as a rule."""
    took = list[float]()
    for _ in range(30):
        started = time.perf_counter()
        assert await names(client) != []
        took.append(time.perf_counter() - started)
    return statistics.median(took)


async def dribble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, every_s: float) -> None:
    """Send a head byte by byte until the connection is closed."""
    ended = asyncio.create_task(reader.read())
    with suppress(ConnectionError):
        for byte in b"POST /mcp HTTP/1.1":
            writer.write(bytes([byte]))
            if (await asyncio.wait([ended], timeout=every_s))[0]:
                break
    # A byte that came too late to be read makes the end a reset.
    with suppress(ConnectionError):
        assert await ended == b""
    writer.close()


async def test_mcps_19_a_thousand_connections_that_dribble_their_headers_are_closed_and_hold_nobody_up() -> None:
    header_s, app = 2.0, http_app(workshop()[0])
    with room_for(1_000, files_each=2) as count:
        serving_app = listening(app, starts=app, header_s=header_s)
        async with serving_app as url, httpx2.AsyncClient(base_url=url) as client:
            before_s, began = await usual_s(client), time.perf_counter()
            slow = [asyncio.create_task(dribble(*pair, every_s=header_s / 2)) for pair in await connected(url, count)]
            assert is_within(await usual_s(client), 2 * before_s + 0.05)
            first = await asyncio.wait(slow, return_when=asyncio.FIRST_COMPLETED)
            assert time.perf_counter() - began >= header_s
            assert len(first[0]) + len(first[1]) == count
            await asyncio.wait_for(asyncio.gather(*slow), PATIENCE_S)
            assert await names(client) != []


async def test_mcps_19_endless_headers_are_cut() -> None:
    app = http_app(workshop()[0])
    async with listening(app, starts=app) as url:
        assert (await raw(url, [f"X-{number}: {'x' * 1000}" for number in range(5_000)]))[0] == 400


async def test_mcps_19_more_headers_than_anybody_needs_are_refused_before_they_are_read() -> None:
    app = http_app(workshop()[0])
    async with listening(app, starts=app) as url:
        asked = [(await raw(url, [f"x{number}: y" for number in range(count)]))[0] for count in (200, 257)]
    assert 400 not in asked[:1]
    assert asked[1] == 400


CHUNKED = ("Transfer-Encoding: chunked", "Content-Type: application/json", "Connection: close")
ECHO = b'15\r\n{"text": "a message"}\r\n0\r\n'


async def sent(url: str, first: str, headers: Sequence[str], *pieces: bytes) -> bytes:
    """Send a request piece by piece, and return all that is answered until the connection is closed."""
    host, _, port = url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    answering = asyncio.create_task(reader.read())
    with suppress(OSError):
        writer.write("\r\n".join([first, *headers, "", ""]).encode())
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
    async with asyncio.timeout(PATIENCE_S):
        try:
            return await answering
        except OSError:
            return b""
        finally:
            writer.close()


@pytest.mark.parametrize("apart", [False, True])
async def test_what_stands_behind_a_body_is_no_header(apart: bool) -> None:
    catalog, heard = workshop()[0], list[list[str]]()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await inner(scope, receive, send)
        if scope["type"] == "http":
            heard.append([name.decode() for name, _ in scope["headers"]])

    inner = http_app(catalog)
    async with listening(app, starts=inner) as url:
        trailers = b"Host: evil.example\r\nOrigin: http://evil.example\r\nX-Forwarded-For: 127.0.0.1\r\n\r\n"
        pieces = [ECHO, trailers] if apart else [ECHO + trailers]
        said = ["Host: 127.0.0.1", *CHUNKED]
        answer = await sent(url, "POST /v1/tools/echo/call HTTP/1.1", said, *pieces)
    assert b"200 OK" in answer.partition(b"\r\n")[0], answer
    assert heard == [["host", "transfer-encoding", "content-type", "connection"]]


ENDLESS = {
    "trailers": [ECHO, *[b"X-A: " + b"x" * 60_000 + b"\r\n"] * 400],
    "one trailer": [ECHO + b"X-A: ", *[b"x" * 60_000] * 400],
    "what is said of a chunk": [b"1;", *[b"x" * 60_000] * 400],
}


@pytest.mark.parametrize("endless", ENDLESS.values(), ids=ENDLESS)
async def test_mcps_12_what_stands_around_a_body_ends_too(
    endless: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connection, "LINGER_BYTES", 1_000_000)
    taken = 0

    received = HttpConnection.data_received

    def counted(connection: HttpConnection, data: bytes) -> None:
        nonlocal taken
        taken += len(data)
        received(connection, data)

    monkeypatch.setattr(HttpConnection, "data_received", counted)
    app = http_app(workshop()[0])
    async with listening(app, starts=app) as url:
        refused = await sent(url, "POST /v1/tools/echo/call HTTP/1.1", ["Host: 127.0.0.1", *CHUNKED], *endless)
        assert taken < 2_000_000
        # It sends more than is read after the answer, so a reset may reach it first.
        assert refused.partition(b"\r\n")[0] in (b"HTTP/1.1 400 Bad Request", b"")
        # Small chunks are a body like any other.
        small = b"".join(b"1\r\n%c\r\n" % letter for letter in b'{"text": "' + b"x" * 40_000 + b'"}') + b"0\r\n\r\n"
        answer = await sent(url, "POST /v1/tools/echo/call HTTP/1.1", ["Host: 127.0.0.1", *CHUNKED], small)
        assert b"200 OK" in answer.partition(b"\r\n")[0]


async def test_mcps_12_a_chunk_extension_of_a_megabyte_is_refused_and_not_waited_for() -> None:
    catalog, _ = workshop()
    app = http_app(catalog)
    async with listening(app, starts=app) as url:
        long = [b"1;", b"x" * 1_000_000]  # and its line does not end
        refused = await sent(url, "POST /v1/tools/echo/call HTTP/1.1", ["Host: 127.0.0.1", *CHUNKED], *long)
    assert refused.partition(b"\r\n")[0] == b"HTTP/1.1 400 Bad Request"


async def test_mcps_12_a_chunk_size_is_judged_by_its_value_and_not_by_its_digits() -> None:
    catalog, _ = workshop()
    app, body = http_app(catalog), b'{"text": "x"}'
    async with listening(app, starts=app) as url:
        for size, status in ((b"%017x" % len(body), b"200"), (b"1" + b"0" * 16, b"400")):
            chunk = size + b"\r\n" + body + b"\r\n0\r\n\r\n"
            answer = await sent(url, "POST /v1/tools/echo/call HTTP/1.1", ["Host: 127.0.0.1", *CHUNKED], chunk)
            assert answer.split(b" ")[1] == status, answer


@pytest.mark.parametrize(
    ("address", "status"),
    [("http://127.0.0.1:80", b"200"), ("http://[::1]", b"200"), ("http://evil.example", b"421"),
     ("http://evil.example:80", b"421"), ("https://127.0.0.1.evil.example", b"421")],
)  # fmt: skip
async def test_mcps_01_a_host_in_the_first_line_counts_before_the_header(address: str, status: bytes) -> None:
    app = http_app(workshop()[0])
    async with listening(app, starts=app) as url:
        first = f"POST {address}/v1/tools/echo/call HTTP/1.1"
        answer = await sent(url, first, ["Host: 127.0.0.1", *CHUNKED], ECHO + b"\r\n")
    assert answer.split(b" ")[1] == status, answer


async def test_mcps_21_a_client_that_leaves_leaves_nothing_behind() -> None:
    catalog, seen = workshop()
    async with served(http_app(catalog)) as url, httpx2.AsyncClient(base_url=url) as client:
        before = len(asyncio.all_tasks())
        for meta in ({}, {"progressToken": 1}):
            seen.began.clear()
            seen.ended.clear()
            asked = asyncio.create_task(post(client, "tools/call", {"name": "wait"}, meta=meta))
            await asyncio.wait_for(seen.began.wait(), 60)
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)
            with running_clock() as clock:
                left = clock()
                await asyncio.wait_for(seen.ended.wait(), 60)
                assert is_within(clock() - left, 0.1)
        assert catalog.executor.in_flight == {}
        async with asyncio.timeout(PATIENCE_S):
            while len(asyncio.all_tasks()) > before:
                await asyncio.sleep(0.01)
    assert [kind for _, kind in seen.results] == ["cancelled", "cancelled"]


async def test_mcps_22_beyond_what_may_run_at_once_a_client_is_told_to_come_back() -> None:
    catalog = Catalog(bounds=Bounds(calls_in_flight=20))
    started, go = asyncio.Semaphore(0), asyncio.Event()

    @catalog.tool(groups="core")
    async def hold(ctx: CallContext) -> str:
        started.release()
        await go.wait()
        return "held"

    catalog.profile(Profile(name="chat", include=("core",)))
    async with inside(http_app(catalog)) as client:
        # Of the 20 places one caller has 15, so that others find some.
        held = [asyncio.create_task(call(client, "hold")) for _ in range(15)]
        for _ in held:
            await started.acquire()
        response = await post(client, "tools/list")
        assert (response.status_code, response.headers["retry-after"]) == (503, "1")
        assert response.json()["error"]["message"] == "The server is busy. Try again in a moment."
        go.set()
        assert {answer["result"]["content"][0]["text"] for answer in await asyncio.gather(*held)} == {"held"}
        assert await names(client) == ["hold"]


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


async def test_mcps_22_thousands_of_idle_connections_keep_nobody_out_and_take_little(tmp_path: Path) -> None:
    (tmp_path / "pegboard.yaml").write_text(IDLE)
    with room_for(5_000 if IS_SOAK else 1_500) as count:
        async with serving(tmp_path) as server, httpx2.AsyncClient(base_url=server.url) as client:
            before_s, before_bytes = await usual_s(client), resident_bytes(server.pid)
            idle = await connected(server.url, count)
            async with httpx2.AsyncClient(base_url=server.url) as late:
                assert await names(late) == ["datetime_now"], "who comes now is let in"
            assert is_within(await usual_s(client), 2 * before_s + 0.05)
            assert resident_bytes(server.pid) - before_bytes < count * 20 * 1024
            assert not any(reader.at_eof() for reader, _ in idle)
            for _, writer in idle:
                writer.transport.abort()


@pytest.mark.parametrize("version", [VERSION, "2025-11-25"])
async def test_mcps_26_a_bug_of_ours_tells_the_client_nothing(version: str, caplog: pytest.LogCaptureFixture) -> None:
    catalog, _ = workshop()

    def fail(_visit: object) -> Any:
        raise RuntimeError("postgres://db.internal/ at " + os.getcwd())

    with caplog.at_level(logging.CRITICAL):
        async with served(http_app(catalog, config=fail)) as url, httpx2.AsyncClient(base_url=url) as client:
            headers = JSON_HEADERS
            if version != VERSION:
                hello = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
                begin = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}
                session = (await client.post("/mcp", headers=JSON_HEADERS, json=begin)).headers["mcp-session-id"]
                headers = {**JSON_HEADERS, "mcp-session-id": session, "mcp-protocol-version": version}
            for method, params in (("tools/list", {}), ("tools/call", {"name": "add", "arguments": {}})):
                if version == VERSION:
                    response = await post(client, method, params)
                else:
                    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
                    response = await client.post("/mcp", headers=headers, json=message)
                assert answer_of(response)["error"] == {"code": -32603, "message": "Internal server error"}


async def test_a_session_belongs_to_the_profile_that_opened_it() -> None:
    async with served(http_app(workshop()[0])) as url, httpx2.AsyncClient(base_url=url) as client:
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
        begin = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}
        session = (await client.post("/mcp/admin", headers=JSON_HEADERS, json=begin)).headers["mcp-session-id"]
        headers = {**JSON_HEADERS, "mcp-session-id": session, "mcp-protocol-version": "2025-11-25"}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
        assert (await client.post("/mcp/admin", headers=headers, json=message)).status_code == 200
        stolen = await client.post("/mcp/chat", headers=headers, json=message)
        unknown = await client.post("/mcp/chat", headers={**headers, "mcp-session-id": "f" * 32}, json=message)
        assert (stolen.status_code, stolen.text) == (unknown.status_code, unknown.text)
        assert stolen.status_code == 404


async def test_a_session_cannot_replay_the_answers_of_another() -> None:
    catalog, _ = workshop()

    @catalog.tool(groups="core")
    async def whisper(ctx: CallContext, text: str) -> str:
        """Say it on the way."""
        await ctx.progress(0.5, text)
        return text

    async with served(http_app(catalog)) as url, httpx2.AsyncClient(base_url=url) as client:
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}

        async def session() -> dict[str, str]:
            begin = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}
            opened = (await client.post("/mcp", headers=JSON_HEADERS, json=begin)).headers["mcp-session-id"]
            headers = {**JSON_HEADERS, "mcp-session-id": opened, "mcp-protocol-version": "2025-11-25"}
            await client.post("/mcp", headers=headers, json={"jsonrpc": "2.0", "method": "notifications/initialized"})
            return headers

        mine, other = await session(), await session()
        ask = {
            "jsonrpc": "2.0",
            "id": 7,
            "method": "tools/call",
            "params": {"name": "whisper", "arguments": {"text": "private"}, "_meta": {"progressToken": 7}},
        }
        answered = (await client.post("/mcp", headers=mine, json=ask)).text
        event = next(line[4:] for line in answered.splitlines() if line.startswith("id: "))

        async def replayed(headers: dict[str, str], *, silence_s: float) -> str:
            """Return what is sent until the word, or until nothing comes for so long."""
            got = ""
            try:
                async with client.stream(
                    "GET", "/mcp", headers={**headers, "last-event-id": event}, timeout=silence_s
                ) as stream:
                    async for line in stream.aiter_lines():
                        got += line
                        if "private" in got:
                            break
            except httpx2.TimeoutException:
                pass
            return got

        assert "private" in await replayed(mine, silence_s=PATIENCE_S)
        assert "private" not in await replayed(other, silence_s=0.5)


async def test_a_secret_in_use_never_leaves_in_a_result_a_progress_or_an_error() -> None:
    catalog = Catalog()
    canary = "canary-7f3a9c-do-not-leak"
    catalog.add_secrets(Secret(canary))

    @catalog.tool(groups="core")
    async def leak(ctx: CallContext) -> str:
        """Tell all."""
        await ctx.progress(0.5, f"using {canary}")
        return f"the key is {canary}"

    catalog.profile(Profile(name="chat", include=("core",)))
    async with inside(http_app(catalog)) as client:
        for meta in ({}, {"progressToken": 1}):
            response = await post(client, "tools/call", {"name": "leak"}, meta=meta)
            assert canary not in response.text
    gc.collect()
