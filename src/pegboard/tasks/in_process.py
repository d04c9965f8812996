"""InProcessEngine: stores tasks in memory. They end with the process; the reply to each task says so."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pegboard.model.bounds import share_of_one
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON
from pegboard.model.record import replace
from pegboard.model.task import Outcome, Question, TaskCall, TaskRecord
from pegboard.tasks.engine import Run

TASKS_IN_MEMORY = 10_000  # tasks stored at once


@dataclass(kw_only=True, eq=False)
class _Kept:
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
        self._kept: dict[str, _Kept] = {}
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
        share, others = share_of_one(TASKS_IN_MEMORY), (kept.call.owner for kept in self._kept.values())
        if self._is_shared() and len(self._kept) >= share and list(others).count(call.owner) >= share:
            raise CallError("busy", f"This caller has {share} tasks, which is its share. Try again later.")
        record = TaskRecord(
            task_id=call.task_id, tool=call.tool, owner=call.owner, state="working", created_at=call.created_at,
            updated_at=call.created_at, ttl_s=call.ttl_s, is_durable=False,
        )  # fmt: skip
        kept = self._kept[call.task_id] = _Kept(call=call, record=record)
        kept.running = asyncio.create_task(self._to_the_end(kept))
        # A task that is cancelled before its first turn never runs its own clean-up.
        await asyncio.sleep(0)

    async def _to_the_end(self, kept: _Kept) -> None:
        assert self._run is not None
        try:
            outcome = await self._run(kept.call, _MemoryJournal(self, kept))
        except asyncio.CancelledError:
            self.change(kept, state="cancelled", questions={})
            raise
        self.change(kept, **ending(outcome))

    def change(self, kept: _Kept, **changes: Any) -> None:
        """Change the state of a task, unless it has ended."""
        if kept.record.is_over:
            return
        kept.record = replace(kept.record, updated_at=self._clock(), **changes)
        kept.change.set()
        kept.change = asyncio.Event()

    async def read(self, task_id: str) -> TaskRecord | None:
        """Return the current record of a task."""
        kept = self._kept.get(task_id)
        return None if kept is None else kept.record

    async def read_several(self, task_ids: Sequence[str]) -> Sequence[TaskRecord]:
        """Return the known tasks among these."""
        return [self._kept[task_id].record for task_id in task_ids if task_id in self._kept]

    async def read_all(self, owner: str | None = None) -> Sequence[TaskRecord]:
        """Return the tasks of one owner, or of all; the newest first."""
        records = [kept.record for kept in self._kept.values() if owner is None or kept.record.owner == owner]
        return sorted(records, key=lambda record: -record.created_at)

    async def last_steps(self, task_ids: Sequence[str]) -> Mapping[str, str]:
        """Return the name of the last step of each of these tasks that has one."""
        kept = {task_id: self._kept[task_id].last_step for task_id in task_ids if task_id in self._kept}
        return {task_id: step for task_id, step in kept.items() if step}

    async def answer(self, task_id: str, answers: Mapping[str, JSON]) -> None:
        """Pass answers to open questions."""
        kept = self._kept[task_id]
        for key, answer in answers.items():
            asked = kept.answers.get(key)
            if asked is not None and not asked.done():
                asked.set_result(answer)
                self.show_questions(kept)

    def show_questions(self, kept: _Kept, **more: Question) -> None:
        """Record the open questions."""
        asked = {**kept.record.questions, **more}
        waiting = {key: question for key, question in asked.items() if not kept.answers[key].done()}
        self.change(kept, questions=waiting, state="input_required" if waiting else "working")

    async def cancel(self, task_id: str) -> None:
        """Cancel a task, unless it has ended."""
        kept = self._kept[task_id]
        self.change(kept, state="cancelled", questions={})
        if kept.running is not None:
            kept.running.cancel()

    async def resume(self, task_id: str) -> bool:
        """Return `False`: every task here is running."""
        return False

    async def changed(self, record: TaskRecord, *, timeout_s: float) -> None:
        """Return when a task differs from this record, or after a timeout."""
        kept = self._kept.get(record.task_id)
        if kept is not None and kept.record is record:
            waiting = asyncio.ensure_future(kept.change.wait())
            await asyncio.wait([waiting], timeout=timeout_s)
            waiting.cancel()

    async def sweep(self, now: float) -> int:
        """Delete the tasks that expired before `now`."""
        expired = [kept for kept in self._kept.values() if kept.call.expires_at <= now]
        for kept in expired:
            await self.cancel(kept.call.task_id)
            del self._kept[kept.call.task_id]
        return len(expired)

    async def close(self) -> None:
        """Stop every task."""
        running = [kept.running for kept in self._kept.values() if kept.running is not None]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        self._kept.clear()


class _MemoryJournal:
    """The journal of a task in memory, which runs once."""

    def __init__(self, engine: InProcessEngine, kept: _Kept) -> None:
        self._engine, self._kept = engine, kept

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
        self._kept.answers[key] = asked = asyncio.get_running_loop().create_future()
        self._engine.show_questions(self._kept, **{key: question})
        return await asked

    def progress(self, fraction: float, message: str) -> None:
        """Record the progress of the run."""
        self._engine.change(self._kept, fraction=fraction, message=message)


def ending(outcome: Outcome) -> dict[str, Any]:
    """Return the record of a task after the end of its run."""
    if outcome.error is not None:
        return {"state": "failed", "error": outcome.error, "questions": {}, "message": outcome.error.message}
    return {"state": "completed", "result": outcome.result, "questions": {}}
