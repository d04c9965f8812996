"""Generators: a function that yields gives the list of its values, and iterators are parameters like lists."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from enum import Enum
from typing import Annotated, Any, Literal

import pytest

from pegboard import CallContext, Catalog, Field, ToolContext, ToolSpec
from pegboard.authoring import function
from pegboard.model.json_types import JSON
from tests.timing import PATIENCE_S

INTEGERS: Any = {"type": "array", "items": {"type": "integer"}}


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Paint(Enum):
    CRIMSON = "red"


def plain(count: int) -> Iterator[int]:
    yield from range(count)


def full(count: int) -> Generator[int, None, str]:
    yield from range(count)
    return "over"


async def waiting(ctx: CallContext, count: int) -> AsyncIterator[int]:
    for number in range(count):
        await asyncio.sleep(0)
        yield number


async def waiting_fully(count: int) -> AsyncGenerator[int, None]:
    for number in range(count):
        yield number


def returned(count: int) -> Iterator[int]:
    return iter(range(count))


async def returned_later(count: int) -> Iterator[int]:
    return iter(range(count))


def returned_waiting(count: int) -> AsyncIterator[int]:
    return waiting_fully(count)


def list_in_spite(count: int) -> Iterator[int]:
    return list(range(count))  # pyright: ignore[reportReturnType] - what is tested


FUNCTIONS: list[Callable[..., Any]] = [
    plain, full, waiting, waiting_fully, returned, returned_later, returned_waiting, list_in_spite,
]  # fmt: skip


@pytest.mark.parametrize("inline", [False, True])
@pytest.mark.parametrize("fn", FUNCTIONS)
async def test_a_generator_gives_the_list_of_its_values_as_its_schema_says(
    fn: Callable[..., Any], inline: bool
) -> None:
    catalog = Catalog()
    catalog.tool(name="t", inline=inline)(fn)
    view = catalog.view(ToolContext())
    assert view.export("mcp")[0]["outputSchema"] == INTEGERS
    for count in (0, 3):
        result = await view.call("t", {"count": count})
        assert (result.error, result.structured) == (None, list(range(count)))


async def test_a_generator_without_an_annotation_gives_a_list_without_a_schema() -> None:
    catalog = Catalog()

    @catalog.tool
    def words(text: str):
        yield from text.split()

    @catalog.tool
    def bare(text: str) -> Iterator:  # pyright: ignore[reportMissingTypeArgument] - what is tested
        yield from text.split()

    view = catalog.view(ToolContext())
    assert [(await view.call(name, {"text": "a b"})).structured for name in ("words", "bare")] == [["a", "b"]] * 2
    assert "outputSchema" not in view.export("mcp")[0]


async def test_what_a_generator_yields_is_judged_and_written_like_a_list() -> None:
    catalog = Catalog()

    @catalog.tool
    def colours() -> Iterator[Colour]:
        yield Colour.RED

    @catalog.tool
    def wrong() -> Iterator[int]:
        yield "x"  # pyright: ignore[reportReturnType] - what is tested

    view = catalog.view(ToolContext())
    assert (await view.call("colours", {})).structured == ["red"]
    result = await view.call("wrong", {})
    assert result.error is not None
    assert result.error.kind == "output_invalid"


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_a_generator_without_end_is_stopped_and_closed(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(function, "GENERATED_VALUES", 10)
    catalog, closed = Catalog(), list[str]()

    @catalog.tool(name="sync")
    def endless() -> Iterator[int]:
        try:
            while True:
                yield 1
        finally:
            closed.append("sync")

    @catalog.tool(name="async")
    async def endless_too() -> AsyncIterator[int]:
        try:
            while True:
                yield 1
        finally:
            closed.append("async")

    result = await catalog.view(ToolContext()).call(kind, {})
    assert result.error is not None
    assert (result.error.kind, result.error.outcome_unknown, closed) == ("result_too_large", True, [kind])


async def test_an_async_generator_is_closed_when_its_call_is_cancelled() -> None:
    catalog, began, closed = Catalog(), asyncio.Event(), asyncio.Event()

    @catalog.tool
    async def slow() -> AsyncIterator[int]:
        try:
            began.set()
            await asyncio.Event().wait()
            yield 1
        finally:
            closed.set()

    call = asyncio.create_task(catalog.view(ToolContext()).call("slow", {}))
    await asyncio.wait_for(began.wait(), PATIENCE_S)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    await asyncio.wait_for(closed.wait(), PATIENCE_S)


@pytest.mark.parametrize(
    "kind",
    [Iterator[int], Generator[int, None, None], Iterator, Iterator[int] | None, Annotated[Iterator[int], Field()]],
    ids=["iterator", "generator", "bare", "optional", "annotated"],
)
async def test_an_iterator_is_a_parameter_like_a_list(kind: Any) -> None:
    catalog = Catalog()

    def total(numbers: Any) -> int:
        assert next(numbers) == 1
        return sum(numbers)

    total.__annotations__ = {"numbers": kind, "return": int}
    view = catalog.view(ToolContext())
    catalog.tool(total)
    assert (await view.call("total", {"numbers": [1, 2, 3]})).structured == 5
    refused = await view.call("total", {"numbers": "123"})
    assert refused.error is not None
    assert refused.error.kind == "invalid_arguments"


async def test_a_literal_of_a_plain_enum_arrives_as_the_member_that_was_meant() -> None:
    catalog = Catalog()

    @catalog.tool
    def paint(
        colour: Literal[Colour.RED, Colour.BLUE] = Colour.BLUE,
        several: list[Literal[Colour.RED, "green"]] = [],  # noqa: B006 - never changed
        same: Literal[Paint.CRIMSON] | Literal[Colour.RED] = Paint.CRIMSON,
    ) -> str:
        return f"{colour!r} {several!r} {same!r}"

    view = catalog.view(ToolContext())
    for arguments, text in (
        ({}, f"{Colour.BLUE!r} [] {Paint.CRIMSON!r}"),
        ({"colour": "red", "several": ["green", "red"]}, f"{Colour.RED!r} {['green', Colour.RED]!r} {Paint.CRIMSON!r}"),
    ):
        assert (await view.call("paint", arguments)).text == text
    assert (await view.call("paint", {"colour": "green"})).is_error


@pytest.mark.parametrize("properties", [["args"], ["args", "b"], ["a", "b"], ["ctx"]])
async def test_a_handler_of_context_and_arguments_gets_the_whole_object_whatever_the_properties(
    properties: list[str],
) -> None:
    schema = {"type": "object", "properties": {name: {"type": "string"} for name in properties}}
    catalog = Catalog()
    catalog.register(ToolSpec(name="t", description="x", input_schema=schema), lambda ctx, args: args)
    given = dict.fromkeys(properties, "x")
    assert (await catalog.view(ToolContext()).call("t", given)).structured == given


async def test_a_parameter_called_args_is_filled_by_name_where_the_handler_takes_it_so() -> None:
    schema = {"type": "object", "properties": {"args": {"type": "string"}, "b": {"type": "string"}}}
    catalog = Catalog()

    async def of_context(ctx: CallContext, args: str) -> str:
        return args

    def of_two(args: str, b: str = "") -> str:
        return args + b

    catalog.register(ToolSpec(name="one", description="x", input_schema=schema), of_two)
    catalog.register(
        ToolSpec(name="two", description="x", input_schema={**schema, "properties": {"args": {"type": "string"}}}),
        of_context,
    )
    view = catalog.view(ToolContext())
    assert (await view.call("one", {"args": "x", "b": "y"})).text == "xy"
    assert (await view.call("two", {"args": "x"})).text == "x"


CITY: JSON = {"type": "object", "properties": {"city": {"type": "string"}}}


def shout(city: str, call: CallContext) -> str:
    return city + "!" * bool(call.call_id)


@pytest.mark.parametrize(
    "handler",
    [
        shout,
        lambda ctx, args, suffix="!": args["city"] + suffix,
        lambda ctx, args, *, suffix="!": args["city"] + suffix,
        lambda ctx, args, city="!": args["city"] + city,
        lambda ctx, city: city + "!",
        lambda city, ctx=None: city + "!" * (ctx is not None),
        lambda context, **rest: rest["city"] + "!",
        lambda city: city + "!",
    ],
)
async def test_a_handler_takes_context_and_arguments_in_every_usual_form(handler: Any) -> None:
    catalog = Catalog()
    catalog.register(ToolSpec(name="shout", description="x", input_schema=CITY), handler)
    assert (await catalog.view(ToolContext()).call("shout", {"city": "Oslo"})).text == "Oslo!"
