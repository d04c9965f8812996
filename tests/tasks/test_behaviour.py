"""What tasks do, the same on each engine: in memory, and in a database by DBOS."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from pegboard import (
    CallContext,
    CallError,
    Catalog,
    DefinitionError,
    Policy,
    Profile,
    Secret,
    Tasks,
    TextContent,
    Tool,
    ToolContext,
    ToolResult,
)
from pegboard.model.bounds import Bounds
from pegboard.model.caller import Caller
from pegboard.model.consent import ConsentRequest
from pegboard.model.record import replace
from pegboard.model.request import CallBudget
from pegboard.model.task import TaskCall, TaskRecord
from pegboard.tasks import in_process
from pegboard.tasks.steps import STEP_RESULT_BYTES
from pegboard.tasks.tasks import OPERATOR
from tests.tasks.databases import database
from tests.timing import PATIENCE_S

# One context for the calls of all tests.
MANY = CallBudget(10_000)
ANN, BOB = (ToolContext(user_id=who, space_id="s1", budget=MANY) for who in ("ann", "bob"))
YES = {"action": "accept", "content": {"answer": True}}


class Clock:
    """Seconds since 1970, as the test says."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Catalog]:
    with ExitStack() as stack:
        store = "memory" if request.param == "memory" else f"sqlite:{tmp_path}/tasks.db"
        if request.param == "postgres":
            store = stack.enter_context(database(request.getfixturevalue("postgres_url")))
        made = Catalog("tests", tasks=Tasks(store), bounds=Bounds(predicate_s=60.0))
        yield made
        await made.close()


async def begun(catalog: Catalog, name: str, args: Any = None, ctx: ToolContext = ANN, **options: Any) -> str:
    """Return the id of the task that a call has become."""
    result = await catalog.view(ctx).call(name, args or {}, **options)
    assert result.error is None
    assert result.task_id is not None
    assert result.structured["task"]["id"] == result.task_id
    return result.task_id


async def until(catalog: Catalog, task_id: str, holds: Callable[[TaskRecord], object], ctx: Any = ANN) -> TaskRecord:
    """Return a task once something holds of it."""
    async with asyncio.timeout(PATIENCE_S):
        while not holds(record := await catalog.tasks.get(task_id, ctx)):
            await catalog.tasks.changed(record, timeout_s=1.0)
    return record


async def test_an_import_runs_its_steps_asks_and_is_done(catalog: Catalog) -> None:
    ran = list[str]()

    class ImportOrders(Tool, task="required", register=False):
        """Import orders."""

        source: str

        async def perform(self, ctx: CallContext) -> Any:
            rows = await ctx.step("download", self.download)
            await ctx.progress(0.5, "downloaded")
            ok = await ctx.ask(f"Import {len(rows)} rows?", schema={"type": "boolean"})
            return await ctx.step("load", self.load, rows, retries=3) if ok else "kept"

        def download(self) -> Any:
            ran.append(f"download {threading.current_thread() is threading.main_thread()}")
            return (1, 2, {"from": self.source})

        async def load(self, rows: list[Any]) -> str:
            ran.append("load")
            return f"{len(rows)} rows, {type(rows).__name__}"

    catalog.register(ImportOrders)
    task_id = await begun(catalog, "import_orders", {"source": "shop"})
    record = await until(catalog, task_id, lambda record: record.questions and record.message)
    assert (record.state, record.fraction, record.message) == ("input_required", 0.5, "downloaded")
    [(key, question)] = record.questions.items()
    assert question.message == "Import 3 rows?"
    with pytest.raises(CallError, match="does not fit"):
        await catalog.tasks.answer(task_id, ANN, {key: {"action": "accept", "content": {"answer": "perhaps"}}})
    for text in ("yes", {key: "yes"}, {key: ["yes"]}):
        with pytest.raises(CallError, match=r'object.*"action": "accept"'):
            await catalog.tasks.answer(task_id, ANN, text)  # type: ignore[arg-type] # what people write
    assert await catalog.tasks.answer(task_id, ANN, {"unknown": YES, key: YES}) == {key}
    result = await catalog.tasks.result(task_id, ANN, timeout_s=PATIENCE_S)
    # What a step gives is what would be read back: a tuple is a list at once.
    assert (result.text, ran) == ("3 rows, list", ["download False", "load"])
    ended = await catalog.tasks.get(task_id, ANN)
    assert (ended.state, ended.questions) == ("completed", {})


