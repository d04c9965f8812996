"""Tasks in a database outlive their process: it is killed at any moment, and another one goes on."""

from __future__ import annotations

import multiprocessing
import random
import sqlite3
import time
from collections import Counter
from collections.abc import Generator
from multiprocessing.process import BaseProcess as Worker
from pathlib import Path

import pytest

from tests.tasks.importing import STEPS, example, work
from tests.timing import PATIENCE_S

RECOVERED_S = 5.0
# Each worker is forked from one process that has loaded DBOS already, which takes seconds.
FORKING = multiprocessing.get_context("forkserver")
FORKING.set_forkserver_preload(["tests.tasks.importing", "pegboard.tasks.dbos_engine"])
STEP_S = 0.1
EXAMPLE = Path(__file__).parents[2] / "examples/approvals/import_orders.py"


class Workers:
    """Processes that work on one database, and the ledger that they write."""

    def __init__(self, folder: Path, store: str) -> None:
        self.store, self.ledger = store, folder / "ledger"
        self.ledger.touch()
        self.living: list[Worker] = []

    def start(self, *begin: str, step_s: float = STEP_S) -> Worker:
        worker = FORKING.Process(target=work, args=(self.store, self.ledger, step_s, list(begin)), daemon=True)
        worker.start()
        self.living.append(worker)
        return worker

    def kill(self, worker: Worker) -> None:
        worker.kill()
        worker.join()
        self.living.remove(worker)

    def lines(self, *beginning: str) -> list[list[str]]:
        """Return the lines that begin with these words, each as its words."""
        rows = [line.split() for line in self.ledger.read_text().splitlines()]
        return [row for row in rows if tuple(row[: len(beginning)]) == beginning]

    def until(self, count: int, *beginning: str) -> None:
        """Wait until so many lines begin with these words."""
        ends = time.monotonic() + PATIENCE_S
        while len(self.lines(*beginning)) < count:
            assert time.monotonic() < ends, self.ledger.read_text()
            time.sleep(0.01)  # another process writes it, and says nothing


@pytest.fixture
def workers(tmp_path: Path) -> Generator[Workers]:
    made = Workers(tmp_path, f"sqlite:{tmp_path}/tasks.db")
    yield made
    for worker in tuple(made.living):
        made.kill(worker)


def assert_each_result_was_recorded_once(workers: Workers, name: str, *, kills: int) -> None:
    """Every step ran to its end, in order; only what was in flight when a process died ran again."""
    ended = [row[2] for row in workers.lines("end", name)]
    assert list(dict.fromkeys(ended)) == list(STEPS)
    assert ended == sorted(ended, key=STEPS.index)
    began = Counter(row[2] for row in workers.lines("begin", name))
    assert sum(began.values()) <= len(STEPS) + kills
    # The key of a step is the same each time that it runs, and different for every other.
    keys = {(row[2], row[3]) for row in workers.lines("begin", name)}
    assert len({key for _, key in keys}) == len(keys) == len(STEPS)


def results_recorded(folder: Path) -> Counter[str]:
    """Return how often the result of each step stands in the database."""
    with sqlite3.connect(folder / "tasks.db") as database:
        rows = database.execute("select function_name from operation_outputs").fetchall()
    return Counter(name for (name,) in rows)


def test_a_task_goes_on_from_its_last_recorded_step_after_kill_9_at_any_moment(
    workers: Workers, tmp_path: Path
) -> None:
    moments, kills = random.Random(20261122), 3
    worker = workers.start("one")
    workers.until(1, "ready")
    for _ in range(kills):
        seen = len(workers.lines("begin"))
        workers.until(max(seen, 1), "begin")
        time.sleep(moments.uniform(0, 1.5 * STEP_S))  # the moment is what is tried
        workers.kill(worker)
        worker = workers.start()
        workers.until(len(workers.lines("ready")) + 1, "ready")
        if workers.lines("end", "one", STEPS[-1]):
            break
        workers.until(seen + 1, "begin")
    workers.until(1, "end", "one", STEPS[-1])
    assert_each_result_was_recorded_once(workers, "one", kills=kills)
    assert set(results_recorded(tmp_path)) <= set(STEPS)
    assert max(results_recorded(tmp_path).values()) == 1


def test_two_workers_never_run_one_task_at_once_and_one_takes_over_what_the_other_left(
    workers: Workers, tmp_path: Path
) -> None:
    second = workers.start(step_s=0.3)
    workers.until(1, "ready")
    first = workers.start("one", "two", step_s=0.3)
    workers.until(3, "end")
    # As long as both live, each task is of one process.
    for name in ("one", "two"):
        assert {row[4] for row in workers.lines("begin", name)} == {str(first.pid)}
    workers.kill(first)
    for name in ("one", "two"):
        workers.until(1, "end", name, STEPS[-1])
        assert_each_result_was_recorded_once(workers, name, kills=1)
        assert {row[4] for row in workers.lines("begin", name)} == {str(first.pid), str(second.pid)}
    ends = time.monotonic() + PATIENCE_S
    while results_recorded(tmp_path) != Counter(dict.fromkeys(STEPS, 2)):
        assert time.monotonic() < ends, results_recorded(tmp_path)
        time.sleep(0.01)  # it is recorded after its effect is seen


@pytest.mark.soak
def test_the_import_of_the_example_is_killed_in_its_middle_and_ends_in_the_next_run(tmp_path: Path) -> None:
    def run() -> tuple[Worker, Path]:
        said = tmp_path / f"said{len(list(tmp_path.glob('said*')))}"
        said.touch()
        process = FORKING.Process(target=example, args=(EXAMPLE, tmp_path, said), daemon=True)
        process.start()
        return process, said

    def until(said: Path, word: str) -> None:
        ends = time.monotonic() + PATIENCE_S
        while word not in said.read_text():
            assert time.monotonic() < ends, said.read_text()
            time.sleep(0.01)  # another process writes it, and says nothing

    first, said = run()
    until(said, "check")
    first.kill()
    first.join()
    second, said = run()
    second.join(PATIENCE_S)
    assert second.exitcode == 0
    lines = said.read_text().split("\n")
    assert (lines[0], "download" in lines, lines[-2]) == ("goes on", False, "4 orders of web are in")
    assert len((tmp_path / "orders.txt").read_text().splitlines()) == 4


@pytest.mark.soak
def test_two_hundred_kills_lose_and_repeat_nothing(tmp_path: Path, workers: Workers) -> None:
    moments, slowest, kills, number = random.Random(), 0.0, 0, 0
    worker = workers.start()
    workers.until(1, "ready")
    while kills < 200:
        number += 1
        workers.kill(worker)
        worker = workers.start(f"t{number}", step_s=0.2)
        workers.until(1, "began", f"t{number}")
        of_this = 0
        while not workers.lines("end", f"t{number}", STEPS[-1]) and of_this < 4:
            time.sleep(moments.uniform(0, 0.5))
            workers.kill(worker)
            began, seen = time.monotonic(), len(workers.lines("begin"))
            worker = workers.start(step_s=0.2)
            kills, of_this = kills + 1, of_this + 1
            if not workers.lines("end", f"t{number}", STEPS[-1]):
                workers.until(seen + 1, "begin")
                slowest = max(slowest, time.monotonic() - began)
        workers.until(1, "end", f"t{number}", STEPS[-1])
        assert_each_result_was_recorded_once(workers, f"t{number}", kills=of_this)
    print(f"{kills} kills of {number} tasks; the slowest went on after {slowest:.1f} s")
    assert slowest < RECOVERED_S
