"""Shown JSON: JSON for people: indented, with hidden characters spelled out, and cut where it is too long to read."""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from pegboard.core.safe_text import UNSAFE
from pegboard.model.json_types import JSONValue

SHOWN_JSON_CHARS = 60_000  # of one value on a page
VALUE_LINE_CHARS = 100  # longest value in the line of its name, in characters


class ShownValue(NamedTuple):
    """A named value as JSON: an argument, or a field of a result; in several lines if `is_long`."""

    name: str
    value: str
    is_long: bool


def shown_value(name: str, value: JSONValue, chars: int = SHOWN_JSON_CHARS) -> ShownValue:
    """Return a value in the line of its name if it fits there, or else indented and cut after `chars`."""
    line = one_line(value, VALUE_LINE_CHARS + 1)
    is_long = len(line) > VALUE_LINE_CHARS
    return ShownValue(name, pretty(value, chars) if is_long else line, is_long)


def pretty(value: JSONValue, chars: int = SHOWN_JSON_CHARS) -> str:
    """Return the value as indented JSON, cut after `chars`."""
    text = exact_json(value)
    return text if len(text) <= chars else f"{text[:chars]}\n… ({len(text) - chars:,} more characters)"


def exact_json(value: JSONValue) -> str:
    """Return the whole value as indented JSON, which means the same when a form sends it back."""
    return UNSAFE.sub(_escaped, json.dumps(value, indent=2, default=str, ensure_ascii=False))


def one_line(value: JSONValue, chars: int) -> str:
    """Return the value as JSON in one line, cut after `chars`."""
    text = UNSAFE.sub(_escaped, json.dumps(value, default=str, ensure_ascii=False))
    return text if len(text) <= chars else f"{text[:chars]} …"


def _escaped(match: re.Match[str]) -> str:
    # In JSON, characters beyond the first 65,536 are two escapes.
    return json.dumps(match.group())[1:-1]
