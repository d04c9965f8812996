"""Pattern lengths: counted classes of characters are accepted, and mean what they meant."""

import re
from itertools import product
from typing import Any

import jsonschema_rs
import pytest

from pegboard import Catalog, DefinitionError, ToolContext, ToolSpec
from pegboard.core.pattern_lengths import with_pattern_lengths
from pegboard.core.schema import compile_schema

COUNTED = [
    "^[a-z]{1,20}$",
    "^[^<>]{0,17}$",
    "^.{2,18}$",
    r"^[\s\S]{1,20}$",
    r"^([\w -]{3,19})$",
    r"^\d{0,30}$",
    r"^[a\]b]{1,20}$",
    r"^\p{L}{1,20}$",
    r"^[\p{L}\p{M} .'-]{1,20}$",
    "^[é-ž]{1,20}$",
    "^[a-z][a-z0-9-]{0,61}[a-z0-9]$",
    r"^[\p{L}\p{M}][\p{L}\p{M} .'-]{0,19}$",
    "^(ab[a-z]{0,20})$",
    r"^\p{L}\d[a-z]{0,18}x$",
]
TEXTS: list[Any] = [
    "",
    "a",
    "ab",
    "abc",
    "a\n",
    "\n",
    "é",
    "ž" * 20,
    "é" * 21,
    "😀" * 18,
    "😀" * 19,
    "x" * 17,
    "x" * 18,
    "x" * 19,
    "x" * 20,
    "x" * 21,
    "x" * 30,
    "1" * 30,
    "1" * 31,
    "a]b",
    "a1x",
    "a1" + "y" * 18 + "x",
    "a1" + "y" * 19 + "x",
    "éa",
    "<a>",
    "José O'Neil",
    5,
    None,
    ["a" * 99],
]
LENGTHS = [{}, {"minLength": 2}, {"minLength": 0, "maxLength": 5}, {"maxLength": 500}]


@pytest.mark.parametrize("pattern", COUNTED)
def test_a_counted_class_accepts_the_same_texts_in_both_forms(pattern: str) -> None:
    seen: set[bool] = set()
    for lengths, text in product(LENGTHS, TEXTS):
        schema = {"pattern": pattern, **lengths}
        written = with_pattern_lengths(schema)
        assert written["pattern"] != pattern
        is_valid = jsonschema_rs.Draft202012Validator(written).is_valid(text)
        assert is_valid == jsonschema_rs.Draft202012Validator(schema).is_valid(text), (written, text)
        seen.add(is_valid)
    assert seen == {True, False}


@pytest.mark.parametrize(
    "schema",
    [
        {"pattern": "^[a-z]{1,16}$"},
        {"pattern": "[a-z]{1,99}$"},
        {"pattern": "^[a-z]{1,99}"},
        {"pattern": "^(a){1,99}$"},
        {"pattern": "^([a-z]{1,99}$"},
        {"pattern": "^[a-z]{1,99})$"},
        {"pattern": "^[a-z]{99,20}$"},
        {"pattern": "^[a[b]]{1,99}$"},
        {"pattern": "^[]{1,99}$"},
        {"pattern": "^a|[b]{1,99}$"},
        {"pattern": "^ab?[a-z]{1,99}$"},
        {"pattern": "^a{2}[b]{1,99}$"},
        {"pattern": "^[a]+[b]{1,99}$"},
        {"pattern": "^[b]{1,99}+$"},
        {"pattern": "^[b]{1,99}c*$"},
        {"pattern": r"^a\b[c]{1,99}$"},
        {"pattern": "^(?i)[c]{1,99}$"},
        {"pattern": 5},
        {"maxLength": 3},
        {"pattern": "^.{1,99}$", "minLength": "x"},
        {"pattern": "^.{1,99}$", "maxLength": True},
        {"pattern": "^.{1,99}$", "minLength": -1},
        {"const": {"pattern": "^.{1,99}$"}},
        {"enum": [{"pattern": "^.{1,99}$"}]},
        {"allOf": [{"type": "string"}, True]},
    ],
    ids=str,
)
def test_every_other_schema_is_returned_as_it_is(schema: Any) -> None:
    assert with_pattern_lengths(schema) is schema


def test_only_the_parts_around_a_counted_class_are_copied() -> None:
    kept = {"type": "object"}
    schema: Any = {"properties": {"a": {"anyOf": [kept, {"pattern": "^.{1,99}$"}]}, "b": kept}, "required": ["a"]}
    written: Any = with_pattern_lengths(schema)
    assert written["properties"]["a"]["anyOf"] == [kept, {"pattern": "^.*$", "minLength": 1, "maxLength": 99}]
    assert written["properties"]["b"] is kept
    assert schema["properties"]["a"]["anyOf"][1] == {"pattern": "^.{1,99}$"}


@pytest.mark.parametrize(
    ("pattern", "value"),
    [
        (r"^[\p{L}\p{M} .'-]{1,100}$", "Łukasz Đặng-O'Neil"),
        (r"^([\p{L}\p{Z}\p{N}_.:/=+\-@]{1,128})$", "Straße 12"),
        (r"^[\s\S]{1,4096}$", "any\ntext"),
        (r"^.{0,100000}$", "a title"),
        (r"^[^<>]{1,65536}$", "no markup"),
        (r"^[\p{L}\p{M}][\p{L}\p{M}'’ .-]{0,99}$", "Ngũgĩ wa Thiong'o"),
        (r"^[\p{L}][\p{L}\p{N}_-]{0,253}[\p{L}\p{N}]$", "größe-1"),
    ],
)
async def test_names_and_long_texts_of_public_apis_are_accepted(pattern: str, value: str) -> None:
    """All of these were refused as too complex to compile."""
    schema: Any = {"type": "object", "properties": {"v": {"type": "string", "pattern": pattern}}, "required": ["v"]}
    catalog = Catalog()
    catalog.register(ToolSpec(name="tag", input_schema=schema), lambda ctx, args: args["v"])
    view = catalog.view(ToolContext())
    assert not (await view.call("tag", {"v": value})).is_error
    most = int(re.findall(r",(\d+)\}", pattern)[0])
    refused = await view.call("tag", {"v": "a" * (most + 3)})
    assert refused.error is not None
    assert "maxLength" in str(refused.error.details)


def test_an_invalid_class_is_still_refused() -> None:
    with pytest.raises(DefinitionError, match=r"Invalid JSON Schema: \$\.pattern: the value is not a"):
        compile_schema({"pattern": "^[z-a]{1,500}$"})


def test_a_fault_without_a_place_is_told_without_one() -> None:
    with pytest.raises(DefinitionError, match="Invalid JSON Schema: Invalid URI reference"):
        compile_schema({"properties": {"a": {"$id": "http://["}}})
