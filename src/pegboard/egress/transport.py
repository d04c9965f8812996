"""Transport: one HTTP exchange under guard, for httpx2 clients and for our own.

It stands where httpx2's own `AsyncHTTPTransport` would, which takes no network of ours (`network_backend`) and would
hand a caller the raw connection; what httpx2 does well, unpacking a body in small pieces, stays its work.
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

CONNECTIONS = 100  # of one client, at once
IDLE_CONNECTIONS = 20  # and of them, kept for the next request
IDLE_CONNECTION_S = 5.0  # for this long

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
# Only what is unpacked in bounded memory is asked for; a server that sends another coding breaks the protocol.
_ACCEPT_ENCODING = b"gzip, deflate"
_CODINGS = {"gzip": "gzip", "x-gzip": "gzip", "deflate": "deflate"}


def origin_of(url: httpx2.URL) -> str:
    """Return `scheme://host[:port]`, the part of a URL that is safe to show."""
    return f"{url.scheme}://{url.netloc.decode('ascii', 'replace')}"


class GuardedTransport(httpx2.AsyncBaseTransport):
    """Sends each request to a judged address and counts every byte of its answer, raw and unpacked.

    Redirects are not followed here: each one that a client follows comes back as a request of its own and is judged
    again. Proxies, netrc and socket files are out of reach by construction.

    Args:
        max_response_bytes: of one answer, both as it came and unpacked; None for no cap.
        cap_event_streams: whether the cap holds for `text/event-stream`, which may rightly go on for ever.
        headers_s: seconds until the headers of an answer are complete; None leaves it to the client's timeouts.
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
        """Leave the connections to the parent: an answer on one would be anybody's."""
        leave_to_parent(self._connections)
        self._connections = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request; the body of the answer is read as it is iterated.

        Raises:
            EgressError: with the kind that tells what went wrong.
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
        """Return the connections, made when they are first needed."""
        if self._connections is None:
            if not _shared_ssl_context.cache_info().currsize:
                # In a thread: reading what the system trusts takes a tenth of a second.
                await asyncio.get_running_loop().run_in_executor(None, _warm)
            self._connections = self._connections or httpcore2.AsyncConnectionPool(
                ssl_context=self._ssl_context or _shared_ssl_context(),
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
        # The whole type: who reads events reads no others, so that others end at the cap.
        is_event_stream = headers.get("content-type", "").partition(";")[0].strip().lower() == "text/event-stream"
        if is_event_stream and not self._cap_event_streams:
            cap = None
        if "content-encoding" in headers:
            # The client sees the unpacked body; these two describe the packed one.
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
    # A client that asks for codings which are not unpacked here would be refused its answer.
    headers = [(name, value) for name, value in request.headers.raw if name.lower() != b"accept-encoding"]
    headers.append((b"Accept-Encoding", _ACCEPT_ENCODING))
    assert isinstance(request.stream, AsyncIterable)
    return httpcore2.Request(
        method=request.method,
        url=httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
        headers=headers,
        content=request.stream,
        # Nothing else is handed through: `sni_hostname` would let a caller be shown another host's certificate.
        extensions={"timeout": request.extensions.get("timeout", {}), "trace": exchange.trace},
    )


# ---- the body of an answer


def _coding_of(headers: httpx2.Headers, exchange: Exchange) -> str | None:
    """Return how a body is packed, None for one that is not.

    Two codings on top of each other are refused like one that was never asked for: no honest server needs them.
    """
    header = headers.get("content-encoding", "")
    codings = [coding for part in header.split(",") if (coding := part.strip().lower()) not in ("", "identity")]
    if not codings:
        return None
    if len(codings) > 1 or codings[0] not in _CODINGS:
        raise _protocol_error(exchange, f"it sent the content coding {header[:40]!r}")
    return _CODINGS[codings[0]]


class UnpackedBody(httpx2.AsyncByteStream):
    """The body of an answer, unpacked by httpx2 and counted; yields what fits under the cap, then raises."""

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
    """The body as it comes from the network, counted too: one that unpacks to nothing must not run for ever."""

    def __init__(self, answer: httpcore2.Response, cap: int | None, exchange: Exchange) -> None:
        self._answer = answer
        self._cap = cap
        self._exchange = exchange

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        received_bytes = 0
        # The stream of httpcore2's pool iterates by generator, which is what makes it closable from here.
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


# ---- what transports share


@cache
def _shared_ssl_context() -> ssl.SSLContext:
    """Build the context that trusts what the system trusts (or the operator's `SSL_CERT_FILE`)."""
    return httpcore2.default_ssl_context()


def _warm() -> None:
    """Load what the first request of a process needs."""
    _shared_ssl_context()

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
    """Make an `httpx2.AsyncClient` on a guarded transport, for libraries that want one (MCP's SDK, clients of models).

    It follows no redirects by itself and reads nothing from the environment.
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
