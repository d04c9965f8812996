"""Watching: ingests a folder again after each change in it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from pegboard.core.cancellation import cancel_and_wait
from pegboard.extras import needs_package
from pegboard.lazy import LazyModule
from pegboard.model.error import CallError, DefinitionError

if TYPE_CHECKING:
    from pegboard.workspace import folder_changes
else:
    folder_changes = LazyModule("pegboard.workspace.folder_changes")

WATCH_RETRY_S = 30.0  # seconds after a failed run
WATCH_CHECK_S = 600.0  # seconds until a folder is read without a change: some network shares report none
WATCH_PAUSE_S = 60.0  # the longest pause before a run, in seconds, if the same files change after each run
_FIRST_PAUSE_S = 1.0


def check_watchfiles() -> None:
    """Check that folders can be watched.

    Raises:
        DefinitionError: the package `watchfiles` is missing.
    """
    if find_spec("watchfiles") is None:
        raise DefinitionError(f"Watching a folder {needs_package('watchfiles', 'watch')}.")


class FolderWatch:
    """Keeps a source in step with a folder until it is cancelled.

    A failed run is reported once and tried again: after the next change, and after `WATCH_RETRY_S`. The folder may be
    renamed, exchanged or unmounted; it is watched again when it is back at its path. Runs after changes of the same
    files, such as a log that each run writes, pause longer and longer in between, up to `WATCH_PAUSE_S`.

    Args:
        folder: the folder.
        run: ingests it.
        on_trouble: called with the reason of each failure, once while it stays the same.
        is_ignored: tells which files do not count, such as those of the store.
        check_s: seconds until the folder is read without a change.
        clock: a monotonic clock in seconds.
        sleep: waits for a number of seconds.

    Raises:
        DefinitionError: the package `watchfiles` is missing, or there is no such folder.
    """

    def __init__(
        self,
        folder: Path,
        run: Callable[[], Awaitable[object]],
        *,
        on_trouble: Callable[[str], None],
        is_ignored: Callable[[Path], bool],
        check_s: float = WATCH_CHECK_S,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        check_watchfiles()
        if not folder.is_dir():
            raise DefinitionError(f"There is no folder {str(folder)!r} to watch.")
        self._folder, self._run, self._on_trouble, self._is_ignored = folder, run, on_trouble, is_ignored
        self._check_s, self._clock, self._sleep = check_s, clock, sleep
        self._trouble = ""
        self._due_s, self._ended_s, self._pause_s = 0.0, 0.0, 0.0
        self._changed: frozenset[str] = frozenset()
        self._changed_before: frozenset[str] = frozenset()
        self._wake = asyncio.Event()

    async def forever(self) -> None:
        """Ingest the folder now, and after each change."""
        while True:
            watched = self._identity()
            watcher = asyncio.create_task(self._watch())
            try:
                # The watcher begins before the folder is read, so that no change is missed.
                await asyncio.sleep(0)
                await self._ingest()
                while self._identity() == watched:
                    await self._wake.wait()
                    self._wake.clear()
                    if self._changed or self._clock() >= self._due_s:
                        await self._calm()
                        await self._ingest()
            finally:
                await cancel_and_wait(watcher)

    async def _watch(self) -> None:
        """Wake the other task after changes, and now and then."""
        try:
            async for changed in folder_changes.changes_in(self._folder, is_ignored=self._is_ignored):
                self._changed |= changed
                self._wake.set()
        except OSError as error:
            self._report(f"Changes of {str(self._folder)!r} cannot be watched now: {error}")
        while True:
            await asyncio.sleep(folder_changes.WATCH_TICK_S)
            self._wake.set()

    async def _calm(self) -> None:
        """Wait before a run that seems to be caused by the one before it."""
        is_same = bool(self._changed) and self._changed <= self._changed_before
        is_soon = self._clock() - self._ended_s <= self._pause_s + 2 * _FIRST_PAUSE_S
        self._pause_s = min(WATCH_PAUSE_S, max(_FIRST_PAUSE_S, 2 * self._pause_s)) if is_same and is_soon else 0.0
        if self._pause_s:
            await self._sleep(self._pause_s)

    async def _ingest(self) -> None:
        self._changed_before, self._changed = self._changed, frozenset[str]()
        try:
            await self._run()
        except (CallError, DefinitionError) as error:
            self._report(error.error.message if isinstance(error, CallError) else str(error))
            self._due_s = self._clock() + WATCH_RETRY_S
        else:
            self._trouble = ""
            self._due_s = self._clock() + self._check_s
        self._ended_s = self._clock()

    def _report(self, trouble: str) -> None:
        if trouble != self._trouble:
            self._trouble = trouble
            self._on_trouble(trouble)

    def _identity(self) -> tuple[int, int] | None:
        try:
            status = self._folder.stat()
        except OSError:
            return None
        return status.st_dev, status.st_ino
