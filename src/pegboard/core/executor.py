"""Executor: runs one guarded call; no handler is reached in any other way."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from pegboard.core.after_fork import renew_after_fork
from pegboard.core.call.arguments import check_arguments, seen_arguments
from pegboard.core.call.begin import check_start
from pegboard.core.call.budget_stage import AgentAccount, give_back, open_dues, pass_budgets, settle, spending_of
from pegboard.core.call.consent_stage import ask_consent, consent_reason, settle_consent
from pegboard.core.call.finished_call import AUDIT_WAIT, NOT_READ, CallKind, FinishedCall, StartedCall
from pegboard.core.call.hook_stages import ask_after, ask_before, tell_hooks
from pegboard.core.call.judge_again import EDITED, check_repeats, judge_again
from pegboard.core.call.limit_keys import owner_of
from pegboard.core.call.listeners import (
    DELIVERED,
    Delivered,
    Listeners,
    SubAgentObservers,
    as_observers,
    joined,
)
from pegboard.core.call.observed_run import ObservedRun
from pegboard.core.call.output import checked, clean_error, finished
from pegboard.core.call.rate_limit import limits_of, pass_limits
from pegboard.core.call.readiness import ablocked, blocked
from pegboard.core.call.record import NOT_PARSED, Call, ExecutorState, Ports, Prospect
from pegboard.core.call.resolve import resolve, resolve_awaiting
from pegboard.core.call.run import finish, prepare, start
from pegboard.core.call.task_decision import goes_on_as_task
from pegboard.core.coroutine_runner import InterruptedWaitError, Pending, begin, is_stop
from pegboard.core.identifiers import new_id
from pegboard.core.judge import VISIBLE
from pegboard.core.limits import NO_LIMIT_S, SHUTDOWN_GRACE_S
from pegboard.core.normalise import is_whole_result, normalise
from pegboard.core.ports import Backpressure
from pegboard.core.redaction import Redactor
from pegboard.core.registry import Registry
from pegboard.core.schema import copied
from pegboard.core.view import View
from pegboard.model.call_context import CallContext
from pegboard.model.context import ToolContext
from pegboard.model.decision import Blocked, Decision
from pegboard.model.error import AsyncPredicateError, CallError, DefinitionError, ToolError
from pegboard.model.result import TextContent, ToolResult, call_error, new_tuple
from pegboard.model.tool import ToolEntry

log = logging.getLogger("pegboard")
ENDING_POLL_S = 0.01


class Executor(ExecutorState):
    """Runs guarded calls: every stage in order, and exactly one end to each call.

    docs/decisions/0001 explains the order.
    """

    def __init__(self, registry: Registry, ports: Ports) -> None:
        super().__init__(registry, ports)
        renew_after_fork(self)

    async def call(
        self,
        view: View,
        name: str,
        args: object = None,
        *,
        callbacks: Any = None,
        raise_errors: bool = False,
        call_id: str | None = None,
        as_task: bool = False,
    ) -> ToolResult:
        """Run one call; see `View.call`. Ends exactly once, with a result or a typed error.

        Raises:
            asyncio.CancelledError: the caller's own task was cancelled, or a surrounding call was stopped.
            CallError: the result is an error and `raise_errors` is set; its cause is the tool's exception.
        """
        ports = self.ports
        listeners = ports.listeners
        if callbacks is not None or view.ctx.request.observers is not None:
            view, listeners = _with_observers(view, callbacks, listeners)
        call_id = call_id or new_id()
        call = self.in_flight[call_id] = Call(view, name, args, call_id, self, ports, listeners, as_task)
        cause: BaseException | None = None
        try:
            result = await _guarded(call)
        except asyncio.CancelledError as stopped:
            if is_stop(stopped):
                result = _failed(call, InterruptedWaitError(call.reason or "cancelled"))
                if call.asked is not None:
                    await settle_consent(call, call.asked, result)
                _leave_repeat(call)
                await tell_hooks(call, result)
                _finish(call, result)
                raise
            result = _failed(call, CallError("cancelled", f"{name!r} cancelled itself.", outcome_unknown=call.ran))
        except BaseException as raised:
            if call.is_left:
                _leave_repeat(call)
                _finish(call, _failed(call, InterruptedWaitError(call.reason or "cancelled")))
                raise
            if isinstance(raised, DefinitionError) and not call.is_resolved:
                log.error("No tool can be called: the catalog is faulty.", exc_info=raised)
                raised = CallError("config_invalid", f"The catalog cannot be used: {raised}")
            result = _failed(call, raised)
            cause = raised if raise_errors else None
        finally:
            self.in_flight.pop(call_id, None)
        error = result.error
        if error is not None or self.repeats.rows:
            _note_repeat(call, error)
        if call.asked is not None:
            await settle_consent(call, call.asked, result)
        if self.budgets.has_unpaid and (settling := settle(self)) is not None:
            await settling
        if call.hooks.on_complete or call.hooks.on_error:
            await tell_hooks(call, result)
        delivered = _finish(call, result)
        if delivered is not DELIVERED:
            await delivered
        if raise_errors and error is not None:
            raise call_error(error) from _shown_cause(cause, call.redactor)
        return result

    # -- prediction

    def blocked(self, view: View, name: str, entry: ToolEntry) -> Blocked | None:
        """Return why a call of this visible tool would be refused now; limits in an external store are not checked."""
        return blocked(Prospect(view, name, self, entry))

    async def ablocked(self, view: View, name: str, entry: ToolEntry) -> Blocked | None:
        """Return why a call of this visible tool would be refused now."""
        return await ablocked(Prospect(view, name, self, entry))

    def account(self, ctx: ToolContext, agent: str) -> AgentAccount:
        """Return the budgets of cost that a run of this agent falls under."""
        return AgentAccount(self, ctx, agent)

    def observe_run(self, ctx: ToolContext, agent: str, run_id: str) -> ObservedRun:
        """Record that a run of an agent begins which no call of a tool surrounds."""
        return ObservedRun(self, ctx, agent, run_id)

    def off_loop(self, code: Callable[[], Any], ctx: ToolContext) -> Awaitable[Any]:
        """Run code that has blocked the event loop in a worker thread, which counts towards its caller's share."""
        return self.checkers.run(code, caller=owner_of(ctx))

    # -- control

    def cancel(self, call_id: str) -> bool:
        """Stop a running call; `False` when there is none with this id. Call it from the loop's own thread."""
        call = self.in_flight.get(call_id)
        if call is not None:
            call.interrupt("cancelled")
        return call is not None

    async def close(self, *, grace_s: float = SHUTDOWN_GRACE_S) -> None:
        """Refuse new calls, let running ones finish for `grace_s`, then stop the rest with `shutting_down`."""
        self.closing = True
        clock, tasks = self.ports.clock, self.ports.tasks
        if tasks is not None:
            # Their runs are calls as well; nothing here waits for them.
            await tasks.close()
        ends = clock() + grace_s
        while self.in_flight and clock() < ends:  # noqa: ASYNC110 - at shutdown only; an event would cost every call
            await asyncio.sleep(ENDING_POLL_S)
        for call in tuple(self.in_flight.values()):
            call.interrupt("shutting_down")
        # Calls of another loop, or of the parent process, end there.
        loop = asyncio.get_running_loop()
        if unheard := [task for task in self.async_observers.unheard if task.get_loop() is loop]:
            await asyncio.wait(unheard, timeout=self.registry.bounds.hook_s)
        self.workers.close()
        self.checkers.close()


