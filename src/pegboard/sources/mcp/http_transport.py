"""HTTP transport: MCP messages over streamable HTTP or SSE, through the guarded client."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from typing import Any, cast

import httpx2  # noqa: TID251 - the SDK takes its client; ours goes out through egress.transport
import orjson
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from pegboard.core.bounded_cache import BoundedCache
from pegboard.core.json_reader import TooManyValuesError, check_message_count
from pegboard.egress.destinations import Destinations
from pegboard.egress.failures import EgressError
from pegboard.egress.responses import seconds_of
from pegboard.egress.transport import GuardedTransport, guarded_client
from pegboard.model.bounds import MIB, Bounds
from pegboard.model.error import CallError
from pegboard.sources.mcp.answer_filter import (
    AnswerFilter,
    Expectation,
    NoAnswer,
    OneAnswer,
    OpenRequests,
    SentRequest,
    checked_answer,
    is_of_a_run,
    is_rpc,
    sent_request,
)
from pegboard.sources.mcp.evidence import MCP_ANSWER_SHOWN_BYTES, Evidence
from pegboard.sources.mcp.oauth import OAuthTransport
from pegboard.sources.mcp.server_settings import ServerSettings, revealed
from pegboard.sources.mcp.turns import between_readings

MCP_STREAM_SILENCE_S = 3_600.0  # seconds that a stream may be silent
# Seconds before a broken stream is resumed, even if the server asks for less (`retry: 0`).
MCP_RESUME_WAITS_S = (0.5, 1.0, 2.0, 5.0)
MCP_RESUMES = 100  # resumptions for one answer; the SDK counts only failures, and recurses for each
MCP_EVENT_BYTES = 1 * MIB  # bytes of one server-sent event; as many as the SDK accepts over SSE
MCP_LAST_ANSWERS_S = 0.5  # seconds for calls to receive their errors before a lost connection is closed
MCP_REMEMBERED_FAILURES = 1_000  # stored failures that wait for their calls

log = logging.getLogger("pegboard")
FAILED = -32098
_GONE = frozenset({"upstream_unavailable", "upstream_auth"})
_BROKEN = frozenset({"upstream_lost", "timeout", "protocol_error"})
_SESSION = re.compile(
    rb"\b(no|not|unknown|invalid|expired|missing|without)\b[^\"]{0,40}\bsession|"
    rb"\bsession\b[^\"]{0,40}\b(not found|unknown|invalid|expired|gone|does not exist|is missing)\b",
    re.IGNORECASE,
)
_READ_BY_THE_SDK = ("application/json", "text/event-stream")
_OF_THE_BODY = frozenset((b"content-length", b"transfer-encoding", b"content-type"))
_REFUSED = {401: "401 Unauthorized", 403: "403 Forbidden"}
Streams = Any  # the SDK's pair of message streams, whose classes differ by transport


class TransportFailures:
    """Failures below the SDK, which does not report them to the calls that they belong to.

    `on_lost` is called for a failure of the whole connection, `on_doubt` for a possible one.
    """

    def __init__(self, on_lost: Callable[[CallError], None], on_doubt: Callable[[], None], evidence: Evidence) -> None:
        self.on_lost, self.on_doubt, self.evidence = on_lost, on_doubt, evidence
        self.last_status = 0
        self._remembered = BoundedCache[str, CallError](max_entries=MCP_REMEMBERED_FAILURES)
        self._undelivered: set[str] = set()
        self._all_delivered = asyncio.Event()

    def remember(self, error: CallError) -> str:
        """Store an error for its call; return the token to look it up."""
        token = secrets.token_hex(16)
        self._remembered.remember(token, error)
        self._undelivered.add(token)
        self._all_delivered.clear()
        return token

    async def delivered(self) -> None:
        """Wait briefly until each call has received its own failure."""
        with suppress(TimeoutError):
            async with asyncio.timeout(MCP_LAST_ANSWERS_S):
                while self._undelivered:
                    await self._all_delivered.wait()

    def recall(self, token: object) -> CallError | None:
        """Return the error with a token. We create tokens, so no server can forge one."""
        if not isinstance(token, str):
            return None
        self._undelivered.discard(token)
        if not self._undelivered:
            self._all_delivered.set()
        return self._remembered.pop(token, None)


class Resumption:
    """The streams of one request, each resuming the previous one."""

    def __init__(self, *, is_endless: bool, request: SentRequest | None = None) -> None:
        self._is_endless = is_endless
        self.expectation: Expectation = NoAnswer() if request is None else OneAnswer(request)
        self._times, self._began_at = 0, time.monotonic()

    async def wait(self, server: str) -> None:
        """Wait until the next stream may begin.

        Raises:
            EgressError: `upstream_lost`, too many streams without an answer.
        """
        if self._times >= MCP_RESUMES and not self._is_endless:
            text = f"{server!r} broke its answer off {self._times} times. The action may have happened."
            raise EgressError("upstream_lost", text, outcome_unknown=True)
        gap_s = MCP_RESUME_WAITS_S[min(self._times, len(MCP_RESUME_WAITS_S) - 1)]
        self._times += 1
        await asyncio.sleep(max(0.0, self._began_at + gap_s - time.monotonic()))
        self._began_at = time.monotonic()


# The SDK resumes a stream in the task that made the request.
_resumption: ContextVar[Resumption | None] = ContextVar("_resumption", default=None)


class _ForgottenError(EgressError):
    """The server no longer knows our session, and has not run the request."""


class OddAnswerError(EgressError):
    """The response is not one of an MCP server."""


class AnsweringTransport(httpx2.AsyncBaseTransport):
    """Converts the failure of one request to an error answer, so that other requests continue."""

    def __init__(
        self,
        inner: httpx2.AsyncBaseTransport,
        failures: TransportFailures,
        settings: ServerSettings,
        *,
        is_shared: bool,
    ) -> None:
        self._inner, self._failures, self._server = inner, failures, settings.name
        # Over SSE all answers share a stream, and the SDK stops sending after an error.
        self._is_shared, self._timeout_s = is_shared, settings.timeout_s
        self._open, self._event_bytes = OpenRequests(), settings.bounds.upstream_list_bytes
        self._bounds, self._too_many_values = settings.bounds, settings.too_many_values

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request; a JSON-RPC request always gets an answer."""
        sent = sent_request(request.content) if request.method == "POST" else None
        if self._is_shared and request.method == "POST":
            request.extensions["timeout"] = {**request.extensions.get("timeout", {}), "read": self._timeout_s}
        try:
            if not self._is_shared:
                await self._in_turn(request, sent)
            elif sent is not None:
                self._open.ids.add(sent.request_id)
            return await self._answer(request, sent)
        except CallError as error:
            # Stored before the connection is closed, which waits until each call has received its failure.
            token = "" if sent is None else self._failures.remember(error)
            self._tell(error)
            if sent is None:
                raise
            return _error_answer(sent.request_id, error, token)

    def _tell(self, error: CallError) -> None:
        """Report a failure that affects the other requests of the connection."""
        kind = error.error.kind
        if isinstance(error, _ForgottenError):
            # The other requests only learn that the session ended.
            self._failures.on_lost(EgressError("upstream_lost", f"{self._server!r} has forgotten our session"))
        elif kind in _GONE or (self._is_shared and kind in _BROKEN):
            self._failures.on_lost(error)
        elif kind in _BROKEN:
            self._failures.on_doubt()

    async def _answer(self, request: httpx2.Request, sent: SentRequest | None) -> httpx2.Response:
        response = await self._inner.handle_async_request(request)
        self._failures.last_status = response.status_code
        fault = self._fault(request, response, sent)
        if fault is not None:
            await response.aclose()
            raise fault
        response.request = request
        media = media_type_of(response)
        if media == "text/event-stream":
            return self._filtered_events(response)
        if sent is not None:
            return await self._whole_answer(request, response, media, sent)
        if self._is_shared and request.method == "GET" and not response.has_redirect_location:
            raise self._odd_answer(response.status_code, media, await _beginning(response))
        return response

    async def _whole_answer(
        self, request: httpx2.Request, response: httpx2.Response, media: str, sent: SentRequest
    ) -> httpx2.Response:
        # Read here, so that a broken body fails only this request.
        body = b"".join([piece async for piece in cast("httpx2.AsyncByteStream", response.stream)])
        await response.aclose()
        await between_readings(body)
        try:
            check_message_count(body, bounds=self._bounds)
        except TooManyValuesError:
            raise EgressError("result_too_large", self._too_many_values, outcome_unknown=sent.is_call) from None
        await between_readings(body)
        if "mcp-session-id" in request.headers and _is_forgotten(response.status_code, body, sent, self._bounds):
            raise self._forgotten()
        if self._is_odd(response, media, body):
            odd = self._odd_answer(response.status_code, media, body)
            if response.status_code < 300:
                raise odd
        if not self._is_shared:
            body, media = _judged(response.status_code, media, body, sent, self._bounds)
        await between_readings(body)
        return httpx2.Response(response.status_code, headers=_headers_of(response, media), content=body)

    def _is_odd(self, response: httpx2.Response, media: str, body: bytes) -> bool:
        """Tell whether a response shows that this is not an MCP server, unless the server has proven otherwise."""
        is_judged = not self._is_shared and not self._failures.evidence.has_session
        return (
            is_judged
            and not response.has_redirect_location
            and not (media == "application/json" and is_rpc(body, self._bounds))
        )

    def _odd_answer(self, status: int, media: str, body: bytes) -> OddAnswerError:
        self._failures.evidence.on_odd_answer(status, media, body)
        return OddAnswerError("protocol_error", self._failures.evidence.not_mcp(""), outcome_unknown=True)

    def _filtered_events(self, response: httpx2.Response) -> httpx2.Response:
        expectation: Expectation = self._open
        if self._is_shared:
            capped = CappedEvents(cast("httpx2.AsyncByteStream", response.stream), self._server, self._failures.on_lost)
            response = httpx2.Response(
                response.status_code, headers=response.headers, stream=capped, request=response.request
            )
        else:
            resumption = _resumption.get()
            expectation = NoAnswer() if resumption is None else resumption.expectation
        events = AnswerFilter(response, expectation, max_event_bytes=self._event_bytes, bounds=self._bounds)
        headers = _headers_of(response, "text/event-stream")
        return httpx2.Response(response.status_code, headers=headers, stream=events)

    async def _in_turn(self, request: httpx2.Request, sent: SentRequest | None) -> None:
        """Delay resumptions at a server that ends its streams at once."""
        resumption = _resumption.get()
        if request.method == "GET" and resumption is not None:
            await resumption.wait(self._server)
        else:
            _resumption.set(Resumption(is_endless=request.method == "GET", request=sent))

    def _fault(self, request: httpx2.Request, response: httpx2.Response, sent: SentRequest | None) -> CallError | None:
        status = response.status_code
        if status < 400:
            return None
        if status in _REFUSED:
            text = f"{self._server!r} answered {_REFUSED[status]}. Give it valid credentials under `headers:`."
            return EgressError("upstream_auth", text)
        wait_s = seconds_of(response.headers.get("retry-after", ""))
        # The body is checked first for a call, since it may be the tool's error.
        has_body = sent is not None and sent.is_call and media_type_of(response) != "text/event-stream"
        if status == 404 and "mcp-session-id" in request.headers and not has_body:
            return self._forgotten()
        if status == 429:
            text = f"{self._server!r} says: too many requests. The call was not run; wait, and repeat it."
            return EgressError("rate_limited", text, retry_after_s=wait_s)
        if status in (502, 503, 504):
            # A gateway's error does not tell whether the server behind it started.
            text = f"{self._server!r} answered {status}: it is not available. Try again later."
            return EgressError("upstream_unavailable", text, retry_after_s=wait_s, outcome_unknown=status == 504)
        return None

    def _forgotten(self) -> CallError:
        text = f"{self._server!r} has forgotten our session; the call was not run."
        return _ForgottenError("upstream_lost", text)

    async def aclose(self) -> None:
        await self._inner.aclose()


