"""What a function gives that is not quite what it promised: read as its annotation means it, or told with the value."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, TypedDict

import orjson
import pytest
from pydantic import BaseModel, FiniteFloat

from pegboard import Catalog, Tool, ToolContext, ToolResult
from pegboard.model.json_types import JSON

NAN = math.nan


@dataclasses.dataclass
class Point:
    x: float
    n: int = 1


class Model(BaseModel):
    x: float


class Keys(TypedDict):
    x: float


async def result_of(annotation: Any, value: object, **options: Any) -> ToolResult:
    def measure() -> Any:
        return value

    measure.__annotations__["return"] = annotation
    catalog = Catalog()
    catalog.tool(**options)(measure)
    return await catalog.view(ToolContext(user_id="ann")).call("measure")


@pytest.mark.parametrize(
    ("annotation", "value", "given"),
    [
        (int, True, 1),
        (int, False, 0),
        (float, True, 1.0),
        (bool, 1, True),
        (int, "3", 3),
        (float, "2.5", 2.5),
        (int | None, True, 1),
        (list[int], [True, 2], [1, 2]),
        (dict[str, int], {"a": True}, {"a": 1}),
        (Point, Point(x=1.5, n=True), {"x": 1.5, "n": 1}),
        (Keys, {"x": True}, {"x": 1.0}),
    ],
)
async def test_a_result_is_read_as_its_annotation_means_it(annotation: Any, value: object, given: Any) -> None:
    result = await result_of(annotation, value)
    assert result.error is None
    assert repr(result.structured) == repr(given)
    assert result.text == orjson.dumps(given).decode()


@pytest.mark.parametrize(
    ("annotation", "value"),
    [(bool, True), (int | bool, True), (object, True), (dict[str, bool], {"a": True}), (dict[str, object], {"a": 1})],
)
async def test_a_result_that_fits_is_as_it_was(annotation: Any, value: object) -> None:
    assert repr((await result_of(annotation, value)).structured) == repr(value)


@pytest.mark.parametrize(
    ("annotation", "value", "place"),
    [
        (float, NAN, "$: nan"),
        (float, -math.inf, "$: -inf"),
        (list[float], [1.0, math.inf], "$[1]: inf"),
        (dict[str, tuple[float, int]], {"a b": (NAN, 1)}, '$["a b"][0]: nan'),
        (Point, Point(x=NAN), "$.x: nan"),
        (list[Model], [Model(x=NAN)], "$[0].x: nan"),
        (FiniteFloat, NAN, "$: nan"),
    ],
)
async def test_a_float_that_json_has_no_number_for_is_told_with_its_place(
    annotation: Any, value: object, place: str
) -> None:
    error = (await result_of(annotation, value)).error
    assert error is not None
    assert (error.kind, error.outcome_unknown) == ("output_invalid", True)
    assert f"{place} is not a number in JSON; `float | None` gives it as null." in error.message


@pytest.mark.parametrize("annotation", [float | None, list[float | None]])
async def test_where_null_is_promised_it_is_null(annotation: Any) -> None:
    value = NAN if annotation == float | None else [NAN]
    assert (await result_of(annotation, value)).structured in (None, [None])


@pytest.mark.parametrize(
    ("annotation", "value"), [(int, 3.5), (int, None), (int, "three"), (list[int], {"a": 1}), (int, ToolResult())]
)
async def test_what_is_nothing_of_the_kind_stays_refused(annotation: Any, value: object) -> None:
    error = (await result_of(annotation, value)).error
    assert error is not None
    assert error.kind == "output_invalid"


async def test_what_its_schema_says_besides_is_held_after_reading_again() -> None:
    error = (await result_of(int, True, output={"type": "integer", "minimum": 5})).error
    assert error is not None
    assert error.kind == "output_invalid"


async def test_a_class_tool_and_an_after_hook_are_read_alike() -> None:
    catalog = Catalog()

    class Count(Tool, register=False, output=Point):
        """Count."""

        async def perform(self) -> JSON:
            return {"x": 1, "n": True}

    catalog.register(Count)
    view: Callable[..., Any] = catalog.view(ToolContext(user_id="ann")).call
    assert (await view("count")).structured == {"x": 1.0, "n": 1}
    catalog.after()(lambda _call, _result: {"x": True})
    assert repr((await view("count")).structured) == repr({"x": 1.0, "n": 1})
