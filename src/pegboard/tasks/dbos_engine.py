"""DbosEngine: tasks in a database, run by DBOS. It records each step; if a process dies, another continues."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextvars import Context
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import sqlalchemy as sa
from dbos import DBOS, DBOSClient, SetWorkflowID
from dbos._error import DBOSUnexpectedStepError
from sqlalchemy.exc import SQLAlchemyError

from pegboard.core.after_fork import renew_after_fork
from pegboard.core.digests import digest
from pegboard.egress.launch_record import base_folder
from pegboard.model.error import CallError, ToolError
from pegboard.model.json_types import JSON
from pegboard.model.result import ToolResult
from pegboard.model.task import Question, TaskCall, TaskRecord, TaskState
from pegboard.platforms import platform
from pegboard.storage.store_uri import StoreUri
from pegboard.tasks.dbos_setup import client_of, end_all, hasten, launch, reason_of
from pegboard.tasks.engine import Run
from pegboard.tasks.lifelines import Lifelines
from pegboard.tasks.limits import TASK_LEASE_S
from pegboard.tasks.records import call_of_json, call_to_json, outcome_of_json, outcome_to_json, question_to_json
from pegboard.tasks.task_tables import Kept, Note, OtherQuestionError, TaskTables
from pegboard.tasks.worker_lease import TASK_BEAT_S, WorkerLease

TASK_RUNS = 100  # runs of one task that each ended in a crash of their worker; then the task fails
TASK_REMOTE_LOOK_S = 0.2  # seconds between two checks of the database by those who wait for a task
TASK_RECORDED_LOOK_S = 0.01  # the same, for a task whose run has just ended here
TASK_RECORDED_S = 1.0  # how long DBOS usually needs to record the end of a run, in seconds
TASK_STORE_S = 10.0  # seconds to wait for a response of the task database
TASK_LIST = 1_000  # tasks of one caller, or of all for the operator, in one list

T = TypeVar("T")
log = logging.getLogger("pegboard")
_ACTIVE = frozenset({"PENDING", "ENQUEUED", "DELAYED"})
_GIVEN_UP = "MAX_RECOVERY_ATTEMPTS_EXCEEDED"


class _Current:
    """The engine of this process; global, because DBOS identifies workflows by functions of modules."""

    engine: DbosEngine | None = None


@DBOS.workflow(name="pegboard.task", max_recovery_attempts=TASK_RUNS)
async def _task(call: JSON) -> JSON:
    assert _Current.engine is not None
    return await _Current.engine.run_here(call)


class DbosEngine:
    """Tasks in SQLite or PostgreSQL. Implements the port `Engine`.

    DBOS runs on its own loop in its own thread; the calls of tasks run on the loop that called `wake`. A process can
    have only one DBOS, so only one such engine. May be created in any thread.

    Args:
        uri: the database.
        clock: seconds since 1970.
        only_looks: it runs no tasks, and other processes need not know about it.
    """

    is_durable = True

    def __init__(self, uri: StoreUri, clock: Callable[[], float], *, only_looks: bool = False) -> None:
        self._only_looks = only_looks
        self._url, self._clock, self._file = _address(uri), clock, uri.path
        self._tables = TaskTables.at(uri)
        self._lifelines = Lifelines(_lifelines_of(uri.path))
        self._lease = WorkerLease(
            self._tables,
            self._lifelines,
            client=lambda: self._existing_client,
            stop_runs=self._stop_all,
            run_again=self._begin_again,
        )
        self._run: Run | None = None
        self._client: DBOSClient | None = None
        self._home: asyncio.AbstractEventLoop | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="pegboard-tasks", daemon=True)
        self._beating = threading.Thread(target=self._beat, name="pegboard-tasks-lease", daemon=True)
        self._ended = threading.Event()
        self._guarding: asyncio.Task[None] | None = None
        self._is_away = False
        self._running: dict[str, asyncio.Task[Any]] = {}
        self._moving = set[str]()
        """The tasks whose runs here were stopped although the tasks continue, in another worker or later."""
        self._asked: dict[tuple[str, str], asyncio.Future[JSON]] = {}
        self._notes: dict[str, Note] = {}
        self._ended_at: dict[str, float] = {}
        """When runs ended here recently, by task; `_settle` checks again that their end was recorded."""
        self._waiters: dict[str, set[asyncio.Future[None]]] = {}
        """The futures of those who wait here for a task to change."""

        renew_after_fork(self)

    def after_fork(self) -> None:
        """Leave everything to the parent: its threads run the tasks, and its lifeline is the one that others check."""
        self._lifelines.after_fork()

    # -- start and stop

    async def wake(self, run: Run) -> None:
        """Open the database, and run the tasks that are due.

        Raises:
            OSError: it does not respond.
        """
        self._run, self._home = run, asyncio.get_running_loop()
        if self._only_looks:
            try:
                self._client = await _away(client_of, self._url)
            except Exception as error:
                raise _unopened(error) from error
            return
        if _Current.engine is not None:
            raise OSError(
                "This process has tasks in a database already, or was forked from one that has; it can have one such."
            )
        self._thread.start()
        _Current.engine = self
        try:
            may_make_tables = await _away(self._open)
            await self._elsewhere(launch(self._url, self._lease.worker, may_make_tables=may_make_tables))
            self._client = await _away(client_of, self._url)
            await _away(self._lease.adopt)
            # The steps above take seconds on a busy machine.
            await _away(self._lease.renew)
        except Exception as error:
            await self.close()
            raise _unopened(error) from error
        self._guarding = asyncio.create_task(self._lease.guard())
        self._beating.start()

    def _open(self) -> bool:
        if self._file is not None:
            self._file.parent.mkdir(parents=True, exist_ok=True)
        may_make_tables = self._tables.create()
        self._lease.take()
        return may_make_tables

    async def close(self) -> None:
        """Stop the tasks that run here, and leave them to other workers."""
        self._ended.set()
        if self._guarding is not None:
            self._guarding.cancel()
        await self._stop_all()
        if self._beating.ident is not None:
            await _away(self._beating.join)
        if _Current.engine is self:
            await _away(DBOS.destroy)
            _Current.engine = None
        if self._client is not None:
            await _away(self._client.destroy)
        if self._thread.ident is not None:
            await self._elsewhere(end_all())
            self._loop.call_soon_threadsafe(self._loop.stop)
            await _away(self._thread.join)
        self._loop.close()
        try:
            if not self._only_looks:
                await _away(self._lease.leave)
        except OSError as error:
            log.warning("The lease of this worker was left to run out: %s", error)
        self._lifelines.drop()
        await _away(self._tables.close)

    # -- heartbeat

    def _beat(self) -> None:
        """Renew the lease regularly; check for dead workers, for answers, and for cancelled tasks."""
        while not self._ended.wait(TASK_BEAT_S):
            try:
                self._lease.renew()
                self._write_notes()
                self._lease.adopt()
                self._settle()
                self._look()
                if self._is_away:
                    log.warning("The database of tasks answers again.")
                self._is_away = False
            except Exception as error:  # noqa: BLE001 - boundary: a separate thread, and the store may be away
                if not self._is_away:
                    text = str(error) if isinstance(error, OSError) else type(error).__name__
                    log.warning("The lease of this worker was not renewed; Pegboard keeps trying: %s", text)
                self._is_away = True

    def _begin_again(self) -> None:
        """Run stopped tasks again here, unless another worker has taken them over."""
        assert self._home is not None
        asyncio.run_coroutine_threadsafe(self._stop_all(), self._home).result()
        self._ended_at.clear()
        self._lease.take_over(self._lease.worker, has_crashed=False)

    def _settle(self) -> None:
        """Run a task again here if its end could not be recorded, e.g. because a disk was full."""
        now = time.monotonic()
        late = [task_id for task_id, at in tuple(self._ended_at.items()) if now - at > TASK_LEASE_S]
        if not late:
            return
        left = self._existing_client.list_workflows(
            workflow_ids=late, status="PENDING", executor_id=self._lease.worker, load_input=False, load_output=False
        )
        for each in left:
            if each.workflow_id not in self._running and self._lease.take_over_task(
                each.workflow_id, self._lease.worker
            ):
                log.warning("The end of task %s was not recorded; it runs again.", each.workflow_id)
        for task_id in late:
            self._ended_at.pop(task_id, None)

    def _look(self) -> None:
        """Check the database for answers to tasks that run here, and for their cancellation by other workers."""
        waiting = sorted({task_id for task_id, _ in tuple(self._asked)})
        for task_id, key, answer in self._tables.answers(waiting) if waiting else ():
            self._at_home(self._answered, task_id, key, answer)
        running = list(self._running)
        if running:
            ended = self._existing_client.list_workflows(
                workflow_ids=running, status="CANCELLED", load_input=False, load_output=False
            )
            for each in ended:
                self._at_home(self._stop, each.workflow_id)

    def _write_notes(self) -> None:
        if notes := dict(self._notes):
            self._tables.note(notes)
            for task_id, note in notes.items():
                if self._notes.get(task_id) is note:
                    del self._notes[task_id]

    def _at_home(self, act: Callable[..., object], *args: object) -> None:
        assert self._home is not None
        self._home.call_soon_threadsafe(act, *args, context=Context())

    async def _stop_all(self) -> None:
        running = list(self._running.values())
        for task_id in tuple(self._running):
            self._stop_for_now(task_id)
        await asyncio.gather(*running, return_exceptions=True)

    def _stop_for_now(self, task_id: str) -> None:
        """Stop the run of a task that continues in another worker, or later here."""
        self._moving.add(task_id)
        self._stop(task_id)

    def is_moving(self, task_id: str) -> bool:
        """Tell whether a run here was stopped although its task continues."""
        return task_id in self._moving

    def _stop(self, task_id: str) -> None:
        if (task := self._running.get(task_id)) is not None:
            task.cancel()

    def _answered(self, task_id: str, key: str, answer: JSON) -> None:
        asked = self._asked.get((task_id, key))
        if asked is not None and not asked.done():
            asked.set_result(answer)

    # -- a run

    async def run_here(self, stored_call: JSON) -> JSON:
        """Run a task on the loop of its catalog, and return the outcome to be recorded. DBOS calls this on its loop."""
        assert self._home is not None
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._run_at_home(stored_call), self._home))

    async def _run_at_home(self, stored_call: JSON) -> JSON:
        assert self._run is not None
        call, current = call_of_json(stored_call), asyncio.current_task()
        assert current is not None
        earlier = self._running.get(call.task_id)
        self._running[call.task_id] = current
        try:
            if earlier is not None:
                # The lease was lost, and this process took over its own task before it noticed.
                self._moving.add(call.task_id)
                earlier.cancel()
                await asyncio.wait([earlier])
                self._moving.discard(call.task_id)
            return outcome_to_json(await self._run(call, _DbosJournal(self, call.task_id)))
        except Exception as error:
            # Tools and hooks do not raise here, so this is a bug of ours or of `context_for`. DBOS would record it as
            # the end of the task. A cancelled run records nothing, and `_settle` runs the task again.
            log.error("Task %s was interrupted by an error and runs again.", call.task_id, exc_info=error)
            raise asyncio.CancelledError from error
        finally:
            if self._running.get(call.task_id) is current:
                del self._running[call.task_id]
                self._moving.discard(call.task_id)
                self._ended_at[call.task_id] = time.monotonic()
                for waiter in self._waiters.get(call.task_id, ()):
                    if not waiter.done():
                        waiter.set_result(None)

    async def elsewhere(self, work: Coroutine[Any, Any, T]) -> T:
        """Await work on the loop of DBOS, in the current context: DBOS finds the task there."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def _elsewhere(self, work: Coroutine[Any, Any, T]) -> T:
        """Await work on the loop of DBOS that belongs to no task, in an empty context."""
        return await Context().run(asyncio.create_task, self.elsewhere(work))

    async def at_home(self, work: Callable[[], Awaitable[JSON]]) -> JSON:
        """Await work on the loop of the catalog."""
        assert self._home is not None
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_awaited(work), self._home))

    async def answer_to(self, task_id: str, key: str, question: Question) -> JSON:
        """Ask the person, and wait for the answer."""
        waiting = self._asked[task_id, key] = asyncio.get_running_loop().create_future()
        try:
            while True:
                try:
                    known = await _away(self._tables.ask, task_id, key, question)
                except OSError:
                    # If nobody could be asked, that is not an answer: the task waits until it can ask.
                    await asyncio.sleep(TASK_BEAT_S)
                else:
                    return known if known is not None else await waiting
        finally:
            del self._asked[task_id, key]

    async def stop_unrecorded(self, task_id: str) -> NoReturn:
        """Stop a run whose step the database could not record; it continues from the last recorded step later."""
        self._stop_for_now(task_id)
        await asyncio.get_running_loop().create_future()
        raise AssertionError("a stopped run continues")

    async def was_begun(self, task_id: str) -> bool:
        """Tell whether a task that runs here was started before; true if the database does not respond."""
        ask = partial(self._existing_client.list_workflows, workflow_ids=[task_id], load_input=False, load_output=False)
        try:
            [row] = await _in_store_thread(ask)
        except (OSError, ValueError):
            return True
        return row.recovery_attempts != 1

    async def was_cancelled(self, task_id: str) -> bool:
        """Tell whether a task whose run was stopped was cancelled; false if the database does not respond."""
        ask = partial(
            self._existing_client.list_workflows,
            workflow_ids=[task_id],
            status="CANCELLED",
            load_input=False,
            load_output=False,
        )
        try:
            async with asyncio.timeout(TASK_STORE_S):
                return bool(await _in_store_thread(ask))
        except OSError:
            return False

    def note(self, task_id: str, fraction: float | None = None, message: str | None = None) -> None:
        """Store the progress of a task, or that a step of it has ended; it is written with the next heartbeat."""
        if fraction is None and (unwritten := self._notes.get(task_id)) is not None:
            fraction, message = unwritten.fraction, unwritten.message
        self._notes[task_id] = Note(fraction, message, self._clock())

    # -- requests

    @property
    def _existing_client(self) -> DBOSClient:
        assert self._client is not None
        return self._client

    async def start(self, call: TaskCall) -> None:
        """Store a task, then start it.

        Raises:
            OSError: the database does not respond.
        """
        try:
            async with asyncio.timeout(TASK_STORE_S):
                await _away(self._add, call)
                await self._elsewhere(_begin(call))
        except SQLAlchemyError as error:
            raise OSError(f"The database of tasks does not answer: {reason_of(error)}") from error
        except TimeoutError as error:
            raise OSError(f"The database of tasks does not answer within {TASK_STORE_S:g} s.") from error

    def _add(self, call: TaskCall) -> None:
        if not self._tables.add(call.task_id, call.owner, call.expires_at, worker=self._lease.worker):
            self._lease.was_forgotten()

    async def read(self, task_id: str) -> TaskRecord | None:
        """Return the current record of a task."""
        records = await self.read_several([task_id])
        return records[0] if records else None

    async def read_all(self, owner: str | None = None) -> Sequence[TaskRecord]:
        """Return the tasks of one owner, or of all; the newest first."""
        ids = await _away(lambda: self._tables.of_owner(owner, most=TASK_LIST))
        return sorted(await self.read_several(ids), key=lambda record: -record.created_at)

    async def read_several(self, task_ids: Sequence[str]) -> Sequence[TaskRecord]:
        """Return the known tasks among these."""
        try:
            async with asyncio.timeout(TASK_STORE_S):
                return await _away(self._records, task_ids)
        except SQLAlchemyError as error:
            raise OSError(f"The database of tasks does not answer: {reason_of(error)}") from error
        except TimeoutError as error:
            raise OSError(f"The database of tasks does not answer within {TASK_STORE_S:g} s.") from error

    def _records(self, ids: Sequence[str]) -> list[TaskRecord]:
        # Read first, since they are removed once they are written.
        notes = dict(self._notes)
        stored = self._tables.rows_of(ids) if ids else {}
        if not stored:
            # DBOS would list all tasks.
            return []
        rows = self._existing_client.list_workflows(workflow_ids=list(stored))
        return [_record(row, stored[row.workflow_id], notes.get(row.workflow_id)) for row in rows]

    async def last_steps(self, task_ids: Sequence[str]) -> Mapping[str, str]:
        """Return the name of the last recorded step of each of these tasks that has one."""
        return await _in_store_thread(self._last_steps, task_ids)

    def _last_steps(self, ids: Sequence[str]) -> Mapping[str, str]:
        steps = ((task_id, self._existing_client.list_workflow_steps(task_id, load_output=False)) for task_id in ids)
        return {task_id: recorded[-1]["function_name"] for task_id, recorded in steps if recorded}

    async def answer(self, task_id: str, answers: Mapping[str, JSON]) -> None:
        """Store answers to open questions."""
        await _away(self._tables.answer, task_id, answers)
        for key in answers:
            if (task_id, key) in self._asked:
                for _, known, answer in await _away(self._tables.answers, [task_id]):
                    self._answered(task_id, known, answer)

    async def cancel(self, task_id: str) -> None:
        """Cancel a task, unless it has ended."""
        await _in_store_thread(self._existing_client.cancel_workflow, task_id)
        self._stop(task_id)

    async def resume(self, task_id: str) -> bool:
        """Run a task here that no worker runs; `False` if one may."""
        return await _in_store_thread(self._resume, task_id)

    def _resume(self, task_id: str) -> bool:
        [row] = self._existing_client.list_workflows(workflow_ids=[task_id], load_input=False, load_output=False)
        if row.status != "PENDING":
            # Queued tasks are taken by any free worker.
            hasten(self._existing_client, task_id)
            return row.status in _ACTIVE
        worker = row.executor_id or ""
        if worker == self._lease.worker:
            return True
        return self._lease.is_seen_dead(worker, self._ended) and self._lease.take_over_task(task_id, worker)

    async def changed(self, record: TaskRecord, *, timeout_s: float) -> None:
        """Return when a run of the task ends here, or after a short time: another process may change the database."""
        task_id = record.task_id
        ended_at = self._ended_at.get(task_id)
        if ended_at is not None and time.monotonic() - ended_at < TASK_RECORDED_S and task_id not in self._running:
            # DBOS records the end of a run on its own loop, within a few milliseconds.
            await asyncio.sleep(min(timeout_s, TASK_RECORDED_LOOK_S))
            return
        waiter = asyncio.get_running_loop().create_future()
        waiters = self._waiters.setdefault(task_id, set())
        waiters.add(waiter)
        try:
            await asyncio.wait([waiter], timeout=min(timeout_s, TASK_REMOTE_LOOK_S))
        finally:
            waiters.discard(waiter)
            if not waiters:
                self._waiters.pop(task_id, None)

    async def sweep(self, now: float) -> int:
        """Delete the tasks that expired before `now`."""
        ids = await _away(self._tables.expired, now)
        if ids:
            await _in_store_thread(self._existing_client.cancel_workflows, list(ids))
            for task_id in ids:
                self._stop(task_id)
            if ending := [self._running[task_id] for task_id in ids if task_id in self._running]:
                # Before their records are deleted: a task that has not run returns its approval.
                await asyncio.wait(ending, timeout=TASK_STORE_S)
            await _in_store_thread(self._existing_client.delete_workflows, list(ids))
            await _away(self._tables.forget, ids)
        return len(ids)


