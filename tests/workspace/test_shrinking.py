"""Shrinking sources: a run that would remove most of a source changes nothing until the operator confirms it."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from pegboard.model.error import CallError
from tests.workspace.library import Library, files
from tests.workspace.test_ingest import names

PAGES = {f"{number}.txt": f"page {number}" for number in range(5)}


async def refusal(library: Library, folder: Path) -> str:
    with pytest.raises(CallError) as refused:
        await library.take_in(folder)
    assert refused.value.error.kind == "needs_review"
    return refused.value.error.message


async def test_a_folder_that_is_empty_for_a_moment_keeps_its_documents(library: Library, tmp_path: Path) -> None:
    folder = files(tmp_path / "share", PAGES)
    await library.take_in(folder)
    before = await library.store.statistics()
    # As a share that is not mounted looks: its mount point is there, and is another folder.
    folder.rename(tmp_path / "away")
    folder.mkdir()
    text = await refusal(library, folder)
    assert f"all 5 documents of the source 'handbook' would be removed, as '{folder}' does not have" in text
    assert "--allow-shrink" in text
    assert await library.store.statistics() == before
    folder.rmdir()
    (tmp_path / "away").rename(folder)
    assert dict((await library.take_in(folder)).counts) == {"unchanged": 5}


async def test_more_than_half_is_refused_and_half_is_not(library: Library, tmp_path: Path) -> None:
    folder = files(tmp_path / "share", {**PAGES, "5.txt": "page 5"})
    await library.take_in(folder)
    for name in ("0.txt", "1.txt", "2.txt"):
        (folder / name).unlink()
    assert (await library.take_in(folder)).removed == 3
    files(folder, {"new.txt": "new"})
    for name in ("3.txt", "4.txt"):
        (folder / name).unlink()
    assert "2 of 3 documents" in await refusal(library, folder)
    # Not even the new file came in.
    assert await names(library) == {"3.txt", "4.txt", "5.txt"}
    report = await library.take_in(folder, allow_shrink=True)
    assert (dict(report.counts), report.removed) == ({"added": 1, "unchanged": 1}, 2)


async def test_another_folder_under_the_same_source_removes_nothing(library: Library, tmp_path: Path) -> None:
    folder = files(tmp_path / "a" / "docs", PAGES)
    await library.take_in(folder)
    # It lacks one file only, and is still not the folder that the source was read from.
    other = files(tmp_path / "b" / "docs", {**{name: PAGES[name] for name in list(PAGES)[1:]}, "other.txt": "other"})
    text = await refusal(library, other)
    assert f"it was read from '{folder}' before, and '{other}' is another place" in text
    assert await refusal(library, other) == text
    assert await names(library) == {*PAGES}
    assert (await library.take_in(other, allow_shrink=True)).removed == 1
    # From now on the source is that of the other folder.
    (other / "2.txt").unlink()
    assert (await library.take_in(other)).removed == 1


async def test_the_record_of_a_folder_goes_with_its_source(library: Library, tmp_path: Path) -> None:
    await library.take_in(files(tmp_path / "a", PAGES))
    scope = library.store.operator_scope("s1")
    assert await library.store.source_root(scope, "s1", "handbook") is not None
    await library.store.remove_source(scope, "s1", "handbook")
    other = files(tmp_path / "b", PAGES)
    await library.take_in(other)
    (other / "0.txt").unlink()
    assert (await library.take_in(other)).removed == 1


async def test_a_folder_that_was_renamed_or_is_behind_a_link_is_the_same_one(library: Library, tmp_path: Path) -> None:
    folder = files(tmp_path / "old", PAGES)
    await library.take_in(folder)
    renamed = folder.rename(tmp_path / "new")
    (renamed / "0.txt").unlink()
    assert (await library.take_in(renamed)).removed == 1
    link = tmp_path / "current"
    link.symlink_to(renamed)
    (renamed / "1.txt").unlink()
    assert (await library.take_in(link)).removed == 1
    # A release is rolled out by leading the link elsewhere.
    release = tmp_path / "release"
    shutil.copytree(renamed, release)
    (release / "2.txt").unlink()
    link.unlink()
    link.symlink_to(release)
    assert (await library.take_in(link)).removed == 1
    assert await names(library) == {"3.txt", "4.txt"}


async def test_a_folder_that_cannot_be_read_in_the_middle_keeps_its_documents(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = files(tmp_path / "share", {**{f"closed/{name}": text for name, text in PAGES.items()}, "a.txt": "a"})
    await library.take_in(folder)
    opened = os.open

    def closed(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if path == "closed":
            raise PermissionError(errno.EACCES, "Permission denied")
        return opened(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", closed)
    report = await library.take_in(folder)
    monkeypatch.undo()
    assert [(bad.path, bad.reason) for bad in report.bad] == [("closed", "'closed' cannot be used: Permission denied.")]
    assert (report.removed, len(await names(library))) == (0, 6)