def _with_observers(view: View, callbacks: Any, listeners: Listeners) -> tuple[View, Listeners]:
    """Return the view, and the observers of its call: of all calls, of the request, and of this call."""
    if callbacks is not None:
        view, callbacks = _following(view, as_observers(callbacks))
    observers = view.ctx.request.observers
    if observers is not None and isinstance(view.ctx, CallContext) and not view.ctx.is_running():
        # The call will be refused; observers of the finished call receive nothing about this one.
        observers = None
    if observers is None and not callbacks:
        return view, listeners
    # A sub-agent's events go to the surrounding call only, which forwards them to all others.
    general = None if type(observers) is SubAgentObservers else listeners
    return view, Listeners((*as_observers(observers), *(callbacks or ())), general)


def _following(view: View, callbacks: tuple[Any, ...]) -> tuple[View, tuple[Any, ...]]:
    """Return the view whose calls the callbacks observe at every depth, and the callbacks for this call only."""
    below = tuple([one for one in callbacks if getattr(one, "own_call_only", False) is not True])
    ctx = view.ctx
    if not below or (isinstance(ctx, CallContext) and not ctx.is_running()):
        return view, callbacks
    own = tuple([one for one in callbacks if one not in below])
    request = ctx.request._replace(observers=joined(ctx.request.observers, below))
    return view.renewed(ctx.inside(host=ctx.host, request=request)), own


