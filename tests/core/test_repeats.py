"""Repeats: a call that failed five times in a row, with the same words, is refused for a minute; a clock of our own."""

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from pegboard import CallError, Catalog, ToolContext, ToolResult, ToolSpec
from pegboard.core.call.repeats import REPEAT_FAILURES, REPEATED_ARGUMENTS, REPEATING_CALLERS
from pegboard.model.caller import Caller
from pegboard.model.record import replace
from tests.core.parts import ANN, Clock, kind_of, one_tool, spec


class Tool:
    """A tool whose behaviour the test sets; it counts what really ran."""

    def __init__(self, fails: Callable[[], BaseException | None], *, schema: Any = None, **said: Any) -> None:
        self.clock, self.ran, self.fails = Clock(), 0, fails
        self.catalog = one_tool(self.work, catalog=Catalog(clock=self.clock), **said)
        if schema is not None:
            declared = ToolSpec(name="echo", input_schema=schema, allow_unknown=True)
            self.catalog.register(declared, self.work, replace=True)
        self.ctx = ANN

    async def work(self, ctx: Any, args: Any) -> Any:
        self.ran += 1
        error = self.fails()
        if error is not None:
            raise error
        return {"n": 1}

    async def call(self, **args: Any) -> ToolResult:
        return await self.catalog.view(self.ctx).call("echo", args)

    async def kinds(self, count: int, **args: Any) -> list[str]:
        return [kind_of(await self.call(**args)) for _ in range(count)]


COUNTED: dict[str, Callable[[], BaseException]] = {
    "tool_error": lambda: CallError("tool_error", "No such account."),
    "a bug": lambda: ValueError("no such account"),
    "upstream_error": lambda: CallError("upstream_error", "It answered 404.", details={"status": 404}),
    "upstream_error without a status": lambda: CallError("upstream_error", "It refused."),
}


VARYING: dict[str, Callable[[int], str]] = {
    "an id": lambda at: f"No such account (request req_{at:x}8f3a).",
    "a uuid": lambda at: f"Failed: {UUID(int=at * 2**90)}",
    "a time": lambda at: f"2026-11-22T20:{at % 60:02}:01.5+00:00 no such account",
    "a count": lambda at: f"attempt {at}: no such account",
    "an address": lambda at: f"<Account object at 0x7f{at:010x}> is closed",
}


@pytest.mark.parametrize("words", VARYING.values(), ids=VARYING)
async def test_what_is_another_in_each_failure_makes_it_no_other_one(words: Callable[[int], str]) -> None:
    tool = Tool(lambda: CallError("tool_error", words(tool.ran)))
    kinds = await tool.kinds(50, account="bob")
    assert (tool.ran, set(kinds[5:])) == (REPEAT_FAILURES, {"rate_limited"})
    # What is told is what was said last.
    assert words(tool.ran) in (await tool.call(account="bob")).text


@pytest.mark.parametrize("error", COUNTED.values(), ids=COUNTED)
async def test_of_two_hundred_equal_failing_calls_five_run(error: Callable[[], BaseException]) -> None:
    tool = Tool(error)
    kinds = await tool.kinds(200, account="bob")
    assert tool.ran == REPEAT_FAILURES
    assert set(kinds[:5]) & {"tool_error", "upstream_error"}
    assert set(kinds[5:]) == {"rate_limited"}


async def test_the_refusal_says_what_failed_how_long_to_wait_and_costs_no_quota() -> None:
    tool = Tool(COUNTED["tool_error"], rate_limit=None)
    await tool.kinds(5)
    tool.clock.now += 20.0
    error = (await tool.call()).error
    assert error is not None
    assert (error.kind, error.retryable, error.retry_after_s) == ("rate_limited", True, 40.0)
    assert "No such account." in error.message
    assert error.details == {"failed": "tool_error", "times": 5}


async def test_after_the_pause_one_call_decides_about_the_next_minute() -> None:
    tool = Tool(COUNTED["tool_error"])
    await tool.kinds(6)
    tool.clock.now += 60.0
    assert (await tool.kinds(3), tool.ran) == (["tool_error", "rate_limited", "rate_limited"], 6)
    tool.clock.now += 60.0
    tool.fails = lambda: None
    assert await tool.kinds(2) == ["ok", "ok"]
    tool.fails = COUNTED["tool_error"]
    # A success ended the row: it takes five again.
    assert await tool.kinds(6) == ["tool_error"] * 5 + ["rate_limited"]


async def test_of_a_hundred_calls_at_the_end_of_the_pause_one_runs() -> None:
    tool, go = Tool(COUNTED["tool_error"]), asyncio.Event()
    await tool.kinds(6)
    waiting = tool.work

    async def work(ctx: Any, args: Any) -> Any:
        await go.wait()
        return await waiting(ctx, args)

    tool.catalog.register(replace(tool.catalog.view(ANN)["echo"], handler=work), replace=True)
    tool.clock.now += 60.0
    calls = [asyncio.ensure_future(tool.call()) for _ in range(100)]
    await asyncio.sleep(0)
    go.set()
    kinds = [kind_of(await call) for call in calls]
    assert (kinds.count("tool_error"), kinds.count("rate_limited"), tool.ran) == (1, 99, REPEAT_FAILURES + 1)


