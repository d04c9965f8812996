"""Metadata of one's own: given to documents on the way in, and a filter of every search."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pegboard import Workspace
from pegboard.model.error import CallError
from tests.workspace.library import ON_SQLITE_ALONE, Library, files
from tests.workspace.test_git_source import commit
from tests.workspace.test_watching import ids

PAGES = {
    "a.md": "---\ntitle: Leave\nteam: people\nyear: 2024\n---\n# Leave\n\nThirty days of holiday.\n",
    "b.md": "# Travel\n\nHoliday is no business trip.\n",
    "c.txt": "holiday and support",
}


async def found(library: Library, **metadata: Any) -> set[str]:
    answer = await library.call("search_documents", query="holiday", metadata=metadata)
    return {hit["name"] for hit in answer["hits"]} if "hits" in answer else set(answer["error"])


async def test_metadata_of_a_run_and_of_front_matter_filters_searches(library: Library, tmp_path: Path) -> None:
    folder = files(tmp_path / "in", PAGES)
    workspace = Workspace(library.store)
    await workspace.ingest(folder, space="s1", metadata={"team": "support", "product": "app"})
    before = await ids(library)
    assert await found(library) == {"a.md", "b.md", "c.txt"}
    assert await found(library, team="support") == {"b.md", "c.txt"}
    # What a file says about itself counts for more.
    assert await found(library, team="people") == {"a.md"}
    assert await found(library, team="support", product="app") == {"b.md", "c.txt"}
    assert await found(library, product="other") == set()
    assert await found(library, nonesuch="x") == set()
    # Values are texts, however they are asked for.
    assert await found(library, year=2024) == await found(library, year="2024") == {"a.md"}
    info = await library.call("document_info", document_id=before["a.md"])
    assert info["metadata"]["title"] == "Leave"
    assert {key: info["metadata"][key] for key in ("team", "product", "year")} == {
        "team": "people", "product": "app", "year": "2024",
    }  # fmt: skip
    # It is kept for later runs, also for new files, until other metadata is given.
    files(folder, {"d.txt": "a new holiday"})
    assert dict((await workspace.ingest(folder, space="s1")).counts) == {"added": 1, "unchanged": 3}
    assert await found(library, product="app") == {"a.md", "b.md", "c.txt", "d.txt"}
    report = await workspace.ingest(folder, space="s1", metadata={"team": "sales"})
    assert dict(report.counts) == {"changed": 4}
    assert await found(library, team="sales") == {"b.md", "c.txt", "d.txt"}
    assert await found(library, product="app") == set()
    assert before.items() <= (await ids(library)).items()


async def test_metadata_of_an_upload_filters_searches(library: Library) -> None:
    workspace = Workspace(library.store)
    await workspace.upload(b"holiday", space="s1", path="a.txt", metadata={"team": "support"})
    await workspace.upload(b"holiday too", space="s1", path="b.txt")
    assert await found(library, team="support") == {"a.txt"}


async def test_a_replaced_document_keeps_its_metadata_until_it_is_given_other_or_none(library: Library) -> None:
    workspace = Workspace(library.store)
    for metadata, expected in (
        ({"team": "support"}, {"a.txt"}),
        (None, {"a.txt"}),
        ({"team": "x"}, set()),
        ({}, set()),
    ):
        await workspace.upload(f"holiday {metadata}".encode(), space="s1", path="a.txt", metadata=metadata)
        assert await found(library, team="support") == expected
    assert await found(library, team="x") == set()
    assert await found(library) == {"a.txt"}


@ON_SQLITE_ALONE
async def test_a_commit_is_read_again_for_other_metadata(library: Library, tmp_path: Path) -> None:
    repository = commit(tmp_path / "handbook", {"c.txt": PAGES["c.txt"]})
    workspace = Workspace(library.store)
    await workspace.ingest(f"git:{repository}", space="s1", metadata={"team": "support"})
    assert await found(library, team="support") == {"c.txt"}
    await workspace.ingest(f"git:{repository}", space="s1", metadata={"team": "sales"})
    assert await found(library, team="sales") == {"c.txt"}


@ON_SQLITE_ALONE
@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ({"title": "x"}, "The key 'title' is filled by what reads the file"),
        ({"a b": "x"}, "is not a key of metadata"),
        ({"k" * 65: "x"}, "is not a key of metadata"),
        ({"team": ""}, "The value of 'team' has to be"),
        ({"team": "x" * 201}, "The value of 'team' has to be"),
        ({"team": ["x"]}, "The value of 'team' has to be"),
        ({"team": "a\0b"}, "has a NUL or half a character"),
        ({f"k{number}": "x" for number in range(21)}, "21 keys of metadata are too many; at most 20"),
    ],
)
async def test_metadata_that_cannot_be_stored_is_refused(
    library: Library, tmp_path: Path, metadata: Any, reason: str
) -> None:
    workspace = Workspace(library.store)
    with pytest.raises(CallError, match=reason):
        await workspace.ingest(files(tmp_path / "in", PAGES), space="s1", metadata=metadata)
    with pytest.raises(CallError, match=reason):
        await workspace.upload(b"x", space="s1", path="a.txt", metadata=metadata)
    assert await ids(library) == {}


@ON_SQLITE_ALONE
async def test_front_matter_that_cannot_be_stored_is_left_out(library: Library, tmp_path: Path) -> None:
    many = "\n".join(f"key{number}: value" for number in range(40))
    text = f"---\nlong: {'x' * 300}\nteam: support\nnested:\n  a: b\n{many}\n---\n# Holiday\n"
    report = await Workspace(library.store).ingest(files(tmp_path / "in", {"a.md": text}), space="s1")
    assert report.bad == []
    assert await found(library, team="support") == {"a.md"}
    [document_id] = (await ids(library)).values()
    metadata = (await library.call("document_info", document_id=document_id))["metadata"]
    assert "long" not in metadata
    assert len([key for key in metadata if key.startswith("key")]) == 19
