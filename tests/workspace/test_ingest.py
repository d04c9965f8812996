"""Ingest: what is new comes in, what is gone goes, what is bad is told in one line, and nothing else is touched."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, LiteralString

import apsw
import psycopg
import pytest

from pegboard.egress.files import Root
from pegboard.model.error import CallError
from pegboard.workspace import ingest
from pegboard.workspace.ingest import IngestReport, describe_progress
from pegboard.workspace.sources.folder_source import FolderSource
from tests import forking
from tests.timing import PATIENCE_S
from tests.workspace.library import ON_SQLITE_ALONE, Library, files, in_space
from tests.workspace.test_formats import HOSTILE, pdf

# Names as people write them; composed and decomposed are two names.
SCRIPTS = (
    "名前", "مرحبا", "Ünïcode", "U\u0308ni", "Ελλάδα", "Привет", "שלום", "हिन्दी", "தமிழ்", "ไทย", "ქართული", "አማርኛ",
    "한국어", "\U00020bb7野家", "👩‍👩‍👧 family", "a b\tc'\"%_*?[x]", "-rf",
)  # fmt: skip
GOOD = {
    "a.md": "# Leave\n\nThirty days.",
    "policies/b.html": "<h1>Travel</h1><p>Trains</p>",
    "data/c.csv": "x,y\n1,2\n",
}


async def names(library: Library) -> set[str]:
    return {each["path"] for each in (await library.call("find_by_name", pattern="*"))["items"]}


async def test_the_second_run_takes_what_changed_and_removes_what_is_gone(library: Library, tmp_path: Path) -> None:
    folder = files(tmp_path / "in", {**GOOD, "d.txt": "old"})
    assert dict((await library.take_in(folder)).counts) == {"added": 4}
    before = {each["path"]: each["document_id"] for each in (await library.call("find_by_name", pattern="*"))["items"]}
    assert dict((await library.take_in(folder)).counts) == {"unchanged": 4}
    files(folder, {"a.md": "# Leave\n\nForty days.", "e.txt": "new"})
    (folder / "d.txt").unlink()
    report = await library.take_in(folder)
    assert (dict(report.counts), report.removed) == ({"changed": 1, "unchanged": 2, "added": 1}, 1)
    after = {each["path"]: each["document_id"] for each in (await library.call("find_by_name", pattern="*"))["items"]}
    # A document keeps its id when its content changes.
    assert {path: after[path] for path in GOOD} == {path: before[path] for path in GOOD}
    assert set(after) == {*GOOD, "e.txt"}
    assert (await library.call("grep_documents", pattern="days"))["matches"][0]["text"] == "Forty days."
    assert (await library.call("search_documents", query="old"))["hits"] == []
    assert (await library.call("search_documents", query="thirty"))["hits"] == []


async def test_a_folder_that_became_empty_leaves_nothing_behind(library: Library, tmp_path: Path) -> None:
    folder = files(tmp_path / "in", GOOD)
    await library.take_in(folder)
    for path in GOOD:
        (folder / path).unlink()
    assert (await library.take_in(folder, allow_shrink=True)).removed == 3
    [space] = await library.store.statistics()
    assert {key: space[key] for key in ("documents", "chunks", "chars", "rows")} == {
        "documents": 0, "chunks": 0, "chars": 0, "rows": 0,
    }  # fmt: skip


@ON_SQLITE_ALONE
async def test_each_bad_file_is_one_line_and_the_others_come_in(library: Library, tmp_path: Path) -> None:
    folder = files(
        tmp_path / "in",
        {
            **GOOD,
            "broken.json": '{"a": ',
            "deep.json": "[" * 100_000,
            "two\nlines.json": "}",
            "noise.txt": b"caf\xe9\0\1",
            "wide.csv": ",".join(f"c{place}" for place in range(2_000)) + "\n",
            "data.bin": b"\x00\x01",
            "bomb.docx": HOSTILE["bomb.docx"][0](),
            "entities.xlsx": HOSTILE["entities.xlsx"][0](),
            "loop.pdf": pdf("a", kids="2 0 R " * 50),
            "cut.pdf": HOSTILE["cut.pdf"][0](),
            ".hidden.md": "# not taken",
            **{f"{name}.txt": "a name in every script" for name in SCRIPTS},
        },
    )
    (tmp_path / "outside.txt").write_text("canary outside")
    (folder / "link.txt").symlink_to(tmp_path / "outside.txt")
    (folder / "linked").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe.txt")
    with (folder / "huge.txt").open("wb") as file:
        file.truncate(2 << 30)
    (folder / os.fsdecode(b"bad\xff.txt")).write_text("x")
    report = await library.take_in(folder)
    told = {bad.path: bad.reason for bad in report.bad}
    assert await names(library) >= {*GOOD, *(f"{name}.txt" for name in SCRIPTS)}
    for name in ("bomb.docx", "entities.xlsx", "cut.pdf"):
        assert HOSTILE[name][1] in told.pop(name)
    assert "\n" not in told.pop("loop.pdf", "")
    assert dict(report.kinds_not_read) == {"bin": 1}
    assert {path: reason for path, reason in told.items() if path != "deep.json"} == {
        "broken.json": "it is not JSON at line 1, column 7: Expecting value",
        "two�lines.json": "its name has a character that cannot be shown, such as a line break; rename it",
        "noise.txt": "it is not a text: byte 3 belongs to no encoding",
        "wide.csv": "a table has 0 rows and 2,000 columns; at most 1,000,000 and 1,000 are taken. Split it",
        "link.txt": "it is a symbolic link, which is not followed",
        "linked": "it is a symbolic link, which is not followed",
        "pipe.txt": "it is not an ordinary file",
        "huge.txt": "it has 2,048 MiB; at most 100 MiB are taken",
        "bad\\udcff.txt": "its name is not valid UTF-8; rename it",
    }
    assert "nested too deeply" in told["deep.json"]
    assert (await library.call("search_documents", query="canary outside"))["hits"] == []
    info = await library.call("document_info", source_id=await library.source_id(), path="noise.txt")
    assert (info["status"], info["error"], info["chunk_count"]) == ("failed", told["noise.txt"], 0)
    # They are told of again as long as they are bad, and taken when they are mended.
    files(folder, {"noise.txt": "café", "broken.json": "{}"})
    assert (await library.take_in(folder)).counts["changed"] == 2


@ON_SQLITE_ALONE
async def test_a_file_that_changes_or_vanishes_while_it_is_read_is_one_line(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = files(tmp_path / "in", {**GOOD, "gone.txt": "x", "restless.txt": "x"})
    stat, writes = Root.stat, iter(range(1_000))

    def meanwhile(root: Root, path: str) -> object:
        if path == "gone.txt":
            (folder / path).unlink(missing_ok=True)
        if path == "restless.txt":
            (folder / path).write_text("y" * next(writes))
        return stat(root, path)

    monkeypatch.setattr(Root, "stat", meanwhile)
    report = await library.take_in(folder)
    assert {bad.path: bad.reason for bad in report.bad} == {
        "gone.txt": "The path 'gone.txt' does not exist. Check the name and its folders.",
        "restless.txt": "it changes while it is read",
    }
    assert await names(library) >= {*GOOD}
    assert "gone.txt" not in await names(library)


@ON_SQLITE_ALONE
@pytest.mark.parametrize("is_exchanged", [False, True])
async def test_a_folder_that_is_moved_while_it_is_read_removes_nothing(
    library: Library, tmp_path: Path, is_exchanged: bool
) -> None:
    folder = files(tmp_path / "in", GOOD)
    await library.take_in(folder)

    def move(_: ingest.IngestReport) -> None:
        if not (tmp_path / "moved").exists():
            folder.rename(tmp_path / "moved")
            if is_exchanged:
                folder.mkdir()

    scope = library.store.operator_scope("s1")
    run = ingest.SourceIngest(
        store=library.store, scope=scope, space="s1", name="handbook", source=FolderSource(folder),
        max_file_bytes=1_000, on_progress=move,
    )  # fmt: skip
    with pytest.raises(CallError, match="was moved or exchanged while it was read; nothing was removed") as refused:
        await run.run()
    assert (refused.value.error.kind, await names(library)) == ("busy", {*GOOD})
    # What is there now is what the next run finds.
    if is_exchanged:
        assert (await library.take_in(folder, allow_shrink=True)).removed == 3


@ON_SQLITE_ALONE
async def test_one_file_is_taken_in_alone_and_removes_nothing(library: Library, tmp_path: Path) -> None:
    folder = files(tmp_path / "in", GOOD)
    await library.take_in(folder)
    single = files(tmp_path / "other", {"z.txt": "single"}) / "z.txt"
    assert dict((await library.take_in(single)).counts) == {"added": 1}
    assert await names(library) == {*GOOD, "z.txt"}


async def test_two_runs_over_one_folder_at_once_end_as_one_would(library: Library, tmp_path: Path) -> None:
    folder = files(tmp_path / "in", {f"{place}.txt": f"lease {place}" for place in range(60)})
    other = Library(library.place)
    reports = await asyncio.gather(library.take_in(folder), other.take_in(folder))
    assert sum(report.counts["added"] for report in reports) == 60
    assert len((await library.call("find_by_name", pattern="*", limit=200))["items"]) == 60
    assert (await library.call("grep_documents", pattern="lease"))["total"] == 60
    [space] = await library.store.statistics()
    assert (space["documents"], space["chunks"]) == (60, 60)
    other.store.close()


@ON_SQLITE_ALONE
async def test_a_source_of_another_type_is_not_written_over(library: Library, tmp_path: Path) -> None:
    scope = library.store.operator_scope("s1")
    await library.store.begin_source(scope, "s1", "notes", type_="upload", origin="")
    with pytest.raises(CallError, match="of the type 'upload'"):
        await library.take_in(files(tmp_path / "in", GOOD), source="notes")


# More than a transaction takes, so that there are moments between two of them.
FILES = 120
INGEST = ["pegboard", "ingest", "in", "--space", "s1", "--source", "handbook"]


@pytest.mark.parametrize(
    ("place", "moments"),
    [("sqlite", 20), *(pytest.param(each, 50, marks=pytest.mark.soak) for each in ("sqlite", "postgres"))],
    indirect=["place"],
)
async def test_ing_12_killing_it_loses_nothing_acknowledged_and_the_next_run_does_the_rest(
    library: Library, tmp_path: Path, moments: int
) -> None:
    (tmp_path / "pegboard.yaml").write_text("workspace: {store: '${DOCUMENTS}'}\n")
    env = {**os.environ, "DOCUMENTS": "sqlite:documents.db" if isinstance(library.place, Path) else library.place}
    folder = files(tmp_path / "in", {f"{place:03}.txt": f"lease number{place}\n" for place in range(FILES)})
    known = set[str]()
    for moment in range(moments):
        files(folder, {f"{place:03}.txt": f"lease number{place} round{moment}\n" for place in range(FILES)})
        with (tmp_path / "said").open("wb") as said:
            files_of_it = (said.fileno(), said.fileno(), said.fileno())
            running = forking.fork(INGEST, files=files_of_it, cwd=tmp_path, env=env)
            ended = asyncio.create_task(asyncio.to_thread(running.wait))
            with watching(library) as version:
                # After as many transactions of it as the moment says, and a little later each time.
                for _ in range(1 + moment % 4):
                    before = version()
                    while not ended.done() and version() == before:
                        await asyncio.sleep(0.002)
                for _ in range(moment // 4):
                    await asyncio.sleep(0.001)
            seen = await _stored(library, moment)
            running.send_signal(signal.SIGKILL)
            await ended
        assert await _stored(library, moment) >= seen
        now = await names(library)
        assert now >= known
        known = now
        # Each document whole or not at all: as many passages as documents, all of which are found.
        for space in await library.store.statistics():
            assert space["documents"] == space["chunks"] == (await _found(library))
    last = await library.take_in(folder)
    assert last.counts["unchanged"] + last.counts["changed"] + last.counts["added"] == FILES
    assert await _stored(library, moments - 1) == FILES
    [space] = await library.store.statistics()
    assert (space["documents"], space["chunks"], await _found(library)) == (FILES, FILES, FILES)


@contextmanager
def watching(library: Library) -> Iterator[Callable[[], int]]:
    """Give what changes with each transaction of somebody else's."""
    if not isinstance(library.place, Path):
        with psycopg.connect(library.place, autocommit=True) as connection:
            yield lambda: _number(connection, "select pg_snapshot_xmin(pg_current_snapshot())::text::bigint")
        return
    (library.place / "documents.db").touch()
    with closing(apsw.Connection(str(library.place / "documents.db"))) as db:
        db.set_busy_timeout(30_000)
        yield lambda: int(db.pragma("data_version"))