async def _name(call: Call) -> None:
    """Make the start record name the tool as its end record will: by the name in the caller's list, if it is there."""
    entry = await call.view.afind(call.name)
    if entry is not None:
        call.known_as = entry.wire_name


async def _guarded(call: Call) -> ToolResult:
    """The ten stages but the last, in order. Each refuses by raising."""
    snapshot = call.view.snapshot
    if call.listeners["on_tool_call"]:
        if call.name not in snapshot.by_wire_name:
            await _name(call)
            snapshot = call.view.snapshot
        call.tell("on_tool_call", {"arguments": seen_arguments(call)})
    ports = call.ports
    clock = ports.clock
    if ports.backpressure is not None and ports.backpressure.is_on:
        marks = await _start_later(call, ports.backpressure)
    else:
        marks = _observe_start(call) if ports.call_observers else None
    check_start(call)
    if (budget := call.view.ctx.request.budget) is not None:
        budget.spend(default=call.bounds.calls_per_request)
    if marks is not None:
        marks += ("resolve", clock())
    try:
        try:
            resolve(call, snapshot)
        except AsyncPredicateError:
            await resolve_awaiting(call)
    except CallError:
        if not await call.view.list_first(call.name):
            raise
        await resolve_awaiting(call)
    if marks is not None:
        marks += ("arguments", clock())
    spec = call.entry.spec
    if call.executor.registry.declarations.budgets:
        call.spending = spending_of(call)
    if call.as_task or spec.task != "forbidden":
        call.as_task = goes_on_as_task(call)
    check_arguments(call)
    if call.hooks.before:
        if marks is not None:
            marks += ("before_hooks", clock())
        await ask_before(call)
    if call.executor.repeats.rows:
        check_repeats(call)
    if call.entry.prepare is not None and not call.as_task:
        await prepare(call, call.entry.prepare)
    limits = limits_of(call)
    has_budgets = bool(call.executor.registry.declarations.budgets)
    if (call.question is not None or spec.consent != "never") and (reason := consent_reason(call)) is not None:
        if limits and (asked := pass_limits(call, limits, charge=False, may_wait=True)) is not None:
            await asked
        if has_budgets and (asked := pass_budgets(call, open_dues(call), charge=False, may_wait=True)) is not None:
            await asked  # pragma: no cover - with stores of other processes: tests/limits
        if marks is not None:
            marks += ("consent", clock())
        await judge_again(call, await ask_consent(call, reason))
        limits = limits_of(call)
        has_budgets = bool(call.executor.registry.declarations.budgets)
    if marks is not None and (limits or has_budgets):
        marks += ("rate_limit", clock())
    if has_budgets:
        await _charge_budgets(call)
    if limits:
        try:
            if (asked := pass_limits(call, limits, charge=True, may_wait=True)) is not None:
                await asked
        except CallError:
            give_back(call)
            raise
        if call.observed is not None:
            call.charged = tuple([key for key, _ in limits])
    if marks is not None:
        marks += ("run", clock())
    if call.as_task and call.ports.tasks is not None:
        return await call.ports.tasks.start(call)
    value = start(call)
    if type(value) is Pending:
        value = await finish(call, value)
    if marks is not None:
        marks += ("output", clock())
    call.is_by_hand = is_whole_result(value)
    result = checked(call, normalise(value), value)
    if call.hooks.after:
        result = await ask_after(call, result)
    if call.warnings is not None:
        # The model must not believe that the call did what it asked for.
        edited = [TextContent(str(text)) for name, text in call.warnings.items() if name == EDITED]
        result = result._replace(content=(*result.content, *edited), meta={**result.meta, **call.warnings})
    return finished(call, result)


