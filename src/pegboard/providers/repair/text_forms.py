"""Text forms: parse a text as the JSON value that a model may have meant."""

from __future__ import annotations

import re

from pegboard.core.json_reader import parse_json
from pegboard.model.error import CallError
from pegboard.model.json_types import JSONValue

REPAIRED_FENCE_CHARS = 1 << 16  # characters of the longest text that is searched for a fence around JSON

_FENCE = "```"
# The language after an opening fence. The inner text is sliced instead of matched, which took cubic time.
_LANGUAGE = re.compile(r"[\w+-]*")
# As Python and YAML write them; JSON's own are lower case.
_WORDS: dict[str, JSONValue] = {"true": True, "false": False, "null": None, "none": None}


class NotJSON:
    """Means that a text is not JSON; `None` would be a value."""


def unfenced(text: str) -> str:
    """Return the text inside a Markdown code fence; other text unchanged."""
    bare = "" if len(text) > REPAIRED_FENCE_CHARS else text.strip()
    if len(bare) < 2 * len(_FENCE) or not (bare.startswith(_FENCE) and bare.endswith(_FENCE)):
        return text
    inner = bare.removeprefix(_FENCE).removesuffix(_FENCE)
    return _LANGUAGE.sub("", inner, count=1).strip()


def value_in(text: str) -> JSONValue | type[NotJSON]:
    """Return the value of a JSON text; `NotJSON` for any other text."""
    bare = unfenced(text).strip()
    if bare.lower() in _WORDS:
        return _WORDS[bare.lower()]
    try:
        value = parse_json(bare)
    except CallError:
        return NotJSON
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 1 << 53 else value


def looks_structured(text: str) -> bool:
    """Tell whether a text begins like an object or list."""
    return unfenced(text).lstrip()[:1] in ("{", "[")
