"""Function results: the output schema of a return annotation, and values written the same way."""

import dataclasses
import datetime
import enum
from collections.abc import Awaitable
from typing import Annotated, Any, Literal, NamedTuple

import pydantic
import pytest

from pegboard import (
    Catalog,
    Field,
    ImageContent,
    TextContent,
    ToolResult,
)
from tests.authoring.parts import call, only_spec


class Color(enum.Enum):
    RED = "red"


# ---------------------------------------------------------------- results


@dataclasses.dataclass
class Row:
    id: int
    when: datetime.date


class Coordinates(NamedTuple):
    x: int
    y: int


OBJECT = {"type": "object"}


@pytest.mark.parametrize(
    ("annotation", "drawn"),
    [
        (int, {"type": "integer"}),
        (bool, {"type": "boolean"}),
        (dict, {"type": "object", "additionalProperties": True}),
        (
            list[dict[str, int]],
            {"type": "array", "items": {"type": "object", "additionalProperties": {"type": "integer"}}},
        ),
        (str | None, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (
            tuple[int, str],
            {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 2, "maxItems": 2},
        ),
        (
            Row,
            {
                "type": "object",
                "properties": {"id": {"type": "integer"}, "when": {"type": "string", "format": "date"}},
                "required": ["id", "when"],
            },
        ),
        (Annotated[int, Field(minimum=1)], {"type": "integer"}),
        (Awaitable[int], {"type": "integer"}),
        (None, None),
        (str, None),
        (bytes, None),
        (Any, None),
        (ToolResult, None),
        (ImageContent, None),
        (list[TextContent], None),
        (str | ImageContent, None),
    ],
)
def test_the_return_annotation_gives_the_output_schema(annotation: Any, drawn: Any):
    def f(): ...

    f.__annotations__ = {"return": annotation}
    assert only_spec(f).output_schema == drawn


class Out(pydantic.BaseModel):
    size: int = pydantic.Field(serialization_alias="howBig")
    color: Color = Color.RED


@pytest.mark.parametrize(
    ("annotation", "value", "structured"),
    [
        (int, 3, 3),
        (str | None, None, None),
        (str | None, "x", "x"),
        (list[dict[str, int]], [{"a": 1}], [{"a": 1}]),
        (Out, Out(size=1), {"howBig": 1, "color": "red"}),
        (list[Out], [Out(size=1)], [{"howBig": 1, "color": "red"}]),
        (Row, Row(1, datetime.date(2026, 1, 1)), {"id": 1, "when": "2026-01-01"}),
        (list[Row], [], []),
        (tuple[int, str], (1, "a"), [1, "a"]),
        (set[int], {1}, [1]),
        (Coordinates, Coordinates(1, 2), [1, 2]),
        (dict[str, datetime.date], {"a": datetime.date(2026, 1, 1)}, {"a": "2026-01-01"}),
        (Color, Color.RED, "red"),
    ],
)
@pytest.mark.parametrize("is_async", [False, True])
async def test_a_result_is_written_the_way_its_schema_was_drawn(
    annotation: Any, value: Any, structured: Any, is_async: bool
):
    def plain():
        return value

    async def waiting():
        return value

    fn = waiting if is_async else plain
    fn.__annotations__ = {"return": annotation}
    result = await call(fn)
    assert result.error is None
    assert (result.structured, result.has_structured) == (structured, True)


async def test_a_model_of_any_kind_is_given_whole():
    class Inner(pydantic.BaseModel):
        a: int

    def f() -> pydantic.BaseModel:
        return Inner(a=3)

    assert (await call(f, {})).structured == {"a": 3}


async def test_a_result_that_breaks_the_promise_is_output_invalid():
    def f() -> Out:
        return {"howBig": "x"}  # type: ignore[return-value]

    def g() -> int:
        return "x"  # type: ignore[return-value]

    for fn in (f, g):
        result = await call(fn)
        assert result.error is not None
        assert result.error.kind == "output_invalid"


async def test_output_says_what_the_annotation_does_not():
    catalog = Catalog()

    @catalog.tool(output=Out)
    def f() -> dict[str, Any]:
        return {"howBig": 2, "color": "red"}

    assert catalog.snapshot().entries[0].spec.output_schema == {
        "$defs": {"Color": {"enum": ["red"], "type": "string"}},
        "type": "object",
        "properties": {"howBig": {"type": "integer"}, "color": {"$ref": "#/$defs/Color", "default": "red"}},
        "required": ["howBig"],
    }
    assert (await call(catalog)).structured == {"howBig": 2, "color": "red"}

    catalog = Catalog()
    catalog.tool(output={"type": "object", "required": ["a"]})(f)
    result = await call(catalog)
    assert result.error is not None
    assert result.error.kind == "output_invalid"


async def test_a_function_may_return_a_result_of_its_own_making():
    def f() -> Out:
        return ToolResult((TextContent("x"),), {"howBig": 1, "color": "red"}, has_structured=True)  # type: ignore[return-value]

    result = await call(f)
    assert (result.text, result.structured) == ("x", {"howBig": 1, "color": "red"})