async def _start_later(call: Call, pressure: Backpressure) -> list[str | float] | None:
    """Wait for room in the audit, then give observers the record of the start; also if the wait was stopped."""
    try:
        waiting = begin(pressure.wait(owner_of(call.view.ctx)), timeout_s=NO_LIMIT_S, scope=call)
        if type(waiting) is Pending:
            await waiting
    finally:
        marks = _observe_start(call, has_waited=True)
    return marks


async def _charge_budgets(call: Call) -> None:
    dues = open_dues(call)
    if dues and (asked := pass_budgets(call, dues, charge=True, may_wait=True)) is not None:
        await asked
    call.dues = dues


def _note_repeat(call: Call, error: ToolError | None) -> None:
    """Tell the breaker the outcome of a call that ran, or that it did not run."""
    if not call.ran:
        _leave_repeat(call)
        return
    schema = call.plan.arguments.schema
    call.executor.repeats.note(call.view.ctx, call.entry, call.args, schema, error, call_id=call.call_id)


def _leave_repeat(call: Call) -> None:
    repeats = call.executor.repeats
    if repeats.rows and call.is_resolved:
        repeats.give_back(call.view.ctx, call.entry, call.args, call.plan.arguments.schema, call_id=call.call_id)


def _failed(call: Call, error: BaseException) -> ToolResult:
    """Return the result of a call that raised. Only the text of a `CallError` reaches the model."""
    if isinstance(error, InterruptedWaitError):
        text = f"{call.name!r} was stopped {'after' if call.ran else 'before'} it ran ({error.reason})."
        error = CallError(error.reason, text, outcome_unknown=call.ran)
    redactor = call.redactor
    if isinstance(error, CallError):
        shown = error.error
    else:
        log.error("%s", _log_text(call, error, redactor))
        text = f"An unexpected error occurred (call {call.call_id})."
        shown = ToolError(kind="tool_error", message=text, outcome_unknown=call.ran)
    if redactor is not None:
        shown = clean_error(shown, redactor)
    return ToolResult((TextContent(shown.message),), is_error=True, error=shown)


def _shown_cause(error: BaseException | None, redactor: Redactor | None) -> BaseException | None:
    """Return the cause of an error: the tool's exception, or its redacted text if it contains a secret."""
    cause = error.__cause__ if isinstance(error, CallError) else error
    if cause is None or redactor is None:
        return cause
    text = _trace(cause)
    return RuntimeError(redactor.text(text)) if redactor.finds(text) else cause


# ---------------------------------------------------------------- 10 finish


def _finish(call: Call, result: ToolResult) -> Delivered:
    """Give the record of the call to its observers and send its end event, exactly once.

    The result does not change here.
    """
    # The context refers to the call; that cycle would keep the arguments until the next garbage collection.
    call.made_ctx = None
    duration_s, has_listeners = call.ports.clock() - call.started, bool(call.listeners["on_tool_result"])
    kind = _kind_of(call, result.error) if has_listeners or call.observed is not None else "ok"
    if call.observed is not None:
        _observe_end(call, call.observed, result, kind, duration_s)
    if not has_listeners:
        call.is_over = True
        return call.delivered()
    structured = result.structured
    if structured is not None:
        # An observer's changes to its event must not reach the caller.
        spare = call.spare_copy
        result = result.with_structured(copied(structured) if spare is None or call.redactor is not None else spare)
    told = call.tell("on_tool_result", {"result": result, "kind": kind, "duration_s": duration_s}, not result.is_error)
    call.is_over = True
    return told


