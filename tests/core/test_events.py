"""Events: one result for every call, in order, whatever the observers do."""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from pegboard import (
    Bounds,
    CallContext,
    CallError,
    Catalog,
    DefinitionError,
    Event,
    EventQueue,
    RateLimit,
    Secret,
    ToolContext,
    Verdict,
)
from pegboard.model.record import replace
from tests.core.parts import ANN, Recorder, echo, kind_of, one_tool
from tests.timing import CPU, PATIENCE_S, is_within


async def every_end() -> AsyncIterator[tuple[str, Recorder]]:
    """Run one call to each kind of end; give the kind, and who observed it."""

    async def work(ctx: Any, args: Any) -> Any:
        match args.get("mode"):
            case "hang":
                await asyncio.Event().wait()
            case "bug":
                raise ValueError("x")
            case "typed":
                raise CallError("upstream_error", "The backend said 500.")
            case "odd":
                return object()
            case "large":
                return "x" * 2_000
        return "fine"

    catalog = one_tool(work, timeout_s=0.02, rate_limit=RateLimit(max_calls=6, window_s=60.0), max_result_bytes=1_000)
    catalog.before()(lambda call: Verdict.deny("no") if call.args.get("mode") == "deny" else None)
    catalog.before()(lambda call: Verdict.ask("?") if call.args.get("mode") == "ask" else None)
    for name, args in [
        ("nothing", {}),
        ("echo", "{"),
        *(
            ("echo", {"mode": mode})
            for mode in ("deny", "ask", "hang", "bug", "typed", "odd", "large", "fine", "again")
        ),
    ]:
        recorder = Recorder()
        yield kind_of(await catalog.view(ANN).call(name, args, callbacks=recorder)), recorder


async def test_every_call_has_exactly_one_result_event_which_is_not_ok_for_errors() -> None:
    kinds: list[str] = []
    async for kind, recorder in every_end():
        kinds.append(kind)
        assert recorder.types() == ["on_tool_call", "on_tool_result"], kind
        [event] = recorder.results()
        assert (event.ok, event.payload["kind"]) == (kind == "ok", kind)
    assert kinds == [
        "not_found", "invalid_arguments", "hook_refused", "consent_required", "timeout", "tool_error", "upstream_error",
        "output_invalid", "result_too_large", "ok", "rate_limited",
    ]  # fmt: skip


async def test_events_carry_who_what_when_and_their_place() -> None:
    async def work(ctx: CallContext, args: Any) -> str:
        ctx.progress(0.5, "half")
        ctx.emit({"rows": 3})
        return ctx.call_id

    recorder = Recorder()
    catalog = one_tool(work)
    catalog.executor.swap(replace(catalog.executor.ports, wall_clock=lambda: 1_700_000_000.0))
    ctx = replace(ANN, request_id="r1", parent_call="p0")
    result = await catalog.view(ctx).call("echo", {"a": 1}, callbacks=recorder)
    assert recorder.types() == ["on_tool_call", "on_progress", "on_progress", "on_tool_result"]
    assert {(e.request_id, e.call_id, e.parent_call_id, e.at, e.tool) for e in recorder.events} == {
        ("r1", result.text, "p0", 1_700_000_000.0, "echo")
    }
    seq = [event.seq for event in recorder.events]
    assert seq == sorted(set(seq))
    assert recorder.events[1].payload == {"fraction": 0.5, "message": "half"}
    assert recorder.events[2].payload == {"rows": 3}
    assert recorder.events[0].payload["arguments"] == {"a": 1}


async def test_the_sequence_grows_over_all_calls_of_a_request() -> None:
    recorder = Recorder()
    view = one_tool().view(replace(ANN, callbacks=recorder))
    await asyncio.gather(*(view.call("echo") for _ in range(5)))
    seq = [event.seq for event in recorder.events]
    assert len(set(seq)) == 10
    for call_id in {event.call_id for event in recorder.events}:
        assert [e.type for e in recorder.events if e.call_id == call_id] == ["on_tool_call", "on_tool_result"]


async def test_progress_from_a_worker_thread_arrives_before_the_result() -> None:
    def work(ctx: CallContext, args: Any) -> str:
        for step in range(3):
            ctx.progress(step / 2)
        return threading.current_thread().name

    heard_in: set[str] = set()

    class Heard(Recorder):
        def on_progress(self, event: Event) -> None:
            heard_in.add(threading.current_thread().name)
            self.events.append(event)

    recorder = Heard()
    result = await one_tool(work).view(ANN).call("echo", callbacks=recorder)
    assert recorder.types() == ["on_tool_call", *["on_progress"] * 3, "on_tool_result"]
    assert heard_in == {threading.current_thread().name}
    assert result.text not in heard_in