class CappedEvents(httpx2.AsyncByteStream):
    """The stream of an SSE session. One event that is too large ends it, and calls in flight get the reason."""

    def __init__(self, inner: httpx2.AsyncByteStream, server: str, on_lost: Callable[[CallError], None]) -> None:
        self._inner, self._server, self._on_lost = inner, server, on_lost

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size, tail, ends_in_return = 0, b"", False
        async for piece in self._inner:
            # A line ends with LF, CR, or CRLF, which may arrive in two pieces; an event ends with two line ends.
            plain = piece[1:] if ends_in_return and piece.startswith(b"\n") else piece
            ends_in_return = piece.endswith(b"\r") if piece else ends_in_return
            first, *others = (tail + plain.replace(b"\r\n", b"\n").replace(b"\r", b"\n")).split(b"\n\n")
            largest = max(size + len(first) - len(tail), *map(len, others), 0)
            size = len(others[-1]) if others else size + len(first) - len(tail)
            tail = (others[-1] if others else first)[-1:]
            if largest > MCP_EVENT_BYTES:
                text = f"{self._server!r} sent a message of more than {MCP_EVENT_BYTES} bytes."
                error = EgressError("upstream_lost", text, outcome_unknown=True)
                self._on_lost(error)
                raise error
            yield piece

    async def aclose(self) -> None:
        await self._inner.aclose()


