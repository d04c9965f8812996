"""The shared execution cases that touch what exists. Named after their ids."""

import asyncio
import threading
import time
from typing import Any

import pytest

from pegboard import CallBudget, CallContext, Catalog, ToolContext, ToolSpec, Verdict
from pegboard.model.record import replace
from tests.core.parts import ANN, Recorder, echo, kind_of, one_tool
from tests.timing import compute, is_within


class MuteError(Exception):
    """An exception that cannot be printed."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class PoisonError(Exception):
    """An exception that ends who prints it."""

    @property
    def __notes__(self) -> list[str]:  # pyright: ignore[reportIncompatibleVariableOverride] - the trap
        raise SystemExit(3)


def every_error() -> list[BaseException]:
    return [
        BaseException("x"), SystemExit(3), KeyboardInterrupt(), GeneratorExit(), RecursionError(), MemoryError(),
        MuteError(), PoisonError(), ExceptionGroup("many", [ValueError("a"), MuteError()]),
        BaseExceptionGroup("many", [SystemExit(1)]), StopIteration(1), StopAsyncIteration(),
        asyncio.CancelledError(), asyncio.InvalidStateError(), TimeoutError(),
        AssertionError(), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), OSError(28, "No space left on device"),
    ]  # fmt: skip


@pytest.mark.parametrize("how", ["async", "async, later", "thread", "inline"])
@pytest.mark.parametrize("error", every_error(), ids=lambda error: type(error).__name__)
async def test_exec_08_whatever_a_handler_raises_becomes_one_definite_error(error: BaseException, how: str) -> None:
    said: list[str] = []

    def now(ctx: Any, args: Any) -> None:
        raise error

    async def at_once(ctx: Any, args: Any) -> None:
        raise error

    async def later(ctx: Any, args: Any) -> None:
        await asyncio.sleep(0)
        raise error

    handler = {"async": at_once, "async, later": later}.get(how, now)
    catalog = one_tool(handler, runs="inline" if how == "inline" else None)
    catalog.register(ToolSpec(name="fine"), echo)
    catalog.before()(lambda call: said.append("before"))
    catalog.after()(lambda call, result: said.append("after"))
    catalog.on_error()(lambda call, result: said.append("on_error"))
    catalog.on_complete()(lambda call, result: said.append("on_complete"))
    recorder = Recorder()
    result = await catalog.view(ANN).call("echo", callbacks=recorder)
    assert result.error is not None
    assert result.error.kind == ("cancelled" if isinstance(error, asyncio.CancelledError) else "tool_error")
    assert result.error.outcome_unknown is True
    assert said == ["before", "on_error", "on_complete"]
    assert [event.ok for event in recorder.results()] == [False]
    assert not catalog.executor.in_flight
    assert kind_of(await catalog.view(ANN).call("fine", {})) == "ok", "the process is alive"


async def test_exec_08_endless_recursion_in_a_handler_is_one_error() -> None:
    def deeper(ctx: Any, args: Any) -> Any:
        return deeper(ctx, args)

    for runs in ("inline", "thread"):
        assert kind_of(await one_tool(deeper, runs=runs).view(ANN).call("echo")) == "tool_error"


# ---------------------------------------------------------------- EXEC-06, EXEC-07


async def test_exec_06_a_sync_tool_that_blocks_holds_nobody_up() -> None:
    release = threading.Event()

    def block(ctx: Any, args: Any) -> str:
        release.wait(60.0)
        return "late"

    catalog = one_tool(block)
    catalog.register(ToolSpec(name="quick"), echo)
    blocked = [asyncio.create_task(catalog.view(ANN).call("echo")) for _ in range(5)]
    started = time.perf_counter()
    for _ in range(20):
        assert kind_of(await catalog.view(ANN).call("quick", {})) == "ok"
    assert is_within(time.perf_counter() - started, 0.5)
    release.set()
    assert {result.text for result in await asyncio.gather(*blocked)} == {"late"}


async def test_exec_06_an_async_tool_that_blocks_is_reported_by_name(caplog: pytest.LogCaptureFixture) -> None:
    async def rude(ctx: Any, args: Any) -> None:
        await asyncio.sleep(0)
        compute(0.12)

    await one_tool(rude).view(ANN).call("echo")
    assert "'echo' held the event loop for" in caplog.text


async def test_exec_07_a_tool_that_ignores_its_cancellation_is_left_and_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def stubborn(ctx: Any, args: Any) -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                continue

    catalog = one_tool(stubborn, timeout_s=0.05, max_concurrency=1)
    recorder = Recorder()
    started = time.monotonic()
    result = await catalog.view(ANN).call("echo", callbacks=recorder)
    assert is_within(time.monotonic() - started, 1.0)
    assert result.error is not None
    assert (result.error.kind, result.error.retryable, result.error.outcome_unknown) == ("timeout", True, True)
    assert "'echo' ignored its cancellation" in caplog.text
    assert f"It waits in stubborn ({__file__}:" in caplog.text
    assert len(recorder.results()) == 1
    started = time.monotonic()
    await catalog.close()
    assert is_within(time.monotonic() - started, 1.0), "shutdown does not wait for what was left"


# ---------------------------------------------------------------- EXEC-10


@pytest.mark.parametrize("how", ["raises", "hangs", "denies", "answers nonsense", "breaks the arguments"])
async def test_exec_10_a_before_hook_that_fails_refuses_the_call(how: str) -> None:
    ran: list[Any] = []

    async def work(ctx: Any, args: Any) -> None:
        ran.append(args)

    async def hook(call: Any) -> Any:
        match how:
            case "raises":
                raise OSError("no disk")
            case "hangs":
                await asyncio.Event().wait()
            case "denies":
                return Verdict.deny("no")
            case "answers nonsense":
                return "allow"
            case _:
                return Verdict.replace({"n": "many"})
        return None

    catalog = one_tool(work, properties={"n": {"type": "integer"}})
    catalog.before()(hook)
    kind = kind_of(await catalog.view(ANN).call("echo", {"n": 1}))
    assert kind == ("invalid_arguments" if how == "breaks the arguments" else "hook_refused")
    assert ran == []


async def test_exec_10_an_after_hook_that_fails_keeps_the_result_and_a_broken_audit_breaks_nothing() -> None:
    class Broken:
        times_stages = False

        def started(self, call: Any) -> None:
            raise OSError("no disk")

        def finished(self, call: Any) -> None:
            raise OSError("no disk")

    catalog = one_tool()
    catalog.after()(lambda call, result: 1 / 0)
    recorder = Recorder()
    assert kind_of(await catalog.view(ANN).call("echo", callbacks=recorder)) == "ok"
    catalog.executor.record(Broken())
    assert kind_of(await catalog.view(ANN).call("echo", callbacks=recorder)) == "ok"
    assert [event.ok for event in recorder.results()] == [True, True]


# ---------------------------------------------------------------- EXEC-12


async def test_exec_12_a_turn_that_calls_10_000_tools_gets_its_budget_and_no_more() -> None:
    ran: list[int] = []

    async def work(ctx: Any, args: Any) -> None:
        ran.append(1)

    view = one_tool(work).view(ToolContext())
    kinds = [kind_of(result) for result in await asyncio.gather(*(view.call("echo") for _ in range(10_000)))]
    assert (kinds.count("ok"), len(ran)) == (100, 100)
    assert set(kinds) <= {"ok", "budget_exceeded", "busy"}


async def test_exec_12_sub_agents_that_spawn_ten_each_share_depth_and_budget() -> None:
    ran: list[int] = []

    async def spawn(ctx: CallContext, args: Any) -> str:
        ran.append(ctx.depth)
        children = [catalog.view(ctx.child()) for _ in range(10)]
        kinds = {kind_of(result) for result in await asyncio.gather(*(child.call("echo") for child in children))}
        return ",".join(sorted(kinds))

    catalog = one_tool(spawn)
    await catalog.view(ToolContext(budget=CallBudget(40))).call("echo")
    assert len(ran) == 40
    assert max(ran) <= 8


# ---------------------------------------------------------------- EXEC-18, EXEC-19


async def test_exec_18_shutdown_drains_for_its_grace_and_ends_the_rest() -> None:
    release = asyncio.Event()

    async def work(ctx: Any, args: Any) -> str:
        await (release if args["n"] < 50 else asyncio.Event()).wait()
        return "drained"

    catalog = one_tool(work)
    recorder = Recorder()
    view = catalog.view(ANN)
    running = [asyncio.create_task(view.call("echo", {"n": n}, callbacks=recorder)) for n in range(100)]
    await asyncio.sleep(0)
    closing = asyncio.create_task(catalog.close(grace_s=0.2))
    await asyncio.sleep(0)
    assert kind_of(await view.call("echo", {"n": 0})) == "shutting_down"
    release.set()
    started = time.monotonic()
    results = await asyncio.gather(*running)
    await closing
    assert is_within(time.monotonic() - started, 1.5)
    assert [kind_of(result) for result in results] == ["ok"] * 50 + ["shutting_down"] * 50
    assert all(result.error.outcome_unknown and result.error.retryable for result in results[50:] if result.error)
    assert len(recorder.results()) == 100


async def test_exec_19_a_handler_without_resources_ends_typed_and_the_next_call_works() -> None:
    errors: list[BaseException] = [
        OSError(28, "No space left"),
        OSError(24, "Too many open files"),
        MemoryError(),
        BlockingIOError(),
    ]

    def work(ctx: Any, args: Any) -> str:
        if errors:
            raise errors.pop()
        return "back"

    view = one_tool(work).view(replace(ANN))
    assert [kind_of(await view.call("echo")) for _ in range(4)] == ["tool_error"] * 4
    assert (await view.call("echo")).text == "back"


async def test_exec_19_no_thread_to_be_had_is_a_typed_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    catalog: Catalog = one_tool(lambda ctx, args: "back")
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", no_thread)
        result = await catalog.view(ANN).call("echo")
    assert result.is_error
    assert (await catalog.view(ANN).call("echo")).text == "back"
