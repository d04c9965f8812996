"""Answers: the dispatcher's return values: ready bytes, or work that may send messages first."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Final, NamedTuple

from pegboard.model.json_types import JSON
from pegboard.server.mcp.asking.notifications import MessageOutlet
from pegboard.server.mcp.protocol.jsonrpc import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    PARSE_ERROR,
    UNSUPPORTED_VERSION,
    RpcError,
    json_bytes,
)

_STATUS: Final = {
    METHOD_NOT_FOUND: 404,
    **dict.fromkeys(
        (PARSE_ERROR, INVALID_REQUEST, INVALID_PARAMS, HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION), 400
    ),
}
"""The HTTP status of an error; 200 for all others. Source: MCP 2026-07-28, streamable HTTP."""


class Answer(NamedTuple):
    """The bytes of an answer, in parts to be joined once; `code` is the JSON-RPC error code, or 0."""

    parts: tuple[bytes, ...]
    code: int = 0

    @property
    def status(self) -> int:
        """The HTTP status in 2026-07-28; earlier revisions answer every request of a session with 200."""
        return _STATUS.get(self.code, 200)

    def message(self, request_id: bytes) -> bytes:
        """Return the complete JSON-RPC message."""
        member = b',"error":' if self.code else b',"result":'
        return b"".join((b'{"jsonrpc":"2.0","id":', request_id, member, *self.parts, b"}"))


class Stream(NamedTuple):
    """An accepted request: its id as JSON, the work that returns its answer, and its outlet.

    The runner of the work first sets where the outlet writes; without an outlet nothing is sent before the answer.
    """

    request_id: bytes
    work: Coroutine[Any, Any, Answer]
    outlet: MessageOutlet | None = None


def error_answer(error: RpcError) -> Answer:
    """Return the JSON-RPC error for a refusal."""
    shown: JSON = {"code": error.code, "message": error.message}
    if error.data is not None:
        shown["data"] = error.data
    return Answer((json_bytes(shown),), code=error.code)
