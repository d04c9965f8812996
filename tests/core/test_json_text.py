"""JSON text: what the fast writer refuses is written all the same, and every digit is read back."""

import pytest

from pegboard.core.json_text import json_bytes, json_value


@pytest.mark.parametrize("value", [{"n": 2**70}, {"n": 7, "m": -(10**400)}, [1, "a", None]])
def test_what_is_written_is_read_back_with_every_digit(value: object) -> None:
    assert json_value(json_bytes(value)) == value
    assert json_value(json_bytes(value, indent=True, sort_keys=True)) == value


def test_what_is_nested_too_deep_is_told_as_such_also_beside_a_long_integer() -> None:
    value: object = 2**70
    for _ in range(100_000):
        value = [value]
    with pytest.raises(ValueError, match="nested too deep"):
        json_bytes(value)


def test_what_is_no_json_is_written_by_the_default_or_refused() -> None:
    assert json_bytes({"a": 2**70, "b": {1}}, default=str) == b'{"a":1180591620717411303424,"b":"{1}"}'
    assert json_bytes({1: 2**70}, any_keys=True) == b'{"1":1180591620717411303424}'
    with pytest.raises(TypeError):
        json_bytes({"a": {1}})
