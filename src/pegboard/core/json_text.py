"""JSON text: write and read JSON, including values that orjson refuses or rounds."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import orjson

from pegboard.model.json_types import JSONValue

# Integers of more than 64 bits have at least this many digits.
_LONG_NUMBER = re.compile(rb"[0-9]{19}")


def json_bytes(
    value: object,
    *,
    default: Callable[[Any], Any] | None = None,
    indent: bool = False,
    sort_keys: bool = False,
    any_keys: bool = False,
) -> bytes:
    """Return JSON, also for values that orjson refuses: integers of more than 64 bits, and lone surrogates.

    Raises:
        TypeError: a value is not JSON, and `default` does not convert it.
        ValueError: it is nested too deep.
    """
    option = (
        (orjson.OPT_INDENT_2 if indent else 0)
        | (orjson.OPT_SORT_KEYS if sort_keys else 0)
        | (orjson.OPT_NON_STR_KEYS if any_keys else 0)
    )
    try:
        return orjson.dumps(value, default, option)
    except TypeError:
        try:
            form: dict[str, Any] = {"indent": 2} if indent else {"separators": (",", ":")}
            return json.dumps(value, default=default, sort_keys=sort_keys, **form).encode()
        except RecursionError:
            raise ValueError("it is nested too deep") from None


def is_written_within(value: object, max_bytes: int) -> bool:
    """Tell whether the JSON of a value has at most `max_bytes`; false if orjson refuses the value."""
    try:
        return len(orjson.dumps(value)) <= max_bytes
    except TypeError:
        return False


def json_value(raw: bytes) -> JSONValue:
    """Parse JSON that we wrote, with every digit of its integers.

    Raises:
        ValueError: it is not JSON.
    """
    return json.loads(raw) if _LONG_NUMBER.search(raw) else orjson.loads(raw)
