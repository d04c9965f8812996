"""Readiness: why a call of a visible tool would be refused now.

Runs the stages of a call without charging anything. Refusals that depend on arguments are not predicted: a schema, a
hook, a consent rule on arguments.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from datetime import UTC, datetime

from pegboard.core.call.begin import check_start
from pegboard.core.call.budget_stage import dues_of, pass_budgets
from pegboard.core.call.consent_stage import can_be_asked, deciders_of, missing_yes, standing_reason
from pegboard.core.call.rate_limit import pass_limits, windows_of
from pegboard.core.call.record import Prospect
from pegboard.core.call.resolve import absent, check_standing, may_use_interface
from pegboard.core.judge import UP, connection_question, missing_connection
from pegboard.model.decision import Blocked
from pegboard.model.error import CallError, ToolError


def blocked(call: Prospect) -> Blocked | None:
    """Return the first refusal of such a call, skipping what needs awaiting: limits and stored approvals.

    Raises:
        AsyncPredicateError: whether the caller's account is connected has not been awaited in this context.
    """
    try:
        _ask_before_limits(call, may_wait=False)
        if standing_reason(call) is not None:
            raise _waits_for_yes(call, f"{deciders_of(call)} agree first")
        _ask_source(call)
        return missing_connection(call.entry, call.view.ctx)
    except CallError as refused:
        return _in_words(call, refused.error)


async def ablocked(call: Prospect) -> Blocked | None:
    """Return the first refusal of such a call."""
    try:
        asked = _ask_before_limits(call, may_wait=True)
        if asked is not None:
            await asked
        if standing_reason(call) is not None and (missing := await missing_yes(call)) is not None:
            raise _waits_for_yes(call, missing)
        _ask_source(call)
        question, ctx = connection_question(call.entry), call.view.ctx
        if question is not None:
            await ctx.memo.answer_async((question,), ctx)
        return missing_connection(call.entry, ctx)
    except CallError as refused:
        return _in_words(call, refused.error)


def _ask_before_limits(call: Prospect, *, may_wait: bool) -> Awaitable[None] | None:
    request = call.view.ctx.request
    check_start(call)
    if request.budget is not None:
        request.budget.spend(default=call.bounds.calls_per_request, look_only=True)
    if call.entry.is_for_apps_alone and not may_use_interface(call.view.ctx):
        raise absent(call.view, call.name)
    check_standing(call)
    windows = windows_of(call)
    dues = dues_of(call) if call.executor.registry.declarations.budgets else ()
    asked = (
        pass_budgets(call, dues, charge=False, may_wait=may_wait) if dues else None,
        pass_limits(call, windows, charge=False, may_wait=may_wait) if windows else None,
    )
    waiting = [each for each in asked if each is not None]
    return _each_of(waiting) if waiting else None


async def _each_of(waiting: Sequence[Awaitable[None]]) -> None:
    for each in waiting:  # pragma: no branch - an exit that only other folders of tests take
        await each


def _waits_for_yes(call: Prospect, missing: str) -> CallError:
    """Return the refusal of a call that nobody has approved yet."""
    end = "and a person is asked when it is called" if can_be_asked(call) else "and nobody can be asked here"
    text = f"{call.name!r} is not run: {missing} ({standing_reason(call)}), {end}."
    return CallError("consent_required", text)


def _ask_source(call: Prospect) -> None:
    source = call.entry.source
    fault = None if source is None else call.executor.registry.states().get(source, UP).fault
    if fault is not None:
        raise CallError(fault.kind, fault.message, retry_after_s=fault.retry_after_s)


def _in_words(call: Prospect, error: ToolError) -> Blocked:
    until = None
    if error.retry_after_s is not None:
        until = datetime.fromtimestamp(call.ports.wall_clock() + error.retry_after_s, UTC)
    return Blocked(error.kind, error.message, until)
