"""JSON text: values as JSON, with what the fast writer refuses."""

from __future__ import annotations

import json

import orjson


def json_bytes(value: object) -> bytes:
    """Return JSON, also of what orjson refuses: integers of more than 64 bits, and halves of characters."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value, separators=(",", ":")).encode()
