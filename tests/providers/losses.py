"""Losses: whether a fault in decoded arguments lies where the report said that the model may go wrong."""

import json
import re
from typing import Any

import jsonschema_rs

_STEP = re.compile(r'\.([A-Za-z_]\w*)|\[(\d+)\]|\[("(?:[^"\\]|\\.)*")\]')


def unlisted(own: Any, args: Any, report: list[Any]) -> list[str]:
    """Return the faults of `args` against the tool's own schema that no `widened` loss covers."""
    judge = jsonschema_rs.Draft202012Validator(own, validate_formats=True)
    places = [_values(loss["path"]) for loss in report if loss["effect"] == "widened"]
    return [
        f"{error.message[:200]} at {error.instance_path}"
        for error in judge.iter_errors(args)
        if not any(_on_one_way(place, [str(step) for step in error.instance_path]) for place in places)
    ]


def _values(path: str) -> list[str]:
    """Return the steps to the values that a place in a schema is about; `*` for those of any key or index."""
    steps = [name or number or json.loads(quoted) for name, number, quoted in _STEP.findall(path)]
    made: list[str] = []
    rest = iter(steps)
    for step in rest:
        if step in ("properties", "prefixItems"):
            made.append(next(rest))
        elif step in ("items", "additionalProperties"):
            made.append("*")
        elif step in ("anyOf", "oneOf", "allOf"):
            next(rest)
    return made


def _on_one_way(one: list[str], other: list[str]) -> bool:
    # The fault of a union shows at its top, that of its alternatives inside.
    return all(mine in ("*", its) for mine, its in zip(one, other, strict=False))
