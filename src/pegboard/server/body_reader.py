"""BodyReader: read a request's body within its limits, as strict JSON, before anybody else sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import replace
from typing import Any

import orjson

from pegboard.core.schema import parse_json
from pegboard.model.bounds import ENVELOPE_LEVELS, Bounds
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON, JSONValue

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
_FEW_BRACKETS = 32  # not a limit: what has more is left to the careful reader
_MANY = 1 << 40  # not a limit: stands for too many
_SCALARS = frozenset((str, int, bool, type(None)))


class BodyError(Exception):
    """The body was not taken in: an HTTP status, a JSON-RPC code, and one sentence."""

    def __init__(self, status: int, code: int, text: str) -> None:
        super().__init__(text)
        self.status, self.code, self.text = status, code, text


class ClientLeftError(Exception):
    """The client closed the connection before its body was complete."""


class BodyReader:
    """Reads bodies for one server, within its bounds."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._message_bounds = replace(bounds, json_depth=bounds.json_depth + ENVELOPE_LEVELS)

    async def read(self, headers: dict[bytes, bytes], receive: Receive) -> bytes:
        """Return the whole body.

        Raises:
            BodyError: compressed, too long, or not complete in time.
            ClientLeftError: there is nobody to answer.
        """
        if headers.get(b"content-encoding", b"identity") != b"identity":
            raise BodyError(415, -32600, "Send the body as it is: Content-Encoding is not accepted.")
        limit = self._bounds.request_body_bytes
        declared = headers.get(b"content-length", b"")
        if declared.isdigit() and int(declared[:20]) > limit:
            raise self._too_long(limit)
        message = await receive()
        if message["type"] == "http.request" and not message.get("more_body"):
            body: bytes = message.get("body", b"")
            if len(body) > limit:
                raise self._too_long(limit)
            return body
        try:
            async with asyncio.timeout(self._bounds.body_s):
                return await self._rest(message, receive, limit)
        except TimeoutError:
            text = f"The body was not complete after {self._bounds.body_s:g} s."
            raise BodyError(408, -32600, text) from None

    async def _rest(self, message: Message, receive: Receive, limit: int) -> bytes:
        parts: list[bytes] = []
        size = 0
        while message["type"] == "http.request":
            part: bytes = message.get("body", b"")
            size += len(part)
            if size > limit:
                raise self._too_long(limit)
            parts.append(part)
            if not message.get("more_body"):
                return b"".join(parts)
            message = await receive()
        raise ClientLeftError

    def _too_long(self, limit: int) -> BodyError:
        return BodyError(413, -32600, f"The body is longer than {limit} bytes.")

    def parse(self, body: bytes) -> JSONValue:
        """Return the JSON of a body.

        Raises:
            BodyError: it is no strict JSON, or beyond the bounds.
        """
        try:
            return quickly_read(body) or parse_json(body, bounds=self._message_bounds)
        except CallError as error:
            raise BodyError(400, -32700, f"Parse error: {str(error).partition(': ')[2]}") from None


def quickly_read(body: bytes) -> JSON | None:
    """Return a small object that certainly is strict JSON within every bound; `None` leaves it to the careful reader.

    Most messages are such: few brackets, so they are not deep; as many keys as `":` in the text, so
    none is there twice; only integers of 64 bit, since orjson makes a float of every larger one.
    """
    if body.count(b"{") + body.count(b"[") > _FEW_BRACKETS:
        return None
    try:
        value: JSON = orjson.loads(body)
    except ValueError:
        return None
    return value if _keys(value) == body.count(b'":') else None


def _keys(value: JSON) -> int:
    """Count the keys of an object and of those in it; anything but that and plain scalars makes the count wrong."""
    count, waiting = 0, [value]
    while waiting:
        item = waiting.pop()
        if type(item) is not dict:  # pyright: ignore[reportUnnecessaryComparison] - what is in it may be anything
            return -_MANY
        count += len(item)
        waiting += [inner for inner in item.values() if type(inner) not in _SCALARS]
    return count


def replay(body: bytes, receive: Receive) -> Receive:
    """Hand a body out again before the rest of the stream."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return waiting.pop() if waiting else await receive()

    return again
