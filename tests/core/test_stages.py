"""The order of the stages, and what each of them refuses."""

import asyncio
from collections.abc import Hashable, Mapping
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest

from pegboard import (
    AsyncPredicateError,
    Bounds,
    CallBudget,
    CallContext,
    Catalog,
    RateLimit,
    TextContent,
    ToolContext,
    ToolResult,
    ToolSpec,
    Verdict,
)
from pegboard.core.call.finished_call import FinishedCall, FinishedRun, StartedCall
from pegboard.core.call.record import Call
from pegboard.core.digests import digest
from pegboard.core.executor import decision_of
from pegboard.model.budget import Spending
from pegboard.model.error import ERROR_KINDS
from pegboard.model.record import replace
from pegboard.model.source_state import SourceState
from pegboard.model.tool import Annotations
from tests.core.parts import ANN, Clock, FakeSource, Recorder, echo, foreign, kind_of, one_tool, spec

NUMBER = {"n": {"type": "integer"}}


def watched(said: list[str], **options: Any) -> Catalog:
    """Return a catalog with one tool whose every stage writes its name into `said`."""
    catalog = Catalog()

    async def work(ctx: Any, args: Mapping[str, Any]) -> Any:
        said.append("run")
        return {"n": args["n"]}

    def rule(args: Mapping[str, Any]) -> bool:
        said.append("consent rule")
        return True

    options = {"rate_limit": RateLimit(max_calls=5, window_s=60.0), "consent": rule, **options}
    catalog.register(
        spec(properties=NUMBER, required=["n"], available=lambda ctx: not said.append("resolve"), **options), work
    )
    catalog.before()(lambda call: said.append("before"))
    catalog.after()(lambda call, result: said.append("after"))
    catalog.on_error()(lambda call, result: said.append("on_error"))
    catalog.on_complete()(lambda call, result: said.append("on_complete"))

    @catalog.around()
    async def _(call: Any, proceed: Any) -> Any:
        said.append("around")
        value = await proceed()
        said.append("around, back")
        return value

    limits = catalog.executor.ports.limits

    class Told:
        def wait_s(self, hits: Any, *, charge: bool) -> Any:
            said.append("limit charged" if charge else "limit looked at")
            return limits.wait_s(hits, charge=charge)

    class Seen:
        def on_tool_call(self, event: Any) -> None:
            said.append("on_tool_call")

        def on_tool_result(self, event: Any) -> None:
            said.append("on_tool_result")

    catalog.executor.swap(replace(catalog.executor.ports, limits=Told()))
    catalog.observe(Seen())
    return catalog


def yes(said: list[str]) -> ToolContext:
    return ToolContext(approve=lambda request: not said.append("consent"), budget=None)


async def test_the_stages_run_in_their_order() -> None:
    said: list[str] = []
    result = await watched(said).view(yes(said)).call("echo", {"n": 1})
    assert result.structured == {"n": 1}
    assert said == [
        "on_tool_call", "resolve", "before", "consent rule", "limit looked at", "consent", "resolve", "before",
        "limit charged",
        "around", "run", "around, back", "after", "on_complete", "on_tool_result",
    ]  # fmt: skip


async def test_the_limit_is_charged_once_where_no_consent_can_be_asked() -> None:
    said: list[str] = []
    await watched(said, consent="never").view(ANN).call("echo", {"n": 1})
    assert [step for step in said if step.startswith("limit")] == ["limit charged"]


@pytest.mark.parametrize(
    ("name", "args", "stops_at"),
    [
        # The visible names are looked at for one that was meant.
        ("nothing", {"n": 1}, ["on_tool_call", "resolve", "on_tool_result"]),
        ("echo", {"n": "1"}, ["on_tool_call", "resolve", "on_error", "on_complete", "on_tool_result"]),
    ],
)
async def test_a_refused_call_goes_no_further_and_still_ends_properly(
    name: str, args: Any, stops_at: list[str]
) -> None:
    said: list[str] = []
    await watched(said).view(yes(said)).call(name, args)
    assert said == stops_at


