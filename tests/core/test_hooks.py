"""Hooks: before (fail closed), around, after (fail open unless required), on_error and on_complete."""

import asyncio
import json
import logging
import time
from typing import Annotated, Any, Literal

import orjson
import pytest

from pegboard import CallError, Catalog, Field, Tool, ToolContext, ToolResult, ToolSpec, Verdict
from pegboard.model.hook import Hook
from pegboard.model.hook_call import HookCall
from tests.core.parts import ANN, FakeSource, Recorder, echo, foreign, kind_of, one_tool, spec
from tests.timing import is_within

NUMBER = {"n": {"type": "integer"}}


def numbered(ran: list[Any]) -> Catalog:
    async def work(ctx: Any, args: Any) -> Any:
        ran.append(dict(args))
        return dict(args)

    return one_tool(work, properties=NUMBER)


# ---------------------------------------------------------------- before


async def test_a_before_hook_sees_the_tool_its_arguments_and_the_caller() -> None:
    seen: list[HookCall] = []
    catalog = one_tool(properties={"n": {"type": "integer", "default": 4}})
    catalog.before()(seen.append)
    await catalog.view(ANN).call("echo", {})
    [call] = seen
    assert (call.tool.qualified_id, call.wire_name, call.args, call.ctx.user_id) == (
        "main.echo",
        "echo",
        {"n": 4},
        "ann",
    )


@pytest.mark.parametrize("is_async", [False, True])
async def test_deny_refuses_with_its_reason(is_async: bool) -> None:
    ran: list[Any] = []
    catalog = numbered(ran)

    def deny(call: HookCall) -> Verdict:
        return Verdict.deny("Not on a Sunday.")

    async def deny_later(call: HookCall) -> Verdict:
        return deny(call)

    catalog.before()(deny_later if is_async else deny)
    result = await catalog.view(ANN).call("echo", {})
    assert (kind_of(result), result.text, ran) == ("hook_refused", "Not on a Sunday.", [])


async def test_deny_without_a_reason_says_that_the_execution_was_aborted() -> None:
    catalog = one_tool()
    catalog.before()(lambda call: Verdict.deny(""))
    assert (await catalog.view(ANN).call("echo")).text == "Tool execution was aborted"