class _DbosJournal:
    """The journal of one run: each step is a DBOS step."""

    def __init__(self, engine: DbosEngine, task_id: str) -> None:
        self._engine, self._task_id = engine, task_id

    @property
    def is_moving(self) -> bool:
        """Whether the run was stopped although the task continues."""
        return self._engine.is_moving(self._task_id)

    async def was_begun(self) -> bool:
        """Tell whether the task was started in an earlier run; true if the database does not respond."""
        return await self._engine.was_begun(self._task_id)

    async def was_cancelled(self) -> bool:
        """Tell whether the task was cancelled, rather than only this run of it."""
        return await self._engine.was_cancelled(self._task_id)

    async def once(self, name: str, work: Callable[[], Awaitable[JSON]]) -> JSON:
        """Return the recorded result of a step; if there is none, the result of `work`, which is recorded."""
        raised: list[BaseException] = []

        async def recorded() -> JSON:
            try:
                return await self._engine.at_home(work)
            except BaseException as error:
                raised.append(error)
                raise

        try:
            result = await self._engine.elsewhere(DBOS.run_step_async({"name": name}, recorded))
        except DBOSUnexpectedStepError:
            text = (
                f"The tool was changed while the task waited: step {name!r} runs where another step was recorded. "
                "Look at it, then call it again."
            )
            raise CallError("needs_review", text) from None
        except SQLAlchemyError as error:
            if any(own is error for own in raised):
                raise
            # The tool must not mistake this for the outcome of its step.
            await self._engine.stop_unrecorded(self._task_id)
        self._engine.note(self._task_id)
        return result

    async def answer(self, key: str, question: Question) -> JSON:
        """Ask the person, and return the answer once it is there.

        An answer belongs to one question. If the process was restarted with other code, or asks in another order, an
        answer to the earlier question at this place is not used.

        Raises:
            CallError: `needs_review`, in that case.
        """
        text = digest(question_to_json(question))

        async def ask_person() -> JSON:
            try:
                return {"question": text, "answer": await self._engine.answer_to(self._task_id, key, question)}
            except OtherQuestionError:
                return {"question": "another"}

        recorded = await self.once(key, ask_person)
        if recorded.get("question") != text:
            raise CallError(
                "needs_review",
                "The tool was changed while the task waited: its question differs from the earlier one. "
                "Look at it, then call it again.",
            )
        return recorded["answer"]

    def progress(self, fraction: float, message: str) -> None:
        """Record the progress of the run."""
        self._engine.note(self._task_id, fraction, message)


