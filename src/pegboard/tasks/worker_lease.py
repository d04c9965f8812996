"""WorkerLease: that this worker lives, as others see it, and what is taken over from those that do not.

Several processes work on one database of tasks. Each renews a lease in it; one whose lease runs out stops what it runs
before another may go on with that.
"""

from __future__ import annotations

import asyncio
import logging
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

TASK_BEAT_S = 0.5  # between two signs of life of a worker with tasks in a database

log = logging.getLogger("pegboard")


class WorkerLease:
    """The lease of one worker. Made by its engine, which takes it, renews it with every beat, and leaves it at the end.

    What asks the database blocks, and raises what that raises; `guard` alone runs on the loop of the catalog.

    Args:
        tables: where the leases stand.
        lifelines: where it is seen at once that a worker of this machine has ended.
        client: gives the client of DBOS, which is there once the lease is taken.
        stop_runs: stops whatever runs here.
        run_again: has what was stopped here run again, unless others have taken it already.
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
        # An id for each process: two with one id would both run what one of them had begun.
        self.worker = new_id()
        self._tables, self._lifelines, self._client = tables, lifelines, client
        self._stop_runs, self._run_again = stop_runs, run_again
        self._renewed_at, self._has_run_out, self._was_forgotten = 0.0, False, False
        self._signs: dict[str, tuple[float, float]] = {}
        """By worker: its last sign, and when that was first seen here."""

    # -- this worker

    def take(self) -> None:
        """Begin to live."""
        self._lifelines.hold(self.worker)
        self._renewed_at = time.monotonic()
        self._tables.beat(self.worker)
        self._dead()

    def renew(self) -> None:
        """Say that this worker lives; where it had ceased to, in the eyes of others, have what it ran run again."""
        now = time.monotonic()
        is_known = self._tables.beat(self.worker)
        if self._was_forgotten or not is_known:
            self._was_forgotten = False
            log.warning("Other workers took this one for dead; what it ran goes on with them.")
            self._has_run_out = True
        if self._has_run_out:
            self._run_again()
            self._has_run_out = False
        self._renewed_at = now

    def was_forgotten(self) -> None:
        """Take note that others have taken this worker for dead, as a task that was begun here has found."""
        self._was_forgotten = True

    async def guard(self) -> None:
        """Stop what runs here as soon as others may take this worker for dead: when its lease was not renewed."""
        while True:
            await asyncio.sleep(TASK_BEAT_S)
            # A beat earlier than others may, who count from when they saw the last sign.
            if not self._has_run_out and time.monotonic() - self._renewed_at > TASK_LEASE_S - TASK_BEAT_S:
                log.warning("The lease of this worker has run out; what it runs stops until it has one again.")
                self._has_run_out = True
                await self._stop_runs()

    def leave(self) -> None:
        """Say that this worker ends."""
        self._tables.leave(self.worker)

    # -- other workers

    def adopt(self) -> None:
        """Have what dead workers left behind run again, by whoever is free."""
        for dead in self._dead():
            if dead == self.worker:
                continue
            if number := self.take_over(dead):
                log.info("%d tasks of a worker that ended go on.", number)
            self._tables.bury(dead)
            self._lifelines.forget(dead)

    def take_over(self, worker: str) -> int:
        """Have what a worker began run again; return how many tasks those are."""
        left = self._client().list_workflows(status="PENDING", executor_id=worker, load_input=False, load_output=False)
        return sum(self.take_over_task(each.workflow_id, worker) for each in left)

    def take_over_task(self, task_id: str, worker: str) -> bool:
        """Put a task that a worker began in the queue; `False` where it has ended, or others were before."""
        return requeue(self._client(), task_id, worker)

    def is_seen_dead(self, worker: str, closing: threading.Event) -> bool:
        """Watch a worker for as long as a lease runs; `False` where it gives a sign, or this one is `closing`."""
        sign = self._tables.signs().get(worker, 0)
        ends = time.monotonic() + TASK_LEASE_S
        while sign and time.monotonic() <= ends and not self._lifelines.is_cut(worker):
            if closing.wait(TASK_BEAT_S) or self._tables.signs().get(worker, 0) not in (sign, 0):
                return False
        return True

    def _dead(self) -> list[str]:
        """Return the workers that have left, whose lifeline is cut, or who gave no sign for as long as a lease runs.

        How long is counted here, from when the last sign was seen: clocks of others jump.
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
