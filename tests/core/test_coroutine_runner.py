"""Waiting: code is stepped by hand, so every way in which it may wait, end or be stopped is tried here."""

import asyncio
import gc
import time
from collections.abc import Generator
from typing import Any

import pytest

from pegboard.core.coroutine_runner import STEP_GRACE_S, STEP_GRACE_TURNS, CancelScope, begin
from pegboard.model.record import replace
from tests.core.parts import ANN, Recorder, kind_of, one_tool
from tests.timing import compute


async def spinning(ctx: Any, args: Any) -> None:
    while True:
        await asyncio.sleep(0)


async def test_code_that_only_yields_is_stopped_at_its_timeout_and_cleans_up() -> None:
    said: list[str] = []

    async def tidy(ctx: Any, args: Any) -> None:
        try:
            await spinning(ctx, args)
        finally:
            await asyncio.sleep(0)
            said.append("tidy")

    assert kind_of(await one_tool(tidy, timeout_s=0.02).view(ANN).call("echo")) == "timeout"
    assert said == ["tidy"]


async def test_code_that_only_yields_and_swallows_its_cancellation_is_left() -> None:
    stop = False

    async def stubborn(ctx: Any, args: Any) -> None:
        while not stop:
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                continue

    assert kind_of(await one_tool(stubborn, timeout_s=0.02).view(ANN).call("echo")) == "timeout"
    stop = True


async def test_a_caller_that_is_cancelled_while_the_code_yields_hears_of_it() -> None:
    recorder = Recorder()
    running = asyncio.create_task(one_tool(spinning).view(ANN).call("echo", callbacks=recorder))
    for _ in range(3):
        await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert [event.payload["kind"] for event in recorder.results()] == ["cancelled"]


async def test_a_call_that_is_stopped_after_its_caller_was_cancelled_ends_once_and_as_cancelled() -> None:
    is_over = False
    reached: list[str] = []

    async def stubborn(ctx: Any, args: Any) -> None:
        while not is_over:
            reached.append("wait")
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                continue

    catalog, recorder = one_tool(stubborn), Recorder()
    running = asyncio.create_task(catalog.view(ANN).call("echo", callbacks=recorder))
    while not reached:
        await asyncio.sleep(0)
    running.cancel()
    while len(reached) < 2:
        await asyncio.sleep(0)
    assert catalog.cancel(recorder.events[0].call_id)
    with pytest.raises(asyncio.CancelledError):
        await running
    is_over = True
    assert [event.payload["kind"] for event in recorder.results()] == ["cancelled"]


async def test_a_cancellation_that_comes_just_as_a_wait_ends_stops_the_next_wait() -> None:
    first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    reached: list[str] = []

    async def twice(ctx: Any, args: Any) -> None:
        await first
        reached.append("second")
        await asyncio.Event().wait()

    catalog, recorder = one_tool(twice), Recorder()
    running = asyncio.create_task(catalog.view(ANN).call("echo", callbacks=recorder))
    while not recorder.events:
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    first.set_result(None)
    assert catalog.cancel(recorder.events[0].call_id)
    async with asyncio.timeout(60):
        assert kind_of(await running) == "cancelled"
    assert reached in ([], ["second"])


async def test_cancelling_a_call_twice_is_like_once() -> None:
    async def slow_end(ctx: Any, args: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)

    catalog, recorder = one_tool(slow_end), Recorder()
    running = asyncio.create_task(catalog.view(ANN).call("echo", callbacks=recorder))
    while not recorder.events:
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    call_id = recorder.events[0].call_id
    assert (catalog.cancel(call_id), catalog.cancel(call_id)) == (True, True)
    assert kind_of(await running) == "cancelled"
    assert len(recorder.results()) == 1


async def test_a_scope_inside_the_code_that_undoes_a_cancellation_lets_it_go_on() -> None:
    async def patient(ctx: Any, args: Any) -> str:
        for _ in range(2):
            try:
                async with asyncio.timeout(0.01):
                    await asyncio.Event().wait()
            except TimeoutError:
                await asyncio.sleep(0.3)  # longer than the grace that a real cancellation gets
        return "done"

    assert (await one_tool(patient).view(ANN).call("echo")).text == "done"


