"""JSON-RPC: kinds of messages, error codes, and how both are written."""

from __future__ import annotations

import json
from typing import Any, Final, Literal

import orjson

from pegboard.model.json_types import JSON

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
HEADER_MISMATCH: Final = -32020
MISSING_CAPABILITY: Final = -32021
URL_ELICITATION_REQUIRED: Final = -32042
UNSUPPORTED_VERSION: Final = -32022
CANCELLED: Final = -32800

NO_ID = "The id of a request is a text or an integer. A message without one is a notification."


class RpcError(Exception):
    """The request is answered with a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data


def as_object(value: Any) -> JSON | None:
    """Return a value as a JSON object; `None` if it is something else."""
    return value if type(value) is dict else None  # pyright: ignore[reportUnknownVariableType] - a cast costs a call


Kind = Literal["request", "notification", "response"]


def kind_of(message: JSON) -> Kind | None:
    """Return the kind of a message; `None` for an object that is not a JSON-RPC 2.0 message."""
    if message.get("jsonrpc") != "2.0":
        return None
    if type(message.get("method")) is str and ("params" not in message or type(message["params"]) in _PARAMS):
        if "id" not in message:
            return "notification"
        if is_id(message["id"]):
            return "request"
    if "result" in message:
        return "response" if type(message["result"]) is dict and is_id(message.get("id")) else None
    error = as_object(message.get("error"))
    is_error = error is not None and type(error.get("code")) is int and type(error.get("message")) is str
    return "response" if is_error and "id" in message and (message["id"] is None or is_id(message["id"])) else None


_PARAMS = (dict, type(None))


def is_id(value: object) -> bool:
    """Tell whether a value can be a request id."""
    return type(value) in (int, str)


def is_unanswerable(message: JSON) -> bool:
    """Tell whether a message is a request except for its id, which an answer could not repeat."""
    if "id" not in message or is_id(message["id"]):
        return False
    return kind_of({key: value for key, value in message.items() if key != "id"}) == "notification"


def called_tool(message: JSON) -> str | None:
    """Return the tool name of a tools/call; `None` for all other messages."""
    params = as_object(message.get("params")) if message.get("method") == "tools/call" else None
    name = None if params is None else params.get("name")
    return name if type(name) is str else None


def error_message(code: int, text: str, request_id: int | str | None = None, data: object = None) -> bytes:
    """Return a JSON-RPC error; without an id it does not belong to a request."""
    error: JSON = {"code": code, "message": text}
    if data is not None:
        error["data"] = data
    return json_bytes({"jsonrpc": "2.0", "id": request_id, "error": error})


def json_bytes(value: object) -> bytes:
    """Return JSON; the standard library escapes what orjson refuses (lone surrogates, integers over 64 bits)."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value, separators=(",", ":")).encode()
