"""Workers: the threads that run sync handlers, and how many calls each capped tool has running."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pegboard.model.bounds import BUSY_RETRY_S, TOOL_THREADS
from pegboard.model.error import CallError


class WorkerPool:
    """Worker threads, started with the first sync call, and the places of tools with a `max_concurrency`."""

    def __init__(self) -> None:
        self._threads: ThreadPoolExecutor | None = None
        self._running: dict[str, int] = {}

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
        if self._threads is None:
            self._threads = ThreadPoolExecutor(TOOL_THREADS, thread_name_prefix="pegboard-tool")
        return asyncio.get_running_loop().run_in_executor(self._threads, contextvars.copy_context().run, code)

    def close(self) -> None:
        """Let the threads end with what they run; nothing waits for them."""
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=False, cancel_futures=True)