async def test_async_observers_hear_everything_in_order_and_may_be_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    # A busy machine makes quick ones slow.
    monkeypatch.setattr("pegboard.core.call.deliveries.OBSERVERS_S", PATIENCE_S)
    heard: list[str] = []

    class Slow:
        async def on_tool_call(self, event: Event) -> None:
            await asyncio.sleep(0.01)
            heard.append("call")

        async def on_progress(self, event: Event) -> None:
            await asyncio.sleep(0)
            heard.append(f"progress {event.payload['fraction']}")

        async def on_tool_result(self, event: Event) -> None:
            heard.append("result")

    async def work(ctx: CallContext, args: Any) -> list[str]:
        await ctx.progress(0.1)
        return list(heard)

    result = await one_tool(work).view(ANN).call("echo", callbacks=[Slow(), Slow()])
    assert result.structured == ["call", "call", "progress 0.1", "progress 0.1"], (
        "awaiting an event waits for observers"
    )
    await asyncio.sleep(0)
    assert heard == [*result.structured, "result", "result"]


# (SystemExit out of a task is asyncio's to hand on.)
@pytest.mark.parametrize(
    ("error", "is_async"),
    [(ValueError("x"), False), (SystemExit(1), False), (KeyboardInterrupt(), False), (ValueError("x"), True)],
)
async def test_an_observer_that_raises_is_logged_and_breaks_nothing(
    error: BaseException, is_async: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # That one is slow, which a busy machine makes it, is logged as well.
    monkeypatch.setattr("pegboard.core.call.deliveries.OBSERVERS_S", PATIENCE_S)

    def listen(event: Event) -> None:
        raise error

    async def listen_later(event: Event) -> None:
        raise error

    class Broken:
        on_tool_call = on_tool_result = staticmethod(listen_later if is_async else listen)

    recorder = Recorder()
    result = await one_tool().view(ANN).call("echo", {"a": 1}, callbacks=[Broken(), recorder])
    assert (result.structured, recorder.types()) == ({"a": 1}, ["on_tool_call", "on_tool_result"])
    async with asyncio.timeout(PATIENCE_S):
        while len(caplog.records) < 2:
            await asyncio.sleep(0)
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2


async def test_an_observer_that_hangs_holds_nobody_up() -> None:
    class Hangs:
        async def on_tool_call(self, event: Event) -> None:
            await asyncio.Event().wait()

    recorder = Recorder()
    async with asyncio.timeout(60):
        assert kind_of(await one_tool().view(ANN).call("echo", callbacks=[Hangs(), recorder])) == "ok"
    assert recorder.types() == ["on_tool_call", "on_tool_result"]


async def test_an_async_observer_has_the_time_that_the_bounds_give_it() -> None:
    async def work(ctx: CallContext, args: Any) -> str:
        for step in range(20):
            ctx.progress(step / 20)
        return "fine"

    class Stuck:
        async def on_progress(self, event: Event) -> None:
            await asyncio.Event().wait()

    catalog = one_tool(work, catalog=Catalog(bounds=Bounds(hook_s=0.01)))
    catalog.observe(Stuck())
    started = time.monotonic()
    assert (await catalog.view(ANN).call("echo", {})).text == "fine"
    # They come one after the other: at the usual second each, this would take twenty.
    assert is_within(time.monotonic() - started, 3)


async def test_an_observer_with_some_of_the_methods_hears_only_those() -> None:
    class Results:
        def __init__(self) -> None:
            self.heard: list[bool | None] = []

        def on_tool_result(self, event: Event) -> None:
            self.heard.append(event.ok)

    results = Results()
    await one_tool().view(ANN).call("echo", callbacks=[results, SimpleNamespace(on_progress=print)])
    assert results.heard == [True]


async def test_an_observer_never_changes_the_result() -> None:
    class Meddler:
        def on_tool_call(self, event: Event) -> str:
            return "instead"

        def on_tool_result(self, event: Event) -> None:
            payload: Any = event.payload
            payload["kind"] = "changed"

    recorder = Recorder()
    result = await one_tool().view(ANN).call("echo", {"a": 1}, callbacks=[Meddler(), recorder])
    assert result.structured == {"a": 1}
    assert len(recorder.results()) == 1


# ---------------------------------------------------------------- sub-agents


async def test_a_sub_agent_is_announced_heard_and_ended() -> None:
    async def work(ctx: CallContext, args: Any) -> str:
        async with ctx.sub_agent("researcher") as sub:
            await sub.chunk("thinking")
            await sub.tool_call("search", {"q": "x"})
            await sub.tool_result("search", {"hits": 1})
        return "done"

    recorder = Recorder()
    await one_tool(work).view(ANN).call("echo", callbacks=recorder)
    assert recorder.types() == [
        "on_tool_call", "on_sub_agent_start", "on_sub_agent_chunk", "on_sub_agent_tool_call",
        "on_sub_agent_tool_result", "on_sub_agent_end", "on_tool_result",
    ]  # fmt: skip
    of_agent = recorder.events[1:-1]
    assert {event.payload["agent"] for event in of_agent} == {"researcher"}
    assert len({event.payload["sub_id"] for event in of_agent}) == 1
    assert (of_agent[-1].payload["status"], of_agent[-1].ok) == ("completed", True)


async def test_a_sub_agent_that_fails_ends_as_failed() -> None:
    async def work(ctx: CallContext, args: Any) -> str:
        async with ctx.sub_agent("researcher"):
            raise CallError("upstream_error", "down")

    recorder = Recorder()
    assert kind_of(await one_tool(work).view(ANN).call("echo", callbacks=recorder)) == "upstream_error"
    end = recorder.events[-2]
    assert (end.type, end.payload["status"], end.ok) == ("on_sub_agent_end", "failed", False)


async def test_calls_of_a_child_context_name_their_parent_call() -> None:
    recorder = Recorder()

    async def work(ctx: CallContext, args: Any) -> str:
        if ctx.depth == 0:
            await catalog.view(ctx.child(agent="inner")).call("echo")
        return ctx.call_id

    catalog = one_tool(work)
    result = await catalog.view(replace(ANN, callbacks=recorder)).call("echo")
    outer = [event for event in recorder.events if event.call_id == result.text]
    inner = [event for event in recorder.events if event.call_id != result.text]
    assert {event.parent_call_id for event in outer} == {None}
    assert {event.parent_call_id for event in inner} == {result.text}
    assert {event.request_id for event in recorder.events} == {ANN.request_id}


# ---------------------------------------------------------------- other ways to listen


async def test_events_can_be_read_as_an_async_iterator() -> None:
    queue = EventQueue()
    await one_tool().view(ANN).call("echo", callbacks=queue)
    queue.close()
    assert [event.type async for event in queue] == ["on_tool_call", "on_tool_result"]


async def test_a_full_queue_drops_the_oldest_and_counts_them() -> None:
    queue = EventQueue(max_events=2)
    view = one_tool().view(ToolContext(callbacks=queue))
    for _ in range(2):
        await view.call("echo")
    assert queue.dropped == 2
    with pytest.raises(AttributeError):
        _ = queue.something_else


async def test_a_tool_logs_with_its_name_and_call_id(caplog: pytest.LogCaptureFixture) -> None:
    async def work(ctx: CallContext, args: Any) -> str:
        ctx.log("12 rows read", level=logging.WARNING)
        return ctx.call_id

    result = await one_tool(work).view(ANN).call("echo")
    [record] = caplog.records
    assert record.name == "pegboard.tool"
    assert record.getMessage() == f"echo [call {result.text}] 12 rows read"
    assert kind_of(await one_tool(echo).view(ANN).call("echo")) == "ok"


async def test_progress_that_nobody_observes_may_be_awaited_too() -> None:
    async def work(ctx: CallContext, args: Any) -> str:
        await ctx.progress(0.5)
        await ctx.emit({})
        return "done"

    assert (await one_tool(work).view(ANN).call("echo")).text == "done"


def test_an_observer_still_at_work_when_the_program_ends_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[str] = []

    class Endless:
        async def on_tool_call(self, event: Event) -> None:
            heard.append(event.type)
            await asyncio.Event().wait()

    async def program() -> None:
        running = asyncio.create_task(one_tool().view(ANN).call("echo", callbacks=Endless()))
        while not heard:
            await asyncio.sleep(0)
        assert not running.done()

    asyncio.run(program())
    assert (heard, caplog.records) == (["on_tool_call"], [])


async def test_an_observer_that_writes_into_an_event_changes_nothing() -> None:
    class Meddler:
        def on_tool_call(self, event: Event) -> None:
            with suppress(TypeError):
                event.payload["arguments"]["n"] = "meddled"

        def on_tool_result(self, event: Event) -> None:
            with suppress(TypeError):
                event.payload["result"].structured["n"] = "meddled"

    given = {"n": 1}
    result = await one_tool(properties={"n": {"type": "integer"}}).view(ANN).call("echo", given, callbacks=Meddler())
    assert (result.structured, given) == ({"n": 1}, {"n": 1})


async def test_an_observer_that_writes_into_a_list_changes_nothing() -> None:
    class Meddler:
        def on_tool_result(self, event: Event) -> None:
            event.payload["result"].structured[0].append("meddled")

    async def give(ctx: Any, args: Any) -> Any:
        return [["first"]]

    result = await one_tool(give).view(ANN).call("echo", callbacks=Meddler())
    assert result.structured == [["first"]]


def nested(levels: int) -> Any:
    value: Any = {}
    for _ in range(levels):
        value = {"in": value}
    return value


@pytest.mark.parametrize(
    "make",
    [
        lambda: nested(10_000),
        lambda: [nested(10_000)],
        lambda: {key: [1] for key in map(str, range(200_000))},
        lambda: b"[" * 10_000,
    ],
    ids=["deep", "deep in a list", "many keys", "deep text"],
)
async def test_observers_make_a_hostile_request_no_dearer_and_are_spared_it(make: Callable[[], Any]) -> None:
    recorder, args = Recorder(), make()
    view = one_tool().view(replace(ANN, secrets={"key": Secret("a-secret-value")}))
    started = time.process_time()
    result = await view.call("echo", args, callbacks=recorder)
    assert is_within(time.process_time() - started, 0.05, CPU)
    assert kind_of(result) == "invalid_arguments"
    assert recorder.types() == ["on_tool_call", "on_tool_result"]
    assert recorder.events[0].payload["arguments"] == "(not read)"


async def test_arguments_given_as_text_are_shown_as_json_without_secrets() -> None:
    recorder = Recorder()
    view = one_tool().view(replace(ANN, secrets={"key": Secret("a-secret-value")}))
    await view.call("echo", b'{"key": "a-secret-value"}', callbacks=recorder)
    assert recorder.events[0].payload["arguments"] == {"key": "[redacted]"}


async def test_a_secret_in_a_tuple_that_a_tool_sends_reaches_no_observer() -> None:
    recorder, catalog = Recorder(), Catalog()

    @catalog.tool
    async def sends(ctx: CallContext) -> str:
        pair: Any = ("a-secret-value", ["a-secret-value", 1])
        await ctx.emit({"pair": pair, "clean": ("a", "b")})
        return "sent"

    view = catalog.view(replace(ANN, secrets={"key": Secret("a-secret-value")}))
    await view.call("sends", callbacks=recorder)
    assert recorder.events[1].payload == {"pair": ("[redacted]", ["[redacted]", 1]), "clean": ("a", "b")}


@pytest.mark.parametrize("event", ["on_tool_call", "on_tool_result"])
@pytest.mark.parametrize("is_async", [False, True])
async def test_an_observer_that_raises_cancelled_breaks_nothing(event: str, is_async: bool) -> None:
    async def later(event: Event) -> None:
        raise asyncio.CancelledError

    def now(event: Event) -> None:
        raise asyncio.CancelledError

    observer = SimpleNamespace(**{event: later if is_async else now})
    assert kind_of(await one_tool().view(ANN).call("echo", callbacks=observer)) == "ok"


@pytest.mark.parametrize("callbacks", [print, {"on_tool_call": print}, 5, [Recorder(), print], {"on_tool_cal": print}])
async def test_callbacks_that_would_hear_nothing_are_refused_wherever_they_are_given(callbacks: Any) -> None:
    catalog = one_tool(echo)
    for given in ({"callbacks": callbacks}, {}):
        ctx = ToolContext() if given else ToolContext(callbacks=callbacks)
        with pytest.raises(DefinitionError, match=r"has no event method.*on_tool_call\(event\)"):
            await catalog.view(ctx).call("echo", {}, **given)
