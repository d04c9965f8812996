"""Transport: one guarded HTTP exchange, for httpx2 clients and for our own.

It replaces httpx2's `AsyncHTTPTransport`, which does not accept a `network_backend` and would expose the raw
connection. httpx2 still unpacks bodies in small pieces.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterable
from contextlib import aclosing
from functools import cache
from typing import Any, cast

import anyio
import httpcore2
import httpx2

from pegboard.core.after_fork import leave_to_parent, renew_after_fork
from pegboard.egress.connections import GuardedBackend, Resolve, system_resolve
from pegboard.egress.destinations import Destinations
from pegboard.egress.failures import EgressError, Exchange, translate
from pegboard.model.bounds import DEFAULT_BOUNDS

CONNECTIONS = 100  # simultaneous connections of one client
IDLE_CONNECTIONS = 20  # idle connections kept for the next request
IDLE_CONNECTION_S = 5.0  # how long they are kept, in seconds

CAP_EXTENSION = "pegboard.max_response_bytes"
EXCHANGE_EXTENSION = "pegboard.exchange"
_CORE_FAILURES = (
    httpcore2.TimeoutException,
    httpcore2.NetworkError,
    httpcore2.ProtocolError,
    httpcore2.ProxyError,
    httpcore2.UnsupportedProtocol,
)
_OUR_CHARACTERS = frozenset(range(0x20, 0x7F)) | {0x09} | frozenset(range(0x80, 0x100))
# Only codings that are unpacked in bounded memory are requested; another coding is a protocol error.
_ACCEPT_ENCODING = b"gzip, deflate"
_CODINGS = {"gzip": "gzip", "x-gzip": "gzip", "deflate": "deflate"}


def origin_of(url: httpx2.URL) -> str:
    """Return `scheme://host[:port]`, the part of a URL that is safe to show."""
    return f"{url.scheme}://{url.netloc.decode('ascii', 'replace')}"


class GuardedTransport(httpx2.AsyncBaseTransport):
    """Sends each request to a checked address and counts every byte of the response, raw and unpacked.

    It does not follow redirects: a client sends each one as a new request, which is checked again. Proxies, netrc and
    socket files cannot be used.

    Args:
        max_response_bytes: of one response, both raw and unpacked; None for no cap.
        cap_event_streams: whether the cap applies to `text/event-stream`, which may be endless.
        headers_s: seconds until the headers of a response are complete; None leaves it to the client's timeouts.
    """

    def __init__(
        self,
        destinations: Destinations,
        *,
        resolve: Resolve = system_resolve,
        ssl_context: ssl.SSLContext | None = None,
        max_response_bytes: int | None = DEFAULT_BOUNDS.http_response_bytes,
        cap_event_streams: bool = True,
        headers_s: float | None = None,
        max_connections: int = CONNECTIONS,
    ) -> None:
        self._max_response_bytes = max_response_bytes
        self._cap_event_streams = cap_event_streams
        self._headers_s = headers_s
        self._ssl_context = ssl_context
        self._max_connections = max_connections
        self._backend = GuardedBackend(destinations, resolve)
        self._connections: httpcore2.AsyncConnectionPool | None = None
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Leave the connections to the parent: a response on one could belong to either process."""
        leave_to_parent(self._connections)
        self._connections = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request; the body of the response is read as it is iterated.

        Raises:
            EgressError: with the matching kind.
        """
        exchange = request.extensions.get(EXCHANGE_EXTENSION) or Exchange(origin=origin_of(request.url))
        outgoing = _outgoing(request, exchange)
        pool = await self._pool()
        try:
            async with asyncio.timeout(self._headers_s):
                answer = await pool.handle_async_request(outgoing)
        except TimeoutError:
            text = f"{exchange.origin!r} did not answer within {self._headers_s} s."
            raise EgressError("timeout", text, outcome_unknown=exchange.sent) from None
        except _CORE_FAILURES as exc:
            raise translate(exc, exchange) from exc
        try:
            return self._incoming(request, answer, exchange)
        except BaseException:
            await answer.aclose()
            raise

    async def _pool(self) -> httpcore2.AsyncConnectionPool:
        """Return the connection pool, created on first use."""
        if self._connections is None:
            if not shared_ssl_context.cache_info().currsize:
                # In a thread: reading the system's certificates takes a tenth of a second.
                await asyncio.get_running_loop().run_in_executor(None, _warm)
            self._connections = self._connections or httpcore2.AsyncConnectionPool(
                ssl_context=self._ssl_context or shared_ssl_context(),
                max_connections=self._max_connections,
                max_keepalive_connections=IDLE_CONNECTIONS,
                keepalive_expiry=IDLE_CONNECTION_S,
                network_backend=self._backend,
            )
        return self._connections

    def _incoming(self, request: httpx2.Request, answer: httpcore2.Response, exchange: Exchange) -> httpx2.Response:
        headers = httpx2.Headers(answer.headers)
        if answer.status == 101:
            raise _protocol_error(exchange, "it switched protocols without being asked")
        coding = _coding_of(headers, exchange)
        cap = request.extensions.get(CAP_EXTENSION, self._max_response_bytes)
        # The exact type: a client of events reads no other types, so others end at the cap.
        is_event_stream = headers.get("content-type", "").partition(";")[0].strip().lower() == "text/event-stream"
        if is_event_stream and not self._cap_event_streams:
            cap = None
        if "content-encoding" in headers:
            # The client sees the unpacked body; these two headers describe the packed one.
            del headers["content-encoding"]
            headers.pop("content-length", None)
        return httpx2.Response(
            answer.status,
            headers=headers,
            stream=UnpackedBody(answer, coding, cap, exchange),
            # Without the raw connection, which a caller could read past the cap.
            extensions={"http_version": cast("Any", answer).extensions["http_version"]},
        )

    async def aclose(self) -> None:
        """Close every connection."""
        if self._connections is not None:
            await self._connections.aclose()


def _outgoing(request: httpx2.Request, exchange: Exchange) -> httpcore2.Request:
    url = request.url
    if url.scheme not in ("http", "https") or not url.host:
        text = f"The scheme {url.scheme!r} is refused: only http and https URLs with a host are allowed."
        raise EgressError("blocked_destination", text)
    if request.method.upper() == "CONNECT":
        raise EgressError("blocked_destination", "The method 'CONNECT' is refused: tunnels are not opened.")
    for name, value in request.headers.raw:
        if not _OUR_CHARACTERS.issuperset(value):
            text = f"The header {name.decode('ascii', 'replace')!r} has a control character in its value. Remove it."
            raise EgressError("invalid_arguments", text)
    # A response in a coding that is not unpacked here would be refused, so it is not requested.
    headers = [(name, value) for name, value in request.headers.raw if name.lower() != b"accept-encoding"]
    headers.append((b"Accept-Encoding", _ACCEPT_ENCODING))
    assert isinstance(request.stream, AsyncIterable)
    return httpcore2.Request(
        method=request.method,
        url=httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
        headers=headers,
        content=request.stream,
        # Other extensions are dropped: `sni_hostname` would let a caller accept another host's certificate.
        extensions={"timeout": request.extensions.get("timeout", {}), "trace": exchange.trace},
    )


# ---- the body of a response


def _coding_of(headers: httpx2.Headers, exchange: Exchange) -> str | None:
    """Return the coding of a body, None for an unpacked one.

    Nested codings are refused like unrequested ones, since no honest server needs them.
    """
    header = headers.get("content-encoding", "")
    codings = [coding for part in header.split(",") if (coding := part.strip().lower()) not in ("", "identity")]
    if not codings:
        return None
    if len(codings) > 1 or codings[0] not in _CODINGS:
        raise _protocol_error(exchange, f"it sent the content coding {header[:40]!r}")
    return _CODINGS[codings[0]]


class UnpackedBody(httpx2.AsyncByteStream):
    """The body of a response, unpacked by httpx2 and counted; yields bytes up to the cap, then raises."""

    def __init__(self, answer: httpcore2.Response, coding: str | None, cap: int | None, exchange: Exchange) -> None:
        self._packed = PackedBody(answer, cap, exchange)
        self._coding = coding
        self._cap = cap
        self._exchange = exchange

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        unpacked_bytes = 0
        try:
            async with aclosing(self._pieces()) as pieces:
                async for piece in pieces:
                    unpacked_bytes += len(piece)
                    if self._cap is not None and unpacked_bytes > self._cap:
                        yield piece[: len(piece) - (unpacked_bytes - self._cap)]
                        raise _too_large(self._exchange, self._cap)
                    yield piece
        except _CORE_FAILURES as exc:
            raise translate(exc, self._exchange) from exc
        except httpx2.DecodingError:
            raise _protocol_error(self._exchange, "its compressed body is damaged") from None

    def _pieces(self) -> AsyncGenerator[bytes]:
        if self._coding is None:
            return aiter(self._packed)
        return httpx2.Response(200, headers={"content-encoding": self._coding}, stream=self._packed).aiter_bytes()

    async def aclose(self) -> None:
        await self._packed.aclose()


class PackedBody(httpx2.AsyncByteStream):
    """The raw body from the network, also counted: one that unpacks to nothing must not run for ever."""

    def __init__(self, answer: httpcore2.Response, cap: int | None, exchange: Exchange) -> None:
        self._answer = answer
        self._cap = cap
        self._exchange = exchange

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        received_bytes = 0
        # The pool's stream is iterated by a generator, which can be closed from here.
        assert isinstance(self._answer.stream, AsyncIterable)
        async with aclosing(cast("AsyncGenerator[bytes]", aiter(self._answer.stream))) as chunks:
            async for chunk in chunks:
                yield chunk
                received_bytes += len(chunk)
                if self._cap is not None and received_bytes > self._cap:
                    raise _too_large(self._exchange, self._cap)

    async def aclose(self) -> None:
        await self._answer.aclose()


def _too_large(exchange: Exchange, cap: int) -> EgressError:
    return EgressError(
        "result_too_large", f"The answer of {exchange.origin!r} is larger than {cap} bytes. Ask for less."
    )


def _protocol_error(exchange: Exchange, what: str) -> EgressError:
    text = f"{exchange.origin!r} broke the protocol: {what}."
    return EgressError("protocol_error", text, outcome_unknown=exchange.sent)


# ---- shared by transports


@cache
def shared_ssl_context() -> ssl.SSLContext:
    """Return the context with the system's certificates (or the operator's `SSL_CERT_FILE`)."""
    return httpcore2.default_ssl_context()


def _warm() -> None:
    """Load the modules and certificates for the first request of a process."""
    shared_ssl_context()

    async def touch() -> None:
        anyio.Event()

    anyio.run(touch)


def guarded_client(
    transport: httpx2.AsyncBaseTransport,
    *,
    headers: dict[str, str] | None = None,
    timeout: httpx2.Timeout | None = None,
    auth: httpx2.Auth | None = None,
) -> httpx2.AsyncClient:
    """Make an `httpx2.AsyncClient` on a guarded transport, for libraries that need one (MCP's SDK, model clients).

    It does not follow redirects and reads nothing from the environment.
    """
    return httpx2.AsyncClient(
        transport=transport,
        headers=headers,
        timeout=timeout or httpx2.Timeout(DEFAULT_BOUNDS.tool_timeout_s),
        auth=auth,
        follow_redirects=False,
        max_redirects=DEFAULT_BOUNDS.http_redirects,
        trust_env=False,
    )
