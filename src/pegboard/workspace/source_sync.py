"""Source sync: keeps live sources in step with their places while a server runs.

Of all processes with one store, one at a time has the turn for a source. It renews the turn with every beat; the others
take over when they have seen no beat for a while, on their own clocks.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from msgspec import Struct

from pegboard.core.cancellation import cancel_and_wait
from pegboard.core.identifiers import new_id
from pegboard.model.document import LiveState
from pegboard.model.error import CallError, DefinitionError
from pegboard.model.record import replace
from pegboard.workspace.ingest import IngestReport, describe
from pegboard.workspace.store.document_store import SqlDocumentStore
from pegboard.workspace.store.sync_turns import SyncState
from pegboard.workspace.watching import WATCH_RETRY_S, FolderWatch

SYNC_BEAT_S = 5.0  # seconds between two signs of life of the process that keeps a source in step
SYNC_LEASE_S = 20.0  # seconds without such a sign until another process takes over

log = logging.getLogger("pegboard")


class LiveSource(Struct, frozen=True, kw_only=True):
    """A source that is kept in step.

    Args:
        space: its space.
        name: its name in that space.
        origin: its place, for people.
        ingest: runs over it once.
        every_s: seconds between two runs.
        watched: a folder whose changes begin a run at once.
        is_ignored: tells which changed files do not count.
    """

    space: str
    name: str
    origin: str
    ingest: Callable[[], Awaitable[IngestReport]]
    every_s: float
    watched: Path | None = None
    is_ignored: Callable[[Path], bool] = lambda _: False


class SourceSync:
    """Keeps the live sources of one store in step within `running`, one task for each. Implements `DocumentSync`.

    Args:
        store: the store.
        sources: the sources.
        beat_s: seconds between two signs of life.
        lease_s: seconds without one until another process takes over.
        clock: a monotonic clock in seconds.
        wall_clock: seconds since 1970.
    """

    def __init__(
        self,
        store: SqlDocumentStore,
        sources: Sequence[LiveSource],
        *,
        beat_s: float = SYNC_BEAT_S,
        lease_s: float = SYNC_LEASE_S,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._store, self.sources = store, tuple(sources)
        self._beat_s, self._lease_s = beat_s, lease_s
        self._clock, self._wall_clock = clock, wall_clock

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Keep the sources in step within the block."""
        ending = asyncio.Event()
        turns = [_Turn(self._store, each, self, ending) for each in self.sources]
        tasks = [asyncio.create_task(turn.until_ending()) for turn in turns]
        try:
            yield
        finally:
            ending.set()
            await asyncio.gather(*tasks, return_exceptions=True)

    def names(self) -> list[str]:
        """Return the name of each source, with its space."""
        return [f"{each.name} of {each.space}" for each in self.sources]

    async def states(self) -> list[LiveState]:
        """Return the state of each source.

        Raises:
            CallError: the store cannot be used.
        """
        return [await self.state(each) for each in self.sources]

    async def state(self, source: LiveSource) -> LiveState:
        """Return the state of a source."""
        state = await self._store.sync_state(source.space, source.name) or SyncState()
        return LiveState(
            space=source.space,
            source=source.name,
            origin=source.origin,
            synced_at=state.synced_at,
            documents=state.documents,
            failures=state.failures,
            trouble=state.trouble,
        )

    # ------------------------------------------------------------ for the tasks

    @property
    def beat_s(self) -> float:
        """Seconds between two signs of life."""
        return self._beat_s

    @property
    def lease_s(self) -> float:
        """Seconds without a sign of life until another process takes over."""
        return self._lease_s

    def now_s(self) -> float:
        """Return the time of the monotonic clock."""
        return self._clock()

    def wall_time(self) -> float:
        """Return the seconds since 1970."""
        return self._wall_clock()


