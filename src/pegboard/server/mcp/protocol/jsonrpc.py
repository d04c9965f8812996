"""jsonrpc: read the envelope of a message, and write one."""

from __future__ import annotations

import json
from typing import Any

import orjson

from pegboard.model.json_types import JSON


def as_object(value: Any) -> JSON | None:
    """Return a value as a JSON object; `None` when it is something else."""
    return value if type(value) is dict else None  # pyright: ignore[reportUnknownVariableType] - a cast costs a call


def called_tool(message: Any) -> str | None:
    """Return the name of the tool that a tools/call names; `None` for all other messages."""
    request = as_object(message)
    if request is None or request.get("method") != "tools/call":
        return None
    params = as_object(request.get("params"))
    name = None if params is None else params.get("name")
    return name if type(name) is str else None


NO_ID = "The id of a request is a text or an integer. A message without one is a notification."


def is_unanswerable(message: JSON) -> bool:
    """Tell whether a request has an id that no answer can have: the SDK takes it for a notification, and is silent."""
    return "method" in message and "id" in message and type(message["id"]) not in (int, str)


def error_message(code: int, text: str, request_id: int | str | None = None) -> bytes:
    """Return a JSON-RPC error; without an id it belongs to no request."""
    return json_bytes({"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": text}})


def json_bytes(value: object) -> bytes:
    """Return JSON; what orjson refuses (lone surrogates, integers over 64 bit) is written as the SDK writes it."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value, separators=(",", ":")).encode()
