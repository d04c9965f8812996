"""Power cuts: what was acknowledged is on the disk, whatever of the rest is (EXEC-02)."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.tasks.cluster import cluster
from tests.tasks.power_cuts import ANN, STEPS, Act, acts_of, catalog_in, disk_after, run_on
from tests.tasks.test_recovery import FORKING
from tests.timing import PATIENCE_S

CUTS = 100
REOPENED = 10  # of these, in which Pegboard then goes on
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> list[Act]:
    """Return all that a process wrote and flushed, with what it acknowledged."""
    folder = tmp_path_factory.mktemp("disk")
    log, library = folder.with_suffix(".log"), folder.with_suffix(".so")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, HERE / "write_log.c", "-ldl", "-lpthread"], check=True)
    watched = {"LD_PRELOAD": str(library), "WRITE_LOG": str(log), "WRITE_LOG_BELOW": str(folder)}
    code = f"from tests.tasks.power_cuts import run; run({str(folder)!r}, 12)"
    subprocess.run(
        [sys.executable, "-c", code], check=True, env=os.environ | watched, cwd=HERE.parents[1], timeout=10 * PATIENCE_S
    )
    return list(acts_of(log, folder))


def acknowledged(acts: list[Act]) -> dict[str, list[list[str]]]:
    """Return the words of what was acknowledged within these acts, by the first of them."""
    return words_of(b"".join(act.data for act in acts if act.name == "acknowledged").decode())


def words_of(text: str) -> dict[str, list[list[str]]]:
    """Return the words of each line, by the first of them."""
    lines = defaultdict[str, list[list[str]]](list)
    for line in text.splitlines():
        lines[line.split()[0]].append(line.split()[1:])
    return lines


Rows = Callable[[str], list[tuple[Any, ...]]]


def rows_of(path: Path) -> Rows:
    """Return what asks a database in a file."""

    def rows(sql: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(path)) as connection:
            return connection.execute(sql).fetchall()

    return rows


def assert_held(tasks: Rows, consents: Rows, said: dict[str, list[list[str]]]) -> None:
    """Hold what is in databases against what was acknowledged before the power went."""
    ids = dict(asked[:2] for asked in said["task"])
    if ids:
        kept = {row[0] for row in tasks("select task_id from pegboard_tasks")}
        begun = dict(tasks("select workflow_uuid, status from workflow_status"))
        assert set(ids.values()) <= kept & begun.keys()
        assert {begun[task_id] for _, task_id in said["ended"]} <= {"SUCCESS"}
        steps = tasks("select workflow_uuid, function_name from operation_outputs")
        assert len(steps) == len(set(steps))
        assert {(ids[name], step) for name, step, _ in said["step"] if name in ids} <= set(steps)
    if said["asked"]:
        states = {row[0]: f"{row[1]}{row[2]}" for row in consents("select id, state, uses_left from consents")}
        assert {consent_id for _, consent_id in said["asked"]} <= states.keys()
        used = {consent_id for _, consent_id in said["used"]}
        for number, consent_id in said["decided"]:
            is_no, is_used = int(number) % 4 == 3, consent_id in used
            may_be = {"declined0"} if is_no else {"agreed0"} if is_used else {"agreed0", "agreed1"}
            assert states[consent_id] in may_be
        asked = {number: consent_id for number, consent_id in said["asked"]}  # noqa: C416 - lists, not pairs
        assert {states[asked[number]] for (number,) in said["ran"]} <= {"agreed0"}
        assert len(said["ran"]) == len({number for (number,) in said["ran"]})


def assert_disk_held(folder: Path, said: dict[str, list[list[str]]]) -> None:
    """Hold the files of a disk against that."""
    tasks, consents = rows_of(folder / "tasks.db"), rows_of(folder / "consents.db")
    for name, rows in (("tasks.db", tasks), ("consents.db", consents)):
        if (folder / name).exists():
            assert rows("pragma integrity_check") == [("ok",)]
    assert_held(tasks, consents, said)


def restored(folder: Path, acts: list[Act], chance: random.Random) -> None:
    """Write the files that a disk may have where the power went after these acts."""
    folder.mkdir()
    for name, content in disk_after(acts, chance).items():
        # What is shared in memory does not outlive the power: SQLite makes it of the log.
        if not name.endswith("-shm") and "/" not in name:
            (folder / name).write_bytes(content)


@pytest.mark.soak
def test_exec_02_a_hundred_power_cuts_lose_nothing_that_was_acknowledged(written: list[Act], tmp_path: Path) -> None:
    chance = random.Random(20261122)
    for number in range(CUTS):
        before = written[: chance.randrange(1, len(written) + 1)]
        folder = tmp_path / str(number)
        restored(folder, before, chance)
        assert_disk_held(folder, acknowledged(before))


@pytest.mark.soak
async def test_exec_02_after_a_power_cut_tasks_go_on_to_their_end(written: list[Act], tmp_path: Path) -> None:
    chance = random.Random(20261123)
    for number in range(REOPENED):
        before = written[: chance.randrange(len(written) // 4, len(written) + 1)]
        said = acknowledged(before)
        folder, ran = tmp_path / str(number), list[str]()
        restored(folder, before, chance)
        catalog = catalog_in(folder, ran)
        try:
            for name, task_id in said["task"]:
                result = await catalog.tasks.result(task_id, ANN, timeout_s=PATIENCE_S)
                assert (result.error, result.text) == (None, name)
            for asked, consent_id in said["decided"]:
                paid = await catalog.view(ANN).call("pay", {"number": int(asked)})
                if int(asked) % 4 == 3 or [asked] in said["ran"]:
                    assert paid.is_error, (asked, consent_id)
                elif int(asked) % 2:
                    assert not paid.is_error, (paid, consent_id)
        finally:
            await catalog.close()
        # A step that was recorded does not run again: its key is what the ledger outside had seen.
        keys = {(name, step): key for name, step, key in said["step"]}
        again = {(name, step): key for _, name, step, key in (line.split() for line in ran if line.startswith("step"))}
        assert all(again.get(at, key) == key for at, key in keys.items())
        assert {step for _, step in again} <= set(STEPS)


@pytest.mark.soak
def test_exec_02_a_hundred_cuts_of_postgresql_lose_and_double_nothing_and_nobody_starts_the_worker_again(
    tmp_path: Path,
) -> None:
    chance, acknowledgements = random.Random(20261124), tmp_path / "acknowledged"
    acknowledgements.touch()
    with cluster() as server:

        def rows(sql: str, schema: str = "") -> list[tuple[Any, ...]]:
            with psycopg.connect(server.url, options=f"-c search_path={schema}public") as connection:
                return connection.execute(sql.encode()).fetchall()

        worker = FORKING.Process(target=run_on, args=(server.url, acknowledgements), daemon=True)
        worker.start()
        try:
            slowest = 0.0
            for _ in range(CUTS):
                time.sleep(chance.uniform(0.2, 1.0))  # the moment is what is tried
                server.cut()
                said = words_of(acknowledgements.read_text())
                server.start()
                if said["task"]:
                    assert_held(partial(rows, schema="dbos,"), rows, said)
                began = time.monotonic()
                while len(words_of(acknowledgements.read_text())["ended"]) <= len(said["ended"]):
                    assert time.monotonic() - began < PATIENCE_S, acknowledgements.read_text()[-3_000:]
                    assert worker.is_alive()
                    time.sleep(0.05)  # another process writes it, and says nothing
                slowest = max(slowest, time.monotonic() - began)
            said = words_of(acknowledgements.read_text())
            print(f"{CUTS} cuts, {len(said['ended'])} tasks ended; the slowest was {slowest:.1f} s after the start")
        finally:
            worker.kill()
            worker.join()
