"""Thread: runs embedders in a thread with its own event loop."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from pegboard.core.after_fork import leave_to_parent, renew_after_fork

EMBED_ENDS_S = 1.0  # seconds for an embedder's running work to end when it is closed

T = TypeVar("T")


class EmbeddingThread:
    """Runs coroutines on a separate loop, so that a computing or hanging embedder does not block the main one.

    The thread starts with the first work and ends with the object or the process, even if work is running. A forked
    child starts its own.
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
        """Start a coroutine; it continues even if nobody waits for it."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                # The thread keeps references to its coroutines: loops do not, so unreferenced ones could be collected.
                held = (self._loop, self._started)
                threading.Thread(target=_run, args=held, name="pegboard-embedder", daemon=True).start()
                weakref.finalize(self, _stop, self._loop)
            started = asyncio.run_coroutine_threadsafe(_without_exit(work), self._loop)
        self._started.add(started)
        started.add_done_callback(self._started.discard)
        return started


async def _without_exit(work: Coroutine[Any, Any, T]) -> T:
    """Await foreign code; an attempt to exit the process must not end the loop."""
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
    """Cancel the remaining work before the loop ends; work that refuses is abandoned."""
    # Let newly submitted coroutines start first: Python warns about coroutines that never started.
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