async def test_a_denied_hidden_invalid_or_declined_call_costs_nothing_and_bothers_nobody() -> None:
    asked: list[object] = []
    catalog = Catalog()
    once = RateLimit(max_calls=1, window_s=60.0)
    catalog.register(spec(properties=NUMBER, required=["n"], rate_limit=once, consent="always"), echo)
    verdicts = [Verdict.deny("no")]

    @catalog.before()
    def _(call: Any) -> Verdict | None:
        return verdicts.pop() if verdicts else None

    def approve(request: Any) -> bool:
        asked.append(request)
        return len(asked) > 1

    view = catalog.view(ToolContext(approve=approve, budget=None))
    kinds = [kind_of(await view.call("echo", args)) for args in ({"n": 1}, {"n": "x"}, "{", {}, {"n": 1})]
    assert kinds == ["hook_refused", "invalid_arguments", "invalid_arguments", "invalid_arguments", "consent_declined"]
    assert len(asked) == 1
    assert kind_of(await catalog.view(replace(ANN, policy=ANN.policy)).call("nothing")) == "not_found"
    assert kind_of(await view.call("echo", {"n": 2})) == "ok", "the one call of the limit is still there"
    assert kind_of(await view.call("echo", {"n": 1})) == "rate_limited"
    assert len(asked) == 2, "nobody is asked for a call that the limit refuses"


# ---------------------------------------------------------------- 1 begin


async def test_agents_nested_too_deep_are_refused() -> None:
    catalog = one_tool()
    assert kind_of(await catalog.view(replace(ANN, depth=8)).call("echo")) == "ok"
    assert kind_of(await catalog.view(replace(ANN, depth=9)).call("echo")) == "recursion_limit"


async def test_a_request_and_its_sub_agents_share_one_budget() -> None:
    catalog = one_tool()
    ctx = ToolContext(budget=CallBudget(3))
    views = [catalog.view(ctx), catalog.view(ctx.child()), catalog.view(ctx.child().child())]
    assert [kind_of(await view.call("echo")) for view in views] == ["ok"] * 3
    result = await views[0].call("echo")
    assert (kind_of(result), result.error and result.error.retryable) == ("budget_exceeded", False)
    assert kind_of(await catalog.view(ToolContext()).call("echo")) == "ok", "another request has its own"


async def test_the_default_budget_is_100_calls_or_what_the_bounds_say() -> None:
    for catalog, calls in ((Catalog(), 100), (Catalog(bounds=Bounds(calls_per_request=3)), 3)):
        view = one_tool(catalog=catalog).view(ToolContext())
        kinds = [kind_of(await view.call("echo")) for _ in range(calls + 1)]
        assert kinds == ["ok"] * calls + ["budget_exceeded"]


async def test_calls_over_the_number_in_flight_are_busy() -> None:
    release = asyncio.Event()

    async def wait(ctx: Any, args: Any) -> None:
        await release.wait()

    view = one_tool(wait, catalog=Catalog(bounds=Bounds(calls_in_flight=5))).view(ANN)
    running = [asyncio.create_task(view.call("echo")) for _ in range(5)]
    await asyncio.sleep(0)
    refused = await view.call("echo")
    release.set()
    assert {kind_of(result) for result in await asyncio.gather(*running)} == {"ok"}
    assert refused.error is not None
    assert (refused.error.kind, refused.error.retryable, refused.error.retry_after_s) == ("busy", True, 1.0)
    assert kind_of(await view.call("echo")) == "ok"


async def test_a_request_past_its_deadline_is_over() -> None:
    clock = Clock(100.0)
    catalog = one_tool(catalog=Catalog(clock=clock))
    ctx = replace(ANN, deadline=110.0)
    assert kind_of(await catalog.view(ctx).call("echo")) == "ok"
    clock.now = 110.0
    assert kind_of(await catalog.view(ctx).call("echo")) == "timeout"


async def test_a_closed_catalog_takes_no_calls() -> None:
    catalog = one_tool()
    await catalog.close()
    result = await catalog.view(ANN).call("echo")
    assert (kind_of(result), result.error and result.error.retryable) == ("shutting_down", True)


async def test_a_flood_of_invalid_calls_is_cut_off_for_that_caller_alone() -> None:
    clock = Clock()
    catalog = one_tool(properties=NUMBER, required=["n"], catalog=Catalog(clock=clock))
    view = catalog.view(ANN)
    kinds = {kind_of(await view.call(name, {})) for _ in range(150) for name in ("echo", "nothing")}
    assert kinds == {"invalid_arguments", "not_found"}
    refused = await view.call("echo", {"n": 1})
    assert refused.error is not None
    assert (refused.error.kind, refused.error.retry_after_s) == ("rate_limited", 60.0)
    assert kind_of(await catalog.view(replace(ANN, user_id="bob")).call("echo", {"n": 1})) == "ok"
    clock.now += 60.0
    assert kind_of(await view.call("echo", {"n": 1})) == "ok"


