"""Plain types: the JSON Schema of annotations that map directly to JSON types.

Most tools use no others. The schemas are the same as pydantic's, so that a program whose tools take texts, numbers and
lists of them need not import it; `tests/authoring/test_plain_types.py` compares both.
"""

from __future__ import annotations

import math
import types
from collections.abc import Mapping
from typing import Any, Literal, Union, get_args, get_origin

from pegboard.model.json_types import JSON

_SCALARS: Mapping[Any, str] = {
    str: "string", int: "integer", float: "number", bool: "boolean", None: "null", type(None): "null",
}  # fmt: skip


def plain_schema(annotation: Any) -> JSON | None:
    """Return the schema of a plain annotation; `None` if pydantic is needed."""
    # Compared by identity: an annotation may be any object, even an unhashable one.
    if (scalar := next((word for plain, word in _SCALARS.items() if annotation is plain), None)) is not None:
        return {"type": scalar}
    if annotation is Any or annotation is object:
        return {}
    if annotation is list or annotation is dict:
        annotation = list[Any] if annotation is list else dict[str, Any]
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is list:
        items = plain_schema(parts[0])
        return None if items is None else {"items": items, "type": "array"}
    if origin is dict and parts[0] is str:
        values = plain_schema(parts[1])
        return None if values is None else {"additionalProperties": values or True, "type": "object"}
    if origin is Literal and all(type(part) is str for part in parts):
        return {"const": parts[0], "type": "string"} if len(parts) == 1 else {"enum": [*parts], "type": "string"}
    if origin in (Union, types.UnionType):
        # `null` is always last, as in pydantic's schemas.
        in_order = sorted(parts, key=lambda part: part is type(None))
        choices = [choice for part in in_order if (choice := plain_schema(part)) is not None]
        # pydantic lists duplicate alternatives once; leave those to pydantic.
        is_whole = len(choices) == len(parts) and all(
            choice_at not in choices[:index] for index, choice_at in enumerate(choices)
        )
        return {"anyOf": choices} if is_whole else None
    return None


def is_plain_default(value: object) -> bool:
    """Tell whether a default can be in a schema unchanged."""
    if type(value) is float:
        return math.isfinite(value)
    return value is None or type(value) in (bool, int) or (type(value) is str and value.isascii())
