"""Times as Python has them, with or without an offset, and integers of any size: taken, given and published alike."""

from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from enum import Enum, IntEnum
from typing import Any, NamedTuple, TypedDict

import jsonschema
import pytest
from pydantic import AwareDatetime, BaseModel, NaiveDatetime

from pegboard import Catalog, Tool, ToolContext

NAIVE = datetime(2026, 1, 2, 3, 4, 5)  # noqa: DTZ001 - what this is about
AWARE = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
CLOCK = time(3, 4, 5, 678)
HUGE = 2**70


class Model(BaseModel):
    at: datetime
    clock: time | None = None


@dataclass
class Data:
    at: datetime
    clock: time


class Typed(TypedDict):
    at: datetime


class Numbers(BaseModel):
    n: int


@dataclass
class Counted:
    n: int


class Size(IntEnum):
    huge = HUGE


class Pair(NamedTuple):
    a: int
    b: str


class Colour(Enum):
    huge = HUGE


def view_of(fn: Any) -> Any:
    catalog = Catalog()
    catalog.tool(name="t")(fn)
    return catalog.view(ToolContext())


def formats(schema: Any) -> set[str]:
    parts = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    own = {schema["format"]} if isinstance(schema, dict) and isinstance(schema.get("format"), str) else set[str]()
    return own.union(*(formats(part) for part in parts))


@pytest.mark.parametrize(
    ("kind", "value", "shown"),
    [
        (datetime, NAIVE, "2026-01-02T03:04:05"),
        (datetime, AWARE, "2026-01-02T03:04:05Z"),
        (NaiveDatetime, NAIVE, "2026-01-02T03:04:05"),
        (time, CLOCK, "03:04:05.000678"),
        (timedelta, timedelta(seconds=-1.5), "-PT1.5S"),
        (list[time], [CLOCK], ["03:04:05.000678"]),
        (dict[str, datetime], {"a": NAIVE}, {"a": "2026-01-02T03:04:05"}),
        (datetime | None, NAIVE, "2026-01-02T03:04:05"),
        (Model, Model(at=NAIVE, clock=CLOCK), {"at": "2026-01-02T03:04:05", "clock": "03:04:05.000678"}),
        (Data, Data(NAIVE, CLOCK), {"at": "2026-01-02T03:04:05", "clock": "03:04:05.000678"}),
        (Typed, {"at": NAIVE}, {"at": "2026-01-02T03:04:05"}),
        (tuple[datetime, int], (NAIVE, 1), ["2026-01-02T03:04:05", 1]),
    ],
    ids=str,
)
async def test_a_time_without_an_offset_is_given_taken_and_published(kind: Any, value: Any, shown: Any) -> None:
    seen: list[Any] = []

    def echo(given: Any) -> Any:
        seen.append(given)
        return given

    echo.__annotations__ = {"given": kind, "return": kind}
    view = view_of(echo)
    result = await view.call("t", {"given": shown})
    assert (result.structured, seen) == (shown, [value]), result.text
    [tool] = view.export("mcp")
    assert not formats(tool) & {"date-time", "time", "duration"}
    # Clients hold arguments and results against what is published, formats checked.
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    jsonschema.validate(shown, tool["outputSchema"], format_checker=checker)
    jsonschema.validate({"given": shown}, tool["inputSchema"], format_checker=checker)


async def test_a_type_that_demands_an_offset_says_so_and_refuses_a_time_without() -> None:
    def at(when: AwareDatetime) -> AwareDatetime:
        return when

    view = view_of(at)
    [tool] = view.export("mcp")
    assert (tool["inputSchema"]["properties"]["when"]["format"], tool["outputSchema"]["format"]) == ("date-time",) * 2
    assert (await view.call("t", {"when": "2026-01-02T03:04:05+02:00"})).structured == "2026-01-02T03:04:05+02:00"
    refused = await view.call("t", {"when": "2026-01-02T03:04:05"})
    assert refused.error is not None
    assert refused.error.kind == "invalid_arguments"


@pytest.mark.parametrize("text", ["yesterday", "2026-13-01T00:00:00", "2026-01-02T25:00:00", "", "1767322800", 7])
async def test_what_is_no_time_is_refused_before_the_tool_runs(text: Any) -> None:
    runs: list[datetime] = []

    def at(when: datetime) -> None:
        runs.append(when)

    result = await view_of(at).call("t", {"when": text})
    assert result.error is not None
    assert (result.error.kind, runs) == ("invalid_arguments", [])


async def test_a_field_of_a_class_takes_a_time_without_an_offset() -> None:
    class Remind(Tool, register=False):
        """Remind."""

        at: datetime
        clock: time = time(9, 0)

        def perform(self, ctx: ToolContext) -> str:
            return f"{self.at!r} {self.clock!r}"

    catalog = Catalog()
    catalog.register(Remind)
    result = await catalog.view(ToolContext()).call("remind", {"at": "2026-01-02 03:04"})
    assert result.text == f"{NAIVE.replace(second=0)!r} {time(9, 0)!r}"


@pytest.mark.parametrize(
    ("kind", "value", "shown"),
    [
        (int, HUGE, HUGE),
        (int, -HUGE, -HUGE),
        (dict[str, int], {"a": HUGE}, {"a": HUGE}),
        (list[int], [HUGE, 1], [HUGE, 1]),
        (Any, {"a": [HUGE, NAIVE], 7: (HUGE,), True: 1}, {"a": [HUGE, NAIVE.isoformat()], "7": [HUGE], "true": 1}),
        (Any, Numbers(n=HUGE), {"n": HUGE}),
        (Any, Counted(HUGE), {"n": HUGE}),
        (Any, [Size.huge, Colour.huge, {HUGE}], [HUGE, HUGE, [HUGE]]),
        (Numbers, Numbers(n=HUGE), {"n": HUGE}),
        (Counted, Counted(HUGE), {"n": HUGE}),
        (Pair, Pair(HUGE, "x"), [HUGE, "x"]),
    ],
    ids=str,
)  # fmt: skip
async def test_an_integer_of_more_than_64_bits_is_given_as_it_is(kind: Any, value: Any, shown: Any) -> None:
    def give() -> Any:
        return value

    give.__annotations__ = {"return": kind}
    result = await view_of(give).call("t", {})
    assert (result.structured, str(HUGE) in result.text, result.is_error) == (shown, True, False), result.text


async def test_what_is_no_json_is_refused_beside_a_long_integer() -> None:
    def give() -> Any:
        return {"a": HUGE, "b": object()}

    result = await view_of(give).call("t", {})
    assert result.error is not None
    assert (result.error.kind, "object" in result.text) == ("output_invalid", True)
