"""Unchanged files: a run reads only the files that changed, and never those that Pegboard itself writes."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pegboard.egress.files import Root
from pegboard.workspace import watching
from pegboard.workspace.sources import folder_source
from pegboard.workspace.watching import WATCH_PAUSE_S, FolderWatch
from tests import forking
from tests.workspace.library import Library, files

PAGES = {f"{number}.txt": f"page {number}" for number in range(4)}


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of the files that are read, at a time when all files are old enough to have settled."""
    paths: list[str] = []
    open_read, now = Root.open_read, time.time

    def noted(root: Root, path: str) -> object:
        paths.append(path)
        return open_read(root, path)

    monkeypatch.setattr(Root, "open_read", noted)
    monkeypatch.setattr(folder_source.time, "time", lambda: now() + folder_source.SETTLED_S)
    return paths


async def test_a_file_that_has_not_changed_is_not_read_again(
    library: Library, tmp_path: Path, opened: list[str]
) -> None:
    folder = files(tmp_path / "share", PAGES)
    await library.take_in(folder)
    assert sorted(opened) == sorted(PAGES)
    opened.clear()
    assert dict((await library.take_in(folder)).counts) == {"unchanged": 4}
    assert opened == []
    files(folder, {"2.txt": "another page"})
    assert dict((await library.take_in(folder)).counts) == {"changed": 1, "unchanged": 3}
    assert opened == ["2.txt"]


async def test_a_change_that_keeps_size_and_time_is_seen(library: Library, tmp_path: Path, opened: list[str]) -> None:
    folder = files(tmp_path / "share", PAGES)
    await library.take_in(folder)
    before = (folder / "1.txt").stat()
    (folder / "1.txt").write_text("PAGE 1")
    os.utime(folder / "1.txt", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert dict((await library.take_in(folder)).counts) == {"changed": 1, "unchanged": 3}
    assert "1.txt" in opened


async def test_a_file_with_new_times_and_the_same_content_is_read_once(
    library: Library, tmp_path: Path, opened: list[str]
) -> None:
    folder = files(tmp_path / "share", PAGES)
    await library.take_in(folder)
    for name in PAGES:
        os.utime(folder / name)
    opened.clear()
    assert dict((await library.take_in(folder)).counts) == {"unchanged": 4}
    assert sorted(opened) == sorted(PAGES)
    opened.clear()
    assert dict((await library.take_in(folder)).counts) == {"unchanged": 4}
    assert opened == []


async def test_a_file_that_changed_a_moment_ago_is_read_again(library: Library, tmp_path: Path) -> None:
    """Its time stamp may be the same after another change."""
    folder = files(tmp_path / "share", PAGES)
    await library.take_in(folder)
    known = await library.store.known_files(library.store.operator_scope("s1"), "s1", "handbook", [*PAGES])
    assert {each.etag for each in known.values()} == {""}


def test_the_output_of_the_command_is_not_ingested(tmp_path: Path) -> None:
    (tmp_path / "pegboard.yaml").write_text("workspace: {store: 'sqlite:share/documents.db'}\n")
    folder = files(tmp_path / "share", PAGES)
    for _ in range(2):
        with (folder / "log.txt").open("ab") as output, Path(os.devnull).open("rb") as nothing:
            words = ["pegboard", "ingest", "share", "--space", "s1", "--json"]
            process = forking.fork(words, files=(nothing.fileno(), output.fileno(), output.fileno()), cwd=tmp_path)
            assert process.wait() == 0
    reports = (folder / "log.txt").read_text()
    assert reports.count('"added": 4') == 1, reports
    assert reports.count('"unchanged": 4') == 1
    assert '"kindsNotRead": {}' in reports


async def test_runs_after_changes_of_the_same_files_pause_longer_and_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where each run writes into the folder through another program."""
    now, pauses, runs = [0.0], list[float](), list[float]()
    changes, over = asyncio.Queue[frozenset[str]](), asyncio.Event()

    async def changes_in(*_: object, **__: object) -> AsyncIterator[frozenset[str]]:
        while True:
            yield await changes.get()

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        now[0] += seconds

    async def run() -> None:
        runs.append(now[0])
        if len(runs) == 13:
            over.set()
            await asyncio.Event().wait()
        changes.put_nowait(frozenset({"log.txt"}))

    class Clock:
        """After the tenth run it takes a while until somebody changes the file."""

        def __call__(self) -> float:
            return now[0] + (500.0 if len(runs) >= 10 and changes.empty() else 0.0)

    # The lazy module that the watch reads: once another test has used it, it keeps the function of the real module.
    monkeypatch.setattr(watching.folder_changes, "changes_in", changes_in)
    watch = FolderWatch(tmp_path, run, on_trouble=print, is_ignored=lambda _: False, clock=Clock(), sleep=sleep)
    task = asyncio.create_task(watch.forever())
    async with asyncio.timeout(60):
        await over.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    # The first change after the first run is seen for the first time.
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, WATCH_PAUSE_S, WATCH_PAUSE_S]
