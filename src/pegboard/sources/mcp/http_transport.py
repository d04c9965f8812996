"""HTTP transport: MCP messages over HTTP, streamable or SSE, each request through the guarded way out."""

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

MCP_STREAM_SILENCE_S = 3_600.0  # that a stream may be silent
# Before a stream that broke off is taken up again, however soon the server asks (`retry: 0`).
MCP_RESUME_WAITS_S = (0.5, 1.0, 2.0, 5.0)
MCP_RESUMES = 100  # so often for one answer; the SDK counts those in vain alone, and calls itself for each
MCP_EVENT_BYTES = 1 * MIB  # of one server-sent event; as much as the SDK takes in an SSE session
MCP_LAST_ANSWERS_S = 0.5  # for calls to hear what they met, before the connection that it ends is closed
MCP_REMEMBERED_FAILURES = 1_000  # that wait for the call they belong to

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
Streams = Any  # the SDK's pair of message streams, whose classes differ from transport to transport


class TransportFailures:
    """What went wrong below the SDK, which would otherwise show none of it to the call that met it.

    `on_lost` hears of a failure that speaks against the whole connection, `on_doubt` of one that may.
    """

    def __init__(self, on_lost: Callable[[CallError], None], on_doubt: Callable[[], None], evidence: Evidence) -> None:
        self.on_lost, self.on_doubt, self.evidence = on_lost, on_doubt, evidence
        self.last_status = 0
        self._remembered = BoundedCache[str, CallError](max_entries=MCP_REMEMBERED_FAILURES)
        self._undelivered: set[str] = set()
        self._all_delivered = asyncio.Event()

    def remember(self, error: CallError) -> str:
        """Keep an error for the call that it belongs to; returns the token that finds it again."""
        token = secrets.token_hex(16)
        self._remembered.remember(token, error)
        self._undelivered.add(token)
        self._all_delivered.clear()
        return token

    async def delivered(self) -> None:
        """Wait until each call knows the failure that is its own; not for long, as one may have nobody left to tell."""
        with suppress(TimeoutError):
            async with asyncio.timeout(MCP_LAST_ANSWERS_S):
                while self._undelivered:
                    await self._all_delivered.wait()

    def recall(self, token: object) -> CallError | None:
        """Return the error that is remembered under a token. The token is ours, so no server can forge one."""
        if not isinstance(token, str):
            return None
        self._undelivered.discard(token)
        if not self._undelivered:
            self._all_delivered.set()
        return self._remembered.pop(token, None)


class Resumption:
    """The streams that one request led to, each taking up the one before."""

    def __init__(self, *, is_endless: bool, request: SentRequest | None = None) -> None:
        self._is_endless = is_endless
        self.expectation: Expectation = NoAnswer() if request is None else OneAnswer(request)
        self._times, self._began_at = 0, time.monotonic()

    async def wait(self, server: str) -> None:
        """Wait until the next stream may begin.

        Raises:
            EgressError: `upstream_lost`, there were too many of them without an answer.
        """
        if self._times >= MCP_RESUMES and not self._is_endless:
            text = f"{server!r} broke its answer off {self._times} times. The action may have happened."
            raise EgressError("upstream_lost", text, outcome_unknown=True)
        gap_s = MCP_RESUME_WAITS_S[min(self._times, len(MCP_RESUME_WAITS_S) - 1)]
        self._times += 1
        await asyncio.sleep(max(0.0, self._began_at + gap_s - time.monotonic()))
        self._began_at = time.monotonic()


# The SDK takes a stream up again in the task that made the request.
_resumption: ContextVar[Resumption | None] = ContextVar("_resumption", default=None)


class _ForgottenError(EgressError):
    """The server knows our session no more, and has done nothing with the request."""


class OddAnswerError(EgressError):
    """The address gave an answer that no MCP server gives."""