async def test_a_task_is_its_owners_alone_and_anothers_id_answers_as_an_unknown_one(catalog: Catalog) -> None:
    @catalog.tool(task="required")
    async def wait(ctx: CallContext) -> object:
        """Wait for a person."""
        return await ctx.ask("Go on?")

    mine = await begun(catalog, "wait")
    nobodys = await begun(catalog, "wait", ctx=ToolContext())
    for asked in (catalog.tasks.get, catalog.tasks.cancel, catalog.tasks.result, catalog.tasks.resume):
        refusals = set[str]()
        for task_id in (mine, "f" * 32):
            with pytest.raises(CallError) as raised:
                await asked(task_id, BOB)
            refusals.add(str(raised.value).replace(task_id, "ID"))
            assert raised.value.error.kind == "not_found"
        assert len(refusals) == 1
    with pytest.raises(CallError, match="No task"):
        await catalog.tasks.answer(mine, BOB, {"question-1": YES})
    # Who has no name holds the id: it is all that tells him from others.
    assert (await catalog.tasks.get(nobodys, BOB)).task_id == nobodys
    assert [record.task_id for record in await catalog.tasks.list(ANN)] == [mine]
    assert list(await catalog.tasks.list(BOB)) == list(await catalog.tasks.list(ToolContext())) == []
    # Neither does the space that an open server gives to all who come.
    comer = ToolContext(caller=Caller(credential="anonymous", space_id="open"))
    comers = await begun(catalog, "wait", ctx=comer)
    assert (await catalog.tasks.get(comers, comer)).task_id == comers
    assert list(await catalog.tasks.list(comer)) == []
    assert {record.task_id for record in await catalog.tasks.list(OPERATOR)} == {mine, nobodys, comers}
    # The same user with another credential, or in another space, is another principal.
    for other in (replace(ANN.caller, credential="key:2"), replace(ANN.caller, space_id="s2")):
        with pytest.raises(CallError, match="No task"):
            await catalog.tasks.get(mine, ToolContext(caller=other))


async def test_a_cancelled_task_stops_and_terminal_states_never_change(catalog: Catalog) -> None:
    stopped, began = asyncio.Event(), asyncio.Event()

    @catalog.tool(task="optional")
    async def work() -> None:
        """Work for ever."""
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    @catalog.tool(task="optional")
    async def quick() -> str:
        """Be done."""
        return "done"

    task_id = await begun(catalog, "work", as_task=True)
    await began.wait()
    await catalog.tasks.cancel(task_id, ANN)
    assert (await catalog.tasks.get(task_id, ANN)).state == "cancelled"
    await asyncio.wait_for(stopped.wait(), PATIENCE_S)
    result = await catalog.tasks.result(task_id, ANN, timeout_s=PATIENCE_S)
    assert result.error is not None
    assert result.error.kind == "cancelled"
    done = await begun(catalog, "quick", as_task=True)
    assert (await catalog.tasks.result(done, ANN, timeout_s=PATIENCE_S)).text == "done"
    for _ in range(2):
        await catalog.tasks.cancel(done, ANN)
        assert not await catalog.tasks.resume(done, ANN)
        await catalog.tasks.answer(done, ANN, {"question-1": YES})
    ended = await catalog.tasks.get(done, ANN)
    assert (ended.state, ended.result and ended.result.text) == ("completed", "done")
    assert (await catalog.tasks.get(task_id, ANN)).state == "cancelled"


