"""HTTP: the guarded client that every tool uses for outbound requests.

A request goes through `transport` (one exchange) to `connections` (resolve, check, connect), which uses `destinations`.
The outcome is a `responses.Response` or an `EgressError` from `failures`.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager
from types import TracebackType
from typing import Literal, Self, TypedDict, Unpack

import httpx2
from msgspec import Struct

from pegboard.egress.connections import Resolve, system_resolve
from pegboard.egress.destinations import Destinations
from pegboard.egress.failures import EgressError, Exchange, timed_out
from pegboard.egress.limits import CONNECT_S
from pegboard.egress.responses import Response
from pegboard.egress.transport import CAP_EXTENSION, EXCHANGE_EXTENSION, GuardedTransport, UnpackedBody, origin_of
from pegboard.egress.urls import join_url, parse_url
from pegboard.model.bounds import DEFAULT_BOUNDS, Bounds
from pegboard.model.hops import HOPS_HEADER
from pegboard.model.record import CarriesCredentials

OnOverflow = Literal["raise", "truncate"]

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\t\x20-\x7e]*")
# They frame the message or name its receiver: a caller could smuggle a second request with them.
_NEVER_SET = frozenset({
    "host", "content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer", "upgrade", "expect",
    "accept-encoding",
})  # fmt: skip

_REDIRECT_STATUSES = frozenset({301, 302, 303, 307, 308})

# All other headers may be credentials, whatever their name, so only these are sent to another origin.
_HARMLESS = frozenset({"accept", "accept-language", "content-type", "user-agent", HOPS_HEADER})
_OF_THE_BODY = frozenset({"content-type", "content-encoding", "content-language", "content-location"})


class Message(TypedDict, total=False):
    """The options of one request. `max_response_bytes` counts the unpacked body; `timeout_s` covers everything."""

    headers: Mapping[str, str] | None
    body: bytes | None
    timeout_s: float
    max_response_bytes: int | None
    max_redirects: int | None


class _Deadline(Struct, frozen=True, kw_only=True):
    """The end of the time for the whole exchange, on the clock of the event loop."""

    at: float
    after_s: float

    @asynccontextmanager
    async def holds(self, exchange: Exchange) -> AsyncGenerator[None]:
        try:
            async with asyncio.timeout_at(self.at):
                yield
        except TimeoutError:
            raise timed_out(exchange, after_s=self.after_s) from None


class _Hop(CarriesCredentials, frozen=True, kw_only=True):
    """One request of a chain of redirects. Header names are lower case."""

    method: str
    url: httpx2.URL
    headers: Mapping[str, str]
    body: bytes | None = None


class StreamedResponse:
    """A response whose body is read piece by piece: `async for piece in response`."""

    def __init__(self, response: httpx2.Response, *, url: str, exchange: Exchange, deadline: _Deadline) -> None:
        self.status_code = response.status_code
        self.headers: Mapping[str, str] = dict(response.headers.items())
        self.url = url
        # Not `aiter_bytes`, which would unpack the body a second time.
        assert isinstance(response.stream, UnpackedBody)
        self._pieces = aiter(response.stream)
        self._exchange = exchange
        self._deadline = deadline

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        """Return the next piece of the unpacked body, under the cap and the deadline.

        Raises:
            EgressError: result_too_large after the last byte that fits; timeout; upstream_lost; protocol_error.
        """
        async with self._deadline.holds(self._exchange):
            piece = await anext(self._pieces, None)
        if piece is None:
            raise StopAsyncIteration
        return piece

    async def aclose(self) -> None:
        """Stop reading."""
        await self._pieces.aclose()


class GuardedClient:
    """Sends requests to allowed destinations only. Keeps connections but no cookies; share one per configuration.

    Args:
        destinations: where it may connect; only public addresses by default.
        headers: configured headers, sent to the first origin only. Callers cannot override them.
        connect_s: seconds to resolve and connect, per attempt.
        read_s: seconds of silence allowed while reading; the deadline of the request applies in any case.
        resolve: looks up host names.
    """

    def __init__(
        self,
        destinations: Destinations | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        bounds: Bounds = DEFAULT_BOUNDS,
        connect_s: float = CONNECT_S,
        read_s: float | None = None,
        resolve: Resolve = system_resolve,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._headers = checked_headers(headers or {})
        self._bounds = bounds
        self._timeouts = {"connect": connect_s, "pool": connect_s, "read": read_s, "write": read_s}
        self._transport = GuardedTransport(destinations or Destinations(), resolve=resolve, ssl_context=ssl_context)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close every connection."""
        await self._transport.aclose()

    async def request(
        self,
        method: str,
        url: str,
        *,
        on_overflow: OnOverflow = "raise",
        **message: Unpack[Message],
    ) -> Response:
        """Send one request, follow its redirects and read the response. 4xx and 5xx are responses, not errors.

        `timeout_s` covers everything: connecting, redirects, the last byte. `max_response_bytes` counts the unpacked
        body (the bound `http_response_bytes` by default). With `max_redirects=0` a redirect is returned unchanged.

        Raises:
            EgressError: blocked_destination, invalid_arguments, upstream_unavailable, upstream_lost, timeout,
                protocol_error, upstream_error (too many redirects), result_too_large.
        """
        started_s = asyncio.get_running_loop().time()
        content, truncated = bytearray(), False
        async with self.stream(method, url, **message) as response:
            try:
                async for piece in response:
                    content += piece
            except EgressError as exc:
                if on_overflow == "raise" or exc.error.kind != "result_too_large":
                    raise
                truncated = True
        return Response(
            status_code=response.status_code,
            headers=response.headers,
            body=bytes(content),
            url=response.url,
            truncated=truncated,
            elapsed_s=asyncio.get_running_loop().time() - started_s,
        )

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        url: str,
        **message: Unpack[Message],
    ) -> AsyncGenerator[StreamedResponse]:
        """Send one request like `request`, and yield the response before its body is read.

        The connection is closed or returned when the block ends.
        """
        timeout_s = message.get("timeout_s", DEFAULT_BOUNDS.tool_timeout_s)
        deadline = _Deadline(at=asyncio.get_running_loop().time() + timeout_s, after_s=timeout_s)
        hop = self._first_hop(method, url, message.get("headers") or {}, message.get("body"))
        cap, limit = message.get("max_response_bytes"), message.get("max_redirects")
        cap = self._bounds.http_response_bytes if cap is None else cap
        limit = self._bounds.http_redirects if limit is None else limit
        for followed in range(limit + 1):
            exchange = Exchange(origin=origin_of(hop.url))
            try:
                async with deadline.holds(exchange):
                    response = await self._transport.handle_async_request(self._build(hop, exchange, cap))
            except EgressError as exc:
                raise _at_hop(exc, followed) from exc
            try:
                location = response.headers.get("location")
                if response.status_code not in _REDIRECT_STATUSES or location is None or limit == 0:
                    streamed = StreamedResponse(response, url=str(hop.url), exchange=exchange, deadline=deadline)
                    async with aclosing(streamed):
                        yield streamed
                    return
            finally:
                await response.aclose()
            try:
                hop = _next_hop(hop, status=response.status_code, location=location)
            except EgressError as exc:
                raise _at_hop(exc, followed + 1) from exc
        raise EgressError("upstream_error", f"{origin_of(hop.url)!r} redirects more than {limit} times.")

    def _first_hop(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> _Hop:
        if not _TOKEN.fullmatch(method) or method.upper() in ("CONNECT", "TRACE"):
            raise EgressError("invalid_arguments", f"The method {method[:40]!r} is not allowed. Use GET or POST.")
        if body is not None and len(body) > self._bounds.request_body_bytes:
            text = f"The body has {len(body)} bytes; at most {self._bounds.request_body_bytes} are sent. Send less."
            raise EgressError("invalid_arguments", text)
        own = checked_headers(headers)
        configured = set(map(as_servers_read, self._headers))
        taken = sorted(name for name in own if as_servers_read(name) in configured)
        if taken:
            text = f"The header {taken[0]!r} is set by the configuration of this tool. Leave it out."
            raise EgressError("invalid_arguments", text)
        merged = {"user-agent": "pegboard", "accept": "*/*"} | own | self._headers
        return _Hop(method=method.upper(), url=parse_url(url), headers=merged, body=body)

    def _build(self, hop: _Hop, exchange: Exchange, cap: int) -> httpx2.Request:
        return httpx2.Request(
            hop.method,
            hop.url,
            headers=dict(hop.headers),
            content=hop.body,
            extensions={"timeout": self._timeouts, EXCHANGE_EXTENSION: exchange, CAP_EXTENSION: cap},
        )


def _next_hop(hop: _Hop, *, status: int, location: str) -> _Hop:
    """Return the request for a redirect, with the method changed as browsers do.

    Raises:
        EgressError: blocked_destination if it leads from https to http or to another scheme.
    """
    url = join_url(hop.url, location)
    if hop.url.scheme == "https" and url.scheme == "http":
        raise EgressError("blocked_destination", f"A redirect from https to http is refused (to {url.host!r}).")
    method, headers, body = hop.method, dict(hop.headers), hop.body
    if (status == 303 and method != "HEAD") or (status in (301, 302) and method == "POST"):
        method, body = "GET", None
        headers = {name: value for name, value in headers.items() if name not in _OF_THE_BODY}
    if (url.scheme, url.host, _port(url)) != (hop.url.scheme, hop.url.host, _port(hop.url)):
        headers = {name: value for name, value in headers.items() if name in _HARMLESS}
    return _Hop(method=method, url=url, headers=headers, body=body)


def _port(url: httpx2.URL) -> int:
    return url.port or (443 if url.scheme == "https" else 80)


def as_servers_read(name: str) -> str:
    """Return a header's name in the form that many servers compare: CGI treats `_` and `-` alike."""
    return name.lower().replace("_", "-")


def checked_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers with lower-case names; refuse those that could change the message itself."""
    checked: dict[str, str] = {}
    for name, value in headers.items():
        plain, as_read = name.lower(), as_servers_read(name)
        if not _TOKEN.fullmatch(name):
            raise EgressError("invalid_arguments", f"{name[:80]!r} is not a header name. Use letters, digits and '-'.")
        if as_read in _NEVER_SET or as_read.startswith("proxy-"):
            raise EgressError("invalid_arguments", f"The header {name!r} cannot be set. Leave it out.")
        if not _VALUE.fullmatch(value):
            text = f"The header {name!r} has a line break or another character that headers cannot hold. Remove it."
            raise EgressError("invalid_arguments", text)
        if plain in checked:
            raise EgressError("invalid_arguments", f"The header {name!r} is given twice. Give it once.")
        checked[plain] = value
    return checked


def _at_hop(exc: EgressError, followed: int) -> EgressError:
    if followed == 0:
        return exc
    error = exc.error
    return EgressError(
        error.kind,
        f"Redirect {followed}: {error.message}",
        hint=error.hint,
        retryable=error.retryable,
        outcome_unknown=error.outcome_unknown,
    )