class _Turn:
    """The turn of this process for one source: waits for it, works while it lasts, and gives it up at the end."""

    def __init__(self, store: SqlDocumentStore, source: LiveSource, sync: SourceSync, ending: asyncio.Event) -> None:
        self._store, self._source, self._sync, self._ending = store, source, sync, ending
        self._worker = new_id()
        self._state = SyncState(worker=self._worker)
        self._seen: tuple[SyncState, float] | None = None
        self._trouble = ""

    async def until_ending(self) -> None:
        working: asyncio.Task[None] | None = None
        renewed_s = self._sync.now_s()
        try:
            while not self._ending.is_set():
                try:
                    has_turn = await self._take()
                except CallError as error:
                    self._log_trouble(error.error.message)
                    # Another process may take over before this one can know.
                    has_turn = self._sync.now_s() - renewed_s < self._sync.lease_s - self._sync.beat_s
                else:
                    renewed_s = self._sync.now_s() if has_turn else renewed_s
                if has_turn and working is None:
                    working = asyncio.create_task(self._work())
                elif not has_turn and working is not None:
                    await cancel_and_wait(working)
                    working = None
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._ending.wait(), self._sync.beat_s)
        finally:
            if working is not None:
                await cancel_and_wait(working)
                with suppress(CallError):
                    await self._store.leave_turn(self._source.space, self._source.name, self._worker)

    async def _take(self) -> bool:
        """Take or keep the turn; tell whether it is ours."""
        over = None
        if self._seen is not None and self._sync.now_s() - self._seen[1] >= self._sync.lease_s:
            over = self._seen[0]
        state = await self._store.take_turn(self._source.space, self._source.name, self._worker, over=over)
        if state.worker == self._worker:
            self._seen = None
            self._state = replace(state, trouble=self._state.trouble)
            return True
        if self._seen is None or (self._seen[0].worker, self._seen[0].beat) != (state.worker, state.beat):
            self._seen = state, self._sync.now_s()
        return False

    async def _work(self) -> None:
        """Run again and again until cancelled."""
        source = self._source
        while True:
            try:
                if source.watched is not None:
                    watch = FolderWatch(
                        source.watched, self._run, on_trouble=lambda _: None, is_ignored=source.is_ignored,
                        check_s=source.every_s,
                    )  # fmt: skip
                    await watch.forever()
                await self._run()
                pause_s = source.every_s
            except CallError:
                pause_s = WATCH_RETRY_S
            except DefinitionError as error:
                # There is no folder yet.
                await self._record_trouble(str(error))
                pause_s = WATCH_RETRY_S
            except Exception as error:  # boundary: a fault in one source must not end the others, nor later runs
                log.exception("The documents of %r could not be read.", source.origin)
                await self._record_trouble(f"{type(error).__name__}: {error}")
                pause_s = WATCH_RETRY_S
            await asyncio.sleep(pause_s)

    async def _run(self) -> None:
        """Run once, and record how it ended.

        Raises:
            CallError: the run failed.
            DefinitionError: there is no such folder.
        """
        try:
            report = await self._source.ingest()
        except CallError as error:
            await self._record_trouble(error.error.message)
            raise
        except DefinitionError as error:
            await self._record_trouble(str(error))
            raise
        now = self._sync.wall_time()
        documents = sum(report.counts.values()) - report.counts["failed"]
        self._state = replace(
            self._state,
            tried_at=now,
            synced_at=now,
            documents=documents,
            failures=len(report.bad) + report.waiting,
            trouble="",
        )
        if self._trouble:
            log.warning("The documents of %r in the space %r are read again.", self._source.name, self._source.space)
            self._trouble = ""
        if report.has_changes:
            fields = {"event": "documents_synced", "space": self._source.space, "source": self._source.name,
                      "documents": documents, "failures": self._state.failures}  # fmt: skip
            log.info("documents_synced: %s of %r in the space %r", describe(report), self._source.name,
                     self._source.space, extra={"fields": fields})  # fmt: skip
        await self._put()

    async def _record_trouble(self, trouble: str) -> None:
        self._state = replace(self._state, tried_at=self._sync.wall_time(), trouble=trouble)
        self._log_trouble(trouble)
        await self._put()

    async def _put(self) -> None:
        with suppress(CallError):
            await self._store.put_outcome(self._source.space, self._source.name, self._state)

    def _log_trouble(self, trouble: str) -> None:
        if trouble == self._trouble:
            return
        self._trouble = trouble
        source = self._source
        fields = {"event": "documents_not_synced", "space": source.space, "source": source.name}
        log.warning("documents_not_synced: %r in the space %r: %s", source.name, source.space, trouble,
                    extra={"fields": fields})  # fmt: skip
