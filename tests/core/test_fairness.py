"""Fairness: one caller takes no more than three quarters of the worker threads."""

import asyncio
import threading
from typing import Any

from pegboard import CallContext, Catalog, ToolContext
from pegboard.core.call.handler_threads import TOOL_THREADS, TOOL_THREADS_OF_ONE, WorkerPool
from pegboard.model.record import replace
from tests.core.parts import ANN, kind_of
from tests.timing import PATIENCE_S

BOB = replace(ANN, user_id="bob", space_id="s2")


def blocking() -> tuple[Catalog, list[str], threading.Event]:
    """Return a catalog whose sync tool waits for the event, and who began to run it."""
    catalog, began, go = Catalog(), list[str](), threading.Event()

    @catalog.tool
    def wait(ctx: ToolContext) -> str:
        """Wait."""
        began.append(str(ctx.user_id))
        assert go.wait(PATIENCE_S)
        return "done"

    @catalog.tool
    def quick(ctx: ToolContext) -> str:
        """Answer at once."""
        return "quick"

    return catalog, began, go


async def until(holds: Any) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(0.005)


async def test_a_hundred_blocking_calls_of_one_caller_leave_threads_to_another() -> None:
    catalog, began, go = blocking()
    ann = [asyncio.create_task(catalog.view(ANN).call("wait")) for _ in range(100)]
    await until(lambda: len(began) == TOOL_THREADS_OF_ONE)
    # All of hers that may run do; his runs beside them, and not after.
    assert (await catalog.view(BOB).call("quick")).text == "quick"
    assert (len(began), go.is_set()) == (TOOL_THREADS_OF_ONE, False)
    go.set()
    assert {kind_of(result) for result in await asyncio.gather(*ann)} == {"ok"}
    assert len(began) == 100


async def test_threads_of_calls_that_were_given_up_count_until_they_come_back() -> None:
    catalog, began, go = blocking()
    ctx = replace(ANN)
    tasks = [asyncio.create_task(catalog.view(ctx).call("wait")) for _ in range(TOOL_THREADS_OF_ONE)]
    await until(lambda: len(began) == TOOL_THREADS_OF_ONE)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    waits = asyncio.create_task(catalog.view(ctx).call("quick"))
    assert (await catalog.view(BOB).call("quick")).text == "quick"
    assert not waits.done()
    go.set()
    assert (await waits).text == "quick"


async def test_slow_steps_of_one_caller_hold_neither_the_steps_of_another_nor_what_all_need() -> None:
    catalog, began, go = Catalog(), list[str](), threading.Event()

    @catalog.tool
    async def hold(ctx: CallContext) -> str:
        """Hold."""

        def work() -> str:
            began.append(str(ctx.user_id))
            assert go.wait(PATIENCE_S)
            return "done"

        return str(await ctx.step("work", work))

    @catalog.tool
    async def quick(ctx: CallContext) -> str:
        """Answer at once."""
        return str(await ctx.step("work", lambda: "quick"))

    ann = [asyncio.create_task(catalog.view(ANN).call("hold")) for _ in range(100)]
    await until(lambda: len(began) == TOOL_THREADS_OF_ONE)
    assert (await catalog.view(BOB).call("quick")).text == "quick"
    # Keys and consents are read in these threads.
    assert await asyncio.wait_for(asyncio.to_thread(lambda: "read"), PATIENCE_S) == "read"
    assert (len(began), go.is_set()) == (TOOL_THREADS_OF_ONE, False)
    go.set()
    assert {result.text for result in await asyncio.gather(*ann)} == {"done"}
    assert len(began) == 100


async def test_of_those_who_wait_the_one_with_the_fewest_threads_is_next() -> None:
    catalog, began, go = blocking()
    ann = [asyncio.create_task(catalog.view(ANN).call("wait")) for _ in range(60)]
    bob = [asyncio.create_task(catalog.view(BOB).call("wait")) for _ in range(60)]
    await until(lambda: len(began) == TOOL_THREADS)
    assert (began.count("ann"), began.count("bob")) == (TOOL_THREADS_OF_ONE, TOOL_THREADS - TOOL_THREADS_OF_ONE)
    carl = asyncio.create_task(catalog.view(replace(ANN, user_id="carl")).call("wait"))
    await asyncio.sleep(0)
    go.set()
    await asyncio.gather(*ann, *bob, carl)
    # Carl came last, and before most of those who waited already.
    assert began.index("carl") < TOOL_THREADS + 20


async def test_a_pool_that_closes_cancels_what_waits_for_a_thread() -> None:
    pool, go = WorkerPool(), threading.Event()
    running = [pool.run(lambda: go.wait(PATIENCE_S), caller="ann") for _ in range(TOOL_THREADS_OF_ONE)]
    waiting = pool.run(lambda: None, caller="ann")
    pool.close()
    assert (await asyncio.gather(waiting, return_exceptions=True))[0].__class__ is asyncio.CancelledError
    go.set()
    assert all(await asyncio.gather(*running))


async def test_a_job_that_nobody_waits_for_any_more_is_not_run_and_errors_arrive() -> None:
    pool, go, ran = WorkerPool(), threading.Event(), list[str]()
    running = [pool.run(lambda: go.wait(PATIENCE_S), caller="ann") for _ in range(TOOL_THREADS_OF_ONE)]
    waiting = [pool.run(lambda: ran.append("ran"), caller="ann") for _ in range(2)]
    waiting[0].cancel()
    await asyncio.sleep(0)
    go.set()
    await asyncio.gather(*running)
    await waiting[1]
    failed = pool.run(lambda: {}["no"], caller="ann")
    assert isinstance((await asyncio.gather(failed, return_exceptions=True))[0], KeyError)
    assert ran == ["ran"]
    pool.close()
    pool.close()


async def test_a_forked_child_has_all_threads_and_places_of_its_own() -> None:
    pool, go = WorkerPool(), threading.Event()
    running = [pool.run(lambda: go.wait(PATIENCE_S), caller="ann") for _ in range(TOOL_THREADS_OF_ONE + 5)]
    pool.after_fork()
    # As in a child: nothing is taken, and nobody waits.
    assert await asyncio.wait_for(pool.run(lambda: "ran", caller="ann"), PATIENCE_S) == "ran"
    go.set()
    assert all(await asyncio.gather(*running[:TOOL_THREADS_OF_ONE]))
    for waiting in running[TOOL_THREADS_OF_ONE:]:
        waiting.cancel()
    pool.close()
