"""Live sources: a server keeps them in step with their places; of several processes one does the work."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pegboard import Workspace
from pegboard.model.error import CallError
from pegboard.workspace import source_sync
from pegboard.workspace.source_sync import LiveSource, SourceSync
from tests.timing import PATIENCE_S
from tests.workspace.library import ON_SQLITE_ALONE, Library, files
from tests.workspace.test_watching import ids

PAGES = {f"{number}.txt": f"page {number}" for number in range(4)}
BEAT_S = 0.05


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await is_so():
            await asyncio.sleep(BEAT_S)


def live(library: Library, folder: Path) -> LiveSource:
    return Workspace(library.store).live_folder(folder, space="s1", source="docs", every_s=600.0)


@asynccontextmanager
async def in_step(library: Library, *sources: LiveSource, **more: Any) -> AsyncIterator[SourceSync]:
    sync = SourceSync(library.store, sources, beat_s=BEAT_S, **more)
    async with sync.running():
        yield sync


async def holds(library: Library, *paths: str) -> bool:
    return set(await ids(library)) == {*paths}


async def test_a_live_folder_comes_in_at_the_start_and_after_each_change(library: Library, tmp_path: Path) -> None:
    folder = files(tmp_path / "share", PAGES)
    async with in_step(library, live(library, folder), wall_clock=lambda: 1_700_000_000.0) as sync:
        await until(lambda: holds(library, *PAGES))
        before = await ids(library)
        files(folder, {"new/a.txt": "a new one"})
        await until(lambda: holds(library, *PAGES, "new/a.txt"))
        (folder / "new").rename(folder / "newer")
        await until(lambda: holds(library, *PAGES, "newer/a.txt"))
        (folder / "0.txt").unlink()
        await until(lambda: holds(library, "1.txt", "2.txt", "3.txt", "newer/a.txt"))
        after = await ids(library)
        assert {path: before[path] for path in ("1.txt", "2.txt", "3.txt")}.items() <= after.items()

        async def is_recorded() -> bool:
            [state] = await sync.states()
            return (state.synced_at, state.documents, state.failures, state.trouble) == (1_700_000_000.0, 4, 0, "")

        await until(is_recorded)
    assert sync.names() == ["docs of s1"]


async def test_a_live_folder_that_is_emptied_and_filled_again_loses_nothing(
    library: Library, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = files(tmp_path / "share", PAGES)
    async with in_step(library, live(library, folder)) as sync:
        await until(lambda: holds(library, *PAGES))
        before = await ids(library)
        shutil.move(folder, tmp_path / "away")
        folder.mkdir()

        async def has_trouble() -> bool:
            return "4 documents of the source 'docs' would be removed" in (await sync.states())[0].trouble

        await until(has_trouble)
        assert await ids(library) == before
        # At once: the emptied folder may just be read again, and half a folder has another trouble.
        shutil.copytree(tmp_path / "away", tmp_path / "back")
        (tmp_path / "back").rename(folder)

        async def has_none() -> bool:
            return not (await sync.states())[0].trouble

        await until(has_none)
        assert await ids(library) == before
    told = [each.message for each in caplog.records if each.message.startswith("documents_not_synced")]
    assert len([each for each in told if "would be removed" in each]) == 1, told
    assert any("are read again" in each.message for each in caplog.records)


async def test_a_folder_that_does_not_exist_yet_is_reported_and_read_once_it_does(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_sync, "WATCH_RETRY_S", BEAT_S)
    folder = tmp_path / "share"
    async with in_step(library, live(library, folder)) as sync:

        async def has_trouble() -> bool:
            return "There is no folder" in (await sync.states())[0].trouble

        await until(has_trouble)
        files(folder, PAGES)
        await until(lambda: holds(library, *PAGES))


async def test_one_process_reads_a_source_and_the_next_goes_on_when_it_ends(library: Library, tmp_path: Path) -> None:
    folder = files(tmp_path / "share", PAGES)
    other = Library(library.place)
    runs: list[str] = []

    def counted(by: str, at: Library) -> LiveSource:
        source = live(at, folder)

        async def ingest() -> Any:
            runs.append(by)
            return await source.ingest()

        return LiveSource(space="s1", name="docs", origin="share", ingest=ingest, every_s=BEAT_S)

    async with in_step(library, counted("first", library)):
        await until(lambda: holds(library, *PAGES))
        second = SourceSync(other.store, [counted("second", other)], beat_s=BEAT_S)
        async with second.running():
            count = len(runs)

            async def has_gone_on() -> bool:
                return len(runs) >= count + 5

            await until(has_gone_on)
            assert set(runs) == {"first"}
            runs.clear()
    async with second.running():

        async def is_taken_over() -> bool:
            return "second" in runs

        await until(is_taken_over)
    other.store.close()


async def test_the_turn_of_a_process_that_shows_no_sign_of_life_is_taken_over(library: Library, tmp_path: Path) -> None:
    folder = files(tmp_path / "share", PAGES)
    await library.store.take_turn("s1", "docs", "killed")
    clock = [0.0]
    async with in_step(library, live(library, folder), clock=lambda: clock[0]):
        for _ in range(6):
            # A process that lives shows it, here about twice in each lease: the other may see a sign just before the
            # clock moves, and must not take that step for a whole lease of silence.
            assert (await library.store.take_turn("s1", "docs", "killed")).worker == "killed"
            clock[0] += 0.4 * source_sync.SYNC_LEASE_S
            await asyncio.sleep(2 * BEAT_S)
        assert await ids(library) == {}

        async def has_waited() -> bool:
            clock[0] += source_sync.SYNC_LEASE_S
            return await holds(library, *PAGES)

        await until(has_waited)
    # It finds out with its next beat, and does not take the turn back while the other has it.
    state = await library.store.take_turn("s1", "docs", "killed")
    assert state.worker in ("killed", "")


async def test_a_process_that_loses_its_turn_stops_its_run(library: Library) -> None:
    stopped, began = asyncio.Event(), asyncio.Event()

    async def ingest() -> Any:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    source = LiveSource(space="s1", name="docs", origin="share", ingest=ingest, every_s=600.0)
    async with in_step(library, source):
        async with asyncio.timeout(PATIENCE_S):
            await began.wait()
            # As another process would after it saw no beat for a while.
            while not stopped.is_set():
                state = await library.store.sync_state("s1", "docs")
                await library.store.take_turn("s1", "docs", "other", over=state)
                await asyncio.sleep(BEAT_S)


async def test_a_store_that_cannot_be_used_is_reported_and_the_run_tried_again(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(source_sync, "WATCH_RETRY_S", BEAT_S)
    folder = files(tmp_path / "share", PAGES)
    put, is_full = library.store.put, [True]

    async def full(*arguments: Any) -> Any:
        if is_full[0]:
            raise CallError("storage_unavailable", "The disk is full.")
        return await put(*arguments)

    monkeypatch.setattr(library.store, "put", full)
    source = Workspace(library.store).live_folder(folder, space="s1", source="docs", every_s=600.0, watches=False)
    async with in_step(library, source) as sync:

        async def has_trouble() -> bool:
            return (await sync.states())[0].trouble == "The disk is full."

        await until(has_trouble)
        is_full[0] = False
        await until(lambda: holds(library, *PAGES))
    assert [each.message for each in caplog.records].count(
        "documents_not_synced: 'docs' in the space 's1': The disk is full."
    ) == 1


@ON_SQLITE_ALONE
async def test_a_fault_in_one_source_does_not_end_the_others(
    library: Library, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, logger="pegboard")
    folder = files(tmp_path / "share", PAGES)

    async def broken() -> Any:
        raise RuntimeError("a fault of ours")

    fault = LiveSource(space="s1", name="broken", origin="nowhere", ingest=broken, every_s=600.0)
    async with in_step(library, fault, live(library, folder)) as sync:
        await until(lambda: holds(library, *PAGES))

        async def has_trouble() -> bool:
            return (await sync.states())[0].trouble == "RuntimeError: a fault of ours"

        await until(has_trouble)


@ON_SQLITE_ALONE
async def test_a_beat_that_fails_for_long_ends_the_run_before_another_process_may_begin(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped, began, clock = asyncio.Event(), asyncio.Event(), [0.0]

    async def ingest() -> Any:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    source = LiveSource(space="s1", name="docs", origin="share", ingest=ingest, every_s=600.0)
    async with in_step(library, source, clock=lambda: clock[0]):
        async with asyncio.timeout(PATIENCE_S):
            await began.wait()

            async def away(*_: Any, **__: Any) -> Any:
                raise CallError("storage_unavailable", "The store is away.")

            monkeypatch.setattr(library.store, "take_turn", away)
            await asyncio.sleep(3 * BEAT_S)
            assert not stopped.is_set()
            clock[0] += source_sync.SYNC_LEASE_S
            await stopped.wait()