async def test_cancellations_that_scopes_inside_the_code_undo_one_by_one_never_add_up(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    clock, ahead_s = loop.time, 0.0
    monkeypatch.setattr(loop, "time", lambda: clock() + ahead_s)

    async def connecting(ctx: Any, args: Any) -> str:
        nonlocal ahead_s
        task = asyncio.current_task()
        assert task is not None
        # As a scope of anyio does for every connection that it opens: each is undone a moment later.
        for _ in range(STEP_GRACE_TURNS + 2):
            loop.call_soon(task.cancel)
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                ahead_s += STEP_GRACE_S
                for _ in range(3):  # a part of the grace passes
                    await asyncio.sleep(0)
                task.uncancel()
            await asyncio.sleep(0)
        return "connected"

    assert (await one_tool(connecting).view(ANN).call("echo")).text == "connected"
    assert "ignored its cancellation" not in caplog.text


async def test_code_that_refuses_even_to_be_closed_holds_nobody_up(caplog: pytest.LogCaptureFixture) -> None:
    give_in = False

    async def refusing(ctx: Any, args: Any) -> None:
        while not give_in:
            try:
                await asyncio.Event().wait()
            except BaseException:
                if give_in:
                    raise

    result = await one_tool(refusing, timeout_s=0.02).view(ANN).call("echo")
    give_in = True
    assert kind_of(result) == "timeout"
    assert "was abandoned" in caplog.text
    assert "refused to be closed" in caplog.text
    del caplog
    gc.collect()


async def test_a_stop_that_a_library_swallowed_is_sent_again(caplog: pytest.LogCaptureFixture) -> None:
    """`anyio.connect_tcp` swallows a cancellation that comes just as it has connected."""
    said: list[str] = []

    async def connecting(ctx: Any, args: Any) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            said.append("swallowed")
        try:
            await asyncio.Event().wait()
        finally:
            said.append("closed")

    assert kind_of(await one_tool(connecting, timeout_s=0.02).view(ANN).call("echo")) == "timeout"
    assert said == ["swallowed", "closed"]
    assert "abandoned" not in caplog.text


async def test_a_cancellation_that_code_swallowed_is_sent_again() -> None:
    said: list[str] = []

    async def connecting(ctx: Any, args: Any) -> None:
        said.append("waits")
        for word in ("swallowed", "heard"):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                said.append(word)
                if word == "heard":
                    raise

    running = asyncio.create_task(one_tool(connecting).view(ANN).call("echo"))
    while not said:
        await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert said == ["waits", "swallowed", "heard"]


async def test_a_time_limit_inside_abandoned_code_never_cancels_the_caller(caplog: pytest.LogCaptureFixture) -> None:
    """`asyncio.timeout` cancels the task in which it was entered, which is the caller's."""
    later = asyncio.timeout(60)

    async def deaf(ctx: Any, args: Any) -> None:
        async with asyncio.timeout(0.02), later:
            try:
                while True:
                    try:
                        await asyncio.Event().wait()
                    except asyncio.CancelledError:
                        continue
            finally:
                await asyncio.Event().wait()  # as a client does that closes its connections

    async def caller() -> tuple[str, int]:
        kind = kind_of(await one_tool(deaf, timeout_s=0.02).view(ANN).call("echo"))
        task = asyncio.current_task()
        assert task is not None
        return kind, task.cancelling()

    assert await asyncio.create_task(caller()) == ("timeout", 0)
    assert repr(later) == "<Timeout [finished]>"
    assert "was abandoned" in caplog.text


async def test_a_call_that_is_dropped_half_way_closes_its_code() -> None:
    said: list[str] = []

    async def work(ctx: Any, args: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            said.append("closed")

    call: Any = one_tool(work).view(ANN).call("echo")
    call.send(None)
    call.close()
    assert said == ["closed"]


class Soon:
    """An awaitable that is not a coroutine."""

    def __await__(self) -> Generator[Any, None, str]:
        yield from asyncio.sleep(0).__await__()
        return "soon"


async def test_any_awaitable_may_be_given() -> None:
    ready: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    ready.set_result(True)
    catalog = one_tool(lambda ctx, args: Soon(), runs="async", consent="always")
    catalog.before()(lambda call: asyncio.sleep(0))
    result = await catalog.view(replace(ANN, approve=lambda request: ready)).call("echo")
    assert (kind_of(result), result.text) == ("ok", "soon")


async def test_code_that_holds_the_loop_and_then_waits_is_reported_too(caplog: pytest.LogCaptureFixture) -> None:
    async def rude(ctx: Any, args: Any) -> None:
        compute(0.12)
        await asyncio.sleep(0)

    await one_tool(rude).view(ANN).call("echo")
    assert "'echo' held the event loop" in caplog.text


async def test_code_that_only_took_long_because_others_ran_is_not_blamed(caplog: pytest.LogCaptureFixture) -> None:
    async def descheduled(ctx: Any, args: Any) -> None:
        time.sleep(0.12)
        await asyncio.sleep(0)
        time.sleep(0.12)

    compute(0.2)
    await one_tool(descheduled).view(ANN).call("echo")
    assert "held the event loop" not in caplog.text


async def test_what_else_runs_under_a_limit_is_blamed_too(caplog: pytest.LogCaptureFixture) -> None:
    async def rude() -> str:
        compute(0.12)
        return "done"

    assert begin(rude(), timeout_s=1.0, scope=CancelScope("approve")) == "done"
    assert "'approve' held the event loop" in caplog.text


async def test_a_plain_function_is_never_told_to_become_one(caplog: pytest.LogCaptureFixture) -> None:
    catalog = one_tool(lambda ctx, args: compute(0.12), runs="thread")

    @catalog.around()
    async def busy(call: Any, proceed: Any) -> Any:
        compute(0.12)
        return await proceed()

    assert kind_of(await catalog.view(ANN).call("echo")) == "ok"
    assert "held the event loop" not in caplog.text


async def test_a_caller_cancelled_just_as_a_wait_ends_hears_of_it() -> None:
    first: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def work(ctx: Any, args: Any) -> str:
        await first
        return "too late"

    recorder = Recorder()
    running = asyncio.create_task(one_tool(work).view(ANN).call("echo", callbacks=recorder))
    while not recorder.events:
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    first.set_result(None)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert [event.ok for event in recorder.results()] == [False]


async def test_code_that_cleans_up_while_others_hold_the_loop_is_not_abandoned(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    clock, held_s = loop.time, 0.0
    monkeypatch.setattr(loop, "time", lambda: clock() + held_s)
    said: list[str] = []

    async def tidy(ctx: Any, args: Any) -> None:
        nonlocal held_s
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(10):
                held_s += 0.3  # longer than the grace
                await asyncio.sleep(0)
            said.append("tidy")

    assert kind_of(await one_tool(tidy, timeout_s=0.02).view(ANN).call("echo")) == "timeout"
    assert said == ["tidy"]
    assert "ignored its cancellation" not in caplog.text
