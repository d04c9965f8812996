"""Run: execute the handler inside its around-hooks, with timeout, cancellation and concurrency cap."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from pegboard.core.call.limit_keys import owner_of
from pegboard.core.call.record import Call
from pegboard.core.call.task_decision import is_of_task
from pegboard.core.coroutine_runner import InterruptedWaitError, Pending, begin
from pegboard.core.hooks import wrap
from pegboard.core.limits import NO_LIMIT_S
from pegboard.model.call_context import RunningCall
from pegboard.model.context import seconds_left
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON, is_awaitable
from pegboard.model.tool import Handler


async def prepare(call: Call, load: Callable[[RunningCall], Awaitable[None]]) -> None:
    """Wait until what the tool needs is loaded, before its guards decide and its time limit begins.

    Raises:
        InterruptedWaitError: the call was stopped, or the deadline of its request has passed.
    """
    left_s = seconds_left(call.view.ctx, clock=call.ports.clock)
    waiting = begin(load(call), timeout_s=NO_LIMIT_S if left_s is None else left_s, scope=call)
    if type(waiting) is Pending:
        await waiting


def start(call: Call) -> Any:
    """Start the handler. Returns its value, or a `Pending` for `finish` if it has to wait.

    Raises:
        CallError: `timeout`, `cancelled`, `shutting_down`, `busy`, or an error raised by the handler.
        BaseException: any other exception of the handler.
    """
    entry, request = call.entry, call.view.ctx.request
    spec, handler = entry.spec, entry.handler
    if handler is None:
        raise CallError("tool_error", f"{call.name!r} is declared without a handler, so it cannot be run here.")
    call.timeout_s = call.bounds.tool_timeout_s if spec.timeout_s is None else spec.timeout_s
    steps = request.steps if request.steps is not None and is_of_task(call) else None
    if steps is not None:
        # A task ends at its deadline; the tool's time limit applies to each step.
        call.timeout_s = NO_LIMIT_S
    if request.deadline is not None:
        call.timeout_s = min(call.timeout_s, request.deadline - call.ports.clock())
    if spec.max_concurrency is not None:
        call.executor.workers.enter(entry.qualified_id, cap=spec.max_concurrency, name=call.name)
    call.ran = True
    if spec.cost is not None:
        call.report_cost(spec.cost.amount, spec.cost.unit)
    if steps is not None:
        steps.has_run = True
    value = None
    try:
        if call.hooks.around:
            value = _settled(wrap(call.hooks.around, call, lambda: _innermost(call, handler))())
        elif entry.runs == "thread":
            value = _in_thread(call, handler)
        else:
            value = handler(call.ctx if entry.needs_context else None, call.args)  # type: ignore[arg-type] - it said so
            if not is_awaitable(value):
                return value
        value = begin(value, timeout_s=call.timeout_s, scope=call)
        return value
    except InterruptedWaitError as stopped:
        raise _interrupted(call, stopped) from None
    finally:
        if spec.max_concurrency is not None and type(value) is not Pending:
            call.executor.workers.leave(entry.qualified_id)


async def finish(call: Call, pending: Pending) -> object:
    """Wait for the started handler; raises as `start` does."""
    try:
        return await pending
    except InterruptedWaitError as stopped:
        raise _interrupted(call, stopped) from None
    finally:
        if call.entry.spec.max_concurrency is not None:
            call.executor.workers.leave(call.entry.qualified_id)


async def _innermost(call: Call, handler: Handler) -> object:
    if call.entry.runs == "thread":
        return await _in_thread(call, handler)
    return await _settled(handler(call.ctx, call.args))


async def _settled(value: object) -> object:
    """Await the value of a handler or an around-hook, if it is awaitable."""
    return await value if is_awaitable(value) else value


async def _in_thread(call: Call, handler: Handler) -> object:
    ctx, args = call.ctx, call.args
    value, error = await call.executor.workers.run(lambda: _outcome(handler, ctx, args), caller=owner_of(call.view.ctx))
    if error is not None:
        raise error
    # A plain callable may return a coroutine, e.g. a decorator without functools.wraps: await it on the loop.
    return await _settled(value)


def _outcome(handler: Handler, ctx: Any, args: JSON) -> tuple[object, BaseException | None]:
    # A future cannot carry StopIteration and reinterprets some exceptions; a tuple can carry all.
    try:
        return handler(ctx, args), None
    except BaseException as error:  # noqa: BLE001 - boundary: foreign code
        return None, error


def _interrupted(call: Call, stopped: InterruptedWaitError) -> CallError:
    unknown = not call.entry.spec.is_read_only
    effect = (
        "It may have taken effect: check before you repeat it."
        if unknown
        else "It changes nothing, so it may be repeated."
    )
    what = {
        "timeout": f"{call.name!r} gave no answer within {call.timeout_s:g} s and was stopped.",
        "cancelled": f"{call.name!r} was cancelled while it ran.",
        "shutting_down": f"The server shut down while {call.name!r} ran.",
    }
    return CallError(stopped.reason, f"{what[stopped.reason]} {effect}", outcome_unknown=unknown)