class AnsweringTransport(httpx2.AsyncBaseTransport):
    """Turns the failure of one request into an error answer to that request: the others of a connection go on."""

    def __init__(
        self,
        inner: httpx2.AsyncBaseTransport,
        failures: TransportFailures,
        settings: ServerSettings,
        *,
        is_shared: bool,
    ) -> None:
        self._inner, self._failures, self._server = inner, failures, settings.name
        # Over SSE all answers come on one stream, and the SDK sends one message after the other, none after a fault.
        self._is_shared, self._timeout_s = is_shared, settings.timeout_s
        self._open, self._event_bytes = OpenRequests(), settings.bounds.upstream_list_bytes
        self._bounds, self._too_many_values = settings.bounds, settings.too_many_values

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request; for a JSON-RPC request there is always an answer."""
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
            # Kept before the connection is given up: who closes it waits until each call has heard its own failure.
            token = "" if sent is None else self._failures.remember(error)
            self._tell(error)
            if sent is None:
                raise
            return _error_answer(sent.request_id, error, token)

    def _tell(self, error: CallError) -> None:
        """Tell the connection what a failure of one request means for the others."""
        kind = error.error.kind
        if isinstance(error, _ForgottenError):
            # The others in flight only hear that the session ended.
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
        # Read here, so that a body which breaks off fails this request alone.
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
        """Tell whether an answer shows that this is not an MCP server, before one has said that it is."""
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
        """Keep a server that ends its streams at once from being asked again and again."""
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
        # Of a call the body is looked at first: it may be what the tool said.
        has_body = sent is not None and sent.is_call and media_type_of(response) != "text/event-stream"
        if status == 404 and "mcp-session-id" in request.headers and not has_body:
            return self._forgotten()
        if status == 429:
            text = f"{self._server!r} says: too many requests. The call was not run; wait, and repeat it."
            return EgressError("rate_limited", text, retry_after_s=wait_s)
        if status in (502, 503, 504):
            # What a gateway says of the server behind it leaves open whether that one began.
            text = f"{self._server!r} answered {status}: it is not available. Try again later."
            return EgressError("upstream_unavailable", text, retry_after_s=wait_s, outcome_unknown=status == 504)
        return None

    def _forgotten(self) -> CallError:
        text = f"{self._server!r} has forgotten our session; the call was not run."
        return _ForgottenError("upstream_lost", text)

    async def aclose(self) -> None:
        await self._inner.aclose()


class CappedEvents(httpx2.AsyncByteStream):
    """The stream of an SSE session. One event too large ends it, and the calls in flight are told why."""

    def __init__(self, inner: httpx2.AsyncByteStream, server: str, on_lost: Callable[[CallError], None]) -> None:
        self._inner, self._server, self._on_lost = inner, server, on_lost

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size, tail, ends_in_return = 0, b"", False
        async for piece in self._inner:
            # A line ends with a newline, a return, or both, which may come in two pieces; an event with two ends.
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
    """Keeps what the SDK logs of our connections for those who look for it: what matters of it, we say ourselves."""

    def filter(self, record: logging.LogRecord) -> bool:
        server = _connected_to.get()
        if server is not None:
            log.debug("MCP server %r, in the SDK's words: %s", server, record.getMessage(), exc_info=record.exc_info)
        return server is None


# Set in the task of a connection, and so in those that the SDK starts in it.
_connected_to: ContextVar[str | None] = ContextVar("_connected_to", default=None)
for _name in ("mcp.client.sse", "mcp.client.streamable_http"):
    logging.getLogger(_name).addFilter(_SdkRecords())


def _is_forgotten(status: int, body: bytes, sent: SentRequest, bounds: Bounds) -> bool:
    """Tell whether a refusal says that our session is not known; what a tool says once it ran does not."""
    # Many a server says so with 400.
    says_so = status == 404 or (status == 400 and _SESSION.search(body) is not None)
    return says_so and not is_of_a_run(body, sent, bounds)


def _judged(status: int, media: str, body: bytes, sent: SentRequest, bounds: Bounds) -> tuple[bytes, str]:
    """Return the body of an answer, and the media type under which the SDK may read it.

    It looks at the beginning of the type, and takes `application/jsonl` and a type that stands twice for JSON: what was
    not judged here as JSON is none there.
    """
    if media != "application/json":
        return body, "application/octet-stream" if media.startswith(_READ_BY_THE_SDK) else media
    if status < 300:
        return checked_answer(body, sent, bounds), media
    # Of a refusal it takes an error of JSON-RPC, and goes by the status where there is none.
    return body if is_rpc(body, bounds) else b"", media


def media_type_of(response: httpx2.Response) -> str:
    """Return the media type that a response names, without parameters."""
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()


def _headers_of(response: httpx2.Response, media: str) -> list[tuple[bytes, bytes]]:
    """Return the headers of an answer whose body was read and may be another now, with its media type."""
    kept = [header for header in response.headers.raw if header[0].lower() not in _OF_THE_BODY]
    return [*kept, (b"content-type", media.encode())]


def _error_answer(request_id: int | str, error: CallError, token: str) -> httpx2.Response:
    fields = {"code": FAILED, "message": error.error.message, "data": {"failure": token}}
    body = orjson.dumps({"jsonrpc": "2.0", "id": request_id, "error": fields})
    return httpx2.Response(500, headers={"content-type": "application/json"}, content=body)


def _client(settings: ServerSettings, failures: TransportFailures, *, is_shared: bool) -> httpx2.AsyncClient:
    url = httpx2.URL(settings.url)
    port = url.port or (443 if url.scheme == "https" else 80)
    host = f"[{url.host}]" if ":" in url.host else url.host
    # The operator wrote this one address, so it may be private; a redirect to any other is refused.
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
    """Give the message streams of a server that speaks streamable HTTP."""
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
    """Give the message streams of a server that speaks SSE only."""
    _connected_to.set(settings.name)

    def client_factory(
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        return _client(settings, failures, is_shared=True)

    async with sse_client(settings.url, httpx_client_factory=client_factory) as streams:
        yield streams
