"""AnswerFilter: accepts an answer only on the stream of its request, and parses it strictly."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

import httpx2  # noqa: TID251 - the SDK takes its responses; what they hold came through egress.transport
import orjson
from msgspec import Struct

from pegboard.core.json_reader import TooManyValuesError, envelope_of, read_counted, read_message
from pegboard.model.bounds import Bounds
from pegboard.model.json_types import JSON, is_object
from pegboard.sources.mcp.turns import between_readings

# The SDK's error text, and the code that it uses.
UNREADABLE = "Failed to parse JSON response"
TOO_MANY_VALUES = "Too many values in one JSON response"
_PARSE_ERROR = -32700
# An invalid request, and an unknown session: both are reported before any tool runs.
_BEFORE_A_RUN = frozenset({-32600, -32001})


class SentRequest(Struct, frozen=True, kw_only=True):
    """A request of ours, for recognising its answer and progress."""

    request_id: int | str
    progress_token: int | str | None = None
    is_call: bool = False


class Expectation(Protocol):
    """The messages that a stream may carry."""

    def takes(self, message: JSON) -> bool:
        """Tell whether a message belongs on this stream; an answer is accepted once."""
        ...

    def instead_of_unreadable(self, refused: bytes, fault: str = UNREADABLE) -> bytes:
        """Return the replacement for an unreadable message; empty to drop it."""
        ...


class OneAnswer:
    """The stream of one request: its answer, its progress, and requests and notifications of the server."""

    def __init__(self, request: SentRequest) -> None:
        self._request, self._is_open = request, True

    def takes(self, message: JSON) -> bool:
        if "method" in message:
            params = message.get("params")
            token = params.get("progressToken") if is_object(params) else None
            is_progress = message["method"] == "notifications/progress"
            return not is_progress or is_same(token, self._request.progress_token)
        # An error may have no id, if the server could not parse ours.
        is_ours = is_same(message.get("id"), self._request.request_id) or (
            "error" in message and message.get("id") is None
        )
        is_taken = is_ours and self._is_open
        self._is_open = self._is_open and not is_ours
        return is_taken

    def instead_of_unreadable(self, refused: bytes, fault: str = UNREADABLE) -> bytes:
        return unreadable_answer(self._request.request_id, fault)


class NoAnswer:
    """A stream without a request: it carries requests and notifications of the server."""

    def takes(self, message: JSON) -> bool:
        return "method" in message

    def instead_of_unreadable(self, refused: bytes, fault: str = UNREADABLE) -> bytes:
        return b""


@dataclass(slots=True)
class OpenRequests:
    """A shared stream: it carries one answer for each open request."""

    ids: set[int | str] = field(default_factory=set[int | str])

    def takes(self, message: JSON) -> bool:
        return "method" in message or self.close(message.get("id"))

    def instead_of_unreadable(self, refused: bytes, fault: str = UNREADABLE) -> bytes:
        # A caller waits for this answer, whatever is wrong with its content.
        envelope = envelope_of(refused)
        is_awaited = envelope is not None and envelope.is_answer and self.close(envelope.id)
        return unreadable_answer(envelope.id, fault) if envelope is not None and is_awaited else b""

    def close(self, request_id: object) -> bool:
        """Stop expecting an answer to a request; return whether one was expected."""
        if not self.has(request_id):
            return False
        self.ids.discard(cast("int | str", request_id))
        return True

    def has(self, request_id: object) -> bool:
        """Tell whether a request is open. Types count: `"1"` and `true` do not answer request 1."""
        return type(request_id) in (int, str) and request_id in self.ids


class AnswerFilter(httpx2.AsyncByteStream):
    """The events of a response, without messages that do not belong on its stream."""

    def __init__(
        self, response: httpx2.Response, expectation: Expectation, *, max_event_bytes: int, bounds: Bounds
    ) -> None:
        self._inner, self._expectation, self._bounds = response, expectation, bounds
        # Events are UTF-8, whatever charset the server names, and may begin with a byte order mark.
        readable = httpx2.Response(
            200,
            headers={"content-type": "text/event-stream; charset=utf-8-sig"},
            stream=response.stream,
            request=response.request,
        )
        self._events = httpx2.EventSource(readable, max_event_size=max_event_bytes)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for event in self._events:
            data = event.data if event.event != "message" or not event.data else self._judged(event.data)
            written = _written(event, data)
            await between_readings(written)
            yield written

    def _judged(self, data: str) -> str:
        raw = data.encode("utf-8", "surrogatepass")
        try:
            message = read_message(raw, bounds=self._bounds)
        except TooManyValuesError:
            return self._expectation.instead_of_unreadable(raw, TOO_MANY_VALUES).decode()
        except ValueError:
            message = None
        if not is_object(message) or is_two_messages(message):
            return self._expectation.instead_of_unreadable(raw).decode()
        return data if self._expectation.takes(message) else ""

    async def aclose(self) -> None:
        await self._inner.aclose()


def sent_request(content: bytes) -> SentRequest | None:
    """Return the JSON-RPC request in the body of one of our messages, if it has one."""
    try:
        body: Any = orjson.loads(content)
    except ValueError:
        return None
    if not is_object(body) or "method" not in body or type(body.get("id")) not in (int, str):
        return None
    params = body.get("params")
    meta = params.get("_meta") if is_object(params) else None
    return SentRequest(
        request_id=body["id"],
        progress_token=meta.get("progressToken") if is_object(meta) else None,
        is_call=body["method"] == "tools/call",
    )


def checked_answer(content: bytes, request: SentRequest, bounds: Bounds) -> bytes:
    """Return the answer in a JSON body whose values were counted; an error if it does not answer `request`."""
    try:
        message = read_counted(content, bounds=bounds)
    except ValueError:
        message = None
    is_ours = is_object(message) and "method" not in message and OneAnswer(request).takes(message)
    if is_ours and is_object(message) and message.get("id") is None:
        # The response body can only answer its own request.
        return orjson.dumps({**message, "id": request.request_id})
    return content if is_ours else unreadable_answer(request.request_id)


def is_of_a_run(content: bytes, request: SentRequest, bounds: Bounds) -> bool:
    """Tell whether an error may come from the called tool, which has run then."""
    try:
        message = read_counted(content, bounds=bounds)
    except ValueError:
        return False
    if not request.is_call or not is_object(message) or message.get("id") != request.request_id:
        return False
    error = message.get("error")
    return "result" in message or (is_object(error) and error.get("code") not in _BEFORE_A_RUN)


def is_rpc(content: bytes, bounds: Bounds) -> bool:
    """Tell whether a body is a JSON-RPC message."""
    try:
        message = read_counted(content, bounds=bounds)
    except ValueError:
        return False
    return is_object(message) and "jsonrpc" in message


def unreadable_answer(request_id: int | str, fault: str = UNREADABLE) -> bytes:
    """Return the error answer that replaces an unreadable one."""
    fields = {"code": _PARSE_ERROR, "message": f"{fault}: it cannot be taken for the answer to this request"}
    return orjson.dumps({"jsonrpc": "2.0", "id": request_id, "error": fields})


def is_two_messages(message: JSON) -> bool:
    """Tell whether a message has parts of both an answer and a request, which readers interpret differently."""
    return "method" in message and ("result" in message or "error" in message)


def is_same(one: object, other: object) -> bool:
    """Tell whether two ids are equal, including their types."""
    return type(one) is type(other) and one == other


def _written(event: httpx2.ServerSentEvent, data: str) -> bytes:
    """Return an event as text; one without data still has the id for resuming a stream."""
    lines = [f"event: {event.event}"] if event.event != "message" else []
    lines += [f"id: {event.id}"] if event.id else []
    lines += [f"retry: {event.retry}"] if event.retry is not None else []
    lines += [f"data: {line}" for line in data.split("\n")]
    return "\n".join([*lines, "", ""]).encode("utf-8", "replace")
