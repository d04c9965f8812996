"""Changed files: compares the files of a config with the one in use, and takes them; fills the console's port."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pegboard.catalog import Catalog
from pegboard.config.reload import Reloader
from pegboard.model.error import DefinitionError
from pegboard.planning.reload_plan import plan_of_reload, remember, with_known_listings
from pegboard.server.console.pending_config import ConfigChange


class ChangedFiles:
    """The files of the config in use; implements `PendingConfig`.

    Args:
        reloader: reads and takes the files.
        catalog: the running catalog.
        is_watched: whether the reloader takes changes by itself.
        is_alone: whether no other worker serves.
    """

    def __init__(self, reloader: Reloader, catalog: Catalog, *, is_watched: bool, is_alone: bool) -> None:
        self._reloader, self._catalog = reloader, catalog
        self.is_watched, self.may_take = is_watched, is_alone and not is_watched
        # Two people may press the button at the same time.
        self._taking = asyncio.Lock()

    def mark(self) -> str:
        """Return a digest of the files; empty if these are the files in use."""
        return self._reloader.mark()

    def note_lock(self) -> None:
        """Count the lock, which this process has just written, as one of the files in use."""
        self._reloader.note_lock()

    def problems(self) -> Sequence[object]:
        """Return the problems of the last change; empty if it was applied."""
        return self._reloader.problems

    async def compare(self) -> ConfigChange:
        """Load the files and compare them with the config in use. No source is started."""
        mark = self.mark()
        before = remember(self._catalog, self._reloader.config)
        try:
            loaded, config = await self._reloader.load()
        except DefinitionError as error:
            return ConfigChange(mark=mark, problems=error.problems)
        try:
            plan = await plan_of_reload(before, with_known_listings(before, loaded, config))
        finally:
            await loaded.close(grace_s=0.0)
        return ConfigChange(mark=mark, plan=plan)

    async def take(self, mark: str, *, by: str) -> bool:
        """Use the files from now on if they still have this mark; return whether they are used."""
        async with self._taking:
            return self.may_take and bool(mark) and self.mark() == mark and await self._reloader.reload(by=by)
