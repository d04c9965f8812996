"""InProcessEngine: stores tasks in memory. They end with the process; the reply to each task says so."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pegboard.core.cancellation import cancel_and_wait
from pegboard.model.bounds import share_of_one
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON
from pegboard.model.record import replace
from pegboard.model.task import Outcome, Question, TaskCall, TaskRecord
from pegboard.tasks.engine import Run

TASKS_IN_MEMORY = 10_000  # tasks stored at once


@dataclass(kw_only=True, eq=False)
class _Task:
    """One task in memory, with its run."""

    call: TaskCall
    record: TaskRecord
    change: asyncio.Event = field(default_factory=asyncio.Event)
    answers: dict[str, asyncio.Future[JSON]] = field(default_factory=dict[str, "asyncio.Future[JSON]"])
    running: asyncio.Task[None] | None = None
    last_step: str = ""


class InProcessEngine:
    """Tasks of this process. Implements the port `Engine`.

    Args:
        clock: seconds since 1970.
        is_shared: whether unrelated callers share this process; then none of them may take all places.
    """

    is_durable = False

    def __init__(self, clock: Callable[[], float], *, is_shared: Callable[[], bool]) -> None:
        self._clock, self._is_shared = clock, is_shared
        self._kept: dict[str, _Task] = {}
        self._run: Run | None = None

    async def wake(self, run: Run) -> None:
        """Set the function that runs tasks."""
        self._run = run

    async def start(self, call: TaskCall) -> None:
        """Store a task, then start it.

        Raises:
            CallError: `busy`; no place is free, or only places for other callers.
        """
        if len(self._kept) >= TASKS_IN_MEMORY:
            raise CallError("busy", f"{TASKS_IN_MEMORY} tasks are kept already. Try again later.")
        share, others = share_of_one(TASKS_IN_MEMORY), (task.call.owner for task in self._kept.values())
        if self._is_shared() and len(self._kept) >= share and list(others).count(call.owner) >= share:
            raise CallError("busy", f"This caller has {share} tasks, which is its share. Try again later.")
        record = TaskRecord(
            task_id=call.task_id, tool=call.tool, owner=call.owner, state="working", created_at=call.created_at,
            updated_at=call.created_at, ttl_s=call.ttl_s, is_durable=False,
        )  # fmt: skip
        task = self._kept[call.task_id] = _Task(call=call, record=record)
        task.running = asyncio.create_task(self._to_the_end(task))
        # A task that is cancelled before its first turn never runs its own clean-up.
        await asyncio.sleep(0)

    async def _to_the_end(self, task: _Task) -> None:
        assert self._run is not None
        try:
            outcome = await self._run(task.call, _MemoryJournal(self, task))
        except asyncio.CancelledError:
            self.change(task, state="cancelled", questions={})
            raise
        self.change(task, **ending(outcome))

    def change(self, task: _Task, **changes: Any) -> None:
        """Change the state of a task, unless it has ended."""
        if task.record.is_over:
            return
        task.record = replace(task.record, updated_at=self._clock(), **changes)
        task.change.set()
        task.change = asyncio.Event()

    async def read(self, task_id: str) -> TaskRecord | None:
        """Return the current record of a task."""
        task = self._kept.get(task_id)
        return None if task is None else task.record

    async def read_several(self, task_ids: Sequence[str]) -> Sequence[TaskRecord]:
        """Return the known tasks among these."""
        return [self._kept[task_id].record for task_id in task_ids if task_id in self._kept]

    async def read_all(self, owner: str | None = None) -> Sequence[TaskRecord]:
        """Return the tasks of one owner, or of all; the newest first."""
        records = [task.record for task in self._kept.values() if owner is None or task.record.owner == owner]
        return sorted(records, key=lambda record: -record.created_at)

    async def last_steps(self, task_ids: Sequence[str]) -> Mapping[str, str]:
        """Return the name of the last step of each of these tasks that has one."""
        steps = {task_id: self._kept[task_id].last_step for task_id in task_ids if task_id in self._kept}
        return {task_id: step for task_id, step in steps.items() if step}

    async def answer(self, task_id: str, answers: Mapping[str, JSON]) -> None:
        """Pass answers to open questions."""
        task = self._kept[task_id]
        for key, answer in answers.items():
            future = task.answers.get(key)
            if future is not None and not future.done():
                future.set_result(answer)
                self.show_questions(task)

    def show_questions(self, task: _Task, **more: Question) -> None:
        """Record the open questions."""
        open_questions = {**task.record.questions, **more}
        unanswered = {key: question for key, question in open_questions.items() if not task.answers[key].done()}
        self.change(task, questions=unanswered, state="input_required" if unanswered else "working")

    async def cancel(self, task_id: str) -> None:
        """Cancel a task, unless it has ended."""
        task = self._kept[task_id]
        self.change(task, state="cancelled", questions={})
        if task.running is not None:
            task.running.cancel()

    async def resume(self, task_id: str) -> bool:
        """Return `False`: every task here is running."""
        return False

    async def changed(self, record: TaskRecord, *, timeout_s: float) -> None:
        """Return when a task differs from this record, or after a timeout."""
        task = self._kept.get(record.task_id)
        if task is not None and task.record is record:
            waiting = asyncio.ensure_future(task.change.wait())
            await asyncio.wait([waiting], timeout=timeout_s)
            waiting.cancel()

    async def sweep(self, now: float) -> int:
        """Delete the tasks that expired before `now`."""
        expired = [task for task in self._kept.values() if task.call.expires_at <= now]
        for task in expired:
            await self.cancel(task.call.task_id)
            del self._kept[task.call.task_id]
        return len(expired)

    async def close(self) -> None:
        """Stop every task."""
        running = [stored.running for stored in self._kept.values() if stored.running is not None]
        await cancel_and_wait(*running)
        self._kept.clear()


class _MemoryJournal:
    """The journal of a task in memory, which runs once."""

    def __init__(self, engine: InProcessEngine, task: _Task) -> None:
        self._engine, self._kept = engine, task

    @property
    def is_moving(self) -> bool:
        """Return False: a task in memory ends with its run."""
        return False

    async def was_begun(self) -> bool:
        """Return False: there is no earlier run."""
        return False

    async def was_cancelled(self) -> bool:
        """Return True: stopping its run ends the task."""
        return True

    async def once(self, name: str, work: Callable[[], Awaitable[JSON]]) -> JSON:
        """Return the result of `work`."""
        result = await work()
        self._kept.last_step = name
        return result

    async def answer(self, key: str, question: Question) -> JSON:
        """Ask the person, and return the answer once it is there."""
        self._kept.answers[key] = future = asyncio.get_running_loop().create_future()
        self._engine.show_questions(self._kept, **{key: question})
        return await future

    def progress(self, fraction: float, message: str) -> None:
        """Record the progress of the run."""
        self._engine.change(self._kept, fraction=fraction, message=message)


def ending(outcome: Outcome) -> dict[str, Any]:
    """Return the record of a task after the end of its run."""
    if outcome.error is not None:
        return {"state": "failed", "error": outcome.error, "questions": {}, "message": outcome.error.message}
    return {"state": "completed", "result": outcome.result, "questions": {}}
