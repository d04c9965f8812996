"""Tasks: calls that outlive their request. Owners start them, read their state, answer their questions, cancel them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from pegboard.auth.rejections import UnavailableError
from pegboard.core.after_fork import leave_to_parent, renew_after_fork
from pegboard.core.call.record import Call
from pegboard.core.cancellation import cancel_and_wait
from pegboard.core.digests import canonical_json, digest
from pegboard.core.elicitation_form import fits_form
from pegboard.core.executor import Executor
from pegboard.core.identifiers import new_id
from pegboard.lazy import LazyModule
from pegboard.model.caller import Caller
from pegboard.model.context import ToolContext
from pegboard.model.error import CallError, DefinitionError
from pegboard.model.json_types import JSON, is_object
from pegboard.model.result import TextContent, ToolResult
from pegboard.model.secret import Secret
from pegboard.model.task import Agreement, TaskCall, TaskRecord
from pegboard.storage.file_permissions import store_faults
from pegboard.storage.sqlite_file import use_python_sqlite
from pegboard.storage.store_uri import StoreUri
from pegboard.tasks.engine import Engine
from pegboard.tasks.execution import ContextFor, Execution, MakeView
from pegboard.tasks.in_process import InProcessEngine
from pegboard.tasks.limits import TASK_LEASE_S, TASK_LOOK_S, TASK_TTL_S

if TYPE_CHECKING:
    from pegboard.auth import present_rights
    from pegboard.tasks import dbos_engine
else:
    present_rights = LazyModule("pegboard.auth.present_rights")
    dbos_engine = LazyModule("pegboard.tasks.dbos_engine")

TASK_LEAST_TTL_S = 1.0  # the shortest lifetime that a client may ask for
TASK_SWEEP_S = 60.0  # seconds between two searches for expired tasks

log = logging.getLogger("pegboard")
IN_MEMORY: Final = "memory"
_ANONYMOUS = "anonymous"
_OF_PARENT = (
    "This process was forked from one that runs the tasks of this store, and cannot run or read them. Load the catalog "
    "after the fork, or before the first task."
)
_ANSWER = '{"action": "accept", "content": …}'


class _Operator:
    """The operator of the server, who may see and cancel every task."""


OPERATOR: Final = _Operator()
Asking = ToolContext | _Operator


def owner_of(caller: Caller) -> str:
    """Return the owner key of a caller's tasks; empty for an unauthenticated caller: those whose id it has."""
    # An open server may put all unknown callers into one space, which does not make them one person.
    nobody_says_where = caller.space_id is None or caller.credential == _ANONYMOUS
    if caller.credential in ("", _ANONYMOUS) and caller.user_id is None and nobody_says_where:
        return ""
    return digest([caller.credential, caller.user_id, caller.space_id])