async def test_steps_are_tried_again_refused_by_name_and_keep_to_their_limits(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pegboard.model.attempts.STEP_FIRST_RETRY_S", 0.0)
    keys = list[str]()

    @catalog.tool(task="required")
    async def t(ctx: CallContext, how: str) -> object:
        """Do a step, or several."""

        async def flaky() -> str:
            keys.append(ctx.step_key)
            if len(keys) < 3:
                raise OSError("away")
            return "third time"

        async def slow() -> None:
            await asyncio.Event().wait()

        if how == "flaky":
            return await ctx.step("flaky", flaky, retries=2)
        if how == "twice":
            await ctx.step("one", lambda: 1)
            return await ctx.step("one", lambda: 2)
        if how == "slow":
            return await ctx.step("slow", slow, timeout_s=0.01)
        if how == "broken":
            return await ctx.step("broken", lambda: 1 / 0)
        if how == "key":
            return ctx.step_key
        given: dict[str, object] = {"object": object(), "nan": float("nan"), "long": "x" * STEP_RESULT_BYTES}
        return await ctx.step(how, lambda: given[how])

    async def end_of(how: str) -> ToolResult:
        return await catalog.tasks.result(await begun(catalog, "t", {"how": how}), ANN, timeout_s=PATIENCE_S)

    assert (await end_of("flaky")).text == "third time"
    assert len(set(keys)) == 1
    ends = {how: await end_of(how) for how in ("twice", "slow", "broken", "object", "nan", "long", "key")}
    kinds = {how: result.error and result.error.kind for how, result in ends.items()}
    assert kinds == {
        "twice": "tool_error", "slow": "timeout", "broken": "tool_error", "object": "tool_error", "nan": "tool_error",
        "long": "result_too_large", "key": "tool_error",
    }  # fmt: skip
    assert "division" not in ends["broken"].text
    assert "'one'" in ends["twice"].text


async def test_who_declines_or_closes_a_question_ends_the_task(catalog: Catalog) -> None:
    @catalog.tool(task="required")
    async def t(ctx: CallContext) -> object:
        """Ask two things at once."""
        form = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
        both = await asyncio.gather(ctx.ask("Who?", schema=form), ctx.ask("Whom?", schema=form))
        return [answer["name"] for answer in both]  # type: ignore[index] - objects, by their schema

    ann: Any = {"action": "accept", "content": {"name": "ann"}}
    for answer, kind in (
        (ann, None),
        ({"action": "decline"}, "consent_declined"),
        ({"action": "cancel"}, "consent_required"),
    ):
        task_id = await begun(catalog, "t")
        waiting = await until(catalog, task_id, lambda record: len(record.questions) == 2)
        first, second = waiting.questions
        for wrong in ({"action": "yes", "content": {"name": "eve"}}, {"content": {"name": "eve"}}, {"action": None}):
            with pytest.raises(CallError, match="accept, decline or cancel"):
                await catalog.tasks.answer(task_id, ANN, {first: wrong})
        await catalog.tasks.answer(task_id, ANN, {first: ann})
        left = await catalog.tasks.get(task_id, ANN)
        assert (left.state, list(left.questions)) == ("input_required", [second])
        await catalog.tasks.answer(task_id, ANN, {first: {"action": "decline"}, second: answer})
        result = await catalog.tasks.result(task_id, ANN, timeout_s=PATIENCE_S)
        assert (result.error and result.error.kind) == kind
        if kind is None:
            assert result.structured == ["ann", "ann"]


async def test_every_guard_decides_afresh_when_the_task_runs(catalog: Catalog) -> None:
    asked = list[str]()

    async def person(request: ConsentRequest) -> bool:
        asked.append(request.args_digest)
        return True

    begins, goes_on, runs = asyncio.Event(), asyncio.Event(), list[str]()

    @catalog.before("paid")
    async def hold(call: Any) -> None:
        if call.ctx.request.steps is not None:
            begins.set()
            await goes_on.wait()

    @catalog.tool(task="required", consent="always", rate_limit="1/60s", groups=["g"])
    async def paid(n: int = 1) -> int:
        """Cost something."""
        runs.append("ran")
        return n

    catalog.profile(Profile(name="p", include=("g",)))
    ctx = replace(ANN, approve=person)
    result = await catalog.view(ctx, profile="p").call("paid", {"n": 3})
    assert result.task_id is not None
    # The yes and the limit of the call that was made hold for the task: the person is not asked again.
    goes_on.set()
    done = await catalog.tasks.result(result.task_id, ANN, timeout_s=PATIENCE_S)
    assert (done.structured, len(asked), runs) == (3, 1, ["ran"])
    again = await catalog.view(ctx, profile="p").call("paid", {"n": 4})
    assert (again.error and again.error.kind, len(asked)) == ("rate_limited", 1)


CHANGES = ("role", "profile", "definition", "caller", "tool")


@pytest.mark.parametrize(
    ("catalog", "change"), [*product(("memory", "sqlite"), CHANGES), ("postgres", "definition")], indirect=["catalog"]
)
async def test_what_was_taken_away_or_changed_meanwhile_ends_the_task(catalog: Catalog, change: str) -> None:
    roles, runs, gone = {"importer"}, list[str](), list[str]()

    @catalog.predicate(name="may_import")
    def may_import(ctx: ToolContext) -> bool:
        return "importer" in roles & set(ctx.roles)

    def declare(description: str) -> None:
        @catalog.tool(name="load", task="required", available="may_import", replace=True, description=description)
        async def load(ctx: CallContext) -> object:
            runs.append("begins")
            return await ctx.ask("Go on?")

    declare("Load.")
    catalog.profile(Profile(name="p", include=("core",)))
    catalog.tasks.context_for = lambda call: None if gone else ToolContext(caller=call.caller)
    ctx = replace(ANN, roles=["importer"])
    # It waits with others for a place to run, as far as this test is concerned: until the change is made.
    made = asyncio.Event()
    run = catalog.tasks._execution.run

    async def held(call: TaskCall, journal: Any) -> Any:
        await made.wait()
        return await run(call, journal)

    catalog.tasks._execution.run = held  # type: ignore[method-assign]
    result = await catalog.view(ctx, profile="p").call("load", {})
    assert result.task_id is not None
    if change == "role":
        roles.clear()
    elif change == "profile":
        catalog.profile(Profile(name="p", include=("core",), policy=Policy(deny=("load",))))
    elif change == "definition":
        declare("Load something else.")
    elif change == "caller":
        gone.append("ann")
    else:
        catalog.unregister("load")
    made.set()
    ended = await until(catalog, result.task_id, lambda record: record.is_over)
    kind = "needs_review" if change == "definition" else "not_found"
    assert (ended.state, ended.error and ended.error.kind, runs) == ("failed", kind, [])


async def test_a_secret_is_kept_neither_in_arguments_nor_in_what_steps_give(catalog: Catalog) -> None:
    key = "sk-canary-4711"
    catalog.add_secrets(Secret(key))

    @catalog.tool(task="required")
    async def t(ctx: CallContext, text: str) -> object:
        """Try to keep a secret."""
        await ctx.progress(0.1, f"using {key}")
        if text == "ask":
            return await ctx.ask(f"May I use {key}?")
        return await ctx.step("read", lambda: {"key": key})

    refused = await catalog.view(ANN).call("t", {"text": f"use {key}"})
    assert (refused.error and refused.error.kind, refused.task_id) == ("invalid_arguments", None)
    assert list(await catalog.tasks.list(OPERATOR)) == []
    result = await catalog.tasks.result(await begun(catalog, "t", {"text": "x"}), ANN, timeout_s=PATIENCE_S)
    assert (result.error and result.error.kind, key in result.text) == ("tool_error", False)
    asking = await until(catalog, await begun(catalog, "t", {"text": "ask"}), lambda record: record.questions)
    assert key not in repr(asking)


async def test_a_process_keeps_so_many_tasks_in_memory_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_process, "TASKS_IN_MEMORY", 2)
    catalog = Catalog("tests", tasks=Tasks())

    @catalog.tool(task="required")
    async def t() -> str:
        """Answer."""
        return "done"

    for _ in range(2):
        await begun(catalog, "t")
    refused = await catalog.view(ANN).call("t", {})
    assert refused.error is not None
    assert (refused.error.kind, refused.task_id) == ("busy", None)
    await catalog.close()


