"""Shown JSON: JSON for people: indented, with hidden characters spelled out, and cut where it is too long to read."""

from __future__ import annotations

import json
import re

from pegboard.core.safe_text import UNSAFE
from pegboard.model.json_types import JSONValue

SHOWN_JSON_CHARS = 60_000  # of one value on a page


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
