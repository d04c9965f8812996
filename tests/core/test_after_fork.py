"""What lets go of its threads in a child lets go of nothing else."""

import asyncio
import gc
import threading
import weakref

import pytest

from pegboard import Catalog, ToolContext
from pegboard.core.after_fork import Threads, renew_after_fork
from pegboard.core.bounded_cache import BoundedCache


def test_threads_are_made_anew_after_a_fork_and_closed_once() -> None:
    threads = Threads(1, name="tried")
    first = threads.executor
    assert first is threads.executor
    threads.after_fork()
    assert threads.executor is not first
    assert threads.executor.submit(lambda: 7).result() == 7
    threads.close()
    threads.close()
    first.shutdown()


def test_what_nobody_holds_is_not_kept_for_a_fork() -> None:
    class Inheritor:
        def after_fork(self) -> None: ...

    inheritor = Inheritor()
    renew_after_fork(inheritor)
    known = weakref.ref(inheritor)
    del inheritor
    gc.collect()
    assert known() is None


@pytest.mark.parametrize("is_held", [True, False])
async def test_a_catalog_whose_parent_was_busy_is_asked_and_changed_in_the_child(is_held: bool) -> None:
    # A child is a copy of one thread: here it is made by hand, what the fork would call called by this one.
    catalog, held, go_on = Catalog(), threading.Event(), threading.Event()

    @catalog.tool
    async def wait() -> str:
        await asyncio.sleep(100)
        return "over"

    def plain() -> int:
        return 1

    registry = catalog.registry
    before = registry.snapshot()

    def hold() -> None:
        with registry._lock, BoundedCache._writing:
            held.set()
            go_on.wait(10)

    running = asyncio.create_task(catalog.view(ToolContext()).call("wait", {}))
    while not catalog.executor.in_flight:
        await asyncio.sleep(0)
    thread = threading.Thread(target=hold if is_held else held.set)
    thread.start()
    held.wait(10)
    for inheritor in (registry, catalog.executor, BoundedCache):
        inheritor.after_fork()
    assert (catalog.executor.in_flight, registry.snapshot() is before) == ({}, not is_held)
    catalog.tool(plain)
    assert catalog.view(ToolContext()).names() == ["wait", "plain"]
    assert (await catalog.view(ToolContext()).call("plain", {})).text == "1"
    go_on.set()
    thread.join()
    running.cancel()
    await asyncio.wait([running])
