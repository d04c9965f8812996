"""Thread: a thread with an event loop of its own, on which embedders run."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from pegboard.core.after_fork import leave_to_parent, renew_after_fork

EMBED_ENDS_S = 1.0  # that what an embedder still does may take to end, when nobody needs it any more

T = TypeVar("T")


class EmbeddingThread:
    """Runs coroutines on a loop of its own, so that one that computes, or hangs without waiting, holds up nobody else.

    Its thread begins with the first work and ends with the object or the process, whatever still runs on it. A forked
    child gets one of its own.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._started: set[Future[Any]] = set()
        self._lock = threading.Lock()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Forget the thread, which runs in the parent."""
        leave_to_parent(self._loop, self._started)
        self._loop, self._started, self._lock = None, set(), threading.Lock()

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine; it goes on whether anybody waits for it or not."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                # The thread holds what was started: loops do not, and what waits for nothing else would be collected.
                held = (self._loop, self._started)
                threading.Thread(target=_run, args=held, name="pegboard-embedder", daemon=True).start()
                weakref.finalize(self, _stop, self._loop)
            started = asyncio.run_coroutine_threadsafe(_without_exit(work), self._loop)
        self._started.add(started)
        started.add_done_callback(self._started.discard)
        return started


async def _without_exit(work: Coroutine[Any, Any, T]) -> T:
    """Await foreign code, which may ask for the end of the process: that would end the loop for all that follows."""
    try:
        return await work
    except (SystemExit, KeyboardInterrupt) as error:
        raise RuntimeError(f"it raised {type(error).__name__}") from None


def _run(loop: asyncio.AbstractEventLoop, _started: set[Future[Any]]) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.run_until_complete(_cancel_the_rest())
        loop.close()


async def _cancel_the_rest() -> None:
    """Have what is still on the loop end before it does; what refuses to is left."""
    # What was handed over just before begins first: a coroutine that never began would be complained of.
    for _ in range(3):
        await asyncio.sleep(0)
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    if rest:
        await asyncio.wait(rest, timeout=EMBED_ENDS_S)


def _stop(loop: asyncio.AbstractEventLoop) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(loop.stop)