# ---------------------------------------------------------------- 2 resolve


async def test_a_call_keeps_the_snapshot_on_which_it_was_resolved() -> None:
    entered, release = asyncio.Event(), asyncio.Event()

    async def old(ctx: Any, args: Any) -> str:
        entered.set()
        await release.wait()
        return "old"

    async def new(ctx: Any, args: Any) -> str:
        return "new"

    catalog = one_tool(old)
    view = catalog.view(ANN)
    running = asyncio.create_task(view.call("echo"))
    await entered.wait()
    catalog.register(spec(), new, replace=True)
    later = await view.call("echo")
    release.set()
    assert ((await running).text, later.text) == ("old", "new")


async def test_a_tool_that_changed_since_it_was_pinned_needs_a_review() -> None:
    catalog = Catalog()
    state = SourceState(changed=frozenset({"git.log"}))
    catalog.add_source(FakeSource(name="git", listed=[foreign("git", "log"), foreign("git", "show")], now=state))
    view = catalog.view(ANN)
    assert view.names() == ["git__log", "git__show"], "it stays listed"
    assert kind_of(await view.call("git__log", {})) == "needs_review"
    assert kind_of(await view.call("git__show", {})) == "ok"


class AuditFake:
    times_stages = True

    def __init__(self) -> None:
        self.is_up, self.begun, self.rows = True, list[StartedCall](), list[FinishedCall]()
        self.runs: list[FinishedRun] = []

    def note(self, event: str, detail: object, *, by: str = "") -> None: ...

    async def close(self) -> None:
        self.is_closed = True

    def started(self, call: StartedCall) -> None:
        self.begun.append(call)

    def finished(self, call: FinishedCall) -> None:
        self.rows.append(call)

    def begin_run(self, started: StartedCall) -> None:
        self.begun.append(started)

    def end_run(self, run: FinishedRun) -> None:
        self.runs.append(run)


async def test_while_a_required_audit_is_down_only_reading_goes_on() -> None:
    audit = AuditFake()
    catalog = Catalog()
    catalog.register(spec("write"), echo)
    catalog.register(spec("read", annotations=Annotations(read_only=True)), echo)
    catalog.executor.swap(replace(catalog.executor.ports, audit=audit))
    audit.is_up = False
    view = catalog.view(ANN)
    assert kind_of(await view.call("write")) == "ok", "it is not required by default"
    catalog.executor.swap(replace(catalog.executor.ports, audit_required=True))
    assert [kind_of(await view.call(name)) for name in ("write", "read")] == ["audit_unavailable", "ok"]
    audit.is_up = True
    assert kind_of(await view.call("write")) == "ok"


def test_the_audit_records_a_run_of_an_agent_with_its_request_and_profile() -> None:
    audit, clock = AuditFake(), Clock()
    catalog = Catalog(clock=clock)
    recorder = catalog.executor.observe_run(ANN, "lead", "r0")
    recorder.end("ok", arguments=None, costs={}, output=None)
    catalog.executor.swap(replace(catalog.executor.ports, audit=audit))
    ctx = ANN.with_request(id="q1", spending=Spending("support", ()))
    recorder = catalog.executor.observe_run(ctx, "lead", "r1")
    clock.now += 2.0
    recorder.end("timeout", arguments={"query": "x"}, costs={"usd": 5}, output="half")
    [run], [started] = audit.runs, audit.begun
    assert run == FinishedRun(started, "lead", {"query": "x"}, "timeout", {"usd": 5}, 2.0, "half")
    assert (started.call_id, started.request_id, started.name, started.profile) == ("r1", "q1", "agent.lead", "support")


