"""The guarded client against servers that behave, misbehave and hang."""

import asyncio
import gzip
import os
import socket
import struct
import time
import zlib
from collections.abc import Mapping
from typing import Any

import httpx2
import pytest

from pegboard.egress.connections import GuardedBackend, system_resolve
from pegboard.egress.destinations import Destinations
from pegboard.egress.failures import EgressError
from pegboard.egress.http import GuardedClient
from pegboard.egress.transport import GuardedTransport, guarded_client
from tests.egress.loopback import RawServer, Script, answer, names, redirect
from tests.timing import is_within, within

LOCAL = Destinations(allow_private=True)


async def failure(client: GuardedClient, method: str, url: str, **options: Any) -> EgressError:
    with pytest.raises(EgressError) as caught:
        await client.request(method, url, **options)
    return caught.value


async def test_an_answer_comes_back_with_status_headers_body_and_url() -> None:
    async with (
        RawServer(answer(b"hi", status="404 Not Found", headers=["X-A: 1", "X-A: 2"])) as server,
        GuardedClient(LOCAL) as client,
    ):
        response = await client.request("get", f"{server.url}/a?b=c#d", headers={"X-Mine": "yes"})
        assert (response.status_code, response.body, response.truncated) == (404, b"hi", False)
        assert response.headers == {"content-length": "2", "x-a": "1, 2"}
        assert response.url == f"{server.url}/a?b=c#d"
        assert server.heads[0].startswith("GET /a?b=c HTTP/1.1\r\n")
        assert "x-mine: yes" in server.heads[0].lower()
        assert "cookie" not in server.heads[0].lower()


async def test_the_body_is_sent_and_the_connection_is_used_again() -> None:
    async with RawServer(answer()) as server, GuardedClient(LOCAL) as client:
        await client.request("POST", server.url, body=b"abc")
        await client.request("PUT", server.url, body=b"defg")
        assert (server.hits, server.bodies) == (1, [b"abc", b"defg"])


async def test_cookies_of_one_call_are_never_sent_with_the_next() -> None:
    async with RawServer(answer(headers=["Set-Cookie: session=1"])) as server, GuardedClient(LOCAL) as client:
        await client.request("GET", server.url)
        await client.request("GET", server.url)
        assert "cookie" not in server.heads[1].lower()


async def test_the_proxy_and_netrc_of_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    async with RawServer(answer()) as proxy, RawServer(answer()) as server, GuardedClient(LOCAL) as client:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        await client.request("GET", server.url)
        async with guarded_client(GuardedTransport(LOCAL)) as plain:
            await plain.get(server.url)
        assert (proxy.hits, server.hits) == (0, 2)


# ---- redirects -------------------------------------------------------------------------------------------------------

PUBLIC = Destinations(allow_private=True, allow_hosts=("public.test", "other.test"))
BOOK = names(public_test="127.0.0.1", other_test="127.0.0.1")


async def test_redirects_are_followed_to_the_final_answer() -> None:
    async with (
        RawServer(answer(b"end")) as end,
        RawServer(redirect(f"http://other.test:{end.port}/x")) as start,
        GuardedClient(PUBLIC, resolve=BOOK) as client,
    ):
        response = await client.request("GET", f"http://public.test:{start.port}/")
    assert (response.body, response.url) == (b"end", f"http://other.test:{end.port}/x")
    assert f"host: other.test:{end.port}" in end.heads[0].lower()


@pytest.mark.parametrize(
    ("status", "method", "expected"),
    [
        ("301 Moved Permanently", "POST", ("GET", b"")),
        ("302 Found", "POST", ("GET", b"")),
        ("302 Found", "PUT", ("PUT", b"abc")),
        ("303 See Other", "PUT", ("GET", b"")),
        ("307 Temporary Redirect", "POST", ("POST", b"abc")),
        ("308 Permanent Redirect", "POST", ("POST", b"abc")),
    ],
)
async def test_the_method_changes_as_in_browsers(status: str, method: str, expected: tuple[str, bytes]) -> None:
    async with (
        RawServer(answer()) as end,
        RawServer(redirect(f"{end.url}/x", status=status)) as start,
        GuardedClient(LOCAL) as client,
    ):
        await client.request(method, start.url, body=b"abc", headers={"Content-Type": "text/plain"})
    assert (end.heads[0].split(" ")[0], end.bodies[0]) == expected
    assert ("content-type" in end.heads[0].lower()) == (expected[1] != b"")


