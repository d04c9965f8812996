"""Thread: a thread with an event loop of its own, on which embedders run."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from pegboard.core.after_fork import leave_to_parent, renew_after_fork

T = TypeVar("T")


class EmbeddingThread:
    """Runs coroutines on a loop of its own, so that one that computes, or hangs without waiting, holds up nobody else.

    Its thread begins with the first work and ends with the object or the process, whatever still runs on it. A forked
    child gets one of its own.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Forget the thread, which runs in the parent."""
        leave_to_parent(self._loop)
        self._loop, self._lock = None, threading.Lock()

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine; it goes on whether anybody waits for it or not."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=_run, args=(self._loop,), name="pegboard-embedder", daemon=True).start()
                weakref.finalize(self, _stop, self._loop)
            return asyncio.run_coroutine_threadsafe(_without_exit(work), self._loop)


async def _without_exit(work: Coroutine[Any, Any, T]) -> T:
    """Await foreign code, which may ask for the end of the process: that would end the loop for all that follows."""
    try:
        return await work
    except (SystemExit, KeyboardInterrupt) as error:
        raise RuntimeError(f"it raised {type(error).__name__}") from None


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()


def _stop(loop: asyncio.AbstractEventLoop) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(loop.stop)
