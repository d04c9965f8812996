"""Storms: workers and databases are killed under many tasks; every acknowledged task ends, with its own result."""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Generator
from contextlib import ExitStack
from multiprocessing.process import BaseProcess as Worker
from pathlib import Path

import pytest

from tests.tasks.cluster import cluster
from tests.tasks.databases import database
from tests.tasks.storm import STEPS, work
from tests.tasks.test_recovery import FORKING, rows_of
from tests.timing import PATIENCE_S

WORKERS = 3
LEASE_S = 10.0
KILLS = 200


class Storm:
    """Workers on one store, and the ledger that they write."""

    def __init__(self, folder: Path, store: str) -> None:
        self.store, self.path = store, folder / "ledger"
        self.path.touch()
        self.living = list[Worker]()

    def start(self) -> None:
        worker = FORKING.Process(target=work, args=(self.store, self.path, LEASE_S), daemon=True)
        worker.start()
        self.living.append(worker)

    def kill(self, worker: Worker) -> None:
        worker.kill()
        worker.join()
        self.living.remove(worker)

    def has_tasks(self, worker: Worker) -> bool:
        """Return whether the worker has begun a task whose end nobody has seen yet."""
        ended = {row[0] for row in self.lines("ended")}
        return any(pid == str(worker.pid) and task_id not in ended for task_id, _, pid in self.lines("begun"))

    def lines(self, word: str) -> list[list[str]]:
        # The last line may be half written at this moment.
        rows = [line.split(" ") for line in self.path.read_text().rpartition("\n")[0].splitlines()]
        return [row[1:] for row in rows if row[0] == word]

    def until(self, holds: Callable[[], object]) -> None:
        ends = time.monotonic() + PATIENCE_S
        while not holds():
            assert time.monotonic() < ends, self.said()
            time.sleep(0.02)  # other processes write it, and say nothing

    def said(self) -> str:
        log = Path(f"{self.path}-log")
        return self.path.read_text()[-3_000:] + (log.read_text()[-5_000:] if log.exists() else "")

    def settle(self) -> None:
        """Kill all workers, and have one more end what they left."""
        for worker in tuple(self.living):
            self.kill(worker)
        last = FORKING.Process(target=work, args=(self.store, self.path, LEASE_S), kwargs={"is_last": True})
        last.start()
        last.join(10 * PATIENCE_S)
        assert last.exitcode == 0, self.said()
        assert self.lines("over") == [[]]

    def assert_held(self) -> dict[str, int]:
        """Hold the database against what was acknowledged; return what there was."""
        begun = {row[0]: row[1] for row in self.lines("begun")}
        states = dict(rows_of(self.store, "select workflow_uuid, status from workflow_status"))
        ended = dict[str, tuple[str, str, str]]()
        for task_id, state, error, *words in self.lines("ended"):
            outcome = state, error, " ".join(words)
            # An end that somebody saw stays as it was seen.
            assert ended.setdefault(task_id, outcome) == outcome
        assert begun.keys() <= states.keys()
        assert begun.keys() <= ended.keys()
        recorded = rows_of(self.store, "select workflow_uuid, function_name from operation_outputs")
        doubled = [step for step, number in Counter(recorded).items() if number > 1]
        # Each step has one result, for all who ever saw it.
        saw = defaultdict[str, set[str]](set)
        for (value,) in self.lines("saw"):
            saw[value.rpartition(":")[0]].add(value)
        assert [step for step, values in saw.items() if len(values) > 1] == doubled == []
        cancelled = {task_id for (task_id,) in self.lines("cancelled")}
        for task_id, (state, error, text) in ended.items():
            kind = begun.get(task_id, "?")
            match state:
                case "cancelled":
                    assert kind in ("load_orders_again", "?"), (task_id, kind)
                case "completed" if error == "-":
                    assert kind != "refuse"
                    assert task_id not in cancelled or kind == "load_orders_again"
                    assert [value.partition(":")[0] for value in text.split(" ")] == list(STEPS)
                    assert all(saw[value.rpartition(":")[0]] == {value} for value in text.split(" "))
                case _:
                    assert (state, error, kind in ("refuse", "?")) == ("completed", "tool_error", True), (
                        task_id, kind, state, error, text, self.said(),
                    )  # fmt: skip
        assert set(states.values()) <= {"SUCCESS", "CANCELLED"}, Counter(states.values())
        counts = Counter(f"ended {state} {error}" for state, error, _ in ended.values())
        refused = Counter(f"refused {kind}" for _, kind in self.lines("refused"))
        return {"acknowledged": len(begun), "tasks": len(states), "steps": len(recorded), **counts, **refused}


@pytest.fixture
def storm(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Storm]:
    with ExitStack() as stack:
        store = f"sqlite:{tmp_path}/tasks.db"
        if request.param == "postgres":
            store = stack.enter_context(database(request.getfixturevalue("postgres_url")))
        made = Storm(tmp_path, store)
        try:
            yield made
        finally:
            for worker in tuple(made.living):
                made.kill(worker)


@pytest.mark.soak
@pytest.mark.parametrize("storm", ["sqlite", "postgres"], indirect=True)
def test_every_acknowledged_task_ends_with_its_own_result_whichever_worker_is_killed(storm: Storm) -> None:
    kills, chance = Counter[str](), random.Random(20261126)
    for _ in range(WORKERS):
        storm.start()
    storm.until(lambda: len(storm.lines("begun")) >= WORKERS)
    while kills["under tasks"] < KILLS:
        time.sleep(chance.uniform(0.0, 1.5))  # the moment is what is tried
        worker = chance.choice(storm.living)
        kills["under tasks" if storm.has_tasks(worker) else "while starting"] += 1
        storm.kill(worker)
        storm.start()
    storm.settle()
    print(f"kills {dict(kills)}:", storm.assert_held())


def cuts_survived(folder: Path, cuts: int) -> dict[str, int]:
    chance = random.Random(20261127)
    with cluster() as server:
        storm = Storm(folder, server.url)
        try:
            for _ in range(2):
                storm.start()
            for _ in range(cuts):
                ended = len(storm.lines("ended"))
                storm.until(lambda ended=ended: len(storm.lines("ended")) >= ended + 10)
                time.sleep(chance.uniform(0.0, 1.0))  # the moment is what is tried
                server.cut()
                time.sleep(chance.uniform(0.0, 3.0))  # as above
                server.start()
                assert all(worker.is_alive() for worker in storm.living), storm.said()
            storm.settle()
            return storm.assert_held()
        finally:
            for worker in tuple(storm.living):
                storm.kill(worker)


@pytest.mark.soak
def test_every_acknowledged_task_ends_with_its_own_result_when_postgresql_is_restarted_at_once(tmp_path: Path) -> None:
    cuts = 20
    print(f"{cuts} cuts:", cuts_survived(tmp_path, cuts))
