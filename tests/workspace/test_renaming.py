"""Renamed files: the same content under a new path is the same document, with its id, its links and its vectors."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from pegboard.model.error import CallError
from tests.workspace.library import Library, Place, files

PAGES = {
    "rules/leave.md": "# Leave\n\nThirty days of holiday.\n",
    "rules/travel/trains.txt": "Second class.\n",
    "rules/travel/fares.csv": "kind,price\nlocal,3\n",
    "rules/untitled.txt": "Wednesday is soup day.",
}


class Counting:
    """An embedder that counts the texts it was given."""

    def __init__(self) -> None:
        self.model_id, self.dimension, self.count = "counting", 2, 0

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        self.count += len(texts)
        return [[1.0, float(len(text))] for text in texts]


@pytest.fixture
def embedder() -> Counting:
    return Counting()


@pytest.fixture
def library(place: Place, embedder: Counting) -> Iterator[Library]:
    made = Library(place, embedder=embedder)
    yield made
    made.store.close()


async def ids(library: Library) -> dict[str, str]:
    """Return the id of each document by its path."""
    listed = await library.store.documents(library.store.operator_scope("s1"), limit=200)
    return {each["path"]: each["document_id"] for each in listed["items"]}


async def found(library: Library, query: str, mode: str = "keyword") -> list[str]:
    return [hit["name"] for hit in (await library.call("search_documents", query=query, mode=mode))["hits"]]


async def test_a_renamed_folder_and_a_renamed_file_keep_ids_and_vectors(
    library: Library, embedder: Counting, tmp_path: Path
) -> None:
    folder = files(tmp_path / "share", PAGES)
    await library.take_in(folder)
    before, embedded = await ids(library), embedder.count
    (folder / "rules").rename(folder / "policies")
    (folder / "policies" / "untitled.txt").rename(folder / "policies" / "lunches.txt")
    # Every file is at a new path, and none is lost: the guard of the source has no question.
    report = await library.take_in(folder)
    assert (dict(report.counts), report.removed, report.embedded) == ({"renamed": 4}, 0, 0)
    after = await ids(library)
    assert after == {
        "policies/leave.md": before["rules/leave.md"],
        "policies/travel/trains.txt": before["rules/travel/trains.txt"],
        "policies/travel/fares.csv": before["rules/travel/fares.csv"],
        "policies/lunches.txt": before["rules/untitled.txt"],
    }
    assert embedder.count == embedded
    # A document without a title is found by its new name, and not by the old one.
    assert await found(library, "lunches") == ["lunches.txt"]
    assert await found(library, "untitled") == []
    assert len(await found(library, "anything", "vector")) == 4
    assert dict((await library.take_in(folder)).counts) == {"unchanged": 4}


async def test_statistics_after_a_rename_are_those_of_a_fresh_store(library: Library, tmp_path: Path) -> None:
    folder = files(tmp_path / "share", PAGES)
    await library.take_in(folder)
    (folder / "rules" / "untitled.txt").rename(folder / "a_much_longer_name_of_many_words.txt")
    await library.take_in(folder)
    await library.take_in(folder, space="s2")
    for query in ("soup", "longer name", "holiday", "second class"):
        hits = [
            [(hit["name"], hit["score"]) for hit in (
                await library.store.search(library.store.operator_scope(space), query, mode="keyword", limit=9)
            )["hits"]]
            for space in ("s1", "s2")
        ]  # fmt: skip
        assert hits[0] == hits[1]
        assert hits[0], query


async def test_a_table_is_named_after_the_new_name_of_its_file(library: Library, tmp_path: Path) -> None:
    folder = files(tmp_path / "share", PAGES)
    await library.take_in(folder)
    (folder / "rules" / "travel" / "fares.csv").rename(folder / "prices.csv")
    await library.take_in(folder)
    assert (await library.call("query_documents", sql="select price from prices"))["rows"] == [[3]]
    assert "error" in await library.call("query_documents", sql="select price from fares")


async def test_a_new_ending_reads_the_file_again_under_its_old_id(library: Library, tmp_path: Path) -> None:
    folder = files(tmp_path / "share", {"notes.txt": "# Notes\n\nSoup.\n", "other.txt": "x", "third.txt": "y"})
    await library.take_in(folder)
    before = await ids(library)
    (folder / "notes.txt").rename(folder / "notes.md")
    report = await library.take_in(folder)
    assert dict(report.counts) == {"changed": 1, "unchanged": 2}
    document: Any = await library.call("document_info", document_id=before["notes.txt"])
    assert (document["path"], document["mime"], document["metadata"]["title"]) == ("notes.md", "text/markdown", "Notes")


async def test_copies_and_swapped_contents_are_no_renames(library: Library, tmp_path: Path) -> None:
    folder = files(tmp_path / "share", {"a.txt": "one", "b.txt": "two", "c.txt": "three"})
    await library.take_in(folder)
    before = await ids(library)
    files(folder, {"a.txt": "two", "b.txt": "one", "copy.txt": "three"})
    report = await library.take_in(folder)
    assert dict(report.counts) == {"added": 1, "changed": 2, "unchanged": 1}
    after = await ids(library)
    assert {path: after[path] for path in before} == before
    # Of two files with one content, one was moved: the one of the same name.
    (folder / "inner").mkdir()
    (folder / "c.txt").rename(folder / "inner" / "c.txt")
    await library.take_in(folder)
    assert (await ids(library))["inner/c.txt"] == before["c.txt"]


async def test_what_was_renamed_does_not_hide_that_the_rest_is_gone(library: Library, tmp_path: Path) -> None:
    folder = files(tmp_path / "share", {f"{number}.txt": f"page {number}" for number in range(5)})
    await library.take_in(folder)
    before = await ids(library)
    (folder / "0.txt").rename(folder / "zero.txt")
    for number in range(1, 4):
        (folder / f"{number}.txt").unlink()
    with pytest.raises(CallError) as refused:
        await library.take_in(folder)
    assert refused.value.error.kind == "needs_review"
    assert "3 of 5 documents" in refused.value.error.message
    # A refused run changes nothing, not even a path.
    assert await ids(library) == before
    report = await library.take_in(folder, allow_shrink=True)
    assert (dict(report.counts), report.removed) == ({"renamed": 1, "unchanged": 1}, 3)
    assert await ids(library) == {"zero.txt": before["0.txt"], "4.txt": before["4.txt"]}


async def test_a_folder_that_was_emptied_and_filled_again_keeps_its_ids(library: Library, tmp_path: Path) -> None:
    folder = files(tmp_path / "share", PAGES)
    await library.take_in(folder)
    before = await ids(library)
    shutil.move(folder / "rules", tmp_path / "away")
    with pytest.raises(CallError):
        await library.take_in(folder)
    shutil.move(tmp_path / "away", folder / "rules")
    assert dict((await library.take_in(folder)).counts) == {"unchanged": 4}
    assert await ids(library) == before
