"""Engine: the port that stores and runs tasks. One engine is in memory, one is durable; both behave alike."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from pegboard.model.json_types import JSON
from pegboard.model.task import Outcome, Question, TaskCall, TaskRecord


class Journal(Protocol):
    """The records of one task's runs, which a later run reads."""

    @property
    def is_moving(self) -> bool:
        """Whether the run was stopped although the task continues, in another worker or later."""
        ...

    async def was_begun(self) -> bool:
        """Tell whether the task was started in an earlier run; true if nobody can tell."""
        ...

    async def was_cancelled(self) -> bool:
        """Tell whether the run was stopped because the task has ended, so that no other run will continue it."""
        ...

    async def once(self, name: str, work: Callable[[], Awaitable[JSON]]) -> JSON:
        """Return the recorded result of this name; if there is none, the result of `work`, which is recorded."""
        ...

    async def answer(self, key: str, question: Question) -> JSON:
        """Return the recorded answer; if there is none, ask and wait for it."""
        ...

    def progress(self, fraction: float, message: str) -> None:
        """Record the progress of the run."""
        ...


Run = Callable[[TaskCall, Journal], Awaitable[Outcome]]
"""Runs a task to its end. After an interruption it may run again, with the same journal."""


class Engine(Protocol):
    """Stores and runs tasks. Belongs to one catalog; used on one event loop, from the first `start` to `close`.

    Every method raises:
        OSError: the store does not respond.
    """

    is_durable: bool

    async def wake(self, run: Run) -> None:
        """From now on, run due tasks with `run`, including those that other workers left. Further calls do nothing."""
        ...

    async def start(self, call: TaskCall) -> None:
        """Store a task, then start it. When this returns, every reader sees the task."""
        ...

    async def read(self, task_id: str) -> TaskRecord | None: ...

    async def read_several(self, task_ids: Sequence[str]) -> Sequence[TaskRecord]:
        """Return the known tasks among these."""
        ...

    async def read_all(self, owner: str | None = None) -> Sequence[TaskRecord]:
        """Return the tasks of one owner, or of all; the newest first."""
        ...

    async def last_steps(self, task_ids: Sequence[str]) -> Mapping[str, str]:
        """Return the name of the last recorded step of each of these tasks that has one."""
        ...

    async def answer(self, task_id: str, answers: Mapping[str, JSON]) -> None:
        """Store answers to open questions. The first answer counts; answers without a question are ignored."""
        ...

    async def cancel(self, task_id: str) -> None:
        """Cancel a task, unless it has ended."""
        ...

    async def resume(self, task_id: str) -> bool:
        """Run a task here that no worker runs; `False` if one may."""
        ...

    async def changed(self, record: TaskRecord, *, timeout_s: float) -> None:
        """Return when a task differs from this record, or after a timeout."""
        ...

    async def sweep(self, now: float) -> int:
        """Delete all tasks that expired before `now`, in seconds since 1970, even running ones; return their number."""
        ...

    async def close(self) -> None:
        """Stop the tasks that run here. Durable ones continue elsewhere, or later."""
        ...
