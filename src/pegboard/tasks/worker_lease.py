"""WorkerLease: shows other workers that this one lives, and takes over the tasks of dead ones.

Several processes share one task database. Each renews a lease in it. A worker whose lease runs out stops its tasks
before another may continue them.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from pegboard.core.identifiers import new_id
from pegboard.tasks.dbos_setup import requeue
from pegboard.tasks.lifelines import Lifelines
from pegboard.tasks.limits import TASK_LEASE_S
from pegboard.tasks.task_tables import TaskTables

if TYPE_CHECKING:
    from dbos import DBOSClient

TASK_BEAT_S = 0.5  # seconds between two heartbeats of a worker with tasks in a database

TASK_QUICK_RUNS = 10  # runs of one task that ended in a crash of their worker, until the next one waits
TASK_WAIT_S = 60.0  # seconds that it waits at most

log = logging.getLogger("pegboard")


def wait_after(runs: int) -> float:
    """Return the seconds until a task may begin again whose last run, of so many, ended in a crash of its worker.

    The times differ from task to task, so that the task that causes the crashes runs without the others.
    """
    if runs < TASK_QUICK_RUNS:
        return 0.0
    return random.uniform(0.5, 1.0) * min(TASK_WAIT_S, 2.0 ** (runs - TASK_QUICK_RUNS))  # noqa: S311 - no secret


class WorkerLease:
    """The lease of one worker. Its engine creates it, renews it with every heartbeat, and gives it up at the end.

    Methods that use the database block, and raise its errors; only `guard` runs on the loop of the catalog.

    Args:
        tables: store the leases.
        lifelines: show at once that a worker of this machine has ended.
        client: returns the client of DBOS, which exists once the lease is taken.
        stop_runs: stops the tasks that run here.
        run_again: runs stopped tasks again here, unless another worker has taken them over.
    """

    def __init__(
        self,
        tables: TaskTables,
        lifelines: Lifelines,
        *,
        client: Callable[[], DBOSClient],
        stop_runs: Callable[[], Awaitable[None]],
        run_again: Callable[[], None],
    ) -> None:
        # A new id for each process: two with one id would both run the same task.
        self.worker = new_id()
        self._tables, self._lifelines, self._client = tables, lifelines, client
        self._stop_runs, self._run_again = stop_runs, run_again
        self._renewed_at, self._has_run_out, self._was_forgotten = 0.0, False, False
        self._signs: dict[str, tuple[float, float]] = {}
        """By worker: its last heartbeat, and when it was first seen here."""

    # -- this worker

    def take(self) -> None:
        """Take the lease."""
        self._lifelines.hold(self.worker)
        self._renewed_at = time.monotonic()
        self._tables.beat(self.worker)
        self._dead()

    def renew(self) -> None:
        """Renew the lease; if others considered this worker dead, run its tasks again."""
        now = time.monotonic()
        is_known = self._tables.beat(self.worker)
        if self._was_forgotten or not is_known:
            self._was_forgotten = False
            log.warning("Other workers considered this one dead; its tasks continue there.")
            self._has_run_out = True
        if self._has_run_out:
            self._run_again()
            self._has_run_out = False
        self._renewed_at = now

    def was_forgotten(self) -> None:
        """Record that others consider this worker dead, as starting a task has shown."""
        self._was_forgotten = True

    async def guard(self) -> None:
        """Stop the tasks that run here before others may consider this worker dead, if its lease was not renewed."""
        while True:
            await asyncio.sleep(TASK_BEAT_S)
            # One heartbeat before the others, who count from the last heartbeat that they saw.
            if not self._has_run_out and time.monotonic() - self._renewed_at > TASK_LEASE_S - TASK_BEAT_S:
                log.warning("The lease of this worker has expired; its tasks stop until it has a lease again.")
                self._has_run_out = True
                await self._stop_runs()

    def leave(self) -> None:
        """Give up the lease."""
        self._tables.leave(self.worker)

    # -- other workers

    def adopt(self) -> None:
        """Queue the tasks of dead workers for any free worker."""
        for dead in self._dead():
            if dead == self.worker:
                continue
            has_left = self._signs[dead][0] == 0
            if number := self.take_over(dead, has_crashed=not has_left):
                log.info("%d tasks of a worker that ended will continue.", number)
            self._tables.bury(dead)
            self._lifelines.forget(dead)

    def take_over(self, worker: str, *, has_crashed: bool) -> int:
        """Queue the tasks of a worker; return their number.

        If it crashed, any task that was running there may be the cause; tasks with an open question only waited.
        """
        client = self._client()
        left = client.list_workflows(status="PENDING", executor_id=worker, load_input=False, load_output=False)
        if not has_crashed:
            return sum(self.take_over_task(each.workflow_id, worker) for each in left)
        number, waits, asking = 0, list[float](), self._tables.asking() if left else frozenset[str]()
        for each in left:
            is_counted = each.workflow_id not in asking
            wait_s = wait_after(each.recovery_attempts or 0) if is_counted else 0.0
            number += requeue(client, each.workflow_id, worker, is_counted=is_counted, wait_s=wait_s)
            waits += [wait_s] if wait_s else ()
        if waits:
            log.warning(
                "Tasks that ran in %d or more workers when those crashed: %d. The first begins again in %.0f s.",
                TASK_QUICK_RUNS, len(waits), min(waits),
            )  # fmt: skip
        return number

    def take_over_task(self, task_id: str, worker: str) -> bool:
        """Queue a task that a worker had started; `False` if it has ended, or another worker was first."""
        return requeue(self._client(), task_id, worker, is_counted=False)

    def is_seen_dead(self, worker: str, closing: threading.Event) -> bool:
        """Watch a worker for the time of a lease; `False` if it shows a heartbeat, or this one is `closing`."""
        sign = self._tables.signs().get(worker, 0)
        ends = time.monotonic() + TASK_LEASE_S
        while sign and time.monotonic() <= ends and not self._lifelines.is_cut(worker):
            if closing.wait(TASK_BEAT_S) or self._tables.signs().get(worker, 0) not in (sign, 0):
                return False
        return True

    def _dead(self) -> list[str]:
        """Return the workers that have ended, whose lifeline is free, or without a heartbeat for the time of a lease.

        The time is measured here, from when the last heartbeat was seen: clocks of other machines jump.
        """
        signs = self._tables.signs()
        now, known = time.monotonic(), self._signs
        self._signs = {
            worker: known[worker] if worker in known and known[worker][0] == sign else (sign, now)
            for worker, sign in signs.items()
        }
        return [
            worker
            for worker, (sign, since) in self._signs.items()
            if sign == 0 or now - since > TASK_LEASE_S or self._lifelines.is_cut(worker)
        ]