async def _begin(call: TaskCall) -> None:
    with SetWorkflowID(call.task_id):
        await DBOS.start_workflow_async(_task, call_to_json(call))


async def _awaited(work: Callable[[], Awaitable[JSON]]) -> JSON:
    return await work()


async def _away(act: Callable[..., T], *args: Any) -> T:
    """Run blocking code in a thread, outside of any task's context."""
    return await asyncio.get_running_loop().run_in_executor(None, lambda: Context().run(act, *args))


async def _in_store_thread(act: Callable[..., T], *args: Any) -> T:
    """Run blocking code that uses the database in a thread.

    Raises:
        OSError: the database does not respond.
    """
    try:
        return await _away(act, *args)
    except SQLAlchemyError as error:
        raise OSError(f"The database of tasks does not answer: {reason_of(error)}") from error


def _record(row: Any, stored: Kept, noted: Note | None) -> TaskRecord:
    call = call_of_json(row.input["args"][0])
    fraction, message, noted_at = stored.note if noted is None else noted
    if fraction is None:
        fraction, message = stored.note.fraction, stored.note.message
    state: TaskState = "working"
    result: ToolResult | None = None
    error: ToolError | None = None
    questions: Mapping[str, Question] = {}
    if row.status in _ACTIVE:
        questions = stored.questions
        state = "input_required" if questions else "working"
    elif row.status == "SUCCESS":
        result, error = outcome_of_json(row.output)
        state = "completed" if error is None else "failed"
    elif row.status == "CANCELLED":
        state = "cancelled"
    else:
        why = f": {TASK_RUNS + 1} runs of it ended in a crash of their worker" if row.status == _GIVEN_UP else ""
        state, error = "failed", ToolError(kind="tool_error", message=f"The task could not be run to its end{why}.")
        log.error("Task %s ended as %s: %s", call.task_id, row.status, row.error)
    return TaskRecord(
        task_id=call.task_id, tool=call.tool, owner=call.owner, state=state, created_at=call.created_at,
        updated_at=max(call.created_at, (row.updated_at or 0) / 1_000, noted_at or 0.0), ttl_s=call.ttl_s,
        is_durable=True, message=(message or "") if error is None else error.message, fraction=fraction,
        questions=questions, result=result, error=error, worker=row.executor_id or "",
    )  # fmt: skip


def _lifelines_of(file: Path | None) -> Path | None:
    """Return the folder for the lifelines of this machine's workers; `None` if there is none."""
    if file is not None:
        return Path(f"{file}-workers")
    # Workers on other machines have theirs elsewhere, and count as alive until their lease runs out.
    own = base_folder() if platform.NO_FILES is None else None
    return None if own is None else own / "tasks"


def _address(uri: StoreUri) -> sa.URL:
    if uri.path is not None:
        return sa.URL.create("sqlite", database=str(uri.path))
    return sa.make_url(uri.text.reveal()).set(drivername="postgresql+psycopg")


def _unopened(error: Exception) -> OSError:
    """Return the error in one line: SQLAlchemy adds the statement, its parameters and a link."""
    first = next(iter(str(error).splitlines()), type(error).__name__)
    return OSError(f"The database of tasks cannot be opened: {first}")