async def test_an_expired_task_is_swept_running_or_not_and_is_unknown_before_that(catalog: Catalog) -> None:
    clock, stopped = Clock(), asyncio.Event()
    catalog.executor.swap(replace(catalog.executor.ports, wall_clock=clock))
    catalog.tasks.ttl_s = 60.0

    @catalog.tool(task="required")
    async def t(ctx: CallContext) -> object:
        """Wait."""
        try:
            return await ctx.ask("Go on?")
        finally:
            stopped.set()

    old = await begun(catalog, "t")
    await until(catalog, old, lambda record: record.questions)
    clock.now += 30.0
    young = await begun(catalog, "t")
    clock.now += 31.0
    with pytest.raises(CallError, match="No task"):
        await catalog.tasks.get(old, ANN)
    assert await catalog.tasks.sweep() == 1
    assert await catalog.tasks.sweep() == 0
    await asyncio.wait_for(stopped.wait(), PATIENCE_S)
    assert [record.task_id for record in await catalog.tasks.list(OPERATOR)] == [young]


async def test_what_a_tool_calls_in_turn_is_no_step_of_its_task(catalog: Catalog) -> None:
    @catalog.tool(task="optional")
    async def inner(ctx: CallContext) -> object:
        """Do a step of the same name."""
        return [ctx.steps is None, await ctx.step("one", lambda: "inner")]

    @catalog.tool(task="required")
    async def outer(ctx: CallContext) -> object:
        """Do a step, and call another."""
        own = await ctx.step("one", lambda: "outer")
        called = await catalog.view(ctx).call("inner")
        return [own, *called.structured]

    result = await catalog.tasks.result(await begun(catalog, "outer"), ANN, timeout_s=PATIENCE_S)
    assert result.structured == ["outer", True, "inner"]


