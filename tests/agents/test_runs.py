"""An agent runs on its own tools, and every call goes through the one door."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.models.function import FunctionModel

from pegboard import CallContext, Catalog, Event, Policy, Secret, ToolContext, Verdict
from pegboard.agents.agent_run import CONVERSATION_BYTES
from pegboard.agents.conversations import MemoryConversations, SessionKey, SqliteConversations
from pegboard.agents.guardrails import GuardedRun
from pegboard.agents.runtime import AGENT_STREAM_ITEMS
from pegboard.model.agent import AgentBudgets, AgentMemory, AgentResult, Guardrail, ModelProvider, ModelSpec
from pegboard.model.bounds import Bounds
from pegboard.model.record import replace
from pegboard.model.tool import ToolEntry, ToolSpec
from pegboard.models.language_models import LanguageModels
from pegboard.sources.agent_tool import QUERY, agent_entry, agent_tool
from pegboard.testing import CallsTool, Hangup, ModelServer
from tests.agents.team import Recorder, agent, asked, catalog_of, returned
from tests.core.parts import Clock
from tests.timing import PATIENCE_S


def crm_lookup(company: str) -> str:
    """Look a company up."""
    return f"{company}: 40 people"


async def test_an_agent_calls_its_own_tool_and_answers() -> None:
    seen: dict[str, list[Any]] = {}
    catalog = catalog_of({"sales": [[("crm_lookup", {"company": "Acme"})], "Acme has 40 people"]}, seen=seen)
    prompt = "You qualify {{ context.company }}, that is {{ company }}."
    catalog.agent(agent("sales", prompt=prompt), tools=[crm_lookup])
    recorder = Recorder()
    heard: list[str] = []
    result = await catalog.agents.run(
        "sales", "How large?", context={"company": "Acme"}, callbacks=recorder, on_text=heard.append
    )
    assert (result.status, result.output, result.error) == ("completed", "Acme has 40 people", None)
    assert heard == ["Acme", " has", " 40", " people"]
    assert recorder.told() == [("tool_call", "crm_lookup"), ("tool_result", "crm_lookup")]
    messages, info = seen["sales"][-1]
    assert returned(messages) == ["Acme: 40 people"]
    assert info.instructions == "You qualify Acme, that is Acme."
    assert (result.usage.requests, result.usage.tool_calls) == (2, 1)
    await catalog.close()


async def test_an_agent_runs_another_as_a_tool_whose_events_arrive_below_its_call() -> None:
    catalog = catalog_of(
        {
            "lead": [[("ask", {"query": "What is it?"})], "It is large"],
            "helper": [[("crm_lookup", {"company": "Acme"})], "40 people"],
        }
    )
    catalog.agent(agent("helper"), tools=[crm_lookup])
    catalog.agent(agent("lead"), tools=[agent_entry(ToolSpec(name="ask", input_schema=QUERY), agent="helper")])
    recorder, everywhere = Recorder(), Recorder()
    catalog.observe(everywhere)
    result = await catalog.agents.run("lead", "Go", callbacks=recorder)
    assert result.output == "It is large"
    assert recorder.told() == [
        ("tool_call", "ask"), ("sub_agent_start", "ask"), ("sub_agent_tool_call", "crm_lookup"),
        ("sub_agent_tool_result", "crm_lookup"), ("sub_agent_chunk", "ask"), ("sub_agent_chunk", "ask"),
        ("sub_agent_end", "ask"), ("tool_result", "ask"),
    ]  # fmt: skip
    assert everywhere.told() == recorder.told()
    await catalog.close()


async def test_a_session_goes_on_where_it_was_for_the_same_agent_user_and_space_alone(tmp_path: Path) -> None:
    seen: dict[str, list[Any]] = {}
    catalog = catalog_of({"a": lambda messages, info: f"answer {len(asked(messages))}", "b": ["b"]}, seen=seen)
    catalog.agent(agent("a", memory=AgentMemory(max_turns=2)))
    catalog.agent(agent("b"))
    for store in (SqliteConversations(tmp_path / "c.db"), MemoryConversations()):
        catalog.agents.store = store
        seen.clear()
        ann, bob = ToolContext(user_id="ann", space_id="s"), ToolContext(user_id="bob", space_id="s")
        answers = [
            (await catalog.agents.run("a", "one", ctx=ann, session_id="x")).output,
            (await catalog.agents.run("a", "two", ctx=ann, session_id="x")).output,
            (await catalog.agents.run("a", "other user", ctx=bob, session_id="x")).output,
            (await catalog.agents.run("a", "no user", session_id="x")).output,
            (await catalog.agents.run("a", "other space", ctx=ToolContext(user_id="ann"), session_id="x")).output,
            (await catalog.agents.run("a", "other session", ctx=ann, session_id="y")).output,
            (await catalog.agents.run("a", "no session", ctx=ann)).output,
            (await catalog.agents.run("a", "three", ctx=ann, session_id="x")).output,
            (await catalog.agents.run("a", "four", ctx=ann, session_id="x")).output,
        ]
        assert answers == [f"answer {n}" for n in (1, 2, 1, 1, 1, 1, 1, 3, 3)]
        await catalog.agents.run("b", "b", ctx=ann, session_id="x")
        assert asked(seen["b"][0][0]) == ["b"]
        assert asked(seen["a"][-1][0]) == ["two", "three", "four"]
    await catalog.close()


async def test_a_turn_that_is_too_large_is_answered_and_not_remembered(caplog: pytest.LogCaptureFixture) -> None:
    seen: dict[str, list[Any]] = {}
    catalog = catalog_of({"a": ["one", "two"]}, seen=seen)
    catalog.agent(agent("a"))
    ann = ToolContext(user_id="ann")
    large = "x" * (CONVERSATION_BYTES + 1)
    assert (await catalog.agents.run("a", large, ctx=ann, session_id="x")).output == "one"
    await catalog.agents.run("a", "small", ctx=ann, session_id="x")
    assert asked(seen["a"][-1][0]) == ["small"]
    assert "too large to be remembered" in caplog.text
    await catalog.close()


async def test_two_turns_of_one_session_at_once_are_both_remembered(tmp_path: Path) -> None:
    catalog = catalog_of({"a": ["ok"]})
    catalog.agents.store = SqliteConversations(tmp_path / "c.db")
    catalog.agent(agent("a"))
    await asyncio.gather(*(catalog.agents.run("a", str(n), session_id="x") for n in range(5)))
    assert len(await catalog.agents.store.turns(SessionKey("a", None, None, "x"), last=50)) == 5
    await catalog.close()


async def test_a_run_that_makes_too_many_requests_ends_with_the_answer_so_far() -> None:
    turns = iter(["step", "step"])

    def script(messages: Any, info: Any) -> Any:
        return [("crm_lookup", {"company": next(turns)})]

    catalog = catalog_of({"a": script})
    catalog.agent(agent("a", max_iterations=2), tools=[crm_lookup])
    result = await catalog.agents.run("a", "go")
    assert (result.status, result.stopped_reason, result.output) == ("completed", "max_iterations", "")
    assert result.usage.requests == 2
    await catalog.close()


@pytest.mark.parametrize(
    ("budgets", "said"),
    [
        (AgentBudgets(requests=1), "requests of 1"),
        (AgentBudgets(total_tokens=1), "total_tokens of 1"),
        (AgentBudgets(input_tokens=1), "input_tokens of 1"),
        (AgentBudgets(output_tokens=1), "output_tokens of 1"),
        (AgentBudgets(usd=Decimal("0.00000001")), "usd of 1E-8"),
    ],
)
async def test_a_run_that_has_used_up_a_budget_ends_before_its_next_request(budgets: Any, said: str) -> None:
    catalog = catalog_of({"gpt-4o": [[("crm_lookup", {"company": "x"})], "end"]})
    model = ModelSpec(provider="openai", name="gpt-4o")
    catalog.agent(agent("a", budgets=budgets, model=model), tools=[crm_lookup])
    result = await catalog.agents.run("a", "go")
    assert result.error is not None
    assert (result.status, result.usage.requests) == ("budget_exceeded", 1)
    assert said in result.error.message
    await catalog.close()


async def test_an_answer_that_broke_off_is_taken_from_every_budget_around_it() -> None:
    with ModelServer(
        {"lead": [CallsTool("ask", {"query": "q"}), "done"], "helper": [["half of ", Hangup()]]}
    ) as server:
        catalog = Catalog()
        catalog.agent(agent("helper", model=claude("helper", server.url)))
        ask = agent_tool("ask", agent="helper")
        catalog.agent(
            agent("lead", model=claude("lead", server.url), budgets=AgentBudgets(input_tokens=20)), tools=[ask]
        )
        result = await catalog.agents.run("lead", "go", ctx=ToolContext(secrets={"KEY": Secret("k")}))
        await catalog.close()
    assert result.error is not None
    # Ten of its own and ten of the helper, whose answer never came to its end.
    assert (result.status, result.usage.input_tokens) == ("budget_exceeded", 20)
    assert "input_tokens of 20" in result.error.message


def claude(name: str, base_url: str) -> ModelSpec:
    return ModelSpec(provider="anthropic", name=name, base_url=base_url, api_key=Secret("k"))


async def test_a_model_without_a_price_is_refused_under_a_budget_of_money() -> None:
    catalog = catalog_of({"mine": ["x"]})
    model = ModelSpec(provider="openai_compatible", name="mine", base_url="http://127.0.0.1:9")
    catalog.agent(agent("a", budgets=AgentBudgets(usd=Decimal(1)), model=model))
    result = await catalog.agents.run("a", "go")
    assert result.error is not None
    assert (result.status, result.error.kind, result.usage.requests) == ("failed", "config_invalid", 0)
    await catalog.close()


async def test_an_answer_fits_its_schema_or_the_model_is_asked_again() -> None:
    schema = {"type": "object", "properties": {"score": {"type": "integer", "maximum": 9}}, "required": ["score"]}
    turns = [[("final_answer", {"score": 10})], [("final_answer", {"score": 9})]]
    catalog = catalog_of({"a": turns})
    catalog.agent(agent("a", output_schema=schema))
    result = await catalog.agents.run("a", "go")
    assert (result.output, result.usage.requests) == ({"score": 9}, 2)
    catalog.registry.add(agent_tool("ask", agent="a"))
    called = await catalog.view(ToolContext()).call("ask", {"query": "q"})
    assert called.structured == {"score": 9}
    await catalog.close()


async def test_guardrails_judge_query_and_answer_before_anybody_hears_them() -> None:
    def check(run: GuardedRun) -> Verdict | None:
        if run.value == "drop tables":
            return Verdict.deny("Not that.")
        if run.value == "explode":
            raise RuntimeError("broken")
        return None

    async def mask(run: GuardedRun) -> Verdict:
        return Verdict.replace(str(run.value).replace("secret", "***"))  # type: ignore[arg-type] - any JSON here

    catalog = catalog_of({"a": ["the secret word"]})
    guards: dict[str, Any] = {
        "input_guardrails": (Guardrail(run=check, name="check"),),
        "output_guardrails": (Guardrail(run=mask, name="mask"),),
    }  # fmt: skip
    catalog.agent(agent("a", **guards))
    heard: list[str] = []
    result = await catalog.agents.run("a", "hello", on_text=heard.append)
    assert (result.output, heard) == ("the *** word", ["the *** word"])
    for query in ("drop tables", "explode"):
        refused = await catalog.agents.run("a", query)
        assert refused.error is not None
        assert (refused.status, refused.error.kind, refused.usage.requests) == ("failed", "hook_refused", 0)
    await catalog.close()


async def test_slow_guardrails_of_one_caller_have_nobody_elses_run_refused() -> None:
    go, began = threading.Event(), list[str]()

    def check(run: GuardedRun) -> None:
        if run.value == "slow":
            began.append("slow")
            assert go.wait(PATIENCE_S)

    # They are given up after that, and hold their threads still.
    catalog = catalog_of({"a": ["hello"]}, bounds=Bounds(hook_s=0.5))
    catalog.agent(agent("a", input_guardrails=(Guardrail(run=check, name="check"),)))
    ann, bob = ToolContext(user_id="ann"), ToolContext(user_id="bob")
    held = await asyncio.gather(*(catalog.agents.run("a", "slow", ctx=ann) for _ in range(60)))
    assert {run.error and run.error.kind for run in held} == {"hook_refused"}
    # No machine is so slow that his check is given up as well.
    catalog.registry.swap(replace(catalog.registry.declarations, bounds=Bounds(hook_s=PATIENCE_S)))
    other = await catalog.agents.run("a", "quick", ctx=bob)
    assert (other.status, other.output, go.is_set()) == ("completed", "hello", False)
    go.set()
    await catalog.close()
    assert len(began) < 60


async def test_a_call_of_a_name_that_is_not_in_the_list_is_refused_and_recorded_as_every_other() -> None:
    seen: dict[str, list[Any]] = {}
    catalog = catalog_of({"a": [[("nope", {"x": 1})], "end"]}, seen=seen)
    catalog.agent(agent("a"), tools=[crm_lookup])
    recorder = Recorder()
    result = await catalog.agents.run("a", "go", callbacks=recorder)
    assert result.output == "end"
    [_, end] = recorder.events
    assert (end.type, end.payload["kind"]) == ("on_tool_result", "not_found")
    await catalog.close()


async def test_a_stream_yields_text_and_events_and_then_the_result() -> None:
    catalog = catalog_of({"a": [[("crm_lookup", {"company": "Acme"})], "two words"]})
    catalog.agent(agent("a"), tools=[crm_lookup])
    items = [item async for item in catalog.agents.stream("a", "go")]
    kinds = [item.type if isinstance(item, Event) else item for item in items]
    assert kinds[:-1] == ["on_tool_call", "on_tool_result", "two", " words"]
    assert isinstance(items[-1], AgentResult)
    assert items[-1].output == "two words"
    await catalog.close()


async def test_a_stream_that_nobody_reads_makes_the_model_wait() -> None:
    pieces, written = AGENT_STREAM_ITEMS + 300, 0

    async def stream(messages: Any, info: Any) -> AsyncIterator[str]:
        nonlocal written
        for _ in range(pieces):
            written += 1
            yield "x"

    catalog = catalog_of({})
    catalog.runtime.agents.make_model = lambda spec: FunctionModel(stream_function=stream)
    catalog.agent(agent("a"))
    items = catalog.agents.stream("a", "go")
    assert await anext(items) == "x"
    before = -1
    while written != before:
        before = written
        for _ in range(1_000):
            await asyncio.sleep(0)
    assert AGENT_STREAM_ITEMS <= written < pieces
    *texts, result = [item async for item in items]
    assert isinstance(result, AgentResult)
    assert (len(texts), result.output) == (pieces - 1, "x" * pieces)
    await catalog.close()


async def test_of_models_only_so_many_are_kept_and_the_oldest_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pegboard.agents.runtime.AGENT_MODELS_KEPT", 2)
    scripts: dict[str, Any] = {name: ["ok"] for name in "abc"}
    catalog, made = catalog_of(scripts), list[str]()
    make = catalog.runtime.agents.make_model

    def noted(spec: ModelSpec) -> Any:
        made.append(spec.name)
        return make(spec)

    catalog.runtime.agents.make_model = noted
    for name in scripts:
        catalog.agent(agent(name))
    for name in "abacab":
        assert (await catalog.agents.run(name, "go")).output == "ok"
    assert made == ["a", "b", "c", "a", "b"]
    await catalog.close()


async def test_a_run_can_be_cancelled_by_its_id_and_who_leaves_its_stream_cancels_it() -> None:
    ended: list[str] = []

    async def wait(ctx: CallContext, args: Any) -> str:
        try:
            await asyncio.sleep(30)
        finally:
            ended.append("ended")
        return "late"

    catalog = catalog_of({"a": [[("wait", {})], "end"]})
    catalog.agent(agent("a"), tools=[ToolSpec(name="wait").bind(wait)])
    stream = catalog.agents.stream("a", "go", run_id="r1")
    assert isinstance(await anext(stream), Event)
    assert catalog.agents.cancel("r1")
    *_, last = [item async for item in stream]
    assert isinstance(last, AgentResult)
    assert (last.status, ended) == ("cancelled", ["ended"])
    assert not catalog.agents.cancel("r1")
    stream = catalog.agents.stream("a", "go")
    await anext(stream)
    await stream.aclose()
    assert ended == ["ended"] * 2
    await catalog.close()


async def test_an_answer_by_schema_does_not_take_the_name_of_a_tool() -> None:
    def final_answer() -> str:
        return "a tool"

    seen: dict[str, list[Any]] = {}
    catalog = catalog_of({"a": [[("final_answer", {})], [("final_answer_", {"score": 1})]]}, seen=seen)
    schema = {"type": "object", "properties": {"score": {"type": "integer"}}}
    catalog.agent(agent("a", output_schema=schema), tools=[final_answer])
    assert (await catalog.agents.run("a", "go")).output == {"score": 1}
    assert returned(seen["a"][-1][0]) == ["a tool"]
    await catalog.close()


async def test_a_secret_leaves_neither_with_the_text_as_it_comes_nor_with_the_answer() -> None:
    canary = "canary-8c1f55"

    async def stream(messages: Any, info: Any) -> AsyncIterator[str]:
        for piece in ("it is ", "can", "ary-8c", "1f55", " or ", "canary", "-bird"):
            yield piece

    catalog = catalog_of({})
    catalog.runtime.agents.make_model = lambda spec: FunctionModel(stream_function=stream)
    catalog.agent(agent("a"))
    heard: list[str] = []
    ctx = ToolContext(secrets={"TOKEN": Secret(canary)})
    result = await catalog.agents.run("a", "go", ctx=ctx, on_text=heard.append)
    assert result.output == "it is [redacted] or canary-bird"
    assert "".join(heard) == result.output
    assert heard[0] == "it is "
    await catalog.close()


@pytest.mark.parametrize(
    ("written", "kind"),
    [
        ('{"company": ', "invalid_arguments"), ("null", "invalid_arguments"), ("[1]", "invalid_arguments"),
        ('{"company": "a", "company": "b"}', "invalid_arguments"), ('{"company": NaN}', "invalid_arguments"),
        ('{"company": "\\ud800"}', "invalid_arguments"), ('{"company": "a", "more": 1}', "invalid_arguments"),
        ("", "invalid_arguments"), ('{"company": "Acme"}', None),
    ],
)  # fmt: skip
async def test_arguments_are_read_as_at_every_other_door_and_bad_ones_are_an_answer(
    written: str, kind: str | None
) -> None:
    seen: dict[str, list[Any]] = {}
    catalog = catalog_of({"a": [[("crm_lookup", written)], "went on"]}, seen=seen)
    catalog.agent(agent("a"), tools=[crm_lookup])
    recorder = Recorder()
    result = await catalog.agents.run("a", "go", callbacks=recorder)
    assert (result.status, result.output) == ("completed", "went on")
    [end] = [event for event in recorder.events if event.type == "on_tool_result"]
    assert (end.ok, end.payload.get("kind")) == (kind is None, kind or "ok")
    assert str(returned(seen["a"][-1][0])[0]).startswith(f"Error ({kind})") == (kind is not None)
    await catalog.close()


async def test_an_answer_that_never_fits_its_schema_ends_after_as_many_requests_as_there_may_be() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    for most in (3, 60):
        catalog = catalog_of({"a": [[("final_answer", {"n": "none"})]]})
        catalog.agent(agent("a", output_schema=schema, max_iterations=most))
        result = await catalog.agents.run("a", "go")
        assert (result.status, result.output, result.stopped_reason) == ("completed", None, "max_iterations")
        assert result.usage.requests == most
        await catalog.close()


async def test_the_time_limit_of_an_agent_begins_after_the_import_of_its_provider(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()

    def load(self: LanguageModels, spec: ModelSpec) -> None:
        clock.now += 60.0

    monkeypatch.setattr(LanguageModels, "load", load)
    catalog = Catalog(clock=clock)
    async with ModelServer(["Hello."]) as server:
        model = ModelSpec(provider="openai_compatible", name="m", base_url=server.openai_url)
        catalog.agent(agent("greeter", model=model, timeout_s=30.0))
        result = await catalog.agents.run("greeter", "Greet.")
        assert (result.status, result.output, clock.now) == ("completed", "Hello.", 1_060.0)
        await catalog.close()


def slow_imports(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> list[str]:
    """Make the import of each provider take a minute by every clock; return the list of those imported."""
    loop, imported = asyncio.get_running_loop(), list[str]()
    real, began = loop.time, clock.now
    monkeypatch.setattr(loop, "time", lambda: real() + clock.now - began)

    def load(self: LanguageModels, spec: ModelSpec) -> None:
        clock.now += 60.0
        imported.append(spec.provider)

    monkeypatch.setattr(LanguageModels, "load", load)
    return imported


async def test_the_time_limit_of_a_tool_that_runs_an_agent_begins_after_the_imports_of_all_below_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    imported = slow_imports(monkeypatch, clock)
    catalog = Catalog(clock=clock)
    script = {"lead": [CallsTool("ask_helper", {"query": "Who?"}), "Hello Ann.", "Hello again."], "helper": ["Ann."]}
    async with ModelServer(script) as server:
        agents: tuple[tuple[str, ModelProvider, tuple[ToolEntry, ...]], ...] = (
            ("helper", "openai", ()),
            ("stranger", "google", ()),
            ("lead", "openai_compatible", (agent_tool("ask_helper", agent="helper", timeout_s=30.0),)),
        )
        for name, provider, tools in agents:
            model = ModelSpec(provider=provider, name=name, base_url=server.openai_url, api_key=Secret("k"))
            catalog.agent(agent(name, model=model, timeout_s=30.0), tools=tools)
        catalog.register(agent_tool("ask_lead", agent="lead", timeout_s=30.0))
        for answer in ("Hello Ann.", "Hello again."):
            result = await catalog.view(ToolContext()).call("ask_lead", {"query": "Greet."})
            assert (result.error, result.text) == (None, answer)
    # Of those it may run, each once.
    assert imported == ["openai_compatible", "openai"]
    await catalog.close()


async def test_a_call_that_is_cancelled_while_its_provider_is_imported_did_not_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    going, imports = threading.Event(), threading.Event()

    def load(self: LanguageModels, spec: ModelSpec) -> None:
        imports.set()
        going.wait(PATIENCE_S)

    monkeypatch.setattr(LanguageModels, "load", load)
    catalog = Catalog()
    model = ModelSpec(provider="openai_compatible", name="m", base_url="https://models.example/v1")
    catalog.agent(agent("greeter", model=model))
    catalog.register(agent_tool("greet", agent="greeter"))
    calling = asyncio.ensure_future(catalog.view(ToolContext()).call("greet", {"query": "Hi"}))
    while not imports.is_set():
        await asyncio.sleep(0)
    (call_id,) = catalog.executor.in_flight
    catalog.cancel(call_id)
    result = await calling
    assert result.error is not None
    assert (result.error.kind, result.error.outcome_unknown) == ("cancelled", False)
    assert "before it ran" in result.error.message
    going.set()
    await catalog.close()


async def test_a_run_names_the_declared_tools_that_it_does_not_have(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="pegboard")
    catalog = catalog_of({"a": ["done"]})
    for name in ("kept", "removed"):
        catalog.registry.add(ToolSpec(name=name, description=name).bind(lambda ctx, args: "x"))
    own = ToolSpec(name="look", description="Look.", available=lambda ctx: ctx.user_id == "ann").bind(lambda c, a: "x")
    shared = ("main.kept", "main.removed", "main.misspelt")
    catalog.agent(agent("a", shared=shared, groups=("nobody",)), tools=[own])
    catalog.registry.remove("main.removed")
    result = await catalog.agents.run("a", "go", ctx=ToolContext(user_id="bob", policy=Policy(deny=("main.kept",))))
    assert result.error is not None
    assert (result.status, result.error.kind, result.usage.requests) == ("failed", "config_invalid", 0)
    names = [each.partition(" (")[0] for each in result.missing_tools]
    assert names == ["'a.look'", "'main.kept'", "'main.removed'", "'main.misspelt'", "group 'nobody'"]
    assert all(each in result.error.message for each in result.missing_tools)
    result = await catalog.agents.run("a", "go", ctx=ToolContext(user_id="ann"))
    assert (result.status, result.output) == ("completed", "done")
    names = [each.partition(" (")[0] for each in result.missing_tools]
    assert names == ["'main.removed'", "'main.misspelt'", "group 'nobody'"]
    assert "Agent 'a' runs without: 'main.removed' (" in caplog.text
    await catalog.close()
