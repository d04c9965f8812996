"""Elicitation form: the form for asking a person for values, and the check of the answer."""

from __future__ import annotations

from typing import Any

from pegboard.core.schema import compile_schema
from pegboard.model.json_types import JSON, JSONValue

_FREE_TEXT: JSON = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}


def form_of(schema: Any) -> tuple[JSON, bool]:
    """Return the form for a schema, and whether it holds a single value."""
    if schema is None:
        return _FREE_TEXT, True
    if schema.get("type") == "object":
        return schema, False
    return {"type": "object", "properties": {"answer": schema}, "required": ["answer"]}, True


def fits_form(form: JSON, answer: JSON) -> bool:
    """Tell whether an accepted answer fits the form; declined ones always do."""
    return answer.get("action") != "accept" or compile_schema(form).is_valid(_values(answer))


def form_problems(form: JSON, answer: JSON) -> str:
    """Return in words why an accepted answer does not fit the form."""
    return "; ".join(f"{one.path}: {one.message}" for one in compile_schema(form).problems(_values(answer))[:3])


def _values(answer: JSON) -> JSONValue:
    content: JSONValue = answer.get("content")
    return {} if content is None else content