async def test_who_records_calls_hears_of_each_once_with_all_that_an_audit_needs() -> None:
    audit, other = AuditFake(), AuditFake()
    clock = Clock()

    async def work(ctx: object, args: Any) -> str:
        clock.now += 2.0
        return "done"

    catalog = one_tool(work, catalog=Catalog(clock=clock), rate_limit=RateLimit(max_calls=5, window_s=60.0))
    catalog.register(spec("hidden", groups=("secret",)), echo)
    catalog.group("core")
    catalog.executor.record(audit)
    end = catalog.executor.record(other)
    ctx = replace(ANN, request_id="r1", parent_call="p0")
    view = catalog.view(ctx, include=["core"])
    await view.call("echo", {"text": "x"})
    end()
    for name in ("hidden", "nothing"):
        await view.call(name)
    assert [call.name for call in audit.begun] == ["echo", "hidden", "nothing"]
    assert (len(other.begun), len(other.rows)) == (1, 1), "who ended it hears no more"
    echoed, hidden, nothing = audit.rows
    assert echoed.started is audit.begun[0]
    assert (echoed.started.request_id, echoed.started.parent_call_id) == ("r1", "p0")
    assert (echoed.started.caller.user_id, echoed.started.caller.space_id) == ("ann", "s1")
    assert (echoed.tool, echoed.qualified_id, echoed.kind, echoed.duration_s) == ("echo", "main.echo", "ok", 2.0)
    entry = catalog.snapshot().find("echo")
    assert entry is not None
    assert (echoed.definition_hash, echoed.arguments_digest()) == (entry.fingerprint, digest({"text": "x"}))
    assert echoed.decision is not None
    assert echoed.decision.code == "visible"
    assert echoed.limit_keys == (("caller", "main.echo", "s1", "ann", None),)
    assert list(echoed.stage_s) == ["begin", "resolve", "arguments", "rate_limit", "run", "output"]
    assert (echoed.stage_s["run"], sum(echoed.stage_s.values())) == (2.0, 2.0)
    assert [(row.kind, row.qualified_id, row.decision and row.decision.code) for row in (hidden, nothing)] == [
        ("not_found", "", "group"),
        ("not_found", "", "unknown"),
    ]


async def test_the_record_of_a_call_that_never_reached_the_judge_has_no_decision() -> None:
    audit = AuditFake()
    catalog = one_tool()
    catalog.before()(lambda call: None)

    @catalog.predicate
    async def later(ctx: ToolContext) -> bool:
        return False

    catalog.register(spec("waits", available="later"), echo)
    catalog.executor.record(audit)
    await catalog.view(ANN).call("echo")
    await catalog.view(replace(ANN, depth=9)).call("echo")
    await catalog.view(replace(ANN)).call("waits")
    seen = [(row.kind, row.definition_hash != "", row.decision and row.decision.code) for row in audit.rows]
    assert seen == [("ok", True, "visible"), ("recursion_limit", False, None), ("not_found", False, "available")]
    assert "before_hooks" in audit.rows[0].stage_s

    class Undecided:
        def why(self, name: str) -> None:
            raise AsyncPredicateError("later")

    call, result = SimpleNamespace(is_resolved=False, view=Undecided(), name="x"), await catalog.view(ANN).call("no")
    assert decision_of(call, result) is None  # type: ignore[arg-type]


class Crowded:
    """Backpressure that holds every call until it is let go."""

    waiting = 0

    def __init__(self) -> None:
        self.is_on, self.owners, self.may_go = True, list[Hashable](), asyncio.Event()

    async def wait(self, owner: Hashable) -> None:
        self.owners.append(owner)
        await self.may_go.wait()


async def test_a_call_waits_for_room_in_the_audit_before_it_begins() -> None:
    audit, clock, pressure = AuditFake(), Clock(), Crowded()
    catalog = one_tool(catalog=Catalog(clock=clock))
    catalog.executor.record(audit)
    catalog.executor.swap(replace(catalog.executor.ports, backpressure=pressure, wall_clock=clock))
    began = clock()
    view, run = catalog.view(ANN), catalog.executor.call
    calls = [asyncio.create_task(run(view, "echo", call_id=call_id)) for call_id in ("c1", "c2")]
    while len(pressure.owners) < 2:
        await asyncio.sleep(0)
    assert audit.begun == []
    clock.now += 2.0
    assert catalog.executor.cancel("c1")
    assert kind_of(await calls[0]) == "cancelled"
    pressure.may_go.set()
    assert kind_of(await calls[1]) == "ok"
    assert kind_of(await catalog.view(ANN).call("echo")) == "ok", "there is room"
    assert [(row.started.call_id, row.started.at - began, row.stage_s["audit_wait"]) for row in audit.rows[:2]] == [
        ("c1", 0.0, 2.0), ("c2", 0.0, 2.0),
    ]  # fmt: skip
    pressure.is_on = False
    await catalog.view(ANN).call("echo")
    assert "audit_wait" not in audit.rows[3].stage_s


