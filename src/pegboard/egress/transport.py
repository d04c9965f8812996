"""Transport: one HTTP exchange under guard, for httpx2 clients and for our own."""

from __future__ import annotations

import asyncio
import ssl
import zlib
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator
from contextlib import aclosing
from functools import cache
from typing import Any, cast

import anyio
import httpcore2
import httpx2

from pegboard.egress.connections import GuardedBackend, Resolve, default_ssl_context, system_resolve
from pegboard.egress.decoding import ACCEPT_ENCODING, Decoder, decoder_for
from pegboard.egress.destinations import Destinations
from pegboard.egress.failures import EgressError, Exchange, translate
from pegboard.model.bounds import DEFAULT_BOUNDS

CAP_EXTENSION = "pegboard.max_response_bytes"
EXCHANGE_EXTENSION = "pegboard.exchange"
_CORE_FAILURES = (httpcore2.TimeoutException, httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.ProxyError,
                  httpcore2.UnsupportedProtocol)  # fmt: skip
_OUR_CHARACTERS = frozenset(range(0x20, 0x7F)) | {0x09} | frozenset(range(0x80, 0x100))


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
        max_connections: int = 100,
    ) -> None:
        self._max_response_bytes = max_response_bytes
        self._cap_event_streams = cap_event_streams
        self._headers_s = headers_s
        self._ssl_context = ssl_context
        self._max_connections = max_connections
        self._backend = GuardedBackend(destinations, resolve)
        self._connections: httpcore2.AsyncConnectionPool | None = None

    async def _pool(self) -> httpcore2.AsyncConnectionPool:
        """Return the connections, made when they are first needed."""
        if self._connections is None:
            if not _shared_ssl_context.cache_info().currsize:
                # Beside the loop: reading what the system trusts takes a tenth of a second.
                await asyncio.get_running_loop().run_in_executor(None, _warm)
            self._connections = self._connections or httpcore2.AsyncConnectionPool(
                ssl_context=self._ssl_context or _shared_ssl_context(),
                max_connections=self._max_connections,
                max_keepalive_connections=20,
                keepalive_expiry=5.0,
                network_backend=self._backend,
            )
        return self._connections

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

    def _incoming(self, request: httpx2.Request, answer: httpcore2.Response, exchange: Exchange) -> httpx2.Response:
        headers = httpx2.Headers(answer.headers)
        if answer.status == 101:
            raise _wrong(exchange, "it switched protocols without being asked")
        decoder = decoder_for(headers.get("content-encoding", ""))
        if decoder is None:
            raise _wrong(exchange, f"it sent the content coding {headers['content-encoding'][:40]!r}")
        if "content-encoding" in headers:
            # The client sees the unpacked body; these two describe the packed one.
            del headers["content-encoding"]
            headers.pop("content-length", None)
        cap = request.extensions.get(CAP_EXTENSION, self._max_response_bytes)
        is_event_stream = headers.get("content-type", "").strip().lower().startswith("text/event-stream")
        if is_event_stream and not self._cap_event_streams:
            cap = None
        # Without the raw connection, which a caller could read past the cap.
        extensions = {"http_version": cast("Any", answer).extensions["http_version"]}
        body = CountedBody(answer, decoder, cap, exchange)
        return httpx2.Response(answer.status, headers=headers, stream=body, extensions=extensions)

    async def aclose(self) -> None:
        """Close every connection."""
        if self._connections is not None:
            await self._connections.aclose()


class CountedBody(httpx2.AsyncByteStream):
    """The body of an answer, unpacked and counted; yields what fits under the cap, then raises."""

    def __init__(self, answer: httpcore2.Response, decoder: Decoder, cap: int | None, exchange: Exchange) -> None:
        self._answer = answer
        self._decoder = decoder
        self._cap = cap
        self._exchange = exchange

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async with aclosing(self.pieces()) as pieces:
            async for piece in pieces:
                yield piece

    async def pieces(self) -> AsyncGenerator[bytes]:
        """Yield the unpacked body; a generator that its reader can close."""
        raw_bytes = plain_bytes = 0
        try:
            async with aclosing(_raw_chunks(self._answer)) as chunks:
                async for raw in chunks:
                    raw_bytes += len(raw)
                    for piece in self._decoder.decode(raw):
                        plain_bytes += len(piece)
                        if self._cap is not None and plain_bytes > self._cap:
                            yield piece[: len(piece) - (plain_bytes - self._cap)]
                            raise self._too_large()
                        yield piece
                    # A packed body that unpacks to nothing must not run for ever either.
                    if self._cap is not None and raw_bytes > self._cap:
                        raise self._too_large()
        except _CORE_FAILURES as exc:
            raise translate(exc, self._exchange) from exc
        except zlib.error:
            raise _wrong(self._exchange, "its compressed body is damaged") from None

    async def aclose(self) -> None:
        await self._answer.aclose()

    def _too_large(self) -> EgressError:
        text = f"The answer of {self._exchange.origin!r} is larger than {self._cap} bytes. Ask for less."
        return EgressError("result_too_large", text)


def _raw_chunks(answer: httpcore2.Response) -> AsyncGenerator[bytes]:
    # The stream of httpcore2's pool iterates by generator, which is what makes it closable from here.
    assert isinstance(answer.stream, AsyncIterable)
    return cast("AsyncGenerator[bytes]", aiter(answer.stream))


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
    # A client that asks for codings which we do not unpack would be refused its answer.
    headers = [(name, value) for name, value in request.headers.raw if name.lower() != b"accept-encoding"]
    headers.append((b"Accept-Encoding", ACCEPT_ENCODING.encode()))
    assert isinstance(request.stream, AsyncIterable)
    return httpcore2.Request(
        method=request.method,
        url=httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
        headers=headers,
        content=request.stream,
        # Nothing else is handed through: `sni_hostname` would let a caller be shown another host's certificate.
        extensions={"timeout": request.extensions.get("timeout", {}), "trace": exchange.trace},
    )


def _wrong(exchange: Exchange, what: str) -> EgressError:
    text = f"{exchange.origin!r} broke the protocol: {what}."
    return EgressError("protocol_error", text, outcome_unknown=exchange.sent)


@cache
def _shared_ssl_context() -> ssl.SSLContext:
    return default_ssl_context()


def _warm() -> None:
    """Load what the first request of a process needs."""
    _shared_ssl_context()

    async def touch() -> None:
        anyio.Event()

    anyio.run(touch)


def guarded_client(
    transport: GuardedTransport,
    *,
    headers: dict[str, str] | None = None,
    timeout: httpx2.Timeout | None = None,
    auth: httpx2.Auth | None = None,
) -> httpx2.AsyncClient:
    """Make an `httpx2.AsyncClient` on a guarded transport, for libraries that want one (the MCP SDK).

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
