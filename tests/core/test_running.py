"""Running: timeout, cancellation, worker threads, lanes, shutdown. The caller is answered at the deadline, always."""

import asyncio
import contextvars
import logging
import threading
from typing import Any

import pytest

from pegboard import CallContext, CallError, Catalog, ToolSpec
from pegboard.model.agent import ModelSpec
from pegboard.model.record import replace
from pegboard.model.tool import Annotations, ToolEntry
from tests.core.parts import ANN, Clock, Recorder, kind_of, one_tool, spec
from tests.timing import compute, within


async def forever(ctx: Any, args: Any) -> None:
    await asyncio.Event().wait()


async def stubborn(ctx: Any, args: Any) -> None:
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue


# ---------------------------------------------------------------- timeout


@pytest.mark.parametrize("handler", [forever, stubborn])
async def test_a_tool_is_answered_for_at_its_timeout_even_if_it_ignores_it(handler: Any) -> None:
    recorder = Recorder()
    with within(0.9):
        result = await one_tool(handler, timeout_s=0.05).view(ANN).call("echo", callbacks=recorder)
    assert result.error is not None
    assert (result.error.kind, result.error.retryable, result.error.outcome_unknown) == ("timeout", True, True)
    assert "within 0.05 s" in result.text
    assert "check before you repeat it" in result.text
    assert [event.ok for event in recorder.results()] == [False]


async def test_a_tool_that_only_reads_may_be_repeated_after_a_timeout() -> None:
    result = await one_tool(forever, timeout_s=0.01, annotations=Annotations(read_only=True)).view(ANN).call("echo")
    assert result.error is not None
    assert result.error.outcome_unknown is False
    assert "may be repeated" in result.text


async def test_a_tool_cleans_up_when_its_time_is_over() -> None:
    cleaned: list[str] = []

    async def tidy(ctx: Any, args: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append("done")

    assert kind_of(await one_tool(tidy, timeout_s=0.02).view(ANN).call("echo")) == "timeout"
    assert cleaned == ["done"]


async def test_a_value_given_just_before_the_deadline_counts() -> None:
    async def late(ctx: Any, args: Any) -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "partial"
        return ""

    result = await one_tool(late, timeout_s=0.02).view(ANN).call("echo")
    assert (kind_of(result), result.text) in (("ok", "partial"), ("timeout", result.text))


async def test_a_sync_tool_in_a_thread_is_answered_for_at_its_timeout() -> None:
    release = threading.Event()

    def wait(ctx: Any, args: Any) -> None:
        release.wait(60.0)

    try:
        with within(0.9):
            assert kind_of(await one_tool(wait, timeout_s=0.05).view(ANN).call("echo")) == "timeout"
    finally:
        release.set()


async def test_the_deadline_of_the_request_shortens_the_timeout() -> None:
    clock = Clock(100.0)
    catalog = one_tool(forever, catalog=Catalog(clock=clock), timeout_s=20.0)
    with within(0.9):
        assert kind_of(await catalog.view(replace(ANN, deadline=100.03)).call("echo")) == "timeout"


async def test_what_a_tool_loads_before_it_runs_counts_in_the_requests_deadline_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop, clock, ran = asyncio.get_running_loop(), Clock(100.0), list[str]()
    real, began = loop.time, clock.now
    monkeypatch.setattr(loop, "time", lambda: real() + clock.now - began)

    async def load(call: Any) -> None:
        if not ran:
            await asyncio.sleep(0)
            clock.now += 60.0
            await asyncio.sleep(0.01)

    async def work(ctx: Any, args: Any) -> str:
        await asyncio.sleep(0)
        ran.append("work")
        return "done"

    catalog = Catalog(clock=clock)
    catalog.register(replace(spec(timeout_s=30.0).bind(work), prepare=load))
    late = await catalog.view(replace(ANN, deadline=clock.now + 59.0)).call("echo")
    assert late.error is not None
    assert (late.error.kind, late.error.outcome_unknown, ran) == ("timeout", False, [])
    assert "before it ran" in late.text
    for _ in range(2):
        assert (await catalog.view(ANN).call("echo")).text == "done"
    assert (ran, clock.now) == (["work", "work"], began + 120.0)


async def test_a_tool_loads_the_packages_of_an_agent_where_agents_can_run() -> None:
    loaded = list[object]()

    class Runner:
        async def load(self, agent: object) -> None:
            loaded.append(agent)

    model = ModelSpec(provider="openai", name="m")

    async def load(call: Any) -> None:
        await call.load_agent("helper")
        await call.load_model(model)

    catalog = Catalog()
    catalog.register(replace(spec().bind(lambda ctx, args: "done"), prepare=load))
    for agents in (None, Runner()):
        catalog.executor.swap(replace(catalog.executor.ports, agents=agents))
        assert (await catalog.view(ANN).call("echo")).text == "done"
    assert loaded == ["helper", model]


async def test_sleeping_tasks_groups_and_shields_work_inside_a_tool() -> None:
    async def busy(ctx: Any, args: Any) -> list[int]:
        async def one(number: int) -> int:
            await asyncio.sleep(0.001)
            return number

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(number)) for number in range(3)]
        async with asyncio.timeout(60):
            more = await asyncio.gather(one(3), asyncio.shield(one(4)), asyncio.to_thread(lambda: 5))
        await asyncio.sleep(0)
        return [task.result() for task in tasks] + list(more)

    assert (await one_tool(busy).view(ANN).call("echo")).structured == [0, 1, 2, 3, 4, 5]