async def _beginning(response: httpx2.Response) -> bytes:
    """Return the beginning of a body, and close it."""
    body = b""
    async for piece in cast("httpx2.AsyncByteStream", response.stream):
        body += piece
        if len(body) >= MCP_ANSWER_SHOWN_BYTES:
            break
    await response.aclose()
    return body


class _SdkRecords(logging.Filter):
    """Hides the SDK's log records about our connections at default levels, since we log the essentials ourselves."""

    def filter(self, record: logging.LogRecord) -> bool:
        server = _connected_to.get()
        if server is not None:
            log.debug("MCP server %r, in the SDK's words: %s", server, record.getMessage(), exc_info=record.exc_info)
        return server is None


# Set in the task of a connection, and so in tasks that the SDK starts there.
_connected_to: ContextVar[str | None] = ContextVar("_connected_to", default=None)
for _name in ("mcp.client.sse", "mcp.client.streamable_http"):
    logging.getLogger(_name).addFilter(_SdkRecords())


def _is_forgotten(status: int, body: bytes, sent: SentRequest, bounds: Bounds) -> bool:
    """Tell whether an error says that our session is unknown, as opposed to an error of a tool."""
    # Many servers use status 400 for that.
    says_so = status == 404 or (status == 400 and _SESSION.search(body) is not None)
    return says_so and not is_of_a_run(body, sent, bounds)


