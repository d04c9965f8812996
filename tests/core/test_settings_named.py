"""A refusal by one of the operator's limits names the setting that would allow it."""

from typing import Any

import pytest

from pegboard import Bounds, CallError
from pegboard.core.json_reader import parse_json
from pegboard.core.schema import check_bounds, compile_schema
from tests.core.parts import ANN, one_tool

SMALL = Bounds(json_depth=8, integer_digits=30, object_keys=10, json_keys=20, json_values=50, request_body_bytes=2_000)


@pytest.mark.parametrize(
    ("value", "setting"),
    [
        ([[[[[[[[[1]]]]]]]]], "limits.json_depth"),
        (10**30, "limits.integer_digits"),
        ({f"k{n}": n for n in range(11)}, "limits.object_keys"),
        ([0] * 51, "limits.json_values"),
    ],
    ids=str,
)
def test_arguments_beyond_a_limit_name_it(value: Any, setting: str) -> None:
    with pytest.raises(CallError, match=f"`{setting}`"):
        check_bounds(value, bounds=SMALL)


@pytest.mark.parametrize(
    ("text", "setting"),
    [
        ("[" * 3_000 + "]" * 3_000, "limits.request_body_bytes"),
        ("[" + ",".join(f'{{"k{n}": 1}}' for n in range(21)) + "]", "limits.json_keys"),
        (f'{{"a": {10**30}}}', "limits.integer_digits"),
        ("[" * 900 + "]" * 900, "limits.json_depth"),
    ],
    ids=lambda value: value[:30],
)
def test_json_text_beyond_a_limit_names_it(text: str, setting: str) -> None:
    with pytest.raises(CallError, match=f"`{setting}`"):
        parse_json(text, bounds=SMALL)


@pytest.mark.parametrize(
    ("schema", "setting"),
    [
        ({"not": {"not": {"not": {"not": {"not": {}}}}}}, "limits.schema_depth"),
        ({"anyOf": [{"minimum": n} for n in range(30)]}, "limits.subschemas"),
    ],
    ids=["deep", "wide"],
)
def test_a_schema_beyond_a_limit_names_it(schema: Any, setting: str) -> None:
    with pytest.raises(CallError, match=f"`{setting}`"):
        compile_schema(schema, bounds=Bounds(schema_depth=2, subschemas=10))


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"allOf": [{"anyOf": [{"type": "string"}] * 30}] * 30}, "x"),
        ({"pattern": "(?:a|b){40}"}, "a" * 40),
        ({"items": {"format": "email"}}, ["ann@example.org"] * 900),
    ],
    ids=["always", "to compile", "for a value"],
)
def test_what_takes_too_many_steps_names_the_setting_and_is_judged_where_it_is_raised(schema: Any, value: Any) -> None:
    with pytest.raises(CallError, match=r"`limits\.schema_steps`") as refused:
        compile_schema(schema, bounds=Bounds(schema_steps=10_000)).is_valid(value)
    assert refused.value.error.kind == "schema_too_complex"
    assert compile_schema(schema, bounds=Bounds(schema_steps=40_000_000)).is_valid(value)


@pytest.mark.parametrize(("own", "setting"), [(None, "limits.result_bytes"), (1_000, "max_result_bytes")])
async def test_a_result_beyond_a_limit_names_it(own: int | None, setting: str) -> None:
    result = await one_tool(handler=lambda ctx, args: "x" * 2_000_000, max_result_bytes=own).view(ANN).call("echo")
    assert result.error is not None
    assert result.error.kind == "result_too_large"
    assert f"`{setting}`" in result.text