async def test_a_timeout_of_the_tools_own_making_is_its_own_business() -> None:
    async def careful(ctx: Any, args: Any) -> str:
        try:
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()
        except TimeoutError:
            return "gave up"
        return ""

    assert (await one_tool(careful).view(ANN).call("echo")).text == "gave up"

    async def careless(ctx: Any, args: Any) -> None:
        raise TimeoutError("upstream")

    assert kind_of(await one_tool(careless).view(ANN).call("echo")) == "tool_error"


# ---------------------------------------------------------------- cancellation


async def started(recorder: Recorder) -> str:
    """Return the id of the call that runs, as soon as it has begun."""
    while not recorder.events:
        await asyncio.sleep(0)
    return recorder.events[0].call_id


@pytest.mark.parametrize("handler", [forever, stubborn])
async def test_a_running_call_is_cancelled_by_its_id(handler: Any) -> None:
    recorder = Recorder()
    catalog = one_tool(handler)
    running = asyncio.create_task(catalog.view(ANN).call("echo", callbacks=recorder))
    call_id = await started(recorder)
    await asyncio.sleep(0)
    with within(0.9):
        assert catalog.cancel(call_id)
        result = await running
    assert result.error is not None
    assert (result.error.kind, result.error.outcome_unknown) == ("cancelled", True)
    assert [event.ok for event in recorder.results()] == [False]
    assert not catalog.cancel(call_id), "it is over"
    assert not catalog.cancel("no-such-call")


async def test_a_call_cancelled_before_it_ran_never_runs() -> None:
    ran: list[int] = []

    async def work(ctx: Any, args: Any) -> None:
        ran.append(1)

    class AtOnce:
        def on_tool_call(self, event: Any) -> None:
            catalog.cancel(event.call_id)

    catalog = one_tool(work)
    assert (kind_of(await catalog.view(ANN).call("echo", callbacks=AtOnce())), ran) == ("cancelled", [])


async def test_the_callers_own_cancellation_is_raised_and_told_once() -> None:
    recorder, completed = Recorder(), list[str]()
    catalog = one_tool(forever)
    catalog.on_complete()(lambda call, result: completed.append(kind_of(result)))
    running = asyncio.create_task(catalog.view(ANN).call("echo", callbacks=recorder))
    await started(recorder)
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert [(event.ok, event.payload["kind"]) for event in recorder.results()] == [(False, "cancelled")]
    assert completed == ["cancelled"]
    assert not catalog.executor.in_flight


async def test_the_callers_timeout_ends_a_stubborn_tool_too() -> None:
    recorder = Recorder()
    with within(1.5), pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await one_tool(stubborn, timeout_s=0.5).view(ANN).call("echo", callbacks=recorder)
    assert [event.ok for event in recorder.results()] == [False]


async def test_a_tool_that_cancels_itself_ends_as_cancelled_and_not_its_caller() -> None:
    async def selfish(ctx: Any, args: Any) -> None:
        raise asyncio.CancelledError

    recorder = Recorder()
    assert kind_of(await one_tool(selfish).view(ANN).call("echo", callbacks=recorder)) == "cancelled"
    assert len(recorder.results()) == 1


def quick_to_swallow(began: asyncio.Event) -> Any:
    async def work(ctx: Any, args: Any) -> None:
        began.set()
        await stubborn(ctx, args)

    return work


def in_a_thread(began: asyncio.Event) -> Any:
    loop, over = asyncio.get_running_loop(), threading.Event()

    def work(ctx: Any, args: Any) -> None:
        loop.call_soon_threadsafe(began.set)
        over.wait(1)

    return work


def waiting(began: asyncio.Event) -> Any:
    async def work(ctx: Any, args: Any) -> None:
        began.set()
        await asyncio.Event().wait()

    return work


def spinning(began: asyncio.Event) -> Any:
    async def work(ctx: Any, args: Any) -> None:
        began.set()
        while True:
            await asyncio.sleep(0)

    return work


