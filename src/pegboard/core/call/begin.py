"""Begin: refuse calls that are too deep, over budget or too many at once, and floods of invalid calls."""

from __future__ import annotations

from pegboard.core.call.limit_keys import owner_of
from pegboard.core.call.record import Asked, Call
from pegboard.core.call.task_decision import is_of_task
from pegboard.core.limits import BUSY_RETRY_S
from pegboard.model.bounds import share_of_one
from pegboard.model.call_context import CallContext
from pegboard.model.context import ToolContext
from pegboard.model.error import CallError


def check_start(call: Asked) -> None:
    """Refuse what must not start now: too deep, too many in flight, too late, a flood; costs the call nothing."""
    ctx, executor, bounds = call.view.ctx, call.executor, call.bounds
    request = ctx.request
    # Most contexts are of exactly this class; `isinstance` takes four times as long.
    if type(ctx) is not ToolContext and isinstance(ctx, CallContext):
        ctx.check_running()
    if executor.closing:
        raise CallError("shutting_down", "The server is shutting down. Try again in a moment.")
    if request.depth > bounds.agent_depth:
        text = f"Agents are nested {request.depth} deep; {bounds.agent_depth} is the limit. Answer without calling on."
        raise CallError("recursion_limit", text)
    # The call itself may be among them, and runs of tasks are: counted only where there may be too many.
    if len(executor.in_flight) >= bounds.calls_in_flight // 2:
        _check_places(call)
    if request.deadline is not None and request.deadline <= call.ports.clock():
        raise CallError("timeout", "The time for this request is over. Start a new one.", retryable=False)
    if not executor.flood.is_quiet and (wait_s := executor.flood.wait_s(ctx)) > 0.0:
        text = "Too many invalid calls from this caller. Read the schemas before calling again."
        raise CallError("rate_limited", text, retry_after_s=wait_s)


def _check_places(call: Asked) -> None:
    """Refuse a call if all places are taken; reserve the last quarter for other callers, if there may be any.

    Task runs are not counted: they may wait for weeks, and a refusal would end them.
    """
    is_in_flight = isinstance(call, Call)
    if is_in_flight and is_of_task(call):
        return
    executor, places = call.executor, call.bounds.calls_in_flight
    running = len(executor.in_flight) - is_in_flight - executor.task_runs
    share = share_of_one(places)
    if running < share:
        return
    if running >= places:
        text = f"{places} calls are running already. Try again in a moment."
        raise CallError("busy", text, retry_after_s=BUSY_RETRY_S)
    owner = owner_of(call.view.ctx)
    others = (each for each in executor.in_flight.values() if each is not call and not is_of_task(each))
    of_one = sum(owner_of(each.view.ctx) == owner for each in others)
    if of_one >= share and (call.ports.is_shared or of_one < running):
        text = f"This caller has {of_one} calls running; {share} are its share. Try again in a moment."
        raise CallError("busy", text, retry_after_s=BUSY_RETRY_S)
