"""Pattern lengths: write a pattern such as `^[A-Z][a-z]{1,500}$` as `^[A-Z][a-z]*$` with `minLength` and `maxLength`.

Both accept the same texts. The engine compiles one copy of the atom for each count of a repetition, so the first form
takes megabytes for a class of letters or a few hundred repetitions, and would be refused. It is common in public APIs.
"""

from __future__ import annotations

import re
from typing import Any

from pegboard.model.json_types import JSON, JSONValue, is_list, is_object

_FEW = 16  # repetitions that the engine compiles quickly
# A class of characters, which matches one character. Nested classes are not supported.
_CLASS = r"\[\^?(?:\\.|[^\\\[\]])+\]|\\[pP]\{[\w=]+\}|\\[wWdDsS]|\."
_ONE = re.compile(rf"{_CLASS}|[A-Za-z0-9_ /:#@%-]")
# One repeated class of characters from start to end of a text; single characters may precede and follow it.
_COUNTED_CLASS = re.compile(
    rf"\^(?P<open>\(?)(?P<before>(?:{_ONE.pattern}){{0,4}})(?P<one>{_CLASS})"
    rf"\{{(?P<least>\d{{1,9}}),(?P<most>\d{{1,9}})\}}(?P<after>(?:{_ONE.pattern}){{0,4}})(?P<close>\)?)\$"
)
_VALUES = frozenset({"const", "enum", "default", "examples"})  # rules that hold values, not schemas


def with_pattern_lengths(schema: JSON) -> JSON:
    """Return the schema with such lengths in `minLength` and `maxLength`; unchanged parts are shared."""
    return _rewritten(schema)


def _rewritten(part: Any) -> Any:
    if is_list(part):
        items = [_rewritten(item) for item in part]
        return items if any(new is not old for new, old in zip(items, part, strict=True)) else part
    if not is_object(part):
        return part
    changes: dict[str, JSONValue] = {
        rule: new for rule, old in part.items() if rule not in _VALUES and (new := _rewritten(old)) is not old
    }
    changes.update(_lengths(part))
    return {**part, **changes} if changes else part


def _lengths(schema: JSON) -> JSON:
    """Return the rules that replace the pattern of a schema; empty if the pattern stays."""
    pattern, low, high = schema.get("pattern"), schema.get("minLength", 0), schema.get("maxLength")
    found = _COUNTED_CLASS.fullmatch(pattern) if isinstance(pattern, str) else None
    if found is None or bool(found["open"]) != bool(found["close"]) or not _is_count(low):
        return {}
    least, most = int(found["least"]), int(found["most"])
    if most <= _FEW or least > most or not (high is None or _is_count(high)):
        return {}
    others = len(_ONE.findall(found["before"])) + len(_ONE.findall(found["after"]))
    return {
        "pattern": f"^{found['before']}{found['one']}*{found['after']}$",
        "minLength": max(least + others, low),
        "maxLength": most + others if high is None else min(most + others, high),
    }


def _is_count(value: JSONValue) -> bool:
    return type(value) is int and value >= 0
