"""Agents as tools: rights, budgets and secrets are never more than the caller's, and every end is told once."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from pegboard import Bounds, CallBudget, CallContext, Catalog, Policy, Secret, ToolContext
from pegboard.model.agent import AgentBudgets, AgentSpec
from pegboard.model.error import CallError
from pegboard.model.tool import ToolEntry, ToolSpec
from pegboard.sources.agent_tool import agent_tool
from tests.agents.team import Recorder, agent, catalog_of, returned
from tests.core.parts import kind_of


def ask(name: str, **options: Any) -> ToolEntry:
    return agent_tool(f"ask_{name}", agent=name, **options)


def counted(counts: Counter[str], name: str = "work") -> ToolEntry:
    def run(ctx: CallContext, args: Any) -> str:
        counts[name] += 1
        return "done"

    return ToolSpec(name=name, description=name).bind(run)


def ends(recorder: Recorder) -> list[str]:
    return [event.payload["status"] for event in recorder.events if event.type == "on_sub_agent_end"]


async def test_a_budget_of_100_calls_holds_across_parallel_branches() -> None:
    counts: Counter[str] = Counter()
    branch = [[("work", {})] * 60, "done"]
    catalog = catalog_of({
        "lead": [[("ask_a", {"query": "q"}), ("ask_b", {"query": "q"}), ("ask_c", {"query": "q"})], "over"],
        "a": branch, "b": branch, "c": branch,
    })  # fmt: skip
    for name in "abc":
        catalog.agent(agent(name), tools=[counted(counts)])
    catalog.agent(agent("lead", budgets=AgentBudgets(tool_calls=100)), tools=[ask("a"), ask("b"), ask("c")])
    recorder = Recorder()
    result = await catalog.agents.run("lead", "go", callbacks=recorder)
    assert result.error is not None
    assert (result.status, result.error.kind, result.usage.tool_calls) == ("budget_exceeded", "budget_exceeded", 100)
    assert counts["work"] + 3 == 100
    told = Counter(event.type for event in recorder.events)
    assert told["on_sub_agent_start"] == told["on_sub_agent_end"] == told["on_tool_result"] == told["on_tool_call"] == 3
    assert told["on_sub_agent_tool_call"] == told["on_sub_agent_tool_result"]
    await catalog.close()


async def test_a_sub_agent_that_uses_up_its_own_budget_ends_and_its_caller_goes_on() -> None:
    counts: Counter[str] = Counter()
    catalog = catalog_of({"lead": [[("ask_a", {"query": "q"})], "went on"], "a": [[("work", {})] * 5, "done"]})
    catalog.agent(agent("a", budgets=AgentBudgets(tool_calls=2)), tools=[counted(counts)])
    catalog.agent(agent("lead"), tools=[ask("a")])
    recorder = Recorder()
    result = await catalog.agents.run("lead", "go", callbacks=recorder)
    assert (result.status, result.output, counts["work"]) == ("completed", "went on", 2)
    assert ends(recorder) == ["budget_exceeded"]
    [end] = [event for event in recorder.events if event.type == "on_tool_result"]
    assert (end.ok, end.payload["kind"]) == (False, "budget_exceeded")
    await catalog.close()


async def test_what_is_denied_stays_denied_three_levels_down() -> None:
    counts: Counter[str] = Counter()
    seen: dict[str, list[Any]] = {}
    calls = [("send", {}), ("main__send", {}), ("send_mail", {}), ("c__send", {}), ("look", {})]
    catalog = catalog_of(
        {"a": [[("ask_b", {"query": "q"})], "end"], "b": [[("ask_c", {"query": "q"})], "end"], "c": [calls, "end"]},
        seen=seen,
    )
    catalog.registry.add(counted(counts, "send"), counted(counts, "send_mail"), counted(counts, "look"))
    catalog.agent(agent("c", groups=("core",)), tools=[counted(counts, "send")])
    catalog.agent(agent("b", policy=Policy(deny=("send_mail",))), tools=[ask("c")])
    catalog.agent(agent("a", policy=Policy(deny=("send", "*__send"))), tools=[ask("b")])
    result = await catalog.agents.run("a", "go")
    assert result.status == "completed"
    assert counts == {"look": 1}
    assert [tool.name for tool in seen["c"][0][1].function_tools] == ["look"]
    await catalog.close()


async def test_a_sub_agent_may_use_what_its_caller_is_allowed_and_nothing_else() -> None:
    counts: Counter[str] = Counter()
    catalog = catalog_of({"a": [[("ask_b", {"query": "q"})], "end"], "b": [[("one", {}), ("two", {})], "end"]})
    catalog.agent(agent("b"), tools=[counted(counts, "one"), counted(counts, "two")])
    catalog.agent(agent("a", policy=Policy(allow=("ask_b", "one"))), tools=[ask("b")])
    await catalog.agents.run("a", "go")
    assert counts == {"one": 1}
    counts.clear()
    # A caller of an agent's tool with a policy of its own: that holds below, too.
    catalog.registry.add(ask("b", groups=("core",)))
    view = catalog.view(ToolContext(user_id="ann", policy=Policy(deny=("one", "b__one*"))))
    assert (await view.call("ask_b", {"query": "q"})).unwrap() == "end"
    assert counts == {"two": 1}
    await catalog.close()


async def test_secrets_reach_a_sub_agent_only_where_it_names_them_and_its_caller_has_them() -> None:
    held: dict[str, set[str]] = {}

    def look(name: str) -> ToolEntry:
        def run(ctx: CallContext, args: Any) -> str:
            held[name] = {*ctx.secrets, *ctx.upstream_credentials}
            return "ok"

        return ToolSpec(name="look").bind(run)

    turn = [("look", {}), ("ask_b", {"query": "q"})]
    catalog = catalog_of({
        "a": [turn, "end"], "b": [[("look", {}), ("ask_c", {"query": "q"})], "end"], "c": [[("look", {})], "end"],
    })  # fmt: skip
    catalog.agent(agent("c", secrets=("A", "B")), tools=[look("c")])
    catalog.agent(agent("b", secrets=("A", "X")), tools=[look("b"), ask("c")])
    catalog.agent(agent("a"), tools=[look("a"), ask("b")])
    secrets = {name: Secret(f"value-of-{name}") for name in "AB"}
    ctx = ToolContext(secrets=secrets, upstream_credentials={"X": Secret("value-of-X")})
    await catalog.agents.run("a", "go", ctx=ctx)
    assert held == {"a": {"A", "B", "X"}, "b": {"A", "X"}, "c": {"A"}}
    await catalog.close()


@pytest.mark.parametrize("how", ["failed", "timeout", "cancelled", "budget_exceeded"])
async def test_each_end_of_a_sub_agent_has_its_own_status_and_its_call_ends_once(how: str) -> None:
    started = asyncio.Event()

    async def wait(ctx: CallContext, args: Any) -> str:
        started.set()
        await asyncio.sleep(30)
        return "late"

    def fails(messages: Any, info: Any) -> Any:
        raise CallError("upstream_unavailable", "The model is away.")

    script: Any = {"failed": fails, "budget_exceeded": [[("wait", {})], "x"]}.get(how, [[("wait", {})], "end"])
    catalog = catalog_of({"lead": [[("ask_a", {"query": "q"})], "went on"], "a": script})
    fields: dict[str, Any] = {"budgets": AgentBudgets(tool_calls=0)} if how == "budget_exceeded" else {}
    if how == "timeout":
        fields["timeout_s"] = 0.1
    catalog.agent(agent("a", **fields), tools=[ToolSpec(name="wait").bind(wait)])
    catalog.agent(agent("lead"), tools=[ask("a")])
    recorder = Recorder()
    running = asyncio.create_task(catalog.agents.run("lead", "go", callbacks=recorder))
    if how == "cancelled":
        await started.wait()
        [call_id] = [event.call_id for event in recorder.events if event.type == "on_tool_call"]
        catalog.cancel(call_id)
    result = await running
    assert (result.status, result.output) == ("completed", "went on")
    assert ends(recorder) == [how]
    told = Counter(event.type for event in recorder.events)
    assert told["on_tool_result"] == 1
    assert told["on_sub_agent_tool_call"] == told["on_sub_agent_tool_result"]
    assert [event.type for event in recorder.events][-2:] == ["on_sub_agent_end", "on_tool_result"]
    assert [event.seq for event in recorder.events] == sorted(event.seq for event in recorder.events)
    await catalog.close()


async def test_the_time_limit_of_the_tool_ends_the_agent_as_a_timeout() -> None:
    async def wait(ctx: CallContext, args: Any) -> str:
        # As the timer of the outer call does when its time is over.
        [outer] = [call for call in catalog.executor.in_flight.values() if call.name == "ask_a"]
        asyncio.get_running_loop().call_soon(outer.interrupt, "timeout")
        await asyncio.sleep(30)
        return "late"

    catalog = catalog_of({"a": [[("wait", {})], "end"]})
    catalog.agent(agent("a"), tools=[ToolSpec(name="wait").bind(wait)])
    catalog.registry.add(ask("a"))
    recorder = Recorder()
    result = await catalog.view(ToolContext()).call("ask_a", {"query": "q"}, callbacks=recorder)
    assert kind_of(result) == "timeout"
    assert ends(recorder) == ["timeout"]
    assert [event.type for event in recorder.events][-3:] == [
        "on_sub_agent_tool_result", "on_sub_agent_end", "on_tool_result",
    ]  # fmt: skip
    await catalog.close()


async def test_events_below_name_the_calls_that_they_belong_to() -> None:
    counts: Counter[str] = Counter()
    catalog = catalog_of({
        "a": [[("ask_b", {"query": "1"}), ("ask_b", {"query": "2"})], "end"], "b": [[("ask_c", {"query": "q"})], "end"],
        "c": [[("work", {})], "end"],
    })  # fmt: skip
    catalog.agent(agent("c"), tools=[counted(counts)])
    catalog.agent(agent("b"), tools=[ask("c")])
    catalog.agent(agent("a"), tools=[ask("b")])
    recorder, everywhere = Recorder(), Recorder()
    catalog.observe(everywhere)
    await catalog.agents.run("a", "go", callbacks=recorder)
    assert [event[:8] for event in everywhere.events] == [event[:8] for event in recorder.events]
    calls = {event.call_id: 0 for event in recorder.events if event.type == "on_tool_call"}
    calls |= {
        str(event.payload["call_id"]): int(str(event.payload["depth"]))
        for event in recorder.events if event.type == "on_sub_agent_tool_call"
    }  # fmt: skip
    assert Counter(calls.values()) == {0: 2, 1: 2, 2: 2}
    starts = [event for event in recorder.events if event.type == "on_sub_agent_start"]
    assert Counter((event.payload["agent"], event.payload["depth"]) for event in starts) == {("b", 1): 2, ("c", 2): 2}
    for event in starts:
        assert calls[event.call_id] == int(str(event.payload["depth"])) - 1
    parents = {event.call_id: event.parent_call_id for event in starts}
    assert {parents[parents[each.call_id] or ""] for each in starts if each.payload["agent"] == "c"} == {None}
    assert len({event.payload["sub_id"] for event in starts}) == 4
    assert counts["work"] == 2
    await catalog.close()


async def test_a_diamond_runs_and_its_lowest_agent_is_told_of_under_both_ways() -> None:
    ask_both = [[("ask_left", {"query": "q"}), ("ask_right", {"query": "q"})], "top"]
    ask_one = [[("ask_bottom", {"query": "q"})], "side"]
    catalog = catalog_of({"top": ask_both, "left": ask_one, "right": ask_one, "bottom": ["deep"]})
    catalog.agent(agent("bottom"))
    for name in ("left", "right"):
        catalog.agent(agent(name), tools=[ask("bottom")])
    catalog.agent(agent("top"), tools=[ask("left"), ask("right")])
    recorder = Recorder()
    result = await catalog.agents.run("top", "go", callbacks=recorder)
    assert (result.status, result.output, ends(recorder)) == ("completed", "top", ["completed"] * 4)
    starts = [event for event in recorder.events if event.type == "on_sub_agent_start"]
    agents = {event.call_id: event.payload["agent"] for event in starts}
    ways = sorted((str(event.payload["agent"]), str(agents.get(event.parent_call_id or ""))) for event in starts)
    assert ways == [("bottom", "left"), ("bottom", "right"), ("left", "None"), ("right", "None")]
    await catalog.close()


async def test_an_agent_that_would_run_itself_is_refused_on_every_later_change() -> None:
    catalog = Catalog()
    spec: AgentSpec = agent("a", groups=("core",))
    catalog.agent(spec)
    with pytest.raises(Exception, match="a → a"):
        catalog.registry.add(ask("a", groups=("core",)))
    with pytest.raises(Exception, match="there is no agent 'nobody'"):
        catalog.registry.add(ask("nobody"))
    assert catalog.view(ToolContext()).names() == []


async def test_an_agent_that_runs_already_further_up_is_refused_on_the_call_stack() -> None:
    seen: dict[str, list[Any]] = {}
    catalog = catalog_of({"a": [[("go", {})], "end"]}, seen=seen)

    async def go(ctx: CallContext, args: Any) -> Any:
        assert ctx.call is not None
        return await ctx.call.run_agent("a", "again", {}, transform=None)

    catalog.agent(agent("a"), tools=[ToolSpec(name="go").bind(go)])
    result = await catalog.agents.run("a", "go")
    assert result.output == "end"
    assert "circle: a → a" in returned(seen["a"][-1][0])[0]
    await catalog.close()


async def test_agents_are_nested_as_deep_as_the_limit_and_no_deeper() -> None:
    scripts: dict[str, Any] = {f"a{n}": [[(f"ask_a{n + 1}", {"query": "q"})], f"end {n}"] for n in range(4)}
    seen: dict[str, list[Any]] = {}
    catalog = catalog_of({**scripts, "a4": ["deepest"]}, seen=seen, bounds=Bounds(agent_depth=3))
    catalog.agent(agent("a4"))
    for n in reversed(range(4)):
        catalog.agent(agent(f"a{n}"), tools=[ask(f"a{n + 1}")])
    assert (await catalog.agents.run("a0", "go")).output == "end 0"
    assert sorted(seen) == ["a0", "a1", "a2", "a3"]
    assert "nested 3 deep" in returned(seen["a3"][-1][0])[0]
    await catalog.close()


async def test_no_event_or_answer_carries_a_secret_of_the_caller_that_the_sub_agent_does_not_have() -> None:
    canary = "canary-8c1f55"

    def leak(ctx: CallContext, args: Any) -> str:
        return f"found {canary}"

    catalog = catalog_of({
        "lead": [[("ask_a", {"query": "q"})], "end"], "a": [[("leak", {"q": canary})], f"it is {canary}"],
    })  # fmt: skip
    spec = ToolSpec(name="leak", input_schema={"type": "object", "properties": {"q": {"type": "string"}}})
    catalog.agent(agent("a"), tools=[spec.bind(leak)])
    catalog.agent(agent("lead"), tools=[ask("a")])
    recorder, everywhere = Recorder(), Recorder()
    catalog.observe(everywhere)
    ctx = ToolContext(secrets={"TOKEN": Secret(canary)})
    items = [item async for item in catalog.agents.stream("lead", "go", ctx=ctx, callbacks=recorder)]
    assert len(recorder.events) > 5
    text = repr([recorder.events, everywhere.events, items])
    assert "[redacted]" in text
    assert canary not in text
    await catalog.close()


async def test_a_budget_and_a_deadline_of_the_host_hold_for_everything_below() -> None:
    counts: Counter[str] = Counter()
    catalog = catalog_of({"lead": [[("ask_a", {"query": "q"})], "end"], "a": [[("work", {})] * 9, "end"]})
    catalog.agent(agent("a"), tools=[counted(counts)])
    catalog.agent(agent("lead", budgets=AgentBudgets(tool_calls=50)), tools=[ask("a")])
    result = await catalog.agents.run("lead", "go", ctx=ToolContext(budget=CallBudget(4)))
    assert (result.status, counts["work"]) == ("budget_exceeded", 3)
    late = await catalog.agents.run("lead", "go", ctx=ToolContext(deadline=0.0))
    assert (late.status, late.usage.requests) == ("timeout", 0)
    await catalog.close()