async def test_a_record_tells_what_a_person_said() -> None:
    audit = AuditFake()
    catalog = one_tool(consent="always")
    catalog.executor.record(audit)
    for answer in (True, False):
        await catalog.view(replace(ANN, approve=lambda request, answer=answer: answer)).call("echo")
    assert [(row.kind, row.consent) for row in audit.rows] == [("ok", "yes"), ("consent_declined", "no")]


async def test_a_task_engine_takes_over_when_every_guard_has_said_yes() -> None:
    ran, taken = list[str](), list[str]()

    class Engine:
        async def start(self, call: Call) -> ToolResult:
            taken.append(call.known_as)
            return ToolResult((TextContent("task 1"),))

        async def close(self) -> None: ...

        def reopen(self) -> None: ...

    async def work(ctx: object, args: Any) -> str:
        ran.append("here")
        return "done"

    catalog = Catalog()
    for name, task in (("now", "forbidden"), ("either", "optional"), ("later", "required")):
        catalog.register(spec(name, task=task), work)
    catalog.executor.swap(replace(catalog.executor.ports, tasks=Engine()))
    catalog.registry.has_tasks = True
    view = catalog.view(ANN)
    assert [(await view.call(name)).text for name in ("now", "either", "later")] == ["done", "done", "task 1"]
    assert (len(ran), taken) == (2, ["later"])


# ---------------------------------------------------------------- 3 arguments


@pytest.mark.parametrize(
    ("schema", "args"),
    [
        ({"type": "integer"}, "5"),
        ({"type": "number"}, True),
        ({"type": "boolean"}, 0),
        ({"type": "integer"}, 5.5),
        ({"type": "number"}, float("nan")),
        ({"type": "number"}, float("inf")),
        ({"type": "string"}, None),
        ({"type": "array", "items": {"type": "string"}}, "a"),
    ],
)
async def test_types_are_strict(schema: Any, args: Any) -> None:
    view = one_tool(properties={"v": schema}, required=["v"]).view(ANN)
    assert kind_of(await view.call("echo", {"v": args})) == "invalid_arguments"


@pytest.mark.parametrize("args", ["[]", "3", "null", b"{", "{'n': 1}", [1], 7, '{"n": 1, "n": 2}', '{"n": NaN}', ""])
async def test_what_is_no_json_object_is_refused(args: Any) -> None:
    view = one_tool(properties=NUMBER).view(ANN)
    assert kind_of(await view.call("echo", args)) == "invalid_arguments"


async def test_arguments_may_come_as_json_text_and_defaults_are_filled_in() -> None:
    many = {"n": {"type": "integer", "default": 3}, "tags": {"type": "array", "default": []}, "s": {"type": "string"}}
    view = one_tool(properties=many).view(ANN)
    assert (await view.call("echo", b'{"s": "x"}')).structured == {"s": "x", "n": 3, "tags": []}
    assert (await view.call("echo", b'{"n": 1}')).structured == {"n": 1, "tags": []}
    assert (await view.call("echo")).structured == {"n": 3, "tags": []}


async def test_a_default_that_a_tool_changes_is_fresh_in_the_next_call() -> None:
    async def grow(ctx: Any, args: Any) -> Any:
        args["tags"].append("x")
        return {"tags": list(args["tags"])}

    view = one_tool(grow, properties={"tags": {"type": "array", "default": []}}).view(ANN)
    assert [(await view.call("echo")).structured for _ in range(2)] == [{"tags": ["x"]}] * 2


async def test_all_problems_are_told_with_path_rule_and_shortened_value() -> None:
    properties = {
        "n": {"type": "integer"}, "tags": {"type": "array", "items": {"type": "string"}}, "must": {"type": "string"},
        "odd key": {"maximum": 3},
    }  # fmt: skip
    view = one_tool(properties=properties, required=["must"]).view(ANN)
    result = await view.call("echo", {"n": "x" * 500, "tags": ["a", 2], "odd key": 9, "extra": {"deep": 1}})
    assert result.error is not None
    problems: Any = result.error.details["problems"]
    assert {(item["path"], item["rule"]) for item in problems} == {
        ("$.n", "type"), ("$.tags[1]", "type"), ("$.must", "required"), ('$["odd key"]', "maximum"),
        ("$.extra", "additionalProperties"),
    }  # fmt: skip
    assert max(len(item["value"]) for item in problems) == 80
    assert all(item["path"] in result.text for item in problems)


