"""Engine: what keeps tasks and runs them. One is in memory, one is durable; both behave alike while they live."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from pegboard.model.json_types import JSON
from pegboard.model.task import Outcome, Question, TaskCall, TaskRecord


class Journal(Protocol):
    """What one run of a task writes down, and finds again when it is run anew."""

    async def was_begun(self) -> bool:
        """Tell whether the task was begun in a run before this one; where nobody can tell, it was."""
        ...

    async def was_cancelled(self) -> bool:
        """Tell whether a run that was stopped was one of a task that has ended, so that none will go on with it."""
        ...

    async def once(self, name: str, work: Callable[[], Awaitable[JSON]]) -> JSON:
        """Return what `work` gives, recorded under its name; where it is recorded already, that."""
        ...

    async def answer(self, key: str, question: Question) -> JSON:
        """Ask, and return the answer once it is there; where it is there already, that."""
        ...

    def progress(self, fraction: float, message: str) -> None:
        """Note how far the run is."""
        ...


Run = Callable[[TaskCall, Journal], Awaitable[Outcome]]
"""Runs a task to its end. It may be run again, with the same journal, where it was interrupted."""


class Engine(Protocol):
    """Keeps tasks and runs them. Made for one catalog; used on one event loop, from the first `start` to `close`.

    Raises in all of its methods:
        OSError: the store does not answer.
    """

    is_durable: bool

    async def wake(self, run: Run) -> None:
        """Run what is due with `run` from now on; also what others have left behind. Again is nothing."""
        ...

    async def start(self, call: TaskCall) -> None:
        """Keep a task, then begin it. It is there for all who ask when this returns."""
        ...

    async def read(self, task_id: str) -> TaskRecord | None: ...

    async def read_several(self, task_ids: Sequence[str]) -> Sequence[TaskRecord]:
        """Return those of these tasks that are known."""
        ...

    async def read_all(self, owner: str | None = None) -> Sequence[TaskRecord]:
        """Return those of one owner, or all; the newest first."""
        ...

    async def answer(self, task_id: str, answers: Mapping[str, JSON]) -> None:
        """Give answers to questions that wait. The first answer holds; what asks nothing is not heard."""
        ...

    async def cancel(self, task_id: str) -> None:
        """End a task, unless it has ended."""
        ...

    async def resume(self, task_id: str) -> bool:
        """Run a task here that nobody runs; `False` where somebody may."""
        ...

    async def changed(self, record: TaskRecord, *, timeout_s: float) -> None:
        """Return when a task is not any more as this record says, or after a while."""
        ...

    async def sweep(self, now: float) -> int:
        """Forget what expired before `now`, in seconds since 1970, running or not; return how many those were."""
        ...

    async def close(self) -> None:
        """Stop what runs here. What is durable goes on elsewhere, or later."""
        ...
