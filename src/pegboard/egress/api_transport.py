"""API transport: access to one API of the operator's for language model clients, with limits and no redirects.

These clients read as long as an endpoint sends: a stream or an event that never ends, or line by line for ever. This
transport limits time and bytes. It delivers whole events, since the clients assemble an event from pieces in quadratic
time.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from itertools import pairwise
from typing import cast

import httpx2

from pegboard.core.json_reader import TooManyValuesError, check_count
from pegboard.egress.connections import Resolve, system_resolve
from pegboard.egress.destinations import only_host_of
from pegboard.egress.failures import EgressError, Exchange, timed_out
from pegboard.egress.limits import CONNECT_S
from pegboard.egress.transport import EXCHANGE_EXTENSION, GuardedTransport, guarded_client, origin_of
from pegboard.model.bounds import MIB

API_CONNECTIONS = 1_000  # simultaneous connections to the endpoint of one language model
API_ANSWER_BYTES = 32 * MIB  # bytes of one answer of a language model, whole or streamed
API_EVENT_BYTES = 4 * MIB  # bytes of one event of a stream
API_EVENT_LINES = 256  # lines of one event, which normally has one or two

_END_OF_LINE = rb"(?:\r\n|\n|\r(?!\n))"
_END_OF_EVENT = re.compile(_END_OF_LINE * 2)
# The longest separator of events; it may arrive in two pieces.
_END_BYTES = 4
_FIRST_REDIRECT, _FIRST_ERROR = 300, 400


def api_client(base_url: str, *, timeout_s: float, resolve: Resolve = system_resolve) -> httpx2.AsyncClient:
    """Create a client for one API that can connect only to the API's host. The caller closes it.

    Raises:
        DefinitionError: the base URL is not an http or https URL.
    """
    transport = ApiTransport(base_url, timeout_s=timeout_s, resolve=resolve)
    # Waiting for a free connection counts towards the time of an answer.
    return guarded_client(transport, timeout=httpx2.Timeout(timeout_s, connect=CONNECT_S))


class ApiTransport(httpx2.AsyncBaseTransport):
    """Connects to the host of one base URL; each exchange ends after `timeout_s`, including its last byte."""

    def __init__(self, base_url: str, *, timeout_s: float, resolve: Resolve = system_resolve) -> None:
        self._timeout_s = timeout_s
        self._guarded = GuardedTransport(
            only_host_of(base_url),
            resolve=resolve,
            max_response_bytes=API_ANSWER_BYTES,
            max_connections=API_CONNECTIONS,
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request; the body of the response is read as it is iterated.

        Raises:
            EgressError: with the matching kind; upstream_error for a redirect.
        """
        exchange = Exchange(origin=origin_of(request.url))
        request.extensions[EXCHANGE_EXTENSION] = exchange
        ends_at = asyncio.get_running_loop().time() + self._timeout_s
        try:
            async with asyncio.timeout_at(ends_at):
                response = await self._guarded.handle_async_request(request)
        except TimeoutError:
            raise timed_out(exchange, after_s=self._timeout_s) from None
        if _FIRST_REDIRECT <= response.status_code < _FIRST_ERROR:
            await response.aclose()
            text = f"{exchange.origin!r} redirects (status {response.status_code}), which is not followed."
            raise EgressError("upstream_error", text, hint="Write the address that it leads to as `base_url`.")
        body = TimedBody(cast("httpx2.AsyncByteStream", response.stream), exchange, ends_at, self._timeout_s)
        is_event_stream = response.headers.get("content-type", "").strip().lower().startswith("text/event-stream")
        return httpx2.Response(
            response.status_code,
            headers=response.headers,
            stream=WholeEvents(body, exchange) if is_event_stream else WholeAnswer(body, exchange),
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        """Close every connection."""
        await self._guarded.aclose()


class TimedBody(httpx2.AsyncByteStream):
    """A body that must be complete before the deadline."""

    def __init__(self, inner: httpx2.AsyncByteStream, exchange: Exchange, ends_at: float, timeout_s: float) -> None:
        self._inner, self._exchange = inner, exchange
        self._ends_at, self._timeout_s = ends_at, timeout_s

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        pieces = aiter(self._inner)
        async with aclosing(cast("AsyncGenerator[bytes]", pieces)):
            while True:
                try:
                    async with asyncio.timeout_at(self._ends_at):
                        piece = await anext(pieces, None)
                except TimeoutError:
                    raise timed_out(self._exchange, after_s=self._timeout_s) from None
                if piece is None:
                    return
                yield piece

    async def aclose(self) -> None:
        await self._inner.aclose()


class WholeAnswer(httpx2.AsyncByteStream):
    """A body in one piece; one with more values than allowed is refused before it is parsed."""

    def __init__(self, inner: httpx2.AsyncByteStream, exchange: Exchange) -> None:
        self._inner, self._exchange = inner, exchange

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        async with aclosing(cast("AsyncGenerator[bytes]", aiter(self._inner))) as pieces:
            body = b"".join([piece async for piece in pieces])
        _check_values(body, self._exchange)
        yield body

    async def aclose(self) -> None:
        await self._inner.aclose()


class WholeEvents(httpx2.AsyncByteStream):
    """A stream of server-sent events, unchanged, in pieces that end with an event."""

    def __init__(self, inner: httpx2.AsyncByteStream, exchange: Exchange) -> None:
        self._inner, self._exchange = inner, exchange

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        waiting, searched, lines = bytearray(), 0, 0
        async with aclosing(cast("AsyncGenerator[bytes]", aiter(self._inner))) as pieces:
            async for piece in pieces:
                waiting += piece
                ends = [end.end() for end in _END_OF_EVENT.finditer(waiting, max(0, searched - _END_BYTES))]
                for start, end in pairwise((0, *ends)):
                    self._check(end - start, _lines(waiting, start, end))
                    _check_values(bytes(waiting[start:end]), self._exchange)
                if ends:
                    yield bytes(waiting[: ends[-1]])
                    del waiting[: ends[-1]]
                    searched = lines = 0
                lines += _lines(waiting, searched, len(waiting))
                searched = len(waiting)
                self._check(searched, lines)
        if waiting:
            _check_values(bytes(waiting), self._exchange)
            yield bytes(waiting)

    def _check(self, size: int, lines: int) -> None:
        """Refuse an event that is too large.

        Raises:
            EgressError: result_too_large.
        """
        if size > API_EVENT_BYTES or lines > API_EVENT_LINES:
            limits = f"{API_EVENT_BYTES} bytes or {API_EVENT_LINES} lines"
            raise EgressError("result_too_large", f"{self._exchange.origin!r} sent an event of more than {limits}.")

    async def aclose(self) -> None:
        await self._inner.aclose()


def _check_values(written: bytes, exchange: Exchange) -> None:
    """Refuse JSON that takes a client long to parse, whatever its size.

    Raises:
        EgressError: result_too_large.
    """
    try:
        check_count(written)
    except TooManyValuesError as error:
        raise EgressError("result_too_large", f"{exchange.origin!r} answered with {error}.") from None


def _lines(stream: bytearray, start: int, end: int) -> int:
    return max(stream.count(b"\n", start, end), stream.count(b"\r", start, end))
