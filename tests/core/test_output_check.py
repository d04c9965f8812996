"""The output check: our own tools keep their promise to the letter, foreign ones are given with a warning."""

from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pegboard import Catalog, DefinitionError, ToolContext, ToolSpec
from pegboard.core.relaxed_schema import relaxed
from pegboard.core.schema import compile_schema
from tests.properties.schema_writer import written
from tests.sizes import examples

CARD: Any = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "made": {"type": "string", "format": "date-time"},
        "cvc": {"type": "string", "writeOnly": True},
        "pin": {"$ref": "#/$defs/secret"},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
    },
    "required": ["id", "cvc", "pin"],
    "additionalProperties": False,
    "$defs": {
        "secret": {"type": "string", "writeOnly": True},
        "line": {"type": "object", "properties": {"n": {"type": ["integer", "null"]}}, "additionalProperties": False},
    },
}  # fmt: skip
RIGHT = {"id": 1, "cvc": "1", "pin": "2"}


def view_of(answer: Any, schema: Any = CARD, **options: Any) -> Any:
    catalog = Catalog()
    catalog.register(ToolSpec(name="card", output_schema=schema, **options), lambda ctx, args: answer)
    return catalog.view(ToolContext())


@pytest.mark.parametrize(
    ("answer", "place"),
    [
        ({"id": 1, "made": "yesterday"}, "$.made"),
        ({"id": 1}, "$.cvc"),
        ({"id": 1, "more": True}, "$.more"),
        ({"id": 1.5}, "$.id"),
        ({"id": 1, "lines": [{"n": 0.5, "m": 1}]}, "$.lines[0].n"),
    ],
    ids=str,
)
async def test_a_slip_of_a_foreign_answer_is_given_with_a_warning_and_fits_what_is_published(
    answer: Any, place: str
) -> None:
    view = view_of(answer, output_check="warn")
    result = await view.call("card", {})
    assert (result.structured, result.is_error) == (answer, False)
    assert place in [item["path"] for item in result.meta["output_mismatch"]]
    [tool] = view.export("mcp")
    jsonschema.validate(answer, tool["outputSchema"], format_checker=jsonschema.FormatChecker())
    assert "not an argument" not in str(result.meta)
    strict = await view_of(answer, output_check="strict").call("card", {})
    assert strict.error is not None
    assert (strict.error.kind, "not an argument" in strict.text) == ("output_invalid", False)


@pytest.mark.parametrize("answer", [{"id": "1"}, {}, [], {"id": 1, "lines": {}}, {"id": 1, "lines": [1]}], ids=str)
async def test_a_broken_type_is_refused_whatever_the_setting(answer: Any) -> None:
    for setting in ("warn", "strict"):
        result = await view_of(answer, output_check=setting).call("card", {})
        assert result.error is not None
        assert (result.error.kind, result.error.outcome_unknown) == ("output_invalid", True)


async def test_a_right_answer_has_no_warning_and_our_own_tools_are_strict() -> None:
    assert "output_mismatch" not in (await view_of(RIGHT, output_check="warn").call("card", {})).meta
    assert (await view_of({"id": 1}).call("card", {})).is_error
    assert view_of(RIGHT).export("mcp")[0]["outputSchema"] == CARD


async def test_an_answer_that_takes_too_long_to_judge_is_given_and_says_so() -> None:
    node = {"$ref": "#/$defs/node"}
    tree: Any = {"$defs": {"node": {"properties": {"a": {"anyOf": [node, node]}}, "required": ["a"]}}, **node}
    deep: Any = {}
    for _ in range(40):
        deep = {"a": deep}
    for setting in ("warn", "strict"):
        result = await view_of(deep, tree, output_check=setting).call("card", {})
        assert (result.structured, result.meta["output_mismatch"][0]["rule"]) == (deep, "schema_too_complex")


async def test_a_warning_that_takes_too_long_to_find_is_left_out() -> None:
    node = {"$ref": "#/$defs/node"}
    once: Any = {"oneOf": [{**node, "format": "date"}, {"type": "null"}], "not": {"anyOf": [node, node]}}
    tree: Any = {"$defs": {"node": {"properties": {"a": once}}}, **node}
    inner = relaxed(tree)["$defs"]["node"]["properties"]["a"]
    assert inner == {"anyOf": [node, {"type": "null"}]}
    kept = {"not": {"type": "string", "format": "date"}, "oneOf": [{}], "anyOf": [{}], "if": node, "then": {}}
    assert relaxed(kept) == {"not": kept["not"], "anyOf": [{}], "allOf": [{"anyOf": [{}]}]}
    named: Any = {"type": "array", "items": {"allOf": [{"format": "idn-hostname"}] * 300}, "required": ["c"]}
    named["properties"] = {"c": {"type": "string", "writeOnly": True}}
    long = ["é." * 20_000]
    result = await view_of(long, named, output_check="warn").call("card", {})
    assert (result.structured, result.meta) == (long, {})


def test_an_unknown_setting_is_refused_where_it_is_said() -> None:
    with pytest.raises(DefinitionError, match="output_check='loose'"):
        Catalog().tool(lambda: None, name="t", output_check="loose")  # pyright: ignore[reportArgumentType, reportCallIssue] - what is tested


@settings(max_examples=examples(300))
@given(st.integers(0, 1 << 40))
def test_what_fits_a_schema_fits_the_relaxed_one(seed: int) -> None:
    schema, values = written(seed)
    if "$dynamicRef" in str(schema):
        return
    try:
        exact, loose = compile_schema(schema), compile_schema(relaxed(schema))
        fits = [(exact.is_valid(value), loose.is_valid(value)) for value in values]
    except Exception:  # noqa: BLE001 - too complex, or no schema
        return
    assert (True, False) not in fits