def _number(connection: psycopg.Connection[Any], statement: LiteralString) -> int:
    row = connection.execute(statement).fetchone()
    assert row is not None
    return int(row[0])


async def _stored(library: Library, moment: int) -> int:
    answer = await library.call("grep_documents", pattern=f"round{moment}", limit=1)
    return int(answer["total"])


async def _found(library: Library) -> int:
    if not isinstance(library.place, Path):
        with psycopg.connect(library.place, autocommit=True) as connection:
            connection.execute("select set_config('pegboard.spaces', 'all', false)")
            return _number(connection, "select count(*) from pegboard.postings where term = 'leas'")
    with closing(apsw.Connection(str(library.place / "documents.db"))) as db:
        [[count]] = db.execute("select count(*) from postings where term = 'leas'").fetchall()
        return int(str(count))


@ON_SQLITE_ALONE
async def test_the_file_of_the_store_is_for_its_owner_alone(library: Library) -> None:
    await library.add("s1", "handbook", {"a.txt": "lease"})
    assert (await library.call("list_sources", in_space("s1")))["items"]
    for path in Path(str(library.place)).glob("documents.db*"):
        assert path.stat().st_mode & 0o077 == 0, path


def test_progress_tells_the_total_and_the_time_left() -> None:
    report = IngestReport(total=1_000)
    assert describe_progress(report, 0.0) == "0 of 1,000 files: nothing to store"
    report.counts["added"] = 250
    assert describe_progress(report, 30.0) == "250 of 1,000 files, 1:30 left: 250 added"
    assert describe_progress(report, 3_000.0) == "250 of 1,000 files, 2:30:00 left: 250 added"
    # Files may appear while the folder is read.
    report.counts["added"] = 1_001
    assert describe_progress(report, 30.0) == "1,001 of 1,001 files: 1001 added"


async def test_work_of_a_cancelled_caller_leaves_no_connection_after_the_store_is_closed(library: Library) -> None:
    began, goes_on, ended = threading.Event(), threading.Event(), threading.Event()
    seen: list[Any] = []

    def work(db: Any) -> None:
        seen.append(db)
        began.set()
        goes_on.wait()
        # Its own statements would be interrupted.
        ended.set()

    task = asyncio.create_task(library.store._database.read(work, caller="ann"))
    await asyncio.to_thread(began.wait)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    library.store.close()
    goes_on.set()
    await asyncio.to_thread(ended.wait)
    async with asyncio.timeout(PATIENCE_S):
        while not is_closed(seen[0]):
            await asyncio.sleep(0)


def is_closed(db: Any) -> bool:
    """Tell whether a connection to either database is closed."""
    if hasattr(db.raw, "closed"):
        return bool(db.raw.closed)
    try:
        db.raw.in_transaction  # noqa: B018 - it raises
    except apsw.ConnectionClosedError:
        return True
    except apsw.ThreadingViolationError:  # it is being closed
        return False
    return False