async def test_aliases_are_accepted_and_conflicts_are_refused() -> None:
    view = one_tool(
        properties={"thread_id": {"type": "string"}},
        required=["thread_id"],
        aliases={"root_id": "thread_id", "t": "thread_id"},
    ).view(ANN)
    assert (await view.call("echo", {"root_id": "a"})).structured == {"thread_id": "a"}
    assert (await view.call("echo", {"root_id": "a", "thread_id": "a"})).structured == {"thread_id": "a"}
    result = await view.call("echo", {"root_id": "b", "thread_id": "a"})
    assert "conflicting values for 'thread_id' via 'thread_id' and 'root_id'" in result.text
    result = await view.call("echo", {"root_id": "b", "t": "a"})
    assert "conflicting values for 'thread_id' via 'root_id' and 't'" in result.text


async def test_a_foreign_schema_is_taken_as_published_and_ours_refuse_unknown_arguments() -> None:
    catalog = Catalog()
    open_schema: Any = {"type": "object", "properties": {"a": {"type": "string"}}}
    catalog.register(ToolSpec(name="ours", input_schema=open_schema), echo)
    catalog.register(ToolSpec(name="composed", input_schema={"allOf": [open_schema]}), echo)
    catalog.add_source(FakeSource(name="git", listed=[foreign("git", "log", input_schema=open_schema)]))
    view = catalog.view(ANN)
    kinds = {name: kind_of(await view.call(name, {"a": "x", "b": 1})) for name in ("ours", "composed", "git__log")}
    assert kinds == {"ours": "invalid_arguments", "composed": "invalid_arguments", "git__log": "ok"}
    result = await view.call("composed", {"a": "x", "b": 1})
    assert result.error is not None
    problems: Any = result.error.details["problems"]
    assert [item["path"] for item in problems] == ["$.b"]
    assert "additionalProperties" not in view.schema("ours")


# ---------------------------------------------------------------- errors as a whole


async def test_an_error_says_what_to_do_and_its_kind_is_one_of_the_closed_set() -> None:
    result = await one_tool(properties=NUMBER).view(ANN).call("echo", {"n": "x"})
    assert result.error is not None
    assert result.error.kind in ERROR_KINDS
    assert (result.is_error, result.text, result.error.retryable) == (True, result.error.message, False)
    assert "call again" in result.text


async def test_a_context_of_the_hosts_own_class_reaches_the_tool() -> None:
    seen: list[Any] = []
    catalog = Catalog()

    @catalog.tool
    async def both(ctx: ToolContext) -> str:
        seen.append(ctx)
        return "x"

    @catalog.tool
    async def call_only(call: CallContext) -> str:
        seen.extend((call, call.plain()))
        return "x"

    view = catalog.view(ANN)
    await view.call("both")
    await view.call("call_only")
    assert seen[0] is ANN
    assert isinstance(seen[1], CallContext)
    assert (seen[1].tool, seen[1].user_id, seen[2]) == ("call_only", "ann", ANN)


async def test_callbacks_of_the_context_the_catalog_and_the_call_all_hear() -> None:
    everywhere, of_context, of_call = Recorder(), Recorder(), Recorder()
    catalog = one_tool()
    stop = catalog.observe(everywhere)
    view = catalog.view(replace(ANN, callbacks=[of_context]))
    await view.call("echo", callbacks=of_call)
    stop()
    await view.call("echo")
    assert (len(everywhere.events), len(of_context.events), len(of_call.events)) == (2, 4, 2)


async def test_arguments_may_be_any_mapping_and_nothing_of_it_is_shared_with_the_tool() -> None:
    inner = {"tags": ["a"]}

    def work(chosen: dict[str, list[str]]) -> int:
        chosen["tags"].append("b")
        return len(chosen["tags"])

    catalog = Catalog()
    catalog.tool(work)
    result = await catalog.view(ANN).call("work", MappingProxyType({"chosen": inner}))
    assert result.structured == 2
    assert inner == {"tags": ["a"]}
