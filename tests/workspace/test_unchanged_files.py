"""Unchanged files: a run reads only the files that changed, and never those that Pegboard itself writes."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from pegboard.egress.files import Root
from pegboard.workspace.sources import folder_source
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
