"""Digests: one hash for equal JSON values."""

from __future__ import annotations

import hashlib
import json

import orjson

from pegboard.model.json_types import JSONValue

_CANONICAL = orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS


def canonical_json(value: JSONValue) -> bytes:
    """Return JSON bytes that are equal for equal values, whatever the order of keys."""
    try:
        return orjson.dumps(value, option=_CANONICAL, default=str)
    except TypeError:  # an integer of more than 64 bits
        # With `ensure_ascii`, two lone surrogates would become one character.
        text = json.dumps(value, default=str, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return text.encode("utf-8", "surrogatepass")


def quick_digest(value: JSONValue) -> str | None:
    """Return `digest`; `None` for a value that is slow to write: too deep, or with too long an integer."""
    try:
        return hashlib.sha256(orjson.dumps(value, option=_CANONICAL, default=str)).hexdigest()
    except TypeError:
        return None


def digest(value: JSONValue) -> str:
    """Return the SHA-256 of the canonical JSON of `value`, in hexadecimal."""
    return hashlib.sha256(canonical_json(value)).hexdigest()
