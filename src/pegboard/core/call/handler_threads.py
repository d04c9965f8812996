"""Handler threads: the threads that run sync handlers, shared fairly, and the concurrency caps of tools."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import Counter, deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from functools import partial
from typing import Any, NamedTuple

from pegboard.core.after_fork import Threads, leave_to_parent, renew_after_fork
from pegboard.core.limits import BUSY_RETRY_S
from pegboard.model.error import CallError

TOOL_THREADS = 64  # threads that run sync functions
TOOL_THREADS_OF_ONE = 48  # threads that one caller may use, so that others find some


class _Job(NamedTuple):
    """Code that waits for a thread, and the future of its outcome."""

    caller: Hashable
    code: Callable[[], Any]
    outcome: Future[Any]


class WorkerPool:
    """Worker threads, started with the first sync call, and the places of tools with a `max_concurrency`.

    One caller gets at most three quarters of the threads, counting calls that timed out and never returned. Waiting
    calls are served in turn; the caller with the fewest threads goes first.
    """

    def __init__(self, *, name: str = "pegboard-tool") -> None:
        self._threads = Threads(TOOL_THREADS, name=name)
        self._running: dict[str, int] = {}
        self._busy = Counter[Hashable]()
        self._waiting: dict[Hashable, deque[_Job]] = {}
        self._is_closed = False
        self._lock = threading.Lock()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Free every place: running and waiting jobs belong to the parent."""
        leave_to_parent(self._waiting)
        self._running, self._busy, self._waiting = {}, Counter[Hashable](), {}
        # A thread of the parent may have held it.
        self._lock = threading.Lock()

    def enter(self, qualified_id: str, *, cap: int, name: str) -> None:
        """Take one of the tool's places; `name` is the name that the caller uses.

        Raises:
            CallError: `busy`, if all are taken.
        """
        running = self._running.get(qualified_id, 0)
        if running >= cap:
            text = f"{name!r} runs at most {cap} at once, and {running} are running. Try again in a moment."
            raise CallError("busy", text, retry_after_s=BUSY_RETRY_S)
        self._running[qualified_id] = running + 1

    def leave(self, qualified_id: str) -> None:
        """Free the place."""
        self._running[qualified_id] -= 1

    def run(self, code: Callable[[], Any], *, caller: Hashable) -> asyncio.Future[Any]:
        """Run `code` in a worker thread, with the caller's context variables; it may wait for its turn."""
        job = _Job(caller, partial(contextvars.copy_context().run, code), Future[Any]())
        with self._lock:
            self._is_closed = False
            if self._busy.total() < TOOL_THREADS and self._may_take(caller):
                self._start(job)
            else:
                self._waiting.setdefault(caller, deque()).append(job)
        return asyncio.wrap_future(job.outcome)

    def _may_take(self, caller: Hashable) -> bool:
        return self._busy[caller] < TOOL_THREADS_OF_ONE

    def _start(self, job: _Job) -> None:
        self._busy[job.caller] += 1
        self._threads.executor.submit(self._work, job)

    def _work(self, job: _Job) -> None:
        """Run a job in a thread of the pool, then start the next one."""
        # A caller that gave up waiting has cancelled the future; running code cannot be cancelled.
        try:
            if job.outcome.set_running_or_notify_cancel():
                try:
                    value = job.code()
                except BaseException as error:  # noqa: BLE001 - boundary: handed to the waiting caller
                    job.outcome.set_exception(error)
                else:
                    job.outcome.set_result(value)
        finally:
            with self._lock:
                self._leave_thread(job.caller)

    def _leave_thread(self, caller: Hashable) -> None:
        self._busy[caller] -= 1
        if not self._busy[caller]:
            del self._busy[caller]
        waiting = [] if self._is_closed else [one for one in self._waiting if self._may_take(one)]
        if not waiting:
            return
        chosen = min(waiting, key=self._busy.__getitem__)
        jobs = self._waiting.pop(chosen)
        self._start(jobs.popleft())
        if jobs:
            # To the end of the queue, behind callers who have waited as long.
            self._waiting[chosen] = jobs

    def close(self) -> None:
        """End the threads when their work is done, without waiting for them."""
        with self._lock:
            waiting, self._waiting, self._is_closed = self._waiting, {}, True
        for jobs in waiting.values():
            for job in jobs:
                job.outcome.cancel()
        self._threads.close()
