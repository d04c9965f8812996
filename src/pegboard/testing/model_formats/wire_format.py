"""Wire format: the interface of a provider's wire format, and shared functions for reading and writing one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import orjson

from pegboard.model.json_types import JSON, is_list, is_object
from pegboard.model.record import CarriesCredentials
from pegboard.testing.model_script import (
    CallsTool,
    Hangup,
    Hold,
    ModelApi,
    ModelFailure,
    ModelMessage,
    ModelRequest,
    ModelTurn,
    Pause,
    RawBytes,
)

Step: TypeAlias = bytes | Pause | Hold | RawBytes | Hangup
"""One step of a streamed answer: the bytes of an event, or an action of the server between two events."""

# characters in one streamed piece of arguments; no provider sends them all at once
_PIECE = 8
_PLAIN_NAME = re.compile(r"[a-zA-Z0-9_-]+")


class RefusedRequestError(Exception):
    """A request that the provider would refuse."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class HttpCall(CarriesCredentials, frozen=True, kw_only=True):
    """An HTTP request whose format is not known yet. Header names are in lower case."""

    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: dict[str, Any]


class WireFormat(Protocol):
    """Reads the requests and writes the answers of one provider API."""

    api: ModelApi

    def key_of(self, call: HttpCall) -> str:
        """Return the credential of a request; empty if it has none."""
        ...

    def read(self, call: HttpCall) -> ModelRequest:
        """Return the request in the form common to all providers.

        Raises:
            RefusedRequestError: the provider would refuse it.
        """
        ...

    def whole(self, request: ModelRequest, turn: ModelTurn, number: int) -> JSON:
        """Return the answer in one piece; `number` makes its ids unique."""
        ...

    def stream(self, request: ModelRequest, turn: ModelTurn, number: int) -> Iterator[Step]:
        """Yield the answer event by event."""
        ...

    def error(self, failure: ModelFailure) -> JSON:
        """Return the body of a failed answer."""
        ...


# ---- reading


def objects(value: Any, where: str) -> list[dict[str, Any]]:
    """Return the value if it is a list of objects; `where` names it in the error.

    Raises:
        RefusedRequestError: it is not.
    """
    if not is_list(value) or not all(is_object(item) for item in value):
        raise RefusedRequestError(f"{where!r}: expected an array of objects.")
    return value


def text_of(content: Any) -> str:
    """Return the text of a message's content, which is a string or a list of parts; other parts are ignored."""
    if isinstance(content, str):
        return content
    parts: Sequence[Any] = content if is_list(content) else ()
    return "".join(part["text"] for part in parts if is_object(part) and isinstance(part.get("text"), str))


def checked_names(names: Sequence[Any], limit: int) -> tuple[str, ...]:
    """Return the names of the offered tools.

    Raises:
        RefusedRequestError: a name is invalid, or occurs twice.
    """
    for name in names:
        if not isinstance(name, str) or not _PLAIN_NAME.fullmatch(name) or len(name) > limit:
            raise RefusedRequestError(f"Invalid tool name {name!r}. It must match '^[a-zA-Z0-9_-]{{1,{limit}}}$'.")
    if len(set(names)) < len(names):
        raise RefusedRequestError(f"Tool names must be unique: {', '.join(names)}.")
    return tuple(names)


def checked_pairs(messages: Sequence[ModelMessage]) -> tuple[ModelMessage, ...]:
    """Return the messages if every tool call has its outcome in the next message, and every outcome its call.

    Raises:
        RefusedRequestError: a call or an outcome is missing; every provider refuses such a conversation.
    """
    if not messages:
        raise RefusedRequestError("The conversation is empty.")
    open_calls: set[str | None] = set()
    for message in messages:
        outcomes = {outcome.call_id for outcome in message.outcomes}
        if unknown := outcomes - open_calls:
            raise RefusedRequestError(f"No tool call found for the tool output with id {sorted(unknown)[0]!r}.")
        if missing := open_calls - outcomes:
            raise RefusedRequestError(f"No tool output found for the tool call {sorted(map(str, missing))[0]!r}.")
        open_calls = {call.id for call in message.calls}
    if open_calls:
        raise RefusedRequestError(f"No tool output found for the tool call {sorted(map(str, open_calls))[0]!r}.")
    return tuple(messages)


def merged(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Return the messages; consecutive messages of the same role become one."""
    turns: list[ModelMessage] = []
    for message in messages:
        if turns and turns[-1].role == message.role:
            last = turns[-1]
            turns[-1] = ModelMessage(
                role=last.role,
                text="\n".join(filter(None, (last.text, message.text))),
                calls=last.calls + message.calls,
                outcomes=last.outcomes + message.outcomes,
            )
        else:
            turns.append(message)
    return turns


# ---- writing


def pieces(text: str) -> Iterator[str]:
    """Yield a text in the pieces of a stream."""
    for start in range(0, len(text), _PIECE):
        yield text[start : start + _PIECE]


def event(data: Any, name: str | None = None) -> bytes:
    """Return a server-sent event."""
    head = b"" if name is None else b"event: " + name.encode() + b"\n"
    return head + b"data: " + orjson.dumps(data) + b"\n\n"


def call_id(call: CallsTool, prefix: str, number: int, index: int) -> str:
    """Return the id of a call: the one in the script, or a generated one."""
    return call.id if call.id is not None else f"{prefix}{number}_{index}"