@pytest.mark.parametrize("how", ["not answered", "cancelled"])
async def test_a_call_that_was_let_through_and_told_nothing_lets_the_next_one_through(how: str) -> None:
    asked = asyncio.Event()
    tool = Tool(COUNTED["tool_error"], consent="always")
    tool.ctx = replace(ANN, approve=lambda request: True)
    await tool.kinds(6)
    tool.clock.now += 60.0

    async def think(request: Any) -> bool:
        asked.set()
        if how == "cancelled":
            await asyncio.Event().wait()
        raise RuntimeError("nobody is there")

    tool.ctx = replace(ANN, approve=think)
    first = asyncio.ensure_future(tool.call())
    await asked.wait()
    if how == "cancelled":
        first.cancel()
    await asyncio.wait([first])
    assert tool.ran == REPEAT_FAILURES
    tool.ctx = replace(ANN, approve=lambda request: True)
    assert await tool.kinds(2) == ["tool_error", "rate_limited"]


@pytest.mark.parametrize(
    "error",
    [
        lambda: CallError("tool_error", "Not yet.", retryable=True),
        lambda: CallError("upstream_unavailable", "It is away."),
        lambda: CallError("upstream_error", "It answered 500.", details={"status": 500}),
        lambda: CallError("upstream_error", "It answered 503.", retryable=True, details={"status": 503}),
        lambda: CallError("timeout", "Too slow."),
        lambda: CallError("busy", "Too much."),
        lambda: CallError("upstream_auth", "Refused."),
        lambda: CallError("result_too_large", "Too large."),
    ],
)
async def test_what_is_retryable_or_the_other_sides_fault_never_counts(error: Callable[[], BaseException]) -> None:
    tool = Tool(error)
    await tool.kinds(20)
    assert tool.ran == 20
    tool.fails = lambda: None
    assert await tool.kinds(1) == ["ok"]


async def test_another_text_kind_or_outcome_in_between_begins_the_row_anew() -> None:
    texts = iter(["a", "a", "a", "a", "b", "b", "b", "b", "b", "b"])
    tool = Tool(lambda: CallError("tool_error", next(texts)))
    assert (await tool.kinds(10), tool.ran) == (["tool_error"] * 9 + ["rate_limited"], 9)
    kinds = iter(["tool_error", "tool_error", "upstream_unavailable", "tool_error", "tool_error", "tool_error"])
    other = Tool(lambda: CallError(next(kinds), "No."))  # type: ignore[arg-type] - kinds of errors
    await other.kinds(6)
    assert other.ran == 6


async def test_other_arguments_callers_tools_and_definitions_are_other_calls() -> None:
    tool = Tool(COUNTED["tool_error"])
    await tool.kinds(6, account="bob")
    assert await tool.kinds(1, account="eve") == ["tool_error"]
    tool.ctx = replace(ANN, user_id="carl")
    assert await tool.kinds(1, account="bob") == ["tool_error"]
    tool.ctx = ANN
    tool.catalog.register(spec("other"), tool.work)
    assert kind_of(await tool.catalog.view(ANN).call("other", {"account": "bob"})) == "tool_error"
    tool.catalog.register(spec("echo", description="Mended."), tool.work, replace=True)
    assert await tool.kinds(1, account="bob") == ["tool_error"]


LINE = {
    "type": "object",
    "properties": {
        "sku": {"type": "string"},
        "count": {"type": "number", "default": 1},
        "box": {"anyOf": [{"$ref": "#/$defs/box"}, {"type": "null"}], "default": None},
    },
}
ORDER = {
    "type": "object",
    "properties": {
        "n": {"default": 1},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}, "default": [{"sku": "a"}]},
        "box": {"$ref": "#/$defs/box", "default": {}},
        "odd": {"oneOf": [{"type": "object"}, {"type": "array"}]},
        "again": {"$ref": "#"},
        "any": True,
    },
    "additionalProperties": {"properties": {"deep": {"default": 0}}},
    "$defs": {"line": LINE, "box": {"type": "object", "properties": {"size": {"default": 3}}}},
}
ONE_CALL = {
    "numbers": ['{"any": 1}', '{"any": 1.0}', '{"any": 1e0}', '{"any": 10.0E-1}'],
    "large numbers": ['{"any": [1e23]}', '{"any": [100000000000000000000000]}', '{"any": [1.0e+23]}'],
    "zero": ['{"any": {"a": 0}}', '{"any": {"a": -0.0}}', '{"any": {"a": 0e5}}'],
    "fractions": ['{"any": [1.50]}', '{"any": [15e-1]}', '{"any": [0.15E1]}'],
    "orders": ['{"any": 2, "n": 3}', '{"n": 3, "any": 2}', '{"n": 3.0, "any": 2e0}'],
    "defaults": ["{}", '{"n": 1}', '{"n": 1.0, "box": {}}', '{"box": {"size": 3e0}}', '{"lines": [{"sku": "a"}]}',
                 '{"lines": [{"count": 1.0, "sku": "a", "box": null}]}'],
    "defaults within": ['{"lines": [{"box": {}}]}', '{"lines": [{"box": {"size": 3}, "count": 1}]}'],
    "defaults of others": ['{"more": {}}', '{"more": {"deep": 0.0}}'],
    "defaults again": ['{"again": {}}', '{"again": {"n": 1, "box": {"size": 3}}}'],
    "either of two": ['{"odd": {"a": 1}}', '{"odd": {"a": 1.0}}'],
}  # fmt: skip


