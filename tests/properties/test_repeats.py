"""Repeats: what counts as the same call again is what JSON Schema calls equal."""

import json
import random
from typing import Any

import jsonschema
from hypothesis import given, settings
from hypothesis import strategies as st

from pegboard.core.call.repeats import REPEAT_FAILURES
from tests.core.parts import ANN
from tests.core.test_repeats import COUNTED, Tool
from tests.sizes import examples

# Floats beyond 2**53 mean what their digits write: tests/core/test_repeats.py has them.
SCALARS = (
    st.sampled_from([0, -0.0, 0.0, 1, 1.0, True, False, None, "1", "", 2**53, 2.0**53, 2**53 + 1])
    | st.integers() | st.floats(-(2.0**53), 2.0**53)
)  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)


def respelled(value: Any, choose: random.Random) -> Any:
    """Return a value that JSON Schema calls equal, written in another way where there is one."""
    if isinstance(value, dict):
        keys = choose.sample(list(value), len(value))
        return {key: respelled(value[key], choose) for key in keys}
    if isinstance(value, list):
        return [respelled(item, choose) for item in value]
    if type(value) is int and abs(value) <= 2**53 and choose.random() < 0.5:
        return float(value)
    return int(value) if type(value) is float and value.is_integer() and abs(value) <= 2**53 else value


@settings(max_examples=examples(200))
@given(one=VALUES, other=VALUES, seed=st.integers(0, 2**32))
async def test_calls_are_one_exactly_where_json_schema_calls_their_arguments_equal(
    one: Any, other: Any, seed: int
) -> None:
    tool = Tool(COUNTED["tool_error"], schema={"type": "object"})
    again = respelled(one, random.Random(seed))
    for value in [one, again, one, again, one]:
        await tool.catalog.view(ANN).call("echo", json.dumps({"v": value}).encode())
    assert tool.ran == REPEAT_FAILURES
    await tool.catalog.view(ANN).call("echo", json.dumps({"v": again}).encode())
    assert tool.ran == REPEAT_FAILURES
    await tool.catalog.view(ANN).call("echo", json.dumps({"v": other}).encode())
    is_equal = bool(jsonschema.Draft202012Validator({"const": again}).is_valid(other))
    assert (tool.ran == REPEAT_FAILURES) == is_equal
