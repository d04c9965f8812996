"""AnswerFilter: an answer belongs to the stream that its request opened, and is read as every other JSON."""

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

# How the SDK says it, and what it does not know of.
UNREADABLE = "Failed to parse JSON response"
TOO_MANY_VALUES = "Too many values in one JSON response"
_PARSE_ERROR = -32700
# A request that is none, and a session that is not known: both are said before anything is run.
_BEFORE_A_RUN = frozenset({-32600, -32001})


class SentRequest(Struct, frozen=True, kw_only=True):
    """A request of ours: what its answer and its progress are told by."""

    request_id: int | str
    progress_token: int | str | None = None
    is_call: bool = False


class Expectation(Protocol):
    """What a stream may bring."""

    def takes(self, message: JSON) -> bool:
        """Tell whether a message belongs on this stream; an answer is taken once."""
        ...

    def instead_of_unreadable(self, refused: bytes, fault: str = UNREADABLE) -> bytes:
        """Return the message that stands for one which cannot be read; empty where it is dropped."""
        ...


class OneAnswer:
    """A stream that a request opened: its answer, its progress, and what the server asks or tells meanwhile."""

    def __init__(self, request: SentRequest) -> None:
        self._request, self._is_open = request, True

    def takes(self, message: JSON) -> bool:
        if "method" in message:
            params = message.get("params")
            token = params.get("progressToken") if is_object(params) else None
            is_progress = message["method"] == "notifications/progress"
            return not is_progress or is_same(token, self._request.progress_token)
        # An error may come without an id, when the server could not read ours.
        is_ours = is_same(message.get("id"), self._request.request_id) or (
            "error" in message and message.get("id") is None
        )
        is_taken = is_ours and self._is_open
        self._is_open = self._is_open and not is_ours
        return is_taken

    def instead_of_unreadable(self, refused: bytes, fault: str = UNREADABLE) -> bytes:
        return unreadable_answer(self._request.request_id, fault)


class NoAnswer:
    """A stream that no request opened: it brings requests and notifications of the server."""

    def takes(self, message: JSON) -> bool:
        return "method" in message

    def instead_of_unreadable(self, refused: bytes, fault: str = UNREADABLE) -> bytes:
        return b""


@dataclass(slots=True)
class OpenRequests:
    """A stream for the answers to all requests: to those that are open, once."""

    ids: set[int | str] = field(default_factory=set[int | str])

    def takes(self, message: JSON) -> bool:
        return "method" in message or self.close(message.get("id"))

    def instead_of_unreadable(self, refused: bytes, fault: str = UNREADABLE) -> bytes:
        # Somebody waits for it, whatever is wrong with the rest.
        envelope = envelope_of(refused)
        is_awaited = envelope is not None and envelope.is_answer and self.close(envelope.id)
        return unreadable_answer(envelope.id, fault) if envelope is not None and is_awaited else b""

    def close(self, request_id: object) -> bool:
        """Expect no answer to a request any more; returns whether one was expected."""
        if not self.has(request_id):
            return False
        self.ids.discard(cast("int | str", request_id))
        return True

    def has(self, request_id: object) -> bool:
        """Tell whether a request is open. By type as well: `"1"` and `true` answer no request 1."""
        return type(request_id) in (int, str) and request_id in self.ids


class AnswerFilter(httpx2.AsyncByteStream):
    """The events of a response, without messages that belong on no stream like it."""

    def __init__(
        self, response: httpx2.Response, expectation: Expectation, *, max_event_bytes: int, bounds: Bounds
    ) -> None:
        self._inner, self._expectation, self._bounds = response, expectation, bounds
        # Events are UTF-8, whatever charset the server names, and may begin with a mark that says so.
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
    """Return the JSON-RPC request that a body of ours holds, where it holds one."""
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
    """Return the answer in a body of JSON whose values were counted; an error in its place where it is none to this."""
    try:
        message = read_counted(content, bounds=bounds)
    except ValueError:
        message = None
    is_ours = is_object(message) and "method" not in message and OneAnswer(request).takes(message)
    if is_ours and is_object(message) and message.get("id") is None:
        # The body of an answer has one request that it can be about.
        return orjson.dumps({**message, "id": request.request_id})
    return content if is_ours else unreadable_answer(request.request_id)


def is_of_a_run(content: bytes, request: SentRequest, bounds: Bounds) -> bool:
    """Tell whether a refusal may come from the tool that was called, which has run then."""
    try:
        message = read_counted(content, bounds=bounds)
    except ValueError:
        return False
    if not request.is_call or not is_object(message) or message.get("id") != request.request_id:
        return False
    error = message.get("error")
    return "result" in message or (is_object(error) and error.get("code") not in _BEFORE_A_RUN)


def is_rpc(content: bytes, bounds: Bounds) -> bool:
    """Tell whether a body is a message of JSON-RPC."""
    try:
        message = read_counted(content, bounds=bounds)
    except ValueError:
        return False
    return is_object(message) and "jsonrpc" in message


def unreadable_answer(request_id: int | str, fault: str = UNREADABLE) -> bytes:
    """Return the error answer for one that cannot be read."""
    fields = {"code": _PARSE_ERROR, "message": f"{fault}: it cannot be taken for the answer to this request"}
    return orjson.dumps({"jsonrpc": "2.0", "id": request_id, "error": fields})


def is_two_messages(message: JSON) -> bool:
    """Tell whether a message has the parts of an answer and of what asks or tells: who reads it takes it for either."""
    return "method" in message and ("result" in message or "error" in message)


def is_same(one: object, other: object) -> bool:
    """Tell whether two ids are the same, by type as well."""
    return type(one) is type(other) and one == other


def _written(event: httpx2.ServerSentEvent, data: str) -> bytes:
    """Return an event as text; one without data still carries the id from which a stream is taken up again."""
    lines = [f"event: {event.event}"] if event.event != "message" else []
    lines += [f"id: {event.id}"] if event.id else []
    lines += [f"retry: {event.retry}"] if event.retry is not None else []
    lines += [f"data: {line}" for line in data.split("\n")]
    return "\n".join([*lines, "", ""]).encode("utf-8", "replace")