@pytest.mark.parametrize("spellings", ONE_CALL.values(), ids=ONE_CALL)
async def test_a_call_is_the_same_however_its_arguments_are_spelled(spellings: list[str]) -> None:
    tool = Tool(COUNTED["tool_error"], schema=ORDER)
    view = tool.catalog.view(ANN)
    for number in range(20):
        await view.call("echo", spellings[number % len(spellings)].encode())
    assert tool.ran == REPEAT_FAILURES
    # A success in any spelling ends the row.
    tool.fails, tool.clock.now = (lambda: None), tool.clock.now + 60.0
    await view.call("echo", spellings[-1].encode())
    assert not tool.catalog.executor.repeats.rows


OTHER_CALLS = ['{"any": true}', '{"any": 1}', '{"any": "1"}', '{"any": [1]}', '{"any": null}', "{}", '{"any": 1.5}',
               '{"any": 9007199254740993}', '{"any": 9007199254740992}', '{"any": 9007199254740994.0}',
               '{"n": true}', '{"n": "1"}', '{"odd": {"size": 3}}', '{"odd": {}}', '{"any": ""}']  # fmt: skip


async def test_arguments_that_mean_something_else_are_another_call() -> None:
    tool = Tool(COUNTED["tool_error"], schema=ORDER)
    for text in OTHER_CALLS:
        assert kind_of(await tool.catalog.view(ANN).call("echo", text.encode())) == "tool_error", text
    assert tool.ran == len(OTHER_CALLS)
    rows = [len(row) for row in tool.catalog.executor.repeats.rows.values()]
    assert rows == [len(OTHER_CALLS)]


async def test_what_fails_for_one_stranger_is_not_told_to_another() -> None:
    tool = Tool(lambda: CallError("tool_error", "No account of ann."))
    for address in ("203.0.113.1", "203.0.113.2"):
        tool.ctx = ToolContext(caller=Caller(address=address), budget=None)
        assert await tool.kinds(6) == ["tool_error"] * 5 + ["rate_limited"]


async def test_results_that_break_their_own_schema_count_too() -> None:
    async def work(ctx: Any, args: Any) -> Any:
        return {"n": "one"}

    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    catalog = one_tool(work, output_schema=schema)
    kinds = [kind_of(await catalog.view(ANN).call("echo")) for _ in range(7)]
    assert kinds == ["output_invalid"] * 5 + ["rate_limited"] * 2


async def test_a_refused_call_bothers_nobody_and_is_not_counted_as_run() -> None:
    asked: list[Any] = []
    tool = Tool(COUNTED["tool_error"], consent="always")
    tool.ctx = replace(ANN, approve=lambda request: not asked.append(request))
    await tool.kinds(20)
    assert (len(asked), tool.ran) == (5, 5)


async def test_what_is_remembered_of_failures_is_bounded() -> None:
    tool = Tool(COUNTED["tool_error"])
    for number in range(REPEATED_ARGUMENTS + 20):
        await tool.call(n=number)
    for number in range(REPEATING_CALLERS + 20):
        tool.ctx = ToolContext(user_id=f"user {number}", budget=None)
        await tool.call()
    rows = tool.catalog.executor.repeats.rows
    assert len(rows) == REPEATING_CALLERS
    assert max(map(len, rows.values())) <= REPEATED_ARGUMENTS
    assert tool.catalog.executor.repeats.rows
    # A success takes its row away; the last one leaves nothing to look at.
    fresh = Tool(COUNTED["tool_error"])
    await fresh.kinds(2)
    fresh.fails = lambda: None
    await fresh.kinds(1)
    assert not fresh.catalog.executor.repeats.rows


async def test_a_call_that_failed_often_while_a_person_thought_is_refused_and_its_yes_goes_back() -> None:
    tool, thinking = Tool(COUNTED["tool_error"], consent="always"), asyncio.Event()

    async def approve(request: Any) -> bool:
        if not thinking.is_set():
            thinking.set()
            # Meanwhile the same call is made by others, and fails.
            assert await tool.kinds(REPEAT_FAILURES) == ["tool_error"] * REPEAT_FAILURES
        return True

    tool.ctx = replace(ANN, approve=approve)
    assert await tool.kinds(1) == ["rate_limited"]
    assert tool.ran == REPEAT_FAILURES
    tool.ctx = replace(ANN, approve=None)
    tool.clock.now += 60
    assert await tool.kinds(2) == ["tool_error", "rate_limited"]
    assert tool.ran == REPEAT_FAILURES + 1