class Tasks:
    """The tasks of one catalog. Implements the port `TaskEngine`.

    Created by host code or from a config, and passed to one `Catalog`, which attaches it. The first task, or `wake`,
    opens the store; `Catalog.close` stops the tasks that run here.

    Args:
        store: `memory`; or `sqlite:FILE` or `postgresql://…`, where tasks survive the process (extra `tasks`).
        ttl_s: how long a task is kept after its start: then it is deleted, even if it is running.
        context_for: makes the context of a task; by default one of the catalog's type for the stored caller, without
            settings, secrets, factories or services.
        base: the folder of a relative FILE.

    Raises:
        DefinitionError: the store has an unknown kind.
    """

    def __init__(
        self,
        store: str | Secret = IN_MEMORY,
        *,
        ttl_s: float = TASK_TTL_S,
        context_for: ContextFor | None = None,
        base: Path | None = None,
    ) -> None:
        self.ttl_s, self.context_for = ttl_s, context_for
        self._uri: StoreUri | None = None
        if (store.reveal() if isinstance(store, Secret) else store) != IN_MEMORY:
            self._uri = StoreUri.located(store, folder=base or Path(), others=(IN_MEMORY,))
        if self._uri is not None and self._uri.path is not None:
            # DBOS opens the file with Python's library.
            use_python_sqlite(self._uri.path)
            for fault in store_faults(self._uri.path):
                raise DefinitionError(fault.message)
        self._engine: Engine | None = None
        self._opening = asyncio.Lock()
        self._waking: asyncio.Task[None] | None = None
        self._sweeping: asyncio.Task[None] | None = None
        self._is_closed = self._only_looks = self._is_of_parent = False
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Leave the engine to the parent process, which runs it; called in a forked child before any of its code."""
        leave_to_parent(self._engine, self._opening, self._waking, self._sweeping)
        # An engine that is being opened belongs to the parent, too.
        self._is_of_parent |= self.is_durable and (self._engine is not None or self._opening.locked())
        self._engine = self._waking = self._sweeping = None
        self._opening = asyncio.Lock()

    @property
    def is_durable(self) -> bool:
        """Whether tasks survive the process."""
        return self._uri is not None

    def attach(self, executor: Executor, make_view: MakeView) -> None:
        """Connect to the executor and to the function that makes views; called once, by the catalog.

        Raises:
            DefinitionError: another catalog has it.
        """
        if hasattr(self, "_executor"):
            raise DefinitionError("This Tasks object belongs to another catalog; each catalog needs its own.")
        self._executor = executor
        self._registry = executor.registry
        self._execution = Execution(executor, make_view, self._context, self.caller_now)
        self._registry.has_tasks = True

    def _context(self, call: TaskCall) -> ToolContext | None:
        make = self.context_for
        return self._registry.context_type(caller=call.caller) if make is None else make(call)

    async def caller_now(self, caller: Caller, profile: str | None) -> Caller | None:
        """Return a caller with its current rights; `None` if it no longer has any.

        Waits while the rights cannot be determined.
        """
        if not caller.proof:
            return caller
        clock, is_told = self._executor.ports.wall_clock, False
        while True:
            rules = self._registry.declarations.identity
            try:
                return await present_rights.present_caller(rules, caller, profile, wall_clock=clock)
            except UnavailableError as error:
                if not is_told:
                    log.warning("Tasks wait, because the rights of their caller cannot be determined now: %s", error)
                is_told = True
                await asyncio.sleep(TASK_LOOK_S)

    # -- the engine

    async def wake(self) -> None:
        """Open the store, and resume interrupted tasks."""
        if self.is_durable and self.may_have_some():
            await self._opened()

    async def look(self) -> None:
        """Open the store for reading only; its tasks are not run here."""
        self._only_looks = True
        if self.is_durable and not self.may_have_some():
            raise CallError("not_found", "The store of tasks is empty: no task was started yet.")

    def wake_soon(self) -> None:
        """Call `wake` in the background, as a server does at its start.

        Waits until another process has created the store.

        Errors are logged.
        """
        self._waking = asyncio.create_task(self._woken())

    async def _woken(self) -> None:
        try:
            while self.is_durable and not self.may_have_some():  # noqa: ASYNC110 - another process makes it
                await asyncio.sleep(TASK_LEASE_S)
            await self.wake()
        except OSError as error:
            log.error("Interrupted tasks are not resumed: %s", error)

    def reopen(self) -> None:
        """Accept tasks again after `close`."""
        self._is_closed = False

    def may_have_some(self) -> bool:
        """Return whether the store may hold unfinished tasks; a database that does not exist yet holds none."""
        return self._uri is not None and (self._uri.path is None or self._uri.path.exists())

    async def _opened(self) -> Engine:
        async with self._opening:
            if self._is_closed:
                raise CallError("shutting_down", "The server is shutting down. Try again in a moment.")
            if self._is_of_parent:
                raise CallError("storage_unavailable", _OF_PARENT)
            if self._engine is None:
                executor = self._executor
                clock = executor.ports.wall_clock
                engine: Engine = InProcessEngine(clock, is_shared=lambda: executor.ports.is_shared)
                if self._uri is not None:
                    engine = await asyncio.wrap_future(self._loading(self._uri, clock))
                self._execution.move_to_new_loop()
                await engine.wake(self._execution.run)
                self._engine = engine
                self._sweeping = asyncio.create_task(self._sweep(engine))
            return self._engine

    def _loading(self, uri: StoreUri, clock: Callable[[], float]) -> Future[Engine]:
        """Create the engine in a thread, since DBOS takes seconds to load; no loop waits for it when it closes."""
        future = Future[Engine]()
        future.set_running_or_notify_cancel()

        def load() -> None:
            try:
                engine = dbos_engine.DbosEngine(uri, clock, only_looks=self._only_looks)
            except BaseException as error:  # noqa: BLE001 - boundary: raised again where the engine is awaited
                future.set_exception(error)
            else:
                future.set_result(engine)

        threading.Thread(target=load, name="pegboard-load").start()
        return future

    async def _sweep(self, engine: Engine) -> None:
        while True:
            await asyncio.sleep(TASK_SWEEP_S)
            try:
                await engine.sweep(self._executor.ports.wall_clock())
            except OSError as error:
                log.warning("Expired tasks could not be swept: %s", error)

    async def sweep(self) -> int:
        """Delete every expired task, and return how many there were. A server does so every minute."""
        return await (await self._opened()).sweep(self._executor.ports.wall_clock())

    async def close(self) -> None:
        """Stop the tasks that run here; durable ones continue in another process, or later."""
        self._is_closed = True
        background = [task for task in (self._waking, self._sweeping) if task is not None]
        await cancel_and_wait(*background)
        self._waking = self._sweeping = None
        async with self._opening:
            engine, self._engine = self._engine, None
            if engine is not None:
                await self._execution.settled()
                await engine.close()

    # -- a call becomes a task

    async def start(self, call: Call) -> ToolResult:
        """Store a call that passed every guard, and return the handle for its caller.

        Raises:
            CallError: `storage_unavailable`; `invalid_arguments` for a secret in its arguments; `busy`.
        """
        task_call = self._kept(call)
        try:
            engine = await self._opened()
            await engine.start(task_call)
        except OSError as error:
            log.warning("%r was not started: %s", call.name, error)
            text = f"{call.name!r} was not started: the store of tasks does not respond. Try again in a moment."
            raise CallError("storage_unavailable", text) from error
        lasts = "" if engine.is_durable else " It is kept in memory: it ends with the server's process."
        text = f"{call.name!r} continues as task {task_call.task_id}. Ask for its state and result by that id.{lasts}"
        handle = {"task": {"id": task_call.task_id, "state": "working", "durable": engine.is_durable}}
        return ToolResult((TextContent(text),), handle, meta={}, has_structured=True, task_id=task_call.task_id)

    def _kept(self, call: Call) -> TaskCall:
        ctx, asked = call.view.ctx, call.asked
        if call.redactor is not None and call.redactor.finds(canonical_json(call.args).decode()):
            text = (
                f"{call.name!r} was not started: its arguments contain a secret, and tasks store their arguments. "
                "Have the tool read it from the settings of the server."
            )
            raise CallError("invalid_arguments", text)
        selection = call.view.selection
        agreed = None
        if asked is not None and asked.answer == "yes":
            request = asked.request
            # A person may have edited the arguments.
            agreed = Agreement(request.tool, request.definition_hash, digest(call.args), asked.consent_id)
        return TaskCall(
            task_id=new_id(), owner=owner_of(ctx.caller), tool=call.entry.qualified_id,
            definition_hash=call.entry.fingerprint, arguments=call.args, caller=ctx.caller,
            created_at=call.ports.wall_clock(), ttl_s=self._ttl_s(ctx), profile=selection.profile,
            include=selection.include, internal=tuple(sorted(selection.internal)), depth=ctx.request.depth + 1,
            request_id=ctx.request.id, door=ctx.request.door, hops=ctx.request.hops, agreed=agreed,
        )  # fmt: skip

    def _ttl_s(self, ctx: ToolContext) -> float:
        """Return how long a task is kept; a client may ask for less than the default."""
        wanted_s: float | None = getattr(ctx.request.client, "task_ttl_s", None)
        return self.ttl_s if wanted_s is None else min(self.ttl_s, max(wanted_s, TASK_LEAST_TTL_S))

    # -- owners

    async def get(self, task_id: str, ctx: Asking) -> TaskRecord:
        """Return a task of this caller.

        Raises:
            CallError: `not_found`, for an unknown id and for the id of another caller's task; `storage_unavailable`.
        """
        return (await self._engine_and_record(task_id, ctx))[1]

    async def several(self, task_ids: Sequence[str], ctx: Asking) -> Sequence[TaskRecord]:
        """Return the tasks among these that belong to this caller, in this order.

        Raises:
            CallError: `storage_unavailable`.
        """
        with _available():
            records = await (await self._opened()).read_several(task_ids)
        shown = {record.task_id: record for record in records if self._is_shown(record, ctx)}
        return [shown[task_id] for task_id in task_ids if task_id in shown]

    async def last_steps(self, records: Sequence[TaskRecord]) -> Mapping[str, str]:
        """Return the name of the last recorded step of each of these tasks that has one, by task id.

        Raises:
            CallError: `storage_unavailable`.
        """
        with _available():
            return await (await self._opened()).last_steps([record.task_id for record in records])

    async def list(self, ctx: Asking) -> Sequence[TaskRecord]:
        """Return the tasks of this caller, the newest first; none for an unauthenticated caller."""
        owner = None if isinstance(ctx, _Operator) else owner_of(ctx.caller)
        if owner == "":
            return ()
        with _available():
            return await (await self._opened()).read_all(owner)

    async def answer(self, task_id: str, ctx: Asking, answers: Mapping[str, JSON]) -> frozenset[str]:
        """Answer questions of a task, and return the keys of the accepted answers.

        Each answer is `{"action": "accept" | "decline" | "cancel", "content": {…}}`. Answers to unknown or answered
        questions are ignored, as MCP requires.

        Raises:
            CallError: `not_found`; `invalid_arguments`, if an answer does not fit its question: then none is accepted.
        """
        engine, record = await self._engine_and_record(task_id, ctx)
        if not isinstance(cast("object", answers), Mapping):
            raise CallError("invalid_arguments", f"The answers must be an object by key: {{KEY: {_ANSWER}}}.")
        waiting = {key: answer for key, answer in answers.items() if key in record.questions}
        for key, answer in waiting.items():
            if not is_object(answer):
                raise CallError("invalid_arguments", f"{key!r}: an answer is an object: {_ANSWER}.")
            if answer.get("action") not in ("accept", "decline", "cancel"):
                raise CallError("invalid_arguments", f"{key!r}: `action` must be accept, decline or cancel.")
            if not fits_form(record.questions[key].form, answer):
                raise CallError("invalid_arguments", f"{key!r}: `content` does not fit the form of the question.")
        if waiting:
            with _available():
                await engine.answer(task_id, waiting)
        return frozenset(waiting)

    async def cancel(self, task_id: str, ctx: Asking) -> None:
        """Cancel a task; a finished task is not changed.

        Raises:
            CallError: `not_found`.
        """
        engine, record = await self._engine_and_record(task_id, ctx)
        if not record.is_over:
            with _available():
                await engine.cancel(task_id)
            for call_id in self._execution.calls_of(task_id):
                self._executor.cancel(call_id)

    async def resume(self, task_id: str, ctx: Asking) -> bool:
        """Resume an interrupted task here; return False if it has ended, or a live worker runs it.

        Raises:
            CallError: `not_found`.
        """
        engine, record = await self._engine_and_record(task_id, ctx)
        with _available():
            return not record.is_over and await engine.resume(task_id)

    async def result(self, task_id: str, ctx: Asking, *, timeout_s: float | None = None) -> ToolResult:
        """Wait until a task has ended, and return its result, which is an error if it failed or was cancelled.

        Raises:
            CallError: `not_found`; `timeout`, if it still runs after `timeout_s`.
        """
        record = await self.ended(task_id, ctx, timeout_s=timeout_s)
        if record.result is not None:
            return record.result
        error = record.error or CallError("cancelled", f"The task {task_id!r} was cancelled.").error
        return ToolResult((TextContent(error.message),), is_error=True, error=error)

    async def ended(self, task_id: str, ctx: Asking, *, timeout_s: float | None = None) -> TaskRecord:
        """Wait until a task has ended.

        Raises:
            CallError: `not_found`; `timeout`, if it still runs after `timeout_s`.
        """
        clock = self._executor.ports.clock
        ends = None if timeout_s is None else clock() + timeout_s
        while True:
            engine, record = await self._engine_and_record(task_id, ctx)
            if record.is_over:
                return record
            left_s = TASK_LOOK_S if ends is None else ends - clock()
            if left_s <= 0:
                raise CallError("timeout", f"The task {task_id!r} still runs after {timeout_s:g} s. Ask again later.")
            await engine.changed(record, timeout_s=min(left_s, TASK_LOOK_S))

    async def changed(self, record: TaskRecord, *, timeout_s: float) -> None:
        """Return when a task differs from this record, or after a timeout."""
        await (await self._opened()).changed(record, timeout_s=timeout_s)

    async def one_changed(self, records: Sequence[TaskRecord], *, timeout_s: float) -> None:
        """Return when one of several tasks differs from its record, or after a timeout."""
        waiting = [asyncio.ensure_future(self.changed(record, timeout_s=timeout_s)) for record in records]
        try:
            if waiting:
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancel_and_wait(*waiting)

    async def _engine_and_record(self, task_id: str, ctx: Asking) -> tuple[Engine, TaskRecord]:
        with _available():
            engine = await self._opened()
            record = await engine.read(task_id)
        if record is None or not self._is_shown(record, ctx):
            raise CallError("not_found", f"No task {task_id[:100]!r} of yours is known.")
        return engine, record

    def _is_shown(self, record: TaskRecord, ctx: Asking) -> bool:
        """Tell whether a caller may see a task: it owns the task, and the task has not expired."""
        return record.created_at + record.ttl_s > self._executor.ports.wall_clock() and _may_see(record, ctx)


@contextlib.contextmanager
def _available() -> Generator[None]:
    try:
        yield
    except OSError as error:
        text = "The store of tasks does not respond. Try again in a moment."
        raise CallError("storage_unavailable", text) from error


def _may_see(record: TaskRecord, ctx: Asking) -> bool:
    """Tell whether a caller owns a task: it belongs to its principal, or without one to everybody who has its id."""
    return isinstance(ctx, _Operator) or record.owner in ("", owner_of(ctx.caller))