@pytest.mark.parametrize("host", ["other.test", "public.test"])
async def test_no_credential_of_any_name_crosses_to_another_origin(host: str) -> None:
    """Another host, and the same one on another port: there, somebody else may listen."""
    secret = {"Authorization": "Bearer CANARY", "Cookie": "CANARY", "X-Api-Key": "CANARY"}
    async with (
        RawServer(answer()) as end,
        RawServer(redirect(f"http://{host}:{end.port}/")) as start,
        GuardedClient(PUBLIC, resolve=BOOK, headers={"X-Configured": "CANARY"}) as client,
    ):
        await client.request("GET", f"http://public.test:{start.port}/", headers=secret)
    assert start.heads[0].count("CANARY") == 4
    assert end.hits == 1
    assert "CANARY" not in end.heads[0]


async def test_headers_stay_when_the_redirect_stays_on_the_origin() -> None:
    turns = iter([redirect("/two"), answer(b"two")])

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(next(turns))

    async with RawServer(script) as server, GuardedClient(LOCAL) as client:
        response = await client.request("GET", f"{server.url}/one", headers={"Authorization": "Bearer t"})
    assert (response.body, response.url) == (b"two", f"{server.url}/two")
    assert all("Bearer t" in head for head in server.heads)


@pytest.mark.parametrize(
    "location",
    [
        "http://169.254.169.254/latest/meta-data/",
        "//169.254.169.254/",
        "http://127.0.0.1:{port}/",
        "http://[::ffff:127.0.0.1]:{port}/",
        "http://user@other.test:{port}/",
        "file:///etc/passwd",
        "gopher://127.0.0.1/",
    ],
)
async def test_a_redirect_to_a_refused_place_stops_there_and_names_the_hop(location: str) -> None:
    async with RawServer(answer()) as inner, RawServer(redirect(location.format(port=inner.port))) as start:
        async with GuardedClient(PUBLIC, resolve=BOOK) as client:
            exc = await failure(client, "GET", f"http://public.test:{start.port}/")
        assert (exc.error.kind, inner.hits) == ("blocked_destination", 0)
        assert exc.error.message.startswith("Redirect 1: ")


async def test_a_redirect_loop_ends_after_five_hops() -> None:
    async with RawServer(redirect("/again")) as server, GuardedClient(LOCAL) as client:
        exc = await failure(client, "GET", server.url)
        assert (exc.error.kind, len(server.heads)) == ("upstream_error", 6)


async def test_without_redirects_the_redirect_itself_is_the_answer() -> None:
    async with RawServer(redirect("http://169.254.169.254/")) as server, GuardedClient(LOCAL) as client:
        response = await client.request("GET", server.url, max_redirects=0)
    assert (response.status_code, response.headers["location"]) == (302, "http://169.254.169.254/")


async def test_a_redirect_without_a_readable_target_breaks_the_protocol() -> None:
    async with RawServer(redirect("http://[broken]/")) as server, GuardedClient(LOCAL) as client:
        exc = await failure(client, "GET", server.url)
    assert exc.error.kind == "protocol_error"


# ---- size ------------------------------------------------------------------------------------------------------------


def bomb(unpacked_mib: int, *, wbits: int = 31) -> bytes:
    pack = zlib.compressobj(9, zlib.DEFLATED, wbits)
    block = bytes(1024 * 1024)
    return b"".join(pack.compress(block) for _ in range(unpacked_mib)) + pack.flush()


async def test_a_large_answer_is_refused_or_cut_at_the_cap() -> None:
    async with RawServer(answer(b"x" * 5000)) as server, GuardedClient(LOCAL) as client:
        exc = await failure(client, "GET", server.url, max_response_bytes=1000)
        assert exc.error.kind == "result_too_large"
        cut = await client.request("GET", server.url, max_response_bytes=1000, on_overflow="truncate")
        assert (cut.body, cut.truncated) == (b"x" * 1000, True)
        whole = await client.request("GET", server.url, max_response_bytes=5000, on_overflow="truncate")
        assert (len(whole.body), whole.truncated) == (5000, False)