@pytest.mark.parametrize("how", ["cancelled", "timeout", "shutting_down", "by its task"])
@pytest.mark.parametrize("work", [waiting, spinning, in_a_thread, quick_to_swallow])
@pytest.mark.parametrize("inner_context", ["of the call", "of the host"])
async def test_a_call_that_is_stopped_while_it_waits_for_another_ends_so_and_the_other_with_it(
    how: str, work: Any, inner_context: str
) -> None:
    recorder, began, went_on = Recorder(), asyncio.Event(), list[str]()
    catalog = Catalog()
    catalog.register(spec("inmost"), work(began))

    def calling(name: str) -> Any:
        async def outer(ctx: CallContext, args: Any) -> str:
            view = catalog.view(ctx if inner_context == "of the call" else ANN)
            result = await view.call(name)
            went_on.append(name)
            return f"went on after {kind_of(result)}"

        return outer

    catalog.register(spec("middle"), calling("inmost"))
    catalog.register(replace(spec("outer"), timeout_s=0.05 if how == "timeout" else None), calling("middle"))
    catalog.observe(recorder)
    running = asyncio.create_task(catalog.view(ANN).call("outer"))
    call_id = await started(recorder)
    await began.wait()
    await asyncio.sleep(0)
    with within(1.5):
        if how == "cancelled":
            catalog.cancel(call_id)
        elif how == "shutting_down":
            await catalog.close(grace_s=0)
        elif how == "by its task":
            running.cancel()
        [result] = await asyncio.gather(running, return_exceptions=True)
    own = "cancelled" if how == "by its task" else how
    within_it = own if how == "shutting_down" else "cancelled"
    ends = [(event.tool, event.payload["kind"]) for event in recorder.results()]
    assert ends == [("inmost", within_it), ("middle", within_it), ("outer", own)]
    if isinstance(result, BaseException):
        assert (how, type(result)) == ("by its task", asyncio.CancelledError)
    else:
        assert kind_of(result) == how
    assert not went_on
    assert not catalog.executor.in_flight


async def test_a_call_that_another_cancels_is_an_answer_and_not_the_end_of_the_other() -> None:
    recorder, catalog = Recorder(), Catalog()

    async def selfish(ctx: Any, args: Any) -> None:
        raise asyncio.CancelledError("stopped from outside")

    async def outer(ctx: CallContext, args: Any) -> str:
        return kind_of(await catalog.view(ctx).call("selfish"))

    catalog.register(spec("selfish"), selfish)
    catalog.register(spec("outer"), outer)
    assert (await catalog.view(ANN).call("outer", callbacks=recorder)).text == "cancelled"
    assert [event.payload["kind"] for event in recorder.results()] == ["cancelled", "ok"]


async def test_cancelling_one_call_leaves_the_others_alone() -> None:
    release = asyncio.Event()

    async def wait(ctx: CallContext, args: Any) -> str:
        await release.wait()
        return ctx.call_id

    catalog = one_tool(wait)
    recorders = [Recorder() for _ in range(3)]
    running = [asyncio.create_task(catalog.view(ANN).call("echo", callbacks=recorder)) for recorder in recorders]
    ids = [await started(recorder) for recorder in recorders]
    await asyncio.sleep(0)
    catalog.cancel(ids[1])
    cancelled = await running[1]
    release.set()
    assert (kind_of(cancelled), (await running[0]).text, (await running[2]).text) == ("cancelled", ids[0], ids[2])


# ---------------------------------------------------------------- where it runs


async def test_sync_tools_run_in_threads_and_inline_ones_where_they_are_called() -> None:
    threads: dict[str, threading.Thread] = {}

    def note(name: str) -> Any:
        def work(ctx: Any, args: Any) -> None:
            threads[name] = threading.current_thread()

        return work

    catalog = Catalog()
    catalog.register(spec("plain"), note("plain"))
    catalog.register(spec("inline"), note("inline"), runs="inline")
    for name in ("plain", "inline"):
        assert kind_of(await catalog.view(ANN).call(name)) == "ok"
    assert threads["inline"] is threading.current_thread()
    assert threads["plain"] is not threading.current_thread()


async def test_threads_see_the_context_variables_of_the_caller() -> None:
    who = contextvars.ContextVar("who", default="nobody")

    def look(ctx: Any, args: Any) -> str:
        return who.get()

    who.set("ann")
    assert (await one_tool(look).view(ANN).call("echo")).text == "ann"


