"""Worker counts: the counters of each worker, including ended ones, so that no sum ever falls."""

from __future__ import annotations

from collections.abc import Collection

from pegboard.model.json_types import JSON
from pegboard.telemetry.call_metrics import CallMetrics

ENDED_WORKERS = 16  # ended workers whose counts are kept one by one; those of older ones are added up


class WorkerCounts:
    """The counters of all workers known to this one; workers exchange them before they are shown to anybody else.

    An ended worker keeps its entry, since others may receive it later. The oldest entries are added up; their names are
    remembered, so that they are not counted twice.
    """

    def __init__(self) -> None:
        self._by_worker: dict[str, JSON] = {}
        self._added = CallMetrics()
        self._added_workers: dict[str, None] = {}

    def known(self) -> JSON:
        """Return all counters, to send to another worker."""
        return {"workers": self._by_worker, "added": self._added.counters(), "added_workers": list(self._added_workers)}

    def note(self, worker: str, calls: JSON) -> None:
        """Store a worker's counters; they never decrease."""
        if worker not in self._added_workers and calls_of(calls) >= calls_of(self._by_worker.get(worker, {})):
            self._by_worker[worker] = calls

    def learn(self, known: JSON) -> None:
        """Add the counters that another worker knows."""
        theirs = CallMetrics()
        theirs.add(known["added"])
        if calls_of(known["added"]) > calls_of(self._added.counters()):
            self._added, self._added_workers = theirs, dict.fromkeys(known["added_workers"])
            for worker in self._added_workers:
                self._by_worker.pop(worker, None)
        for worker, calls in known["workers"].items():
            self.note(worker, calls)

    def sum(self, living: Collection[str]) -> CallMetrics:
        """Return the sum of all counters; `living` are the workers that respond now."""
        ended = [worker for worker in self._by_worker if worker not in living]
        for worker in ended[: max(0, len(ended) - ENDED_WORKERS)]:
            self._added.add(self._by_worker.pop(worker))
            self._added_workers[worker] = None
        while len(self._added_workers) > ENDED_WORKERS**2:
            del self._added_workers[next(iter(self._added_workers))]
        total = CallMetrics()
        for calls in (self._added.counters(), *self._by_worker.values()):
            total.add(calls)
        return total


def calls_of(calls: JSON) -> int:
    """Return the number of counted calls."""
    return sum(sum(within) for _, within, _ in calls.values())