@pytest.mark.parametrize(("coding", "wbits"), [("gzip", 31), ("x-gzip", 31), ("deflate", 15), ("deflate", -15)])
async def test_packed_bodies_are_unpacked_and_described_as_plain(coding: str, wbits: int) -> None:
    packed = bomb(1, wbits=wbits)
    async with (
        RawServer(answer(packed, headers=[f"Content-Encoding: {coding}"])) as server,
        GuardedClient(LOCAL) as client,
    ):
        response = await client.request("GET", server.url)
    assert response.body == bytes(1024 * 1024)
    assert not {"content-encoding", "content-length"} & response.headers.keys()


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, gzip", "compress"])
async def test_codings_that_were_not_asked_for_are_refused_unread(coding: str) -> None:
    async with (
        # What a reader of the first coding alone would take.
        RawServer(answer(gzip.compress(b"packed"), headers=[f"Content-Encoding: {coding}"])) as server,
        GuardedClient(LOCAL) as client,
    ):
        exc = await failure(client, "GET", server.url, headers={"Accept": "*/*"})
        assert exc.error.kind == "protocol_error"
        assert "accept-encoding: gzip, deflate\r\n" in server.heads[0].lower()


@pytest.mark.parametrize("sign", list("\u2100\uff1f\uff03\uff20\uff1a\uff3c\uff05\uff3b\uff3d"), ids=ascii)
async def test_a_host_gains_no_path_user_or_port_by_signs_that_stand_for_others(sign: str) -> None:
    async with GuardedClient(LOCAL) as client:
        exc = await failure(client, "GET", f"http://good.example{sign}x.test/")
    assert exc.error.kind == "invalid_arguments"


async def test_a_body_of_empty_packed_blocks_is_counted_as_it_came() -> None:
    empty_blocks = b"\x00\x00\x00\xff\xff" * 40_000
    async with (
        RawServer(answer(empty_blocks, headers=["Content-Encoding: deflate"])) as server,
        GuardedClient(LOCAL) as client,
    ):
        exc = await failure(client, "GET", server.url, max_response_bytes=100_000)
    assert exc.error.kind == "result_too_large"


async def test_a_damaged_packed_body_breaks_the_protocol() -> None:
    async with (
        RawServer(answer(b"no gzip", headers=["Content-Encoding: gzip"])) as server,
        GuardedClient(LOCAL) as client,
    ):
        exc = await failure(client, "GET", server.url)
    assert exc.error.kind == "protocol_error"


async def test_endless_headers_are_cut_off() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n")
        while True:
            writer.write(b"X-More: " + b"x" * 1000 + b"\r\n")
            await writer.drain()

    async with RawServer(script) as server, GuardedClient(LOCAL) as client:
        exc = await failure(client, "GET", server.url, timeout_s=10)
        assert exc.error.kind == "protocol_error"
        await server.closed_by_client.wait()


async def test_a_large_request_body_is_not_sent() -> None:
    async with RawServer(answer()) as server, GuardedClient(LOCAL) as client:
        exc = await failure(client, "POST", server.url, body=bytes(4 * 1024 * 1024 + 1))
    assert (exc.error.kind, server.hits) == ("invalid_arguments", 0)


# ---- time and loss ---------------------------------------------------------------------------------------------------


async def silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def drip_body(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    while not reader.at_eof():
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.02)


async def drip_head(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    while not reader.at_eof():
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.02)