async def test_a_blocking_sync_tool_does_not_hold_up_others() -> None:
    entered, release = threading.Event(), threading.Event()

    def block(ctx: Any, args: Any) -> str:
        entered.set()
        release.wait(60.0)
        return "late"

    async def quick(ctx: Any, args: Any) -> str:
        return "quick"

    catalog = one_tool(block)
    catalog.register(ToolSpec(name="quick"), quick)
    running = asyncio.create_task(catalog.view(ANN).call("echo"))
    await asyncio.to_thread(entered.wait)
    with within(0.5):
        assert (await catalog.view(ANN).call("quick")).text == "quick"
    release.set()
    assert (await running).text == "late"


async def test_a_handler_may_be_a_sync_function_that_gives_an_awaitable() -> None:
    async def later() -> str:
        return "later"

    assert (await one_tool(lambda ctx, args: later(), runs="async").view(ANN).call("echo")).text == "later"
    assert (await one_tool(lambda ctx, args: "now", runs="async").view(ANN).call("echo")).text == "now"


async def test_an_object_with_an_async_call_is_awaited() -> None:
    class Handler:
        async def __call__(self, ctx: Any, args: Any) -> str:
            return "called"

    assert (await one_tool(Handler()).view(ANN).call("echo")).text == "called"


async def test_a_declaration_without_a_handler_says_that_it_cannot_run_here() -> None:
    catalog = Catalog()
    catalog.register(ToolEntry(spec=ToolSpec(name="echo")))
    result = await catalog.view(ANN).call("echo")
    assert (kind_of(result), "without a handler" in result.text) == ("tool_error", True)


# ---------------------------------------------------------------- lanes


async def test_a_tool_runs_at_most_so_many_at_once_and_is_busy_above() -> None:
    release = asyncio.Event()

    async def wait(ctx: Any, args: Any) -> None:
        await release.wait()

    catalog = one_tool(wait, max_concurrency=2)
    view = catalog.view(ANN)
    running = [asyncio.create_task(view.call("echo")) for _ in range(2)]
    await asyncio.sleep(0)
    refused = await view.call("echo")
    assert refused.error is not None
    assert (refused.error.kind, refused.error.retryable, refused.error.outcome_unknown) == ("busy", True, False)
    release.set()
    assert [kind_of(result) for result in await asyncio.gather(*running)] == ["ok", "ok"]
    assert kind_of(await view.call("echo")) == "ok", "the places are free again"


async def test_a_place_is_given_back_however_the_call_ended() -> None:
    modes = ["raise", "timeout", "cancel", "ok"]

    async def work(ctx: Any, args: Any) -> str:
        match args["mode"]:
            case "raise":
                raise CallError("read_only", "Frozen.")
            case "timeout":
                await asyncio.Event().wait()
            case "cancel":
                raise asyncio.CancelledError
        return "ok"

    view = one_tool(work, max_concurrency=1, timeout_s=0.02).view(ANN)
    assert [kind_of(await view.call("echo", {"mode": mode})) for mode in modes] == [
        "read_only",
        "timeout",
        "cancelled",
        "ok",
    ]


# ---------------------------------------------------------------- shutdown


async def test_closing_lets_running_calls_end_and_then_stops_the_rest() -> None:
    release = asyncio.Event()

    async def wait(ctx: Any, args: Any) -> str:
        await release.wait()
        return "drained"

    recorder, clock = Recorder(), Clock(100.0)
    catalog = one_tool(wait, catalog=Catalog(clock=clock))
    catalog.register(ToolSpec(name="stuck"), stubborn)
    quick = asyncio.create_task(catalog.view(ANN).call("echo"))
    stuck = asyncio.create_task(catalog.view(ANN).call("stuck", callbacks=recorder))
    await asyncio.sleep(0)
    closing = asyncio.create_task(catalog.close(grace_s=1.0))
    await asyncio.sleep(0)
    assert kind_of(await catalog.view(ANN).call("echo")) == "shutting_down", "it takes no more"
    release.set()
    assert (await quick).text == "drained"
    assert not stuck.done()
    clock.now += 1.0
    with within(1.5):
        result = await stuck
        await closing
    assert result.error is not None
    assert (result.error.kind, result.error.retryable, result.error.outcome_unknown) == ("shutting_down", True, True)
    assert len(recorder.results()) == 1


async def test_closing_with_nothing_in_flight_is_immediate_and_may_be_repeated() -> None:
    catalog = one_tool(lambda ctx, args: None)
    await catalog.view(ANN).call("echo")
    with within(0.5):
        await catalog.close()
        await catalog.close()


async def test_async_code_that_holds_the_loop_is_reported_by_name(caplog: pytest.LogCaptureFixture) -> None:
    async def rude(ctx: Any, args: Any) -> None:
        compute(0.12)

    with caplog.at_level(logging.WARNING):
        await one_tool(rude).view(ANN).call("echo")
    assert "'echo' held the event loop" in caplog.text