@pytest.mark.parametrize(
    "error", [ValueError("x"), SystemExit(1), KeyboardInterrupt(), RecursionError(), MemoryError()]
)
async def test_a_before_hook_that_raises_refuses_the_call(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    ran: list[Any] = []
    catalog = numbered(ran)

    @catalog.before()
    def _(call: HookCall) -> Verdict:
        raise error

    result = await catalog.view(ANN).call("echo", {})
    assert (kind_of(result), ran) == ("hook_refused", [])
    assert type(error).__name__ not in result.text
    assert type(error).__name__ in caplog.text


async def test_a_before_hook_may_choose_the_kind_of_its_refusal() -> None:
    catalog = one_tool()

    @catalog.before()
    def _(call: HookCall) -> Verdict:
        raise CallError("read_only", "The space is frozen.")

    assert kind_of(await catalog.view(ANN).call("echo")) == "read_only"


@pytest.mark.parametrize("answer", [True, "allow", 1, {"kind": "allow"}, ToolResult()])
async def test_an_answer_that_is_no_verdict_refuses_the_call(answer: object) -> None:
    catalog = one_tool()
    catalog.before()(lambda call: answer)
    assert kind_of(await catalog.view(ANN).call("echo")) == "hook_refused"


async def test_a_before_hook_that_hangs_refuses_the_call_after_its_second(caplog: pytest.LogCaptureFixture) -> None:
    ran: list[Any] = []
    catalog = numbered(ran)

    @catalog.before()
    async def _(call: HookCall) -> None:
        await asyncio.Event().wait()

    started = time.monotonic()
    result = await catalog.view(ANN).call("echo", {})
    assert (kind_of(result), ran) == ("hook_refused", [])
    took_s = time.monotonic() - started
    assert took_s > 0.9
    assert is_within(took_s, 2.0)
    assert "no answer" in caplog.text


async def test_replaced_arguments_are_judged_again_and_seen_by_every_hook() -> None:
    ran: list[Any] = []
    seen: list[Any] = []
    catalog = numbered(ran)
    catalog.before()(lambda call: seen.append(call.args["n"]))
    catalog.before()(lambda call: Verdict.replace({"n": 2}) if call.args["n"] == 1 else Verdict.allow())
    assert (await catalog.view(ANN).call("echo", {"n": 1})).structured == {"n": 2}
    assert (seen, ran) == ([1, 2], [{"n": 2}])


async def test_replaced_arguments_that_do_not_fit_are_refused() -> None:
    ran: list[Any] = []
    catalog = numbered(ran)
    catalog.before()(lambda call: Verdict.replace({"n": "many"}))
    result = await catalog.view(ANN).call("echo", {"n": 1})
    assert (kind_of(result), ran) == ("invalid_arguments", [])


async def test_arguments_are_replaced_at_most_three_times() -> None:
    for rewrites, expected in ((3, "ok"), (4, "hook_refused")):
        catalog = numbered([])
        catalog.before()(
            lambda call, to=rewrites: Verdict.replace({"n": call.args["n"] + 1}) if call.args["n"] < to else None
        )
        assert kind_of(await catalog.view(ANN).call("echo", {"n": 0})) == expected


async def test_replacing_by_the_same_arguments_forever_ends_too() -> None:
    catalog = numbered([])
    catalog.before()(lambda call: Verdict.replace(dict(call.args)))
    assert kind_of(await catalog.view(ANN).call("echo", {"n": 0})) == "ok"


async def test_a_later_deny_wins_over_an_earlier_ask_or_allow() -> None:
    asked: list[Any] = []
    catalog = one_tool()
    catalog.before()(lambda call: Verdict.ask("sure?"))
    catalog.before()(lambda call: Verdict.allow("fine"))
    catalog.before()(lambda call: Verdict.deny("no"))
    view = catalog.view(ToolContext(approve=lambda request: not asked.append(request)))
    assert (kind_of(await view.call("echo")), asked) == ("hook_refused", [])


async def test_a_hook_that_asks_brings_in_a_person() -> None:
    reasons: list[str] = []
    catalog = one_tool()
    catalog.before()(lambda call: Verdict.ask("It is late."))
    catalog.before()(lambda call: Verdict.allow())
    assert kind_of(await catalog.view(ANN).call("echo")) == "consent_required"
    view = catalog.view(ToolContext(approve=lambda request: not reasons.append(request.reason)))
    assert (kind_of(await view.call("echo")), reasons) == ("ok", ["It is late."])


async def test_what_a_hook_writes_into_the_arguments_never_reaches_the_tool_unchecked() -> None:
    ran: list[Any] = []
    catalog = numbered(ran)

    @catalog.before()
    def _(call: HookCall) -> None:
        call.args["n"] = "many"
        call.args["extra"] = 1

    result = await catalog.view(ANN).call("echo", {"n": 1})
    assert kind_of(result) == "invalid_arguments" or ran == [{"n": 1}], (result, ran)


async def test_what_a_hook_writes_into_a_default_or_under_an_alias_is_lost_as_well() -> None:
    ran: list[tuple[int, list[int]]] = []
    catalog = Catalog()

    @catalog.tool
    def kept(n: Annotated[int, Field(aliases=("number",))], many: list[int] = [1]) -> None:  # noqa: B006 - the schema's
        ran.append((n, many))

    @catalog.before()
    def _(call: HookCall) -> None:
        call.args["n"] = 7
        call.args.setdefault("many", []).append(2)

    view = catalog.view(ANN)
    for arguments in ({"n": 1}, {"number": 1}, {"n": 1, "many": [1]}):
        await view.call("kept", arguments)
    assert ran == [(1, [1])] * 3


# ---------------------------------------------------------------- patterns


@pytest.mark.parametrize(
    ("match", "reached"),
    [
        ("*", {"read", "write", "git__log"}),
        ("fs.*", {"read", "write"}),
        ("READ", {"read"}),
        ("git__*", {"git__log"}),
        ("git.log", {"git__log"}),
        ("nothing*", set()),
    ],
)
async def test_a_pattern_is_a_glob_over_qualified_id_and_wire_name(match: str, reached: set[str]) -> None:
    catalog = Catalog()
    for name in ("read", "write"):
        catalog.register(spec(name, namespace="fs"), echo)
    catalog.add_source(FakeSource(name="git", listed=[foreign("git", "log")]))
    stopped: set[str] = set()
    catalog.before(match)(lambda call: stopped.add(call.wire_name))
    for name in ("read", "write", "git__log"):
        await catalog.view(ANN).call(name, {})
    assert stopped == reached


async def test_hooks_reach_built_tools_too() -> None:
    catalog = Catalog()
    catalog.builder("made")(lambda ctx: ToolSpec(name="made").bind(echo))
    catalog.before("made")(lambda call: Verdict.deny("no"))
    assert kind_of(await catalog.view(ANN).call("made")) == "hook_refused"


# ---------------------------------------------------------------- around


async def test_around_hooks_nest_and_may_change_the_value_or_answer_themselves() -> None:
    said: list[str] = []
    ran: list[Any] = []
    catalog = numbered(ran)

    @catalog.around()
    async def outer(call: HookCall, proceed: Any) -> Any:
        said.append("outer")
        value = await proceed()
        return {"n": value["n"] + 10}

    @catalog.around()
    async def inner(call: HookCall, proceed: Any) -> Any:
        said.append("inner")
        return {"n": 1} if call.args["n"] == 0 else await proceed()

    view = catalog.view(ANN)
    assert (await view.call("echo", {"n": 5})).structured == {"n": 15}
    assert (await view.call("echo", {"n": 0})).structured == {"n": 11}
    assert (said, ran) == (["outer", "inner"] * 2, [{"n": 5}])


async def test_an_around_hook_stands_around_a_sync_tool_and_hears_of_its_error() -> None:
    heard: list[str] = []

    def work(ctx: Any, args: Any) -> str:
        raise CallError("read_only", "Frozen.")

    catalog = one_tool(work)

    @catalog.around()
    async def _(call: HookCall, proceed: Any) -> Any:
        try:
            return await proceed()
        except CallError as error:
            heard.append(error.error.kind)
            return "saved"

    assert ((await catalog.view(ANN).call("echo")).text, heard) == ("saved", ["read_only"])


async def test_an_around_hook_that_raises_ends_the_call_as_an_error() -> None:
    catalog = one_tool()

    @catalog.around()
    async def _(call: HookCall, proceed: Any) -> Any:
        raise RuntimeError("secret place")

    result = await catalog.view(ANN).call("echo")
    assert kind_of(result) == "tool_error"
    assert "secret place" not in result.text


async def test_an_around_hook_runs_under_the_timeout_of_the_tool() -> None:
    catalog = one_tool(timeout_s=0.05)

    @catalog.around()
    async def _(call: HookCall, proceed: Any) -> Any:
        await asyncio.Event().wait()

    assert kind_of(await catalog.view(ANN).call("echo")) == "timeout"


# ---------------------------------------------------------------- after


async def test_an_after_hook_may_replace_the_result_which_is_checked_again() -> None:
    for changed, expected in (({"n": 2}, "ok"), ({"n": "x"}, "output_invalid"), ("text", "output_invalid")):
        catalog = one_tool(properties=NUMBER, output_schema={"type": "object", "properties": NUMBER, "required": ["n"]})
        catalog.after()(lambda call, result, to=changed: to)
        result = await catalog.view(ANN).call("echo", {"n": 1})
        assert kind_of(result) == expected
        assert result.is_error or result.structured == changed


async def test_after_hooks_run_in_reverse_and_each_sees_the_result_so_far() -> None:
    seen: list[Any] = []
    catalog = one_tool(properties=NUMBER)

    def add(amount: int) -> Any:
        def hook(call: HookCall, result: ToolResult) -> Any:
            seen.append(result.structured)
            return {"n": result.unwrap()["n"] + amount}

        return hook

    catalog.after()(add(10))
    catalog.after()(add(100))
    assert (await catalog.view(ANN).call("echo", {"n": 1})).structured == {"n": 111}
    assert seen == [{"n": 1}, {"n": 101}]


@pytest.mark.parametrize("fails", ["raises", "hangs"])
@pytest.mark.parametrize("required", [False, True])
async def test_an_after_hook_that_fails_is_skipped_unless_it_is_required(fails: str, required: bool) -> None:
    catalog = one_tool()

    @catalog.after(required=required)
    async def _(call: HookCall, result: ToolResult) -> None:
        if fails == "raises":
            raise ValueError("x")
        await asyncio.Event().wait()

    result = await catalog.view(ANN).call("echo", {"a": 1})
    if required:
        assert result.error is not None
        assert (result.error.kind, result.error.outcome_unknown) == ("hook_refused", True)
    else:
        assert result.structured == {"a": 1}


async def test_after_hooks_are_skipped_on_errors_while_on_error_and_on_complete_run() -> None:
    said: list[str] = []

    async def fail(ctx: Any, args: Any) -> None:
        raise CallError("read_only", "Frozen.")

    catalog = one_tool(fail)
    catalog.after()(lambda call, result: said.append("after"))
    catalog.on_error()(lambda call, result: said.append(f"error {result.error.kind}"))
    catalog.on_complete()(lambda call, result: said.append(f"complete {result.is_error}"))
    await catalog.view(ANN).call("echo")
    assert said == ["error read_only", "complete True"]


async def test_on_complete_runs_however_the_call_ended() -> None:
    said: list[str] = []
    catalog = one_tool(properties=NUMBER, consent="always", timeout_s=0.05)
    verdicts: list[Verdict] = []
    catalog.before()(lambda call: verdicts.pop() if verdicts else None)
    catalog.on_complete()(lambda call, result: said.append(kind_of(result)))
    view = catalog.view(ANN)
    await view.call("echo", {"n": "x"})
    await view.call("echo", {})
    verdicts.append(Verdict.deny("no"))
    await view.call("echo", {})
    await catalog.view(ToolContext(approve=lambda _: True)).call("echo", {})
    assert said == ["invalid_arguments", "consent_required", "hook_refused", "ok"]


@pytest.mark.parametrize("kind", ["on_error", "on_complete"])
@pytest.mark.parametrize("fails", ["raises", "hangs"])
async def test_a_closing_hook_that_fails_changes_nothing(
    kind: str, fails: str, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder()

    async def refuse(ctx: Any, args: Any) -> None:
        raise CallError("read_only", "Frozen.")

    async def hook(call: HookCall, result: ToolResult) -> None:
        if fails == "raises":
            raise SystemExit(3)
        await asyncio.Event().wait()

    catalog = one_tool(refuse)
    catalog.add_hook(Hook(kind=kind, run=hook, name="closing"))  # type: ignore[arg-type]
    result = await catalog.view(ANN).call("echo", callbacks=recorder)
    assert (kind_of(result), len(recorder.results())) == ("read_only", 1)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "closing" in caplog.text


async def test_a_later_hook_sees_the_arguments_that_run() -> None:
    ran: list[Any] = []
    seen: list[Any] = []
    catalog = numbered(ran)

    @catalog.before()
    def _(call: HookCall) -> None:
        call.args["n"] = 1

    @catalog.before()
    def _(call: HookCall) -> Verdict | None:
        seen.append(dict(call.args))
        return Verdict.deny("too many") if call.args["n"] > 10 else None

    result = await catalog.view(ANN).call("echo", {"n": 1_000})
    assert ran == [] or ran == seen[-1:], (result, seen)


async def test_an_async_hook_that_gives_no_verdict_refuses_the_call() -> None:
    catalog = one_tool()

    @catalog.before()
    async def _(call: HookCall) -> Any:
        await asyncio.sleep(0)
        return "allow"

    assert kind_of(await catalog.view(ANN).call("echo")) == "hook_refused"


async def test_catalog_wide_hooks_stand_outside_those_of_the_class_and_of_its_bases() -> None:
    said: list[str] = []

    class Base(Tool, abstract=True):
        def before(self) -> None:
            said.append("before base")

        def after(self) -> None:
            said.append("after base")

    class Child(Base, name="echo", register=False):
        def before(self) -> None:
            said.append("before child")

        async def around(self, proceed: Any) -> Any:
            said.append("around child")
            return await proceed()

        def after(self) -> None:
            said.append("after child")

        def on_complete(self) -> None:
            said.append("complete child")

        async def perform(self, ctx: ToolContext) -> str:
            said.append("perform")
            return "x"

    catalog = Catalog()
    catalog.register(Child)
    catalog.before()(lambda call: said.append("before wide"))
    catalog.after()(lambda call, result: said.append("after wide"))
    catalog.on_complete()(lambda call, result: said.append("complete wide"))
    assert kind_of(await catalog.view(ANN).call("echo")) == "ok"
    assert said == [
        "before wide", "before base", "before child", "around child", "perform",
        "after child", "after base", "after wide", "complete child", "complete wide",
    ]  # fmt: skip


async def test_what_an_after_hook_writes_into_the_result_is_checked_or_lost() -> None:
    catalog = one_tool(properties=NUMBER, output_schema={"type": "object", "properties": NUMBER})

    @catalog.after()
    def _(call: HookCall, result: Any) -> None:
        result.structured["n"] = "many"

    result = await catalog.view(ANN).call("echo", {"n": 1})
    assert result.structured == {"n": 1} or kind_of(result) == "output_invalid"


@pytest.mark.parametrize("value", [{"n": 1, "inner": {"n": 1}}, [1, [1]]], ids=["object", "list"])
@pytest.mark.parametrize("kind", ["after", "on_complete"])
@pytest.mark.parametrize("fails", [False, True])
async def test_no_hook_writes_into_a_result_whatever_its_form_and_though_it_fails(
    value: Any, kind: Literal["after", "on_complete"], fails: bool
) -> None:
    def meddle(call: HookCall, result: Any) -> None:
        shown = result.structured
        shown.append(2) if isinstance(shown, list) else shown["inner"].update(n="many")
        if fails:
            raise ValueError("the hook")

    async def give(ctx: Any, args: Any) -> Any:
        return value

    catalog = one_tool(give)
    catalog.add_hook(Hook(kind=kind, run=meddle))
    before = json.dumps(value)
    result = await catalog.view(ANN).call("echo")
    assert (json.dumps(result.structured), result.text) == (before, orjson.dumps(value).decode())