async def stall_after_head(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
    await reader.read()


@pytest.mark.parametrize("script", [silence, drip_body, drip_head, stall_after_head])
async def test_the_deadline_holds_against_every_kind_of_slowness(script: Script) -> None:
    for timeout_s in (0.3, 3, 30):
        async with RawServer(script) as server, GuardedClient(LOCAL) as client:
            started = asyncio.get_running_loop().time()
            exc = await failure(client, "POST", server.url, timeout_s=timeout_s)
            assert is_within(asyncio.get_running_loop().time() - started, timeout_s + 0.5)
            assert (exc.error.kind, exc.error.retryable) == ("timeout", True)
            # A busy machine may spend a short time on the way there; of a request never sent, all is known.
            if server.heads:
                assert exc.error.outcome_unknown
                async with asyncio.timeout(60):
                    await server.closed_by_client.wait()
                return
    pytest.fail("the server was never reached")


async def test_silence_can_be_limited_apart_from_the_deadline() -> None:
    async with RawServer(stall_after_head) as server, GuardedClient(LOCAL, read_s=0.2) as client:
        with within(2):
            exc = await failure(client, "GET", server.url, timeout_s=30)
    assert exc.error.kind == "timeout"


async def test_a_resolver_that_hangs_is_given_up() -> None:
    async def never(host: str, port: int) -> list[str]:
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    async with GuardedClient(LOCAL, resolve=never, connect_s=0.1) as client:
        exc = await failure(client, "GET", "http://a.test/")
    assert (exc.error.kind, exc.error.outcome_unknown) == ("timeout", False)


async def test_what_came_in_time_counts_though_the_loop_was_too_busy_to_hear_of_it() -> None:
    loop = asyncio.get_running_loop()

    async def resolve(host: str, port: int) -> list[str]:
        answered = loop.run_in_executor(None, lambda: ["127.0.0.1"])
        loop.call_soon(time.sleep, 0.3)
        return await answered

    async with RawServer(answer(b"here")) as server:
        stream = await GuardedBackend(LOCAL, resolve).connect_tcp("name.test", server.port, timeout=0.2)
        await stream.aclose()
    # An address needs nobody to look it up.
    for host in ("127.0.0.1", "::1"):
        assert await system_resolve(host, 80) == [host]


async def test_refused_connections_and_unknown_names_are_unavailable_and_were_never_sent() -> None:
    async with RawServer(answer()) as server:
        port = server.port
    async with GuardedClient(LOCAL, resolve=names()) as client:
        for url in (f"http://127.0.0.1:{port}/", "http://nowhere.test/"):
            exc = await failure(client, "POST", url)
            assert (exc.error.kind, exc.error.retryable, exc.error.outcome_unknown) == (
                "upstream_unavailable",
                True,
                False,
            )


async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    raw = writer.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def close_without_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def close_in_the_body(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")


async def close_in_a_chunk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10\r\nhalf")


async def close_in_the_head(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Le")


@pytest.mark.parametrize(
    "script", [reset, close_without_answer, close_in_the_body, close_in_a_chunk, close_in_the_head]
)
async def test_a_connection_lost_after_sending_leaves_the_outcome_unknown(script: Script) -> None:
    async with RawServer(script) as server, GuardedClient(LOCAL) as client:
        exc = await failure(client, "POST", server.url, body=b"x")
    assert (exc.error.kind, exc.error.outcome_unknown) == ("upstream_lost", True)


@pytest.mark.parametrize(
    "raw", [b"SSH-2.0-OpenSSH_9\r\n\r\n", b"HTTP/1.1 200 OK\r\nBad Header: x\r\n\r\n", b"HTTP/1.1 101 X\r\n\r\n"]
)
async def test_what_is_not_http_breaks_the_protocol(raw: bytes) -> None:
    async with RawServer(raw) as server, GuardedClient(LOCAL) as client:
        exc = await failure(client, "GET", server.url)
    assert exc.error.kind == "protocol_error"


# ---- requests that are refused before they are sent ------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {"X": "a\r\nHost: evil"},
        {"X": "a\nb"},
        {"X": "a\0b"},
        {"X": "snow\u2603"},
        {"X Y": "a"},
        {"X:": "a"},
        {"": "a"},
        {"Host": "evil"},
        {"content-length": "5"},
        {"Transfer-Encoding": "chunked"},
        {"Connection": "close"},
        {"Proxy-Authorization": "x"},
        {"Upgrade": "websocket"},
        {"x-key": "mine"},
        {"A": "1", "a": "2"},
    ],
)
async def test_headers_that_could_change_the_message_are_refused(headers: Mapping[str, str]) -> None:
    async with RawServer(answer()) as server, GuardedClient(LOCAL, headers={"X-Key": "configured"}) as client:
        exc = await failure(client, "GET", server.url, headers=headers)
    assert (exc.error.kind, server.hits) == ("invalid_arguments", 0)


@pytest.mark.parametrize(
    "url", ["", "a.test/x", "/x", "http://", "http:///x", "http://a.test:0/", "http://a.test:99999/", "http://a\r\nb/"]
)
async def test_texts_that_are_no_url_are_refused_with_what_would_be_right(url: str) -> None:
    async with GuardedClient(LOCAL, resolve=names()) as client:
        exc = await failure(client, "GET", url)
    assert exc.error.kind in ("invalid_arguments", "blocked_destination")


@pytest.mark.parametrize("method", ["CONNECT", "TRACE", "GET /x HTTP/1.1\r\nX: ", ""])
async def test_methods_that_open_tunnels_or_are_no_word_are_refused(method: str) -> None:
    async with RawServer(answer()) as server, GuardedClient(LOCAL) as client:
        exc = await failure(client, method, server.url)
    assert (exc.error.kind, server.hits) == ("invalid_arguments", 0)


# ---- streams and clients for others ----------------------------------------------------------------------------------


async def test_a_stream_hands_out_pieces_as_they_come_and_closes_when_left_early() -> None:
    go_on = asyncio.Event()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
        await go_on.wait()
        writer.write(b"3\r\ntwo\r\n")
        await reader.read()

    async with RawServer(script) as server, GuardedClient(LOCAL) as client:
        async with client.stream("GET", server.url) as response:
            assert await anext(response) == b"one"
            go_on.set()
            assert await anext(response) == b"two"
        async with asyncio.timeout(60):
            await server.closed_by_client.wait()


async def test_a_slow_reader_still_meets_the_deadline() -> None:
    pieces = 0
    # A busy machine may spend a short time before the first piece.
    for timeout_s in (0.2, 2, 20):
        async with RawServer(drip_body) as server, GuardedClient(LOCAL) as client:
            with pytest.raises(EgressError) as caught:
                async with client.stream("GET", server.url, timeout_s=timeout_s) as response:
                    async for _piece in response:
                        pieces += 1
                        await asyncio.sleep(0.05)
        assert caught.value.error.kind == "timeout"
        if pieces:
            break
    assert pieces


async def test_a_foreign_client_on_the_guarded_transport_is_judged_at_each_redirect() -> None:
    async with (
        RawServer(answer()) as inner,
        RawServer(redirect(f"http://127.0.0.1:{inner.port}/")) as start,
        guarded_client(GuardedTransport(PUBLIC, resolve=BOOK)) as client,
    ):
        with pytest.raises(httpx2.TransportError) as caught:
            await client.get(f"http://public.test:{start.port}/", follow_redirects=True)
    assert isinstance(caught.value, EgressError)
    assert (caught.value.error.kind, start.hits, inner.hits) == ("blocked_destination", 1, 0)


@pytest.mark.parametrize("value", ["a\r\nHost: evil", "a\nX: b", "a\0b", "a\x7fb"])
async def test_a_foreign_client_sends_no_header_that_breaks_its_line(value: str) -> None:
    async with RawServer(answer()) as server, guarded_client(GuardedTransport(LOCAL)) as client:
        with pytest.raises(EgressError) as caught:
            await client.get(server.url, headers={"X-Key": value})
    assert (caught.value.error.kind, "'X-Key'" in caught.value.error.message) == ("invalid_arguments", True)
    assert server.hits == 0


async def test_a_foreign_client_gets_unpacked_bodies_under_the_same_cap() -> None:
    packed = answer(bomb(8), headers=["Content-Encoding: gzip"])
    async with RawServer(packed) as server, guarded_client(GuardedTransport(LOCAL)) as client:
        with pytest.raises(EgressError) as caught:
            await client.get(server.url)
    assert caught.value.error.kind == "result_too_large"


async def test_event_streams_may_be_left_without_a_cap() -> None:
    events = answer(b"data: x\n\n" * 1000, headers=["Content-Type: text/event-stream"])
    async with RawServer(events) as server:
        transport = GuardedTransport(LOCAL, max_response_bytes=100, cap_event_streams=False)
        async with guarded_client(transport) as client, client.sse(server.url) as source:
            assert len([event async for event in source]) == 1000


async def test_a_foreign_client_can_have_a_limit_on_the_headers_alone() -> None:
    # A busy machine may spend a short time on the way there; of a request never sent, all is known.
    for headers_s in (0.2, 2, 20):
        transport = GuardedTransport(LOCAL, headers_s=headers_s)
        async with RawServer(drip_head) as server, guarded_client(transport) as client:
            with pytest.raises(EgressError) as caught:
                await client.post(server.url)
        assert caught.value.error.kind == "timeout"
        if server.heads:
            break
    assert caught.value.error.outcome_unknown


async def test_no_descriptor_is_left_over_after_failures() -> None:
    async with RawServer(stall_after_head) as slow, RawServer(answer(b"x" * 100)) as large:
        before = len(_descriptors())
        async with GuardedClient(LOCAL) as client:
            for url, options in ((slow.url, {"timeout_s": 0.1}), (large.url, {"max_response_bytes": 10})):
                await failure(client, "GET", url, **options)
        async with asyncio.timeout(60):
            await slow.closed_by_client.wait()
            await large.closed_by_client.wait()
    assert len(_descriptors()) <= before


def _descriptors() -> list[str]:
    return os.listdir("/proc/self/fd")
