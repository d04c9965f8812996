"""Function arguments: how they come back to Python, and all that can be called."""

import asyncio
import datetime
import enum
import functools
import threading
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

import pydantic
import pytest

from pegboard import (
    Catalog,
    DefinitionError,
    Field,
    ToolContext,
)
from tests.authoring.parts import call, catalog_of, only_spec, paths, schema


class Color(enum.Enum):
    RED = "red"


class Node(pydantic.BaseModel):
    """A node."""

    title: str
    children: list["Node"] = []


class Size(TypedDict, total=False):
    width: int


# ---------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    ("annotation", "given", "seen"),
    [
        (int, 3.0, 3),
        (int | None, 3.0, 3),
        (list[int], [1.0, 2], [1, 2]),
        (float, 3, 3.0),
        (Color, "red", Color.RED),
        (datetime.date, "2026-01-02", datetime.date(2026, 1, 2)),
        (Node, {"title": "x"}, Node(title="x")),
        (Size, {"width": 2.0}, {"width": 2}),
        (dict[str, Any], {"a": 1.0}, {"a": 1.0}),
    ],
)
async def test_arguments_arrive_as_the_type_of_their_annotation(annotation: Any, given: Any, seen: Any):
    received: list[Any] = []

    def f(value):
        received.append(value)

    f.__annotations__ = {"value": annotation, "return": None}
    assert (await call(f, {"value": given})).error is None
    assert received == [seen]
    assert type(received[0]) is type(seen)


async def test_defaults_of_every_kind_arrive():
    marker = object()
    seen: list[Any] = []

    def f(
        a: int = 1,
        b: list[int] = [],  # noqa: B006 - what users write
        c: Color = Color.RED,
        d: datetime.date | None = None,
        e: datetime.date = None,  # type: ignore[assignment]  # noqa: RUF013 - what users write
        f: Any = marker,
        g: int = Field(7),
        h: Color = Field(Color.RED),  # noqa: B008
        i: Any = Field(marker),  # noqa: B008
        j: list[int] = pydantic.Field(default_factory=list),  # noqa: B008
        *,
        k: float = 0.5,
        m: Node = Node(title="n"),  # noqa: B008 - what users write
    ) -> None:
        b.append(1)
        j.append(1)
        seen.append([a, b, c, d, e, f, g, h, i, j, k, m])

    catalog = catalog_of(f)
    for _ in range(2):
        assert (await call(catalog)).error is None
    expected = [1, [1], Color.RED, None, None, marker, 7, Color.RED, marker, [1], 0.5, Node(title="n")]
    assert seen == [expected, expected]
    assert "required" not in schema(f)


async def test_keyword_only_and_open_ended_parameters():
    def f(*, a: int, **more: int) -> dict[str, int]:
        return {"a": a, **more}

    assert schema(f)["additionalProperties"] == {"type": "integer"}
    assert (await call(f, {"a": 1, "b": 2})).structured == {"a": 1, "b": 2}
    result = await call(f, {"a": 1, "b": "x"})
    assert result.error is not None

    def g(**more: Any) -> int:
        return len(more)

    assert schema(g) == {"type": "object", "properties": {}, "additionalProperties": True}
    assert (await call(g, {"x": 1, "y": 2})).structured == 2


async def test_further_arguments_arrive_as_their_annotation_means_them():
    class Inner(pydantic.BaseModel):
        day: datetime.date

    def days(first: datetime.date, **more: datetime.date) -> list[str]:
        return [type(day).__name__ for day in (first, *more.values())]

    def models(own: Inner, **more: Inner | float) -> list[str]:
        return [type(one).__name__ for one in (own, *more.values())]

    given = {"first": "2026-01-02", "a": "2026-01-03", "first_of_all": "2026-01-04"}
    assert (await call(days, given)).structured == ["date", "date", "date"]
    assert schema(days)["additionalProperties"] == {"type": "string", "format": "date"}
    late = await call(days, {"first": "2026-01-02", "a": "2026-02-30"})
    assert (late.error is not None, "$.a: " in late.text) == (True, True)
    one: dict[str, Any] = {"day": "2026-01-02"}
    assert (await call(models, {"own": one, "a": one, "b": 1})).structured == ["Inner", "Inner", "float"]

    def lower(**more: Annotated[str, pydantic.AfterValidator(refuse)]) -> None: ...

    refused = await call(lower, {"name": "x"})
    assert "$.name: Value error, never" in refused.text


def refuse(value: str) -> str:
    raise ValueError(f"never {value}")


def test_additional_properties_need_somewhere_to_go():
    def f(a: int) -> None: ...

    with pytest.raises(DefinitionError, match=r"the function has no \*\*kwargs to take them"):
        Catalog().tool(additional_properties=True)(f)


async def test_what_a_type_asks_beyond_its_schema_is_an_invalid_argument():
    def f(node: Annotated[str, pydantic.AfterValidator(str.lower)], point: "Point") -> str:
        return node

    result = await call(f, {"node": "A", "point": {"x": 3, "y": 2}})
    assert result.error is not None
    assert (result.error.kind, paths(result)) == ("invalid_arguments", ["$.point"])
    assert (await call(f, {"node": "A", "point": {"x": 1, "y": 2}})).text == "a"