def _observe_start(call: Call, *, has_waited: bool = False) -> list[str | float] | None:
    """Give observers the record of a call that begins; return its `marks`, if one of them wants its stages timed."""
    at = call.ports.wall_clock()
    marks: list[str | float] = ["begin", call.started]
    if has_waited:
        now = call.ports.clock()
        at -= now - call.started
        marks = [AUDIT_WAIT, call.started, "begin", now]
    ctx, profile, observers = call.view.ctx, call.view.profile, call.ports.call_observers
    request = ctx.request
    # Constructed like events: calling the class takes twice as long.
    started: StartedCall = new_tuple(StartedCall, (
        call.call_id, request.id, request.parent_call, call.name, ctx.caller, profile and profile.name, request.door,
        "" if request.client is None else getattr(request.client, "client_name", ""), at,
        profile.origin if profile else "", call.redactor,
    ))  # fmt: skip
    call.observed = started
    for observer in observers:
        try:
            observer.started(started)
        except BaseException:  # boundary: foreign code; a failing observer is logged only
            log.warning("The beginning of %r could not be recorded.", call.name, exc_info=True)
    if call.ports.times_stages:
        call.marks = marks
        return marks
    call.marks = []
    return None


def _observe_end(call: Call, started: StartedCall, result: ToolResult, kind: CallKind, duration_s: float) -> None:
    error, asked, arguments = result.error, call.asked, call.args
    if not arguments and call.parsed is not arguments:
        # They were not found valid.
        arguments = NOT_READ if call.parsed is NOT_PARSED else call.parsed
    # Constructed like the record of the start.
    record: FinishedCall = new_tuple(FinishedCall, (
        started, call.known_as, call.plan.entry if call.is_resolved else None, arguments,
        call.is_flat and arguments is call.parsed, partial(decision_of, call, result),
        "" if asked is None else asked.answer, "" if asked is None else asked.consent_id,
        call.charged if not call.dues else (*call.charged, *[due.counter.key for due in call.dues]),
        kind, error is not None and error.outcome_unknown, call.upstream, call.account, call.costs,
        duration_s, call.marks, call.started + duration_s, result, call.redactor,
    ))  # fmt: skip
    for observer in call.ports.call_observers:
        try:
            observer.finished(record)
        except BaseException:  # boundary: foreign code; a failing observer is logged only
            log.warning("The end of %r could not be recorded.", call.name, exc_info=True)


def _kind_of(call: Call, error: ToolError | None) -> CallKind:
    """Return how a call ended, for observers."""
    if error is None:
        return "ok"
    steps = call.view.ctx.request.steps
    # Stopped runs end with `cancelled` or `shutting_down`; nobody cancelled a task that continues elsewhere.
    return "moved" if steps is not None and steps.call_id == call.call_id and steps.is_moving else error.kind


def decision_of(call: Call, result: ToolResult) -> Decision | None:
    """Return the judge's decision and its rule; `None` if the call ended before, or if it needs awaiting."""
    if call.is_resolved:
        return VISIBLE
    if result.error is None or result.error.kind != "not_found":
        return None
    try:
        return call.view.why(call.name)
    except (AsyncPredicateError, LookupError):
        return None


def _log_text(call: Call, error: BaseException, redactor: Redactor | None) -> str:
    """Return the log entry of an unexpected error, redacted; works for errors whose `__str__` raises."""
    text = f"Tool {call.name!r} failed in call {call.call_id}:\n{_trace(error)}"
    return text if redactor is None else redactor.text(text)


def _trace(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error))
    except BaseException as broken:  # noqa: BLE001 - boundary: foreign code
        return f"{type(error).__name__} (its text raised {type(broken).__name__})"