def _judged(status: int, media: str, body: bytes, sent: SentRequest, bounds: Bounds) -> tuple[bytes, str]:
    """Return the body of a response, and the media type for the SDK's parser.

    The SDK compares only the beginning of the type, and takes `application/jsonl` or a repeated type for JSON. A body
    that was not checked as JSON here gets another type.
    """
    if media != "application/json":
        return body, "application/octet-stream" if media.startswith(_READ_BY_THE_SDK) else media
    if status < 300:
        return checked_answer(body, sent, bounds), media
    # For an error status the SDK expects a JSON-RPC error, and otherwise uses the status.
    return body if is_rpc(body, bounds) else b"", media


def media_type_of(response: httpx2.Response) -> str:
    """Return the media type of a response, without parameters."""
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()


def _headers_of(response: httpx2.Response, media: str) -> list[tuple[bytes, bytes]]:
    """Return the headers of a response whose body may have been replaced, with its media type."""
    headers = [header for header in response.headers.raw if header[0].lower() not in _OF_THE_BODY]
    return [*headers, (b"content-type", media.encode())]


def _error_answer(request_id: int | str, error: CallError, token: str) -> httpx2.Response:
    fields = {"code": FAILED, "message": error.error.message, "data": {"failure": token}}
    body = orjson.dumps({"jsonrpc": "2.0", "id": request_id, "error": fields})
    return httpx2.Response(500, headers={"content-type": "application/json"}, content=body)


def _client(settings: ServerSettings, failures: TransportFailures, *, is_shared: bool) -> httpx2.AsyncClient:
    url = httpx2.URL(settings.url)
    port = url.port or (443 if url.scheme == "https" else 80)
    host = f"[{url.host}]" if ":" in url.host else url.host
    # The operator configured this address, so it may be private; redirects elsewhere are refused.
    guarded = GuardedTransport(
        Destinations(allow_private=True, allow_hosts=(f"{host}:{port}",)),
        max_response_bytes=settings.bounds.upstream_list_bytes,
        cap_event_streams=False,
    )
    transport = guarded if settings.auth is None else OAuthTransport(guarded, settings.auth, settings)
    return guarded_client(
        cast("GuardedTransport", AnsweringTransport(transport, failures, settings, is_shared=is_shared)),
        headers=revealed(settings.headers),
        timeout=httpx2.Timeout(settings.timeout_s, read=MCP_STREAM_SILENCE_S),
    )


@asynccontextmanager
async def open_http(settings: ServerSettings, failures: TransportFailures) -> AsyncGenerator[Streams]:
    """Yield the message streams of a streamable HTTP server."""
    _connected_to.set(settings.name)
    async with (
        _client(settings, failures, is_shared=False) as client,
        streamable_http_client(
            settings.url, http_client=client, max_sse_event_size=settings.bounds.upstream_list_bytes
        ) as streams,
    ):
        yield streams


@asynccontextmanager
async def open_sse(settings: ServerSettings, failures: TransportFailures) -> AsyncGenerator[Streams]:
    """Yield the message streams of a server that only supports SSE."""
    _connected_to.set(settings.name)

    def client_factory(
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        return _client(settings, failures, is_shared=True)

    async with sse_client(settings.url, httpx_client_factory=client_factory) as streams:
        yield streams
