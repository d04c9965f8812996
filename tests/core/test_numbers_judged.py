"""Numbers that no machine holds: what is asked of them costs nobody else anything."""

from __future__ import annotations

from typing import Any

import pytest

from pegboard import CallError, Catalog, ToolSpec
from pegboard.core.schema import compile_schema
from tests import timing
from tests.core.parts import ANN, echo, kind_of

TINY, HUGE = 1e-300, 1e300
WHOLE = [1, 2, 3]


def view_of(schema: Any) -> Any:
    catalog = Catalog()
    catalog.register(ToolSpec(name="it", input_schema={"type": "object", "properties": {"v": schema}}), echo)
    return catalog.view(ANN)


async def kind_in_time(schema: Any, value: Any, *, limit_s: float = 0.08) -> str:
    """Return how a call ends; reading the value is part of its time."""
    view = view_of(schema)
    with timing.within(limit_s, timing.CPU):
        return kind_of(await view.call("it", {"v": value}))


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"uniqueItems": True}, [10**299 + at for at in range(150)]),
        ({"uniqueItems": True}, [10**20 + at for at in range(2_000)]),
        ({"uniqueItems": True}, [{"k": 10**20 + at} for at in range(900)]),
        ({"items": {"uniqueItems": True}}, [[TINY * at for at in range(10)]] * 900),
        ({"items": {"maximum": 0.5}}, [TINY] * 20_000),
        ({"items": {"exclusiveMinimum": -0.5, "type": "number"}}, [TINY] * 20_000),
        ({"items": {"multipleOf": TINY}}, [HUGE] * 2_000),
        ({"items": {"not": {"const": TINY}}}, [2 * TINY] * 9_000),
        ({"items": {"not": {"enum": WHOLE}}}, [TINY] * 9_000),
        ({"items": {"not": {"enum": [*range(100)]}}}, [0.25] * 9_000),
        ({"items": {"not": {"enum": [{"a": 1.5}, 2]}}}, [{"a": TINY}] * 9_000),
        ({"contains": {"const": 1}}, [TINY] * 9_000),
    ],
    ids=lambda item: repr(item)[:40],
)
async def test_numbers_that_take_long_to_compare_are_refused_and_not_compared(schema: Any, value: Any) -> None:
    assert await kind_in_time(schema, value) in ("schema_too_complex", "invalid_arguments")


@pytest.mark.parametrize(
    ("schema", "value", "kind"),
    [
        ({"uniqueItems": True}, [10**20 + at for at in range(40)], "ok"),
        ({"uniqueItems": True}, [10**20, 10**20], "invalid_arguments"),
        ({"uniqueItems": True}, [at / 8 for at in range(500)], "ok"),
        ({"uniqueItems": True}, [*range(9_000)], "ok"),
        ({"items": {"minimum": 0.5, "maximum": 99.5}}, [0.75] * 2_000, "ok"),
        ({"items": {"minimum": 0, "maximum": 1}}, [0.75] * 20_000, "ok"),
        ({"items": {"minimum": 0.0, "maximum": 1.0}}, [0.75] * 20_000, "ok"),
        ({"items": {"multipleOf": 0.01}}, [0.25] * 500, "ok"),
        ({"items": {"multipleOf": 5}}, [10] * 5_000, "ok"),
        ({"enum": WHOLE}, 2, "ok"),
        ({"enum": WHOLE}, 2.5, "invalid_arguments"),
        ({"items": {"enum": WHOLE}}, WHOLE * 2_000, "ok"),
        ({"const": 0.5}, 0.5, "ok"),
        ({"items": {"type": "integer"}}, [10**900] * 20, "ok"),
        ({"items": {"type": "number"}}, [TINY] * 20_000, "ok"),
    ],
    ids=lambda item: repr(item)[:40],
)
async def test_what_callers_honestly_send_is_judged(schema: Any, value: Any, kind: str) -> None:
    assert await kind_in_time(schema, value, limit_s=0.2) == kind


@pytest.mark.parametrize("number", [10**900, HUGE], ids=["integers", "floats"])
async def test_numbers_beyond_64_bits_have_a_limit_in_all(number: float) -> None:
    view = view_of({"items": {"minimum": 0}})
    with timing.within(0.05, timing.CPU):
        result = await view.call("it", {"v": [number] * 2_600})
    assert result.error is not None
    assert "numbers beyond 64 bits" in result.error.message
    assert kind_of(await view.call("it", {"v": [number] * 50})) == "ok"


def test_numbers_within_whole_bounds_are_compared_as_quickly_as_they_are() -> None:
    # A polygon of a coastline; each place was counted digit by digit.
    place = {"type": "array", "prefixItems": [{"minimum": -180, "maximum": 180}, {"minimum": -90, "maximum": 90}]}
    polygon = {"properties": {"type": {"const": "Polygon"}, "coordinates": {"items": {"items": place}}}}
    ring = [[degree / 60.7 - 170, degree / 101.3 - 80] for degree in range(10_000)]
    assert compile_schema(polygon).is_valid({"type": "Polygon", "coordinates": [ring]})
    with pytest.raises(CallError, match=r"limits\.schema_steps"):
        compile_schema(polygon).is_valid({"type": "Polygon", "coordinates": [[[1e300, 1e300]] * 10_000]})


@pytest.mark.parametrize("bound", [{"maximum": 1e300}, {"minimum": -1e20}, {"exclusiveMaximum": 1e19}])
def test_a_bound_beyond_64_bits_is_counted_as_a_fraction_is(bound: Any) -> None:
    # It held the event loop for 0.2 s: the engine compares digit by digit, and the schema looked plain.
    judge = compile_schema({"items": {"type": "number", **bound}})
    assert judge.is_valid([1, 2.5, 7])
    with pytest.raises(CallError, match=r"limits\.schema_steps"):
        judge.is_valid([9e15] * 150_000)


def test_bounds_cost_nothing_where_there_are_no_numbers() -> None:
    judge = compile_schema({"items": {"minimum": 0, "maximum": 0.5, "pattern": "^a*$"}})
    assert judge.is_valid(["a" * 10, None, True] * 5_000)