async def test_results_of_every_form_come_back_as_they_were(catalog: Catalog) -> None:
    @catalog.tool(task="required")
    async def t(how: str) -> object:
        """Give something."""
        if how == "error":
            raise CallError("upstream_error", "It said no.", details={"status": 500})
        if how == "blocks":
            return ToolResult((TextContent("a", {"audience": ["user"]}),), meta={"k": 1})
        return {"none": None, "big": 2**70, "text": "ü\u2028"}

    for how in ("error", "blocks", "value"):
        direct = await catalog.view(ANN).call("t", {"how": how})
        assert direct.task_id is not None
        result = await catalog.tasks.result(direct.task_id, ANN, timeout_s=PATIENCE_S)
        if how == "error":
            assert result.error is not None
            assert (result.error.kind, dict(result.error.details)) == ("upstream_error", {"status": 500})
            assert (await catalog.tasks.get(direct.task_id, ANN)).state == "completed"
        elif how == "blocks":
            assert (result.content[0].annotations, result.meta) == ({"audience": ["user"]}, {"k": 1})
        else:
            assert result.structured == {"none": None, "big": 2**70, "text": "ü\u2028"}


async def test_a_tool_that_forbids_it_is_no_task_and_an_optional_one_only_where_it_is_asked(catalog: Catalog) -> None:
    @catalog.tool
    async def plain() -> str:
        """Be quick."""
        return "plain"

    @catalog.tool(task="optional")
    async def either() -> str:
        """Be either."""
        return "either"

    view = catalog.view(ANN)
    assert ((await view.call("plain")).text, (await view.call("either")).text) == ("plain", "either")
    refused = await view.call("plain", as_task=True)
    assert refused.error is not None
    assert refused.error.kind == "invalid_arguments"


async def test_where_no_tasks_are_kept_a_tool_that_wants_one_is_refused_and_so_is_what_cannot_be_kept() -> None:
    catalog = Catalog()

    @catalog.tool(task="optional")
    async def t() -> None:
        """Do."""

    with pytest.raises(DefinitionError, match="none is configured"):
        catalog.view(ANN).tools()
    with pytest.raises(DefinitionError, match="not configured"):
        _ = catalog.tasks
    with pytest.raises(DefinitionError, match="unknown"):
        Tasks("mysql://x")
    kept = Tasks()
    with_tasks = Catalog(tasks=kept)
    with pytest.raises(DefinitionError, match="another catalog"):
        Catalog(tasks=kept)
    with pytest.raises(DefinitionError, match="factory"):

        @with_tasks.tool(task="required", factory="make")
        async def made() -> None:
            """Do."""

    class Own(Tool, task="required", register=False):
        """Do."""

        async def perform(self) -> None: ...

    with pytest.raises(DefinitionError, match="view alone"):
        with_tasks.view(ANN, extra_tools=[Own])
    plain = Catalog()

    @plain.tool
    async def p() -> None:
        """Do."""

    refused = await plain.view(ANN).call("p", as_task=True)
    assert refused.error is not None
    assert (refused.error.kind, "not configured" in refused.text) == ("invalid_arguments", True)


@pytest.mark.parametrize("moment", ["it waits", "it was answered"])
async def test_an_answer_to_one_question_is_none_to_another_that_stands_in_its_place_after_a_restart(
    tmp_path: Path, moment: str
) -> None:
    heard: list[object] = []

    def catalog_that_asks(*questions: str) -> Catalog:
        made = Catalog("tests", tasks=Tasks(f"sqlite:{tmp_path}/tasks.db"))

        @made.tool(task="required")
        async def tidy(ctx: CallContext) -> object:
            """Tidy up."""
            for question in questions:
                answer = await ctx.ask(question, schema={"type": "boolean"})
                heard.append(answer)
            return "tidied"

        return made

    before = catalog_that_asks("Tidy the desk?", "Sure?")
    task_id = await begun(before, "tidy")
    if moment == "it was answered":
        await until(before, task_id, lambda record: record.questions)
        await before.tasks.answer(task_id, ANN, {"question-1": YES})
        await until(before, task_id, lambda record: "question-2" in record.questions)
    else:
        await until(before, task_id, lambda record: record.questions)
    await before.close()
    heard.clear()
    after = catalog_that_asks("Delete everything?", "Sure?")
    try:
        await after.tasks.wake()
        if moment == "it waits":
            # What the person reads is the first question; the answer may come at any moment.
            await after.tasks.answer(task_id, ANN, {"question-1": YES})
        ended = await until(after, task_id, lambda record: record.is_over)
        assert (ended.state, ended.error and ended.error.kind, heard) == ("failed", "needs_review", [])
    finally:
        await after.close()