class Point(pydantic.BaseModel):
    x: int
    y: int

    @pydantic.model_validator(mode="after")
    def ordered(self) -> "Point":
        if self.x > self.y:
            raise ValueError("x must not be over y")
        return self


# ---------------------------------------------------------------- what can be called


def traced(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return wrapper


class Greeter:
    """Made of a class."""

    def __init__(self, word: str) -> None:
        self.word = word

    def __call__(self, name: str) -> str:
        """Greet by calling."""
        return f"{self.word} {name}"

    def greet(self, name: str) -> str:
        """Greet."""
        return f"{self.word} {name}"

    @staticmethod
    def shout(name: str) -> str:
        """Shout."""
        return name.upper()

    @classmethod
    def make(cls, name: str) -> str:
        """Make."""
        return f"{cls.__name__} {name}"


def send(name: str, server: str = "a", ctx: ToolContext | None = None) -> str:
    """Send.

    Args:
        name: Who.
        server: Where.
    """
    return f"{name}@{server} {ctx is not None}"


@pytest.mark.parametrize(
    ("fn", "name", "description", "text"),
    [
        (Greeter("hi"), "greeter", "Greet by calling.", "hi ann"),
        (Greeter("hi").greet, "greet", "Greet.", "hi ann"),
        (Greeter.shout, "shout", "Shout.", "ANN"),
        (staticmethod(Greeter.shout), "shout", "Shout.", "ANN"),
        (Greeter.make, "make", "Make.", "Greeter ann"),
        (functools.partial(send, server="b"), "send", "Send.", "ann@b True"),
        (functools.partial(Greeter("hi").greet), "greet", "Greet.", "hi ann"),
        (traced(Greeter("hi").greet), "greet", "Greet.", "hi ann"),
        (traced(traced(send)), "send", "Send.", "ann@a True"),
    ],
)
async def test_everything_that_can_be_called_is_a_tool(fn: Any, name: str, description: str, text: str):
    spec = only_spec(fn)
    assert (spec.name, spec.description) == (name, description)
    assert spec.input_schema["properties"]["name"]["type"] == "string"
    assert (await call(fn, {"name": "ann"})).text == text


async def test_what_a_partial_has_fixed_is_neither_shown_nor_changed():
    fixed = functools.partial(send, server="b")
    assert schema(fixed)["properties"] == {"name": {"type": "string", "description": "Who."}}
    result = await call(fixed, {"name": "ann", "server": "evil"})
    assert result.error is not None
    assert result.error.kind == "invalid_arguments"

    def open_(server: str, **more: Any) -> str:
        return server

    result = await call(functools.partial(open_, server="b"), {"server": "evil"})
    assert result.error is not None


async def test_async_functions_run_on_the_loop_and_others_in_a_thread_unless_inline():
    here = threading.current_thread().name

    async def on_loop() -> str:
        await asyncio.sleep(0)
        return threading.current_thread().name

    def in_thread() -> str:
        return threading.current_thread().name

    catalog = Catalog()
    catalog.tool(inline=True, name="inline")(in_thread)
    assert (await call(on_loop)).text == here
    assert (await call(functools.partial(on_loop))).text == here
    assert (await call(traced(on_loop))).text == here
    assert (await call(in_thread)).text.startswith("pegboard-tool")
    assert (await call(catalog)).text == here


class AsyncThing:
    async def __call__(self, n: int) -> int:
        return n + 1


async def test_an_object_with_an_async_call_is_awaited():
    assert (await call(AsyncThing(), {"n": 1})).structured == 2


def test_the_decorator_gives_the_function_back():
    def f() -> None: ...

    assert Catalog().tool(f) is f
    assert Catalog().tool(groups="x")(f) is f


def test_the_origin_is_module_and_line():
    def f() -> None: ...

    assert only_spec(f).origin == f"{__name__}:{f.__code__.co_firstlineno}"
    assert only_spec(traced(f)).origin == f"{__name__}:{f.__code__.co_firstlineno}"
    assert only_spec(functools.partial(send, server="b")).origin == f"{__name__}:{send.__code__.co_firstlineno}"


async def test_a_function_may_say_that_it_takes_no_further_arguments():
    catalog = Catalog()

    @catalog.tool(additional_properties=False)
    def closed(x: int) -> int:
        """Closed."""
        return x

    @catalog.tool(additional_properties=False)
    def emptied(x: int, **more: int) -> int:
        """Closed, for now."""
        return x + len(more)

    view = catalog.view(ToolContext(budget=None))
    assert [tool["inputSchema"]["additionalProperties"] for tool in view.export("mcp")] == [False, False]
    for name in ("closed", "emptied"):
        assert (await view.call(name, {"x": 1})).structured == 1
        assert (await view.call(name, {"x": 1, "y": 2})).is_error
