"""Tasks in a database outlive their process: it is killed at any moment, and another one goes on."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import ExitStack, closing
from functools import partial
from multiprocessing.process import BaseProcess as Worker
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.tasks.databases import database
from tests.tasks.importing import CRASHING, HELD, STEPS, example, hold_of, work
from tests.timing import PATIENCE_S, is_within

RECOVERED_S = 5.0
# Each worker is forked from one process that has loaded DBOS already, which takes seconds.
FORKING = multiprocessing.get_context("forkserver")
FORKING.set_forkserver_preload(
    [
        "tests.tasks.importing",
        "pegboard.tasks.dbos_engine",
        "sqlalchemy.dialects.postgresql.psycopg",
        "sqlalchemy.dialects.sqlite.pysqlite",
        "dbos._sys_db_sqlite",
    ]
)
STEP_S = 0.1
EXAMPLE = Path(__file__).parents[2] / "examples/approvals/import_orders.py"


class Workers:
    """Processes that work on one database, and the ledger that they write."""

    def __init__(self, folder: Path, store: str) -> None:
        self.store, self.ledger = store, folder / "ledger"
        self.ledger.touch()
        self.living: list[Worker] = []

    def start(
        self, *begin: str, step_s: float = STEP_S, lease_s: float = PATIENCE_S, most_runs: int | None = None
    ) -> Worker:
        # The lease of those that are killed never runs out: the end of a process is seen at once.
        given = (self.store, self.ledger, step_s, lease_s, most_runs, list(begin))
        worker = FORKING.Process(target=work, args=given, daemon=True)
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
        self.until_holds(lambda: len(self.lines(*beginning)) >= count)

    def until_holds(self, holds: Callable[[], object], *, patience_s: float = PATIENCE_S, look_s: float = 0.01) -> None:
        """Wait until something holds of the ledger, or of the database."""
        ends = time.monotonic() + patience_s
        while not holds():
            assert time.monotonic() < ends, self.ledger.read_text()[-10_000:]
            time.sleep(look_s)  # another process writes it, and says nothing

    def ended(self, name: str) -> bool:
        return bool(self.lines("end", name, STEPS[-1]))

    def goes_on(self, worker: Worker, name: str) -> bool:
        """Tell whether a worker has taken a step of a task, or it is at its end."""
        return self.ended(name) or any(row[4] == str(worker.pid) for row in self.lines("begin", name))

    def until_recorded(self, tasks: int) -> None:
        """Wait until the result of each step of so many tasks is recorded, which is after its effect is seen."""
        self.until_holds(lambda: len(self.recorded()) == tasks * len(STEPS))

    def recorded(self) -> Counter[tuple[str, str]]:
        """Return how often the result of each step of each task stands in the database."""
        rows = rows_of(self.store, "select workflow_uuid, function_name from operation_outputs")
        return Counter((task, step) for task, step in rows)


def connected(store: str) -> Any:
    """Return a connection to a database of tasks."""
    return sqlite3.connect(store.removeprefix("sqlite:")) if store.startswith("sqlite:") else psycopg.connect(store)


def rows_of(store: str, sql: str) -> list[tuple[Any, ...]]:
    """Return what stands in a database of tasks, in the tables of DBOS."""
    with closing(connected(store)) as connection:
        own = sql if store.startswith("sqlite:") else sql.replace(" from ", " from dbos.")
        return connection.execute(own).fetchall()


@pytest.fixture(params=["sqlite"])
def workers(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Workers]:
    with ExitStack() as stack:
        store = f"sqlite:{tmp_path}/tasks.db"
        if request.param == "postgres":
            store = stack.enter_context(database(request.getfixturevalue("postgres_url")))
        made = Workers(tmp_path, store)
        yield made
        for worker in tuple(made.living):
            made.kill(worker)


def assert_each_result_was_recorded_once(workers: Workers, name: str, *, kills: int, is_in_order: bool = True) -> None:
    """Every step ran to its end, in order; only what was in flight when a process died ran again.

    A process that was paused and wakes writes the end of its step late.
    """
    ended = [row[2] for row in workers.lines("end", name)]
    assert list(dict.fromkeys(ended)) == list(STEPS)
    assert ended == sorted(ended, key=STEPS.index) or not is_in_order
    began = Counter(row[2] for row in workers.lines("begin", name))
    assert sum(began.values()) <= len(STEPS) + kills
    # The key of a step is the same each time that it runs, and different for every other.
    keys = {(row[2], row[3]) for row in workers.lines("begin", name)}
    assert len({key for _, key in keys}) == len(keys) == len(STEPS)


def killed(workers: Workers, kills: int, moments: random.Random) -> list[float]:
    """Kill a worker again and again, in the middle of a task; return how long each took to go on, in order.

    Half of the kills come in or between steps, half at any moment from the start of the process.
    """
    took: list[float] = []
    done, number = 0, 0
    while done < kills:
        number += 1
        name, of_this = f"t{number}", 0
        worker = workers.start(name)
        workers.until(1, "began", name)
        while done < kills and of_this < 7 and not workers.ended(name):
            time.sleep(moments.uniform(0, 2 * STEP_S))  # the moment is what is tried
            workers.kill(worker)
            done, of_this = done + 1, of_this + 1
            began = time.monotonic()
            worker = workers.start()
            if moments.random() < 0.5:
                workers.until_holds(partial(workers.goes_on, worker, name))
                took.append(time.monotonic() - began)
        workers.until_holds(partial(workers.ended, name))
        workers.until_recorded(number)
        assert_each_result_was_recorded_once(workers, name, kills=of_this)
        workers.kill(worker)
    assert set(workers.recorded().values()) == {1}
    assert {step for _, step in workers.recorded()} == set(STEPS)
    took = sorted(took) or [0.0]
    at = {name: took[int(part * (len(took) - 1))] for name, part in (("p50", 0.5), ("p95", 0.95), ("most", 1.0))}
    figures = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in at.items())
    print(f"{done} kills of {number} tasks; {len(took)} times it was waited until one went on: {figures}")
    return took


@pytest.mark.parametrize(("workers", "kills"), [("sqlite", 20), ("postgres", 20)], indirect=["workers"])
def test_exec_01_a_task_goes_on_from_its_last_recorded_step_after_kill_9_at_any_moment(
    workers: Workers, kills: int
) -> None:
    killed(workers, kills, random.Random(20261122))


@pytest.mark.parametrize("workers", ["sqlite", "postgres"], indirect=True)
def test_two_workers_never_run_one_task_at_once_and_one_takes_over_what_the_other_left(
    workers: Workers,
) -> None:
    if workers.store.startswith("sqlite:"):
        # A worker looks but now and then for a database that is not there yet.
        Path(workers.store.removeprefix("sqlite:")).touch()
    second = workers.start(step_s=0.3)
    workers.until(1, "ready")
    # Both are still at work when the first is killed, however long it takes this process to do so.
    hold_of(workers.ledger).touch()
    first = workers.start("one", "two", step_s=0.3)
    workers.until(1, "began")
    before = STEPS.index(HELD)
    workers.until_holds(lambda: _a_day_older(workers) and len(workers.lines("end")) == 2 * before)
    # As long as both live, each task is of one process, also where the clock jumps and every sign of life is of old.
    for name in ("one", "two"):
        assert {row[4] for row in workers.lines("begin", name)} == {str(first.pid)}
    workers.kill(first)
    hold_of(workers.ledger).unlink()
    for name in ("one", "two"):
        workers.until(1, "end", name, STEPS[-1])
        assert_each_result_was_recorded_once(workers, name, kills=1)
        assert {row[4] for row in workers.lines("begin", name)} == {str(first.pid), str(second.pid)}
    workers.until_recorded(2)
    assert set(workers.recorded().values()) == {1}


def _a_day_older(workers: Workers) -> bool:
    """Have each sign of life of today be one of yesterday, as it is when the clock of the database jumps."""
    with closing(connected(workers.store)) as connection:
        today = time.time() - 43_200
        connection.execute(f"update pegboard_task_workers set beats_at = beats_at - 86400 where beats_at > {today}")
        connection.commit()
    return True


def paused(workers: Workers, *, processes: int, tasks: int, lease_s: float) -> None:
    """Stop one worker after another for longer than its lease, and let it go on: each task has one owner at a time."""
    names = [f"t{number}" for number in range(tasks)]
    living = [workers.start(*names[start::processes], lease_s=lease_s) for start in range(processes)]
    workers.until(tasks, "began")
    for worker in living[:-1]:
        assert worker.pid is not None
        is_taken_over = partial(_is_taken_over, workers, str(worker.pid))
        while not is_taken_over():
            os.kill(worker.pid, signal.SIGSTOP)
            # One that is stopped amid a write holds the database: then it is tried again at another moment.
            ends = time.monotonic() + 3 * lease_s
            while time.monotonic() < ends and not is_taken_over():
                time.sleep(0.01)  # another process writes it, and says nothing
            os.kill(worker.pid, signal.SIGCONT)
            time.sleep(0.05)
    workers.until_recorded(tasks)
    # What the paused one wrote when it woke was refused: one result each, and the keys of steps hold.
    assert set(workers.recorded().values()) == {1}
    for name in names:
        assert_each_result_was_recorded_once(workers, name, kills=processes * tasks, is_in_order=False)
    states = "select status from workflow_status where status <> 'SUCCESS'"
    workers.until_holds(lambda: not rows_of(workers.store, states))


def _is_taken_over(workers: Workers, paused: str) -> bool:
    """Tell whether others have taken a step of, or ended, each task that was run by the one that is paused."""
    begun = [(row[1], row[4]) for row in workers.lines("begin")]
    last = dict(begun)
    return all(pid != paused or workers.ended(name) for name, pid in last.items())


@pytest.mark.parametrize("workers", ["sqlite"], indirect=True)
def test_a_worker_that_was_paused_records_nothing_of_what_others_took_over(workers: Workers) -> None:
    paused(workers, processes=2, tasks=2, lease_s=1.0)


def test_a_task_that_ends_each_process_that_runs_it_has_failed_after_so_many(workers: Workers) -> None:
    runs = 0
    worker = workers.start(CRASHING, most_runs=2)
    workers.until(1, "begin", CRASHING)
    while not failed(workers):
        workers.until_holds(lambda worker=worker: worker.exitcode is not None or failed(workers))
        if worker.exitcode is not None:
            runs += 1
            assert runs < 9
            worker = workers.start(most_runs=2)
    assert len(workers.lines("begin", CRASHING)) == runs == 3


def failed(workers: Workers) -> bool:
    return bool(rows_of(workers.store, "select 1 from workflow_status where status like 'MAX_%'"))


@pytest.mark.soak
@pytest.mark.parametrize("workers", ["sqlite", "postgres"], indirect=True)
def test_exec_03_four_workers_that_are_paused_in_turn_run_each_of_a_thousand_tasks_once(workers: Workers) -> None:
    names, patience = [f"t{number}" for number in range(1_000)], {"patience_s": 500.0, "look_s": 0.5}
    living = [workers.start(*names[start::4], lease_s=3.0) for start in range(4)]
    workers.until_holds(lambda: len(workers.lines("began")) > 300, **patience)
    for worker in living[:-1]:
        assert worker.pid is not None
        os.kill(worker.pid, signal.SIGSTOP)
        time.sleep(30)  # ten leases: what is tried
        os.kill(worker.pid, signal.SIGCONT)
    states = "select status, count(*) from workflow_status group by status"
    workers.until_holds(lambda: rows_of(workers.store, states) == [("SUCCESS", 1_000)], **patience)
    recorded, begun = workers.recorded(), workers.lines("begin")
    assert (len(recorded), set(recorded.values())) == (5_000, {1})
    # The key of a step is the same for whoever runs it, and no step ends without a result that is its own.
    assert len({tuple(row[1:4]) for row in begun}) == 5_000
    owners = Counter(task for task, _ in {(row[1], row[4]) for row in begun})
    print(f"{sum(number > 1 for number in owners.values())} tasks taken over; {len(begun)} steps begun for 5,000")


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
@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("workers", ["sqlite", "postgres"], indirect=True)
def test_exec_01_two_hundred_kills_in_four_parts_lose_and_repeat_nothing(workers: Workers, part: int) -> None:
    assert is_within(killed(workers, 50, random.Random())[-1], RECOVERED_S)
