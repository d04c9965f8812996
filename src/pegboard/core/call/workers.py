"""Workers: the threads that run sync handlers, and how many calls each capped tool has running."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from typing import Any

from pegboard.core.after_fork import Threads, renew_after_fork
from pegboard.model.bounds import BUSY_RETRY_S, TOOL_THREADS
from pegboard.model.error import CallError


class WorkerPool:
    """Worker threads, started with the first sync call, and the places of tools with a `max_concurrency`."""

    def __init__(self) -> None:
        self._threads = Threads(TOOL_THREADS, name="pegboard-tool")
        self._running: dict[str, int] = {}
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Give every place back: what runs does so in the parent."""
        self._running = {}

    def enter(self, qualified_id: str, *, cap: int, name: str) -> None:
        """Take one of the tool's places; `name` is what the caller knows it as.

        Raises:
            CallError: `busy`, when all are taken.
        """
        running = self._running.get(qualified_id, 0)
        if running >= cap:
            text = f"{name!r} runs at most {cap} at once, and {running} are running. Try again in a moment."
            raise CallError("busy", text, retry_after_s=BUSY_RETRY_S)
        self._running[qualified_id] = running + 1

    def leave(self, qualified_id: str) -> None:
        """Give the place back."""
        self._running[qualified_id] -= 1

    def run(self, code: Callable[[], Any]) -> asyncio.Future[Any]:
        """Start `code` in a worker thread, with the caller's context variables."""
        return asyncio.get_running_loop().run_in_executor(self._threads.executor, contextvars.copy_context().run, code)

    def close(self) -> None:
        """Let the threads end with what they run; nothing waits for them."""
        self._threads.close()
