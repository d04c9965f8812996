"""Attacks on a library: files that are exchanged while they are read, and words that would be SQL.

What judges is a canary: outside of the folder, or in another space, and never in anything that is stored or said.
"""

from __future__ import annotations

import hashlib
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from pegboard.model.json_types import JSON
from tests.workspace.library import ON_SQLITE_ALONE, Library, as_bytes, files, in_space

CANARY = "canary-of-another-place"


@contextmanager
def exchanged(folder: Path, outside: Path) -> Iterator[None]:
    """Exchange a file, the folder of others, and what they are links to, again and again while the block runs."""
    is_over = threading.Event()

    def swap() -> None:
        dice = random.Random(1)
        ways = [(folder / "swapped.txt", outside / "0.txt"), (folder / "below", outside)]
        while not is_over.is_set():
            for path, target in ways:
                aside = path.with_name(f".{path.name}.aside")
                path.rename(aside)
                path.symlink_to(target)
                # As long as reading a file takes, more or less.
                is_over.wait(dice.uniform(0, 0.002))
                path.unlink()
                aside.rename(path)
            is_over.wait(dice.uniform(0, 0.002))

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        yield
    finally:
        is_over.set()
        swapping.join()


@pytest.mark.parametrize("seconds", [0.3, pytest.param(60.0, marks=pytest.mark.soak)])
@ON_SQLITE_ALONE
async def test_a_link_that_comes_and_goes_while_a_folder_is_read_leads_nowhere(
    library: Library, tmp_path: Path, seconds: float
) -> None:
    names = [f"{place}.txt" for place in range(40)]
    outside = files(tmp_path / "outside", dict.fromkeys(names, CANARY))
    inside = {"swapped.txt": "mine", **{f"below/{name}": "mine" for name in names}}
    folder, refused = files(tmp_path / "in", inside), set[str]()
    with exchanged(folder, outside):
        until = time.monotonic() + seconds
        # Until it has met both, too.
        while time.monotonic() < until or len(refused) < 2:
            # What is a link at that moment has no file, which may be most of what came in before.
            report = await library.take_in(folder, allow_shrink=True)
            refused |= {"folder" if "below" in each.path else "file" for each in report.bad}
            assert (await library.call("grep_documents", pattern=CANARY))["total"] == 0
    # With nobody there to exchange anything all of them come in.
    files(folder, inside)
    await library.take_in(folder)
    assert (await library.call("grep_documents", pattern="mine"))["total"] == len(inside)


INJECTED = (
    "' or 1=1 --", "') union select text, 1, 1, 1, 1, 1 from texts --", "x'; delete from documents; --",
    '" or ""="', "$1 ?1 :name %s {0}", "\\'; select set_config('pegboard.spaces', 'all', true); --", "%_*?[a-z]",
    "1) or (1=1", "/*", "lease\u2019 or 1=1",
)  # fmt: skip


def content_of(library: Library) -> str:
    """Return a digest of all that a store holds, as its database tells it."""
    tables = ("spaces", "grants", "sources", "documents", "texts", "chunks", "postings", "tables", "table_rows")
    told: list[Any] = []
    if isinstance(library.place, Path):
        with apsw.Connection(str(library.place / "documents.db")) as db:
            told = [sorted(map(str, db.execute(f"select * from {table}"))) for table in tables]
    else:
        with psycopg.connect(library.place) as connection:
            connection.execute("select set_config('pegboard.spaces', 'all', false)")
            for table in tables:
                rows = connection.execute(f"select t::text from pegboard.{table} t")  # type: ignore[arg-type] - of ours
                told.append(sorted(map(str, rows)))
    return hashlib.sha256(str(told).encode()).hexdigest()


def injected(schema: JSON, known: JSON) -> Iterator[JSON]:
    """Yield arguments for a tool, each with such words in the place of one text: all others are as they should be."""
    required = {name: known[name] for name in schema.get("required", ())}
    for name, told in schema["properties"].items():
        for words in INJECTED:
            match told.get("type"):
                case "string" if "enum" not in told:
                    yield {**required, name: words}
                case "array":
                    yield {**required, name: [words]}
                case "object":
                    yield from ({**required, name: {words: "x"}}, {**required, name: {"title": words}})
                case _:
                    break


async def test_no_argument_of_any_tool_is_read_as_sql(library: Library) -> None:
    ids = await library.add("s1", "handbook", {"a/lease.txt": "lease notice period"})
    await library.add("s2", CANARY, {f"{CANARY}/{CANARY}.txt": f"lease {CANARY}"}, title=CANARY)
    known = {
        "source_id": await library.source_id(), "document_id": ids["a/lease.txt"], "query": "lease", "pattern": "lease",
    }  # fmt: skip
    before, asked = content_of(library), 0
    for tool in [each.spec for each in library.catalog.view(in_space("s1")).tools()]:
        # The argument of `query_documents` is SQL, and has tests of its own.
        every = injected(tool.input_schema, known) if tool.name != "query_documents" else ()
        for arguments in every:
            answer = await library.call(tool.name, **arguments)
            assert CANARY.encode() not in as_bytes(answer), (tool.name, arguments, answer)
            kind = answer.get("error", ["none"])[0]
            assert kind in ("none", "not_found", "invalid_arguments"), (tool.name, arguments, answer)
            asked += 1
    for words in INJECTED:
        # As the name of a user, of a role and of a space, and in an address.
        for ctx in (in_space(words, words, words), in_space(None, words, words)):
            found = await library.call("search_documents", ctx, query="lease")
            assert found["hits"] == [], (words, found)
        assert CANARY.encode() not in as_bytes(await library.read(f"docs://s1/handbook/{words}", in_space("s1")))
    assert asked > 200
    assert content_of(library) == before
