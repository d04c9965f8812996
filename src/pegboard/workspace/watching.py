"""Watching: ingests a folder again after each change in it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from pegboard.extras import needs_package
from pegboard.lazy import LazyModule
from pegboard.model.error import CallError, DefinitionError

if TYPE_CHECKING:
    from pegboard.workspace import folder_changes
else:
    folder_changes = LazyModule("pegboard.workspace.folder_changes")

WATCH_RETRY_S = 30.0  # seconds after a failed run
WATCH_CHECK_S = 600.0  # seconds after which a folder is read without a change: some network shares report none


class FolderWatch:
    """Keeps a source in step with a folder until it is cancelled.

    A failed run is reported once and tried again: after the next change, and after `WATCH_RETRY_S`. The folder may be
    renamed, exchanged or unmounted; it is watched again when it is back at its path.

    Args:
        folder: the folder.
        run: ingests it.
        on_trouble: called with the reason of each failure, once while it stays the same.
        is_ignored: tells which files do not count, such as those of the store.

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
    ) -> None:
        if find_spec("watchfiles") is None:
            raise DefinitionError(f"Watching a folder {needs_package('watchfiles', 'watch')}.")
        if not folder.is_dir():
            raise DefinitionError(f"There is no folder {str(folder)!r} to watch.")
        self._folder, self._run, self._on_trouble, self._is_ignored = folder, run, on_trouble, is_ignored
        self._trouble = ""
        self._due_s = 0.0
        self._has_changed = False
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
                    if self._has_changed or time.monotonic() >= self._due_s:
                        await self._ingest()
            finally:
                watcher.cancel()
                await asyncio.gather(watcher, return_exceptions=True)

    async def _watch(self) -> None:
        """Wake the other task after changes, and now and then."""
        try:
            async for has_changed in folder_changes.changes_in(self._folder, is_ignored=self._is_ignored):
                self._has_changed = self._has_changed or has_changed
                self._wake.set()
        except OSError as error:
            self._report(f"Changes of {str(self._folder)!r} cannot be watched now: {error}")
        while True:
            await asyncio.sleep(folder_changes.WATCH_TICK_S)
            self._wake.set()

    async def _ingest(self) -> None:
        self._has_changed = False
        try:
            await self._run()
        except (CallError, DefinitionError) as error:
            self._report(error.error.message if isinstance(error, CallError) else str(error))
            self._due_s = time.monotonic() + WATCH_RETRY_S
        else:
            self._trouble = ""
            self._due_s = time.monotonic() + WATCH_CHECK_S

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
