"""Honest schemas and values of the kinds that attacks resemble are judged, and a refusal names the limit."""

from typing import Any

import pytest

from pegboard import CallError
from pegboard.core.schema import compile_schema
from tests import timing

Schema = dict[str, Any]
RECORD: Schema = {
    "type": "object", "required": ["id"],
    "properties": {
        "id": {"type": "string", "format": "uuid"}, "at": {"type": "string", "format": "date-time"},
        "text": {"type": "string", "maxLength": 100_000}, "score": {"anyOf": [{"type": "number"}, {"type": "null"}]},
    },
}  # fmt: skip
ROW = {"id": "12345678-1234-1234-1234-123456789012", "at": "2026-01-01T00:00:00Z", "text": "x" * 800, "score": 1.5}
FILTER: Schema = {
    "$ref": "#/$defs/e",
    "$defs": {
        "e": {
            "oneOf": [
                {"type": "string"},
                *({"type": "object", "properties": {name: {"type": "array", "items": {"$ref": "#/$defs/e"}}},
                   "required": [name], "additionalProperties": False} for name in ("and", "or", "not", "eq")),
            ]
        }
    },
}  # fmt: skip
NAMES: Schema = {
    "items": {
        "properties": {
            "slug": {"pattern": "^[a-zA-Z0-9_-]{1,64}$"}, "mail": {"pattern": r"^[^@\s]+@[^@\s]+\.[^@\s]+$"},
            "password": {"pattern": r"^(?=.*[A-Z])(?=.*\d).{8,64}$"},
        }
    }
}  # fmt: skip
PERSON = {"slug": "ann-b", "mail": "ann@b.example", "password": "Abcdefg12345"}


def closed(levels: int) -> Schema:
    """Return a schema that closes each level over the one inside it, as generated models with base classes do."""
    schema: Schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    for level in range(levels):
        own = {f"p{level}_{number}": {"type": "string", "format": "date"} for number in range(10)}
        schema = {"allOf": [schema, {"properties": own}], "unevaluatedProperties": False}
    return schema


def nested(levels: int) -> Any:
    return "x" if levels == 0 else {"and": [nested(levels - 1)] * 3}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (closed(3), {"a": 1}),
        (closed(6), {"a": 1}),
        ({"type": "array", "items": RECORD}, [ROW] * 2_500),
        (FILTER, nested(7)),
        (NAMES, [PERSON] * 50),
        ({"properties": {"text": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}, {"text": "x" * 21_000_000}),
    ],
    ids=[
        "three closed levels of allOf",
        "six",
        "2 MB of records",
        "a filter tree",
        "patterns of forms",
        "a 21 MB text",
    ],
)
def test_an_honest_value_is_judged(schema: Schema, value: Any) -> None:
    assert compile_schema(schema).is_valid(value)


def test_a_refusal_names_the_limit() -> None:
    judge = compile_schema({"type": "array", "items": RECORD})
    with pytest.raises(CallError, match="more than 4,500,000 steps") as refusal:
        judge.is_valid([ROW] * 20_000)
    assert refusal.value.error.kind == "schema_too_complex"


def test_counting_a_wide_object_against_many_subschemas_holds_nobody() -> None:
    wide: Schema = {"properties": {f"p{number}": {"minLength": 1} for number in range(700)}}
    judge = compile_schema({"allOf": [wide, *({"minProperties": number} for number in range(500))]})
    value = {f"p{number}": "a" for number in range(700)}
    with timing.within(0.05, timing.CPU), pytest.raises(CallError, match="steps"):
        judge.is_valid(value)
