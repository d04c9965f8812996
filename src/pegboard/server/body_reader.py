"""BodyReader: reads a request's body within its limits, as strict JSON, before any other code sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from pegboard.core.json_reader import fault_of, parse_json, quickly_read
from pegboard.model.bounds import Bounds
from pegboard.model.error import CallError
from pegboard.model.json_types import JSONValue
from pegboard.model.record import replace

ENVELOPE_LEVELS = 4  # bytes that the protocol itself adds around arguments

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
_UTF_8 = frozenset((b"utf-8", b"utf8", b"us-ascii", b"ascii"))


class BodyError(Exception):
    """The body was refused: an HTTP status, a JSON-RPC code, and one sentence."""

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

    async def read(
        self,
        headers: dict[bytes, bytes],
        receive: Receive,
        *,
        limit_bytes: int | None = None,
        timeout_s: float | None = None,
    ) -> bytes:
        """Return the whole body, by default within the limits of a message.

        Raises:
            BodyError: the body is compressed, too long, or not complete in time.
            ClientLeftError: the client has disconnected.
        """
        if headers.get(b"content-encoding", b"identity") != b"identity":
            raise BodyError(415, -32600, "Send the body as it is: Content-Encoding is not accepted.")
        limit = limit_bytes or self._bounds.request_body_bytes
        declared = headers.get(b"content-length", b"")
        if declared.isdigit() and int(declared[:20]) > limit:
            raise self._too_long(limit)
        message = await receive()
        if message["type"] == "http.request" and not message.get("more_body"):
            body: bytes = message.get("body", b"")
            if len(body) > limit:
                raise self._too_long(limit)
            return body
        wait_s = timeout_s or self._bounds.body_s
        try:
            async with asyncio.timeout(wait_s):
                return await self._rest(message, receive, limit)
        except TimeoutError:
            text = f"The body was not complete after {wait_s:g} s."
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
            BodyError: it is not strict JSON, or exceeds the bounds.
        """
        try:
            return quickly_read(body) or parse_json(body, bounds=self._message_bounds)
        except CallError as error:
            raise BodyError(400, -32700, f"Parse error: {fault_of(error)}.") from None


def is_json_body(content_type: bytes) -> bool:
    """Tell whether a content type is JSON in UTF-8, the only encoding for exchange (RFC 8259, 8.1)."""
    kind, _, parameters = content_type.lower().partition(b";")
    if kind.strip() != b"application/json":
        return False
    for parameter in parameters.split(b";"):
        name, _, value = parameter.partition(b"=")
        if name.strip() == b"charset" and value.strip().strip(b'"') not in _UTF_8:
            return False
    return True
