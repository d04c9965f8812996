"""Output: whatever a handler gives becomes a result that keeps its promise, tells no secret and is not too large."""

import enum
from collections import ChainMap, deque
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from ipaddress import ip_address
from pathlib import PurePosixPath
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy
import orjson
import pydantic
import pytest
from msgspec import Struct

from pegboard import (
    AudioContent,
    Bounds,
    CallError,
    Catalog,
    ImageContent,
    ResourceContent,
    ResourceLink,
    TextContent,
    ToolError,
    ToolResult,
)
from pegboard.model.record import replace
from pegboard.model.tool import Annotations
from tests.core.parts import ANN, Recorder, kind_of, one_tool


def giving(value: Any, **said: Any) -> Any:
    async def work(ctx: Any, args: Any) -> Any:
        return value

    return one_tool(work, **said).view(ANN)


class Spot(Struct):
    x: int
    near: object


class City(pydantic.BaseModel):
    name: str
    since: date


@dataclass
class Point:
    x: int
    y: float


class Colour(enum.Enum):
    RED = "red"


# ---------------------------------------------------------------- any value


@pytest.mark.parametrize(
    ("value", "structured"),
    [
        ({"a": [1, None, True, 1.5]}, {"a": [1, None, True, 1.5]}),
        ([], []),
        ([1, "a"], [1, "a"]),
        (0, 0),
        (1.5, 1.5),
        (False, False),
        (None, None),
        ((1, 2), [1, 2]),
        ({3}, [3]),
        (frozenset({"a"}), ["a"]),
        (City(name="Ulm", since=date(1181, 1, 1)), {"name": "Ulm", "since": "1181-01-01"}),
        ([City(name="Ulm", since=date(1181, 1, 1))], [{"name": "Ulm", "since": "1181-01-01"}]),
        (Point(1, 2.0), {"x": 1, "y": 2.0}),
        (Spot(x=1, near=Point(1, 2.0)), {"x": 1, "near": {"x": 1, "y": 2.0}}),
        ({"at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)}, {"at": "2026-01-02T03:04:05+00:00"}),
        ({"id": UUID(int=1)}, {"id": "00000000-0000-0000-0000-000000000001"}),
        ({"colour": Colour.RED}, {"colour": "red"}),
        ({"path": PurePosixPath("a/b")}, {"path": "a/b"}),
        ({"raw": b"\x00\xff"}, {"raw": "AP8="}),
        ({1: "a"}, {"1": "a"}),
        ({"n": float("nan")}, {"n": None}),
        (range(3), [0, 1, 2]),
        (numpy.int64(3), 3),
        ({"mean": numpy.float32(1.5), "is_high": numpy.bool_(True)}, {"mean": 1.5, "is_high": True}),
        (numpy.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
    ],
    ids=lambda value: repr(value)[:30],
)
async def test_a_value_becomes_structured_json_with_its_text_mirror(value: Any, structured: Any) -> None:
    result = await giving(value).call("echo")
    assert (result.is_error, result.has_structured, result.structured) == (False, True, structured)
    assert result.content == (TextContent(orjson.dumps(structured).decode()),)
    assert result.unwrap() == structured


@pytest.mark.parametrize(
    ("value", "content"),
    [
        ("text", (TextContent("text"),)),
        ("", (TextContent(""),)),
        (TextContent("a"), (TextContent("a"),)),
        ([TextContent("a"), ImageContent(b"x")], (TextContent("a"), ImageContent(b"x"))),
        (ResourceLink("file:///a", "a"), (ResourceLink("file:///a", "a"),)),
        (b"\x89PNG\r\n\x1a\n", (ImageContent(b"\x89PNG\r\n\x1a\n", "image/png"),)),
        (b"\xff\xd8\xff\xe0", (ImageContent(b"\xff\xd8\xff\xe0", "image/jpeg"),)),
        ((b"<svg/>", "image/svg+xml"), (ImageContent(b"<svg/>", "image/svg+xml"),)),
        (bytearray(b"RIFF...."), (AudioContent(b"RIFF....", "audio/wav"),)),
        (b"%PDF-1.7", (ResourceContent("pegboard://result", blob=b"%PDF-1.7", mime_type="application/octet-stream"),)),
    ],
    ids=lambda value: repr(value)[:30],
)
async def test_text_bytes_and_blocks_become_content_without_structure(value: Any, content: Any) -> None:
    result = await giving(value).call("echo")
    assert (result.content, result.has_structured, result.is_error) == (content, False, False)


async def test_a_subclass_of_str_arrives_as_plain_text() -> None:
    class Loud(str):
        __slots__ = ()

    result = await giving(Loud("hey")).call("echo")
    assert [type(block.text) for block in result.content if isinstance(block, TextContent)] == [str]


async def test_a_result_passes_as_it_is_also_an_error_one() -> None:
    error = ToolError(kind="read_only", message="Frozen.")
    given = ToolResult((TextContent("Frozen."),), is_error=True, error=error, meta={"a": 1})
    assert await giving(given).call("echo") == given
    with pytest.raises(CallError, match="Frozen"):
        await giving(given).call("echo", raise_errors=True)


@pytest.mark.parametrize(("words", "text"), [((), '{"n":1}'), ((TextContent("one"),), "one")])
async def test_a_result_made_by_hand_from_a_structure_has_it_and_a_text(words: Any, text: str) -> None:
    result = await giving(ToolResult(words, {"n": 1}, meta={"a": 1})).call("echo")
    assert (result.structured, result.has_structured, result.text) == ({"n": 1}, True, text)
    assert (result.unwrap(), result.meta) == ({"n": 1}, {"a": 1})


@pytest.mark.parametrize("value", [object(), {"a": object()}, {"a": {"b": 1j}}, {"n": iter([1])}, lambda: 1])
async def test_what_cannot_be_json_is_an_invalid_output(value: Any) -> None:
    result = await giving(value).call("echo")
    assert result.error is not None
    assert (result.error.kind, result.error.outcome_unknown) == ("output_invalid", True)


@pytest.mark.parametrize(
    ("value", "given"),
    [
        (Decimal("1.50"), "1.50"), (Fraction(1, 3), "1/3"), (timedelta(days=1, seconds=1.5), "PT86401.500000S"),
        (timedelta(seconds=-90), "-PT90S"), (ip_address("::1"), "::1"), (ZoneInfo("UTC"), "UTC"),
        (ChainMap({"a": 1}), {"a": 1}), ({"a": 1}.keys(), ["a"]), ({"a": 1}.values(), [1]),
        ({"a": 1}.items(), [["a", 1]]), (deque([1]), [1]), (range(2), [0, 1]),
        (bytearray(b"\xff"), "/w=="), (memoryview(b"\xff"), "/w=="),
    ],
    ids=lambda value: type(value).__name__,  # the text of some has an address, another one in each process
)  # fmt: skip
async def test_what_python_has_beyond_json_travels_from_within_a_result(value: Any, given: Any) -> None:
    assert (await giving({"in": [value]}).call("echo")).structured == {"in": [given]}
    assert (await giving({"in": value, "long": 10**30}).call("echo")).structured == {"in": given, "long": 10**30}


async def test_a_circular_or_endless_value_is_an_invalid_output() -> None:
    circle: list[Any] = []
    circle.append(circle)
    deep: list[Any] = []
    for _ in range(10_000):
        deep = [deep]
    for value in (circle, deep):
        assert kind_of(await giving(value).call("echo")) == "output_invalid"


async def test_text_that_is_no_unicode_is_no_crash() -> None:
    for value in ("\ud800", {"a": "\ud800"}):
        result = await giving(value).call("echo")
        assert kind_of(result) in ("ok", "output_invalid")
        result.text.encode()


# ---------------------------------------------------------------- its promise

PROMISE: Any = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@pytest.mark.parametrize("has_structured", [False, True])
async def test_a_structure_made_by_hand_that_no_json_can_be_ends_typed_whoever_observes(
    has_structured: bool,
) -> None:
    deep: Any = {}
    for _ in range(10_000):
        deep = {"in": deep}
    recorder = Recorder()
    view = giving(ToolResult(structured=deep, has_structured=has_structured))
    result = await view.call("echo", callbacks=recorder)
    assert (kind_of(result), len(recorder.results())) == ("output_invalid", 1)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ({"n": 1}, "ok"),
        ({"n": 1, "more": True}, "ok"),
        ({"n": "1"}, "output_invalid"),
        ({}, "output_invalid"),
        ("text", "output_invalid"),
        (None, "output_invalid"),
        (TextContent('{"n": 1}'), "output_invalid"),
        (ToolResult((TextContent("a"),), {"n": 1}, has_structured=True), "ok"),
        (ToolResult((TextContent("a"),)), "output_invalid"),
    ],
    ids=lambda value: repr(value)[:30],
)
async def test_a_promised_structure_must_be_given_and_must_fit(value: Any, kind: str) -> None:
    result = await giving(value, output_schema=PROMISE).call("echo")
    assert kind_of(result) == kind
    if result.error is not None:
        assert (result.error.outcome_unknown, "ran" in result.text) == (True, True)


async def test_the_problems_of_an_output_are_told_without_its_values() -> None:
    result = await giving({"n": "hunter2-hunter2"}, output_schema=PROMISE).call("echo")
    assert result.error is not None
    problems: Any = result.error.details["problems"]
    assert [(item["path"], item["rule"]) for item in problems] == [("$.n", "type")]
    assert "hunter2" not in repr(result)


async def test_an_error_need_not_fit_the_promise() -> None:
    given = ToolResult((TextContent("Frozen."),), is_error=True, error=ToolError(kind="read_only", message="Frozen."))
    assert kind_of(await giving(given, output_schema=PROMISE).call("echo")) == "read_only"


@pytest.mark.parametrize(
    ("schema", "value"),
    [({"type": "string"}, "text"), ({"type": "null"}, None), ({"type": "array", "items": {"type": "integer"}}, [1, 2])],
)
async def test_a_promise_need_not_be_an_object(schema: Any, value: Any) -> None:
    result = await giving(value, output_schema=schema).call("echo")
    assert (result.has_structured, result.structured) == (True, value)


# ---------------------------------------------------------------- its size


@pytest.mark.parametrize(
    ("value", "size"),
    [
        ("x" * 1_000, 1_000),
        ("é" * 500, 1_000),
        ({"a": "x" * 992}, 1_000),
        (ImageContent(b"x" * 991), 1_000),
        ([TextContent("x" * 400), TextContent("x" * 600)], 1_000),
    ],
    ids=["ascii", "two bytes", "json", "image", "blocks"],
)
async def test_a_result_is_counted_in_bytes_and_capped(value: Any, size: int) -> None:
    assert kind_of(await giving(value, max_result_bytes=size).call("echo")) == "ok"
    result = await giving(value, max_result_bytes=size - 1).call("echo")
    assert result.error is not None
    assert (result.error.kind, result.error.retryable, result.error.outcome_unknown) == (
        "result_too_large",
        False,
        True,
    )
    assert "999" in result.text
    assert "Ask for less" in result.text


async def test_the_smaller_of_the_caps_of_tool_and_process_wins() -> None:
    async def work(ctx: Any, args: Any) -> str:
        return "x" * 600

    small, large = Catalog(bounds=Bounds(result_bytes=500)), Catalog(bounds=Bounds(result_bytes=5_000))
    assert (
        kind_of(await one_tool(work, catalog=small, max_result_bytes=1_000).view(ANN).call("echo"))
        == "result_too_large"
    )
    assert kind_of(await one_tool(work, catalog=large, max_result_bytes=1_000).view(ANN).call("echo")) == "ok"


async def test_a_mebibyte_is_the_default_cap_and_reading_can_be_repeated() -> None:
    reading = Annotations(read_only=True)
    assert kind_of(await giving("x" * 1_048_576).call("echo")) == "ok"
    result = await giving("x" * 1_048_577, annotations=reading).call("echo")
    assert result.error is not None
    assert (result.error.kind, result.error.outcome_unknown) == ("result_too_large", False)


async def test_a_structure_that_is_large_without_large_text_is_capped_too() -> None:
    hidden = ToolResult((TextContent("small"),), {"rows": ["x" * 100] * 100}, has_structured=True)
    assert kind_of(await giving(hidden, max_result_bytes=1_000).call("echo")) == "result_too_large"


# ---------------------------------------------------------------- errors


async def test_an_unexpected_error_tells_the_model_only_the_call_and_the_log_the_cause(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def work(ctx: Any, args: Any) -> None:
        raise RuntimeError("postgres://admin@db") from ValueError("the cause")

    result = await one_tool(work).view(ANN).call("echo")
    assert result.error is not None
    assert result.error.kind == "tool_error"
    assert result.text == result.error.message
    call_id = result.text.removeprefix("An unexpected error occurred (call ").removesuffix(").")
    assert result.text == f"An unexpected error occurred (call {call_id})."
    for told in ("postgres://admin@db", "the cause", "test_output.py", call_id):
        assert told in caplog.text


async def test_a_typed_error_reaches_the_caller_whole() -> None:
    async def work(ctx: Any, args: Any) -> None:
        raise CallError(
            "upstream_unavailable",
            "Jira is down.",
            hint="Try in a minute.",
            retry_after_s=60.0,
            details={"status": 503},
        )

    result = await one_tool(work).view(ANN).call("echo")
    assert result.error == ToolError(
        kind="upstream_unavailable", message="Jira is down.", hint="Try in a minute.", retryable=True,
        retry_after_s=60.0, details={"status": 503},
    )  # fmt: skip
    with pytest.raises(CallError) as caught:
        result.unwrap()
    assert caught.value.error == result.error
    with pytest.raises(CallError, match="Jira is down"):
        await one_tool(work).view(replace(ANN)).call("echo", raise_errors=True)


def test_an_error_of_an_unknown_kind_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="'oops' is not an error kind; the kinds are: audit_unavailable"):
        CallError("oops", "x")  # type: ignore[arg-type]
