"""A watched folder: each change comes in, and what goes wrong is told once and tried again."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import watchfiles

from pegboard import IngestReport, Workspace
from pegboard.model.error import CallError, DefinitionError
from pegboard.workspace.watching import FolderWatch
from tests.timing import PATIENCE_S
from tests.workspace.library import Library, files

PAGES = {f"{number}.txt": f"page {number}" for number in range(4)}


class Watched:
    """What a watch has told so far."""

    def __init__(self) -> None:
        self.reports: list[dict[str, int]] = []
        self.troubles: list[str] = []
        self._told = asyncio.Event()

    def report(self, report: IngestReport) -> None:
        removed = {"removed": report.removed} if report.removed else {}
        self.reports.append({**report.counts, **removed})
        self._told.set()

    def trouble(self, text: str) -> None:
        self.troubles.append(text)
        self._told.set()

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not is_so():
                self._told.clear()
                await self._told.wait()


@asynccontextmanager
async def watching(library: Library, folder: Path) -> AsyncIterator[Watched]:
    told = Watched()
    workspace = Workspace(library.store)
    task = asyncio.create_task(
        workspace.watch(folder, space="s1", source="docs", on_report=told.report, on_trouble=told.trouble)
    )
    try:
        await told.until(lambda: bool(told.reports))
        yield told
    finally:
        task.cancel()
        [ended] = await asyncio.gather(task, return_exceptions=True)
        assert isinstance(ended, asyncio.CancelledError), ended


async def ids(library: Library) -> dict[str, str]:
    listed = await library.store.documents(library.store.operator_scope("s1"), limit=200)
    return {each["path"]: each["document_id"] for each in listed["items"]}


async def test_each_change_in_a_watched_folder_comes_in(library: Library, tmp_path: Path) -> None:
    folder = files(tmp_path / "share", PAGES)
    async with watching(library, folder) as told:
        assert told.reports == [{"added": 4}]
        before = await ids(library)
        files(folder, {"new/a.txt": "a new one"})
        await told.until(lambda: any("added" in each for each in told.reports[1:]))
        (folder / "new").rename(folder / "newer")
        await told.until(lambda: any("renamed" in each for each in told.reports))
        (folder / "0.txt").unlink()
        await told.until(lambda: any("removed" in each for each in told.reports))
        after = await ids(library)
    assert set(after) == {"1.txt", "2.txt", "3.txt", "newer/a.txt"}
    assert {path: before[path] for path in ("1.txt", "2.txt", "3.txt")}.items() <= after.items()
    assert told.troubles == []


async def test_a_watched_folder_that_is_emptied_and_filled_again_loses_nothing(
    library: Library, tmp_path: Path
) -> None:
    folder = files(tmp_path / "share", PAGES)
    async with watching(library, folder) as told:
        before = await ids(library)
        shutil.move(folder, tmp_path / "away")
        folder.mkdir()
        await told.until(
            lambda: any("documents of the source 'docs' would be removed" in each for each in told.troubles)
        )
        assert await ids(library) == before
        count = len(told.reports)
        # At once: the emptied folder may just be read again, and half a folder has another trouble.
        shutil.copytree(tmp_path / "away", tmp_path / "back")
        (tmp_path / "back").rename(folder)
        await told.until(lambda: {"unchanged": 4} in told.reports[count:])
        assert await ids(library) == before


async def test_a_watched_folder_that_is_gone_for_a_while_is_watched_again(library: Library, tmp_path: Path) -> None:
    folder = files(tmp_path / "share", PAGES)
    async with watching(library, folder) as told:
        before = await ids(library)
        folder.rename(tmp_path / "away")
        await told.until(lambda: any("There is no folder" in each for each in told.troubles))
        count = len(told.reports)
        (tmp_path / "away").rename(folder)
        await told.until(lambda: len(told.reports) > count)
        files(folder, {"late.txt": "late"})
        await told.until(lambda: any("added" in each for each in told.reports[count:]))
        after = await ids(library)
    assert after.items() >= before.items()
    assert "late.txt" in after


async def test_a_store_that_is_full_is_told_once_and_written_later(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = files(tmp_path / "share", PAGES)
    put, is_full = library.store.put, [True]

    async def full(*arguments: Any) -> Any:
        if is_full[0]:
            raise CallError("storage_unavailable", "The disk is full.")
        return await put(*arguments)

    async with watching(library, folder) as told:
        monkeypatch.setattr(library.store, "put", full)
        files(folder, {"4.txt": "page 4"})
        await told.until(lambda: bool(told.troubles))
        files(folder, {"5.txt": "page 5"})
        is_full[0] = False
        files(folder, {"6.txt": "page 6"})
        await told.until(lambda: sum(each.get("added", 0) for each in told.reports) == 7)
    assert told.troubles == ["The disk is full."]
    assert len(await ids(library)) == 7


async def test_a_folder_whose_changes_cannot_be_watched_is_told_and_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def none(*_: object, **__: object) -> AsyncIterator[set[Any]]:
        raise OSError("inotify watch limit reached")
        yield set()

    monkeypatch.setattr(watchfiles, "awatch", none)
    told = Watched()

    async def run() -> None:
        told.report(IngestReport())

    watch = FolderWatch(tmp_path, run, on_trouble=told.trouble, is_ignored=lambda _: False)
    task = asyncio.create_task(watch.forever())
    await told.until(lambda: bool(told.troubles and told.reports))
    assert "cannot be watched now: inotify watch limit reached" in told.troubles[0]
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_what_is_no_folder_is_not_watched(library: Library, tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="There is no folder"):
        await Workspace(library.store).watch(tmp_path / "nothing", space="s1")


async def test_the_store_and_hidden_files_do_not_wake_a_watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store in the watched folder changes with each run, which would cause the next one."""
    asked: list[Callable[[Any, str], bool]] = []

    async def never(*_: object, watch_filter: Callable[[Any, str], bool], **__: object) -> AsyncIterator[set[Any]]:
        asked.append(watch_filter)
        await asyncio.Event().wait()
        yield set()

    monkeypatch.setattr(watchfiles, "awatch", never)
    library, folder = Library(tmp_path), files(tmp_path, PAGES)
    try:
        async with watching(library, folder):
            pass
    finally:
        library.store.close()
    names = ("documents.db", "documents.db-wal", ".git/index", "a/.b/c.txt", "0.txt", "a/b.txt")
    assert [asked[0](None, str(folder / name)) for name in names] == [False, False, False, False, True, True]
