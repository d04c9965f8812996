"""Execution: runs a task on a new View for its stored caller, so that every guard decides again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from pegboard.core.call.consent_stage import give_back
from pegboard.core.executor import Executor
from pegboard.core.first_listing import wait_for_listing
from pegboard.core.identifiers import new_id
from pegboard.core.limits import SOURCE_START_S
from pegboard.core.ports import StartsSlowly
from pegboard.core.schema import copied
from pegboard.core.view import View
from pegboard.model.caller import Caller
from pegboard.model.consent import ConsentAnswer, ConsentRequest, Stands
from pegboard.model.context import ToolContext
from pegboard.model.error import CallError, DefinitionError, ToolError
from pegboard.model.json_types import JSONValue
from pegboard.model.record import replace
from pegboard.model.request import CallBudget, Request
from pegboard.model.task import Agreement, Outcome, TaskCall
from pegboard.model.tool import ToolEntry
from pegboard.tasks.engine import Journal
from pegboard.tasks.limits import TASK_LOOK_S
from pegboard.tasks.places import Place, Places
from pegboard.tasks.steps import TaskSteps

log = logging.getLogger("pegboard")
# Errors that say that a call could not run, not how its tool ended.
_FAILURES: Final = frozenset({"not_found", "needs_review", "protocol_error", "storage_unavailable"})
# Errors that pass by themselves: a task that was refused with one, before its tool ran, waits and tries again.
_PASSING: Final = frozenset(
    {"audit_unavailable", "busy", "rate_limited", "ratelimit_unavailable", "storage_unavailable"}
)
_INTERRUPTIONS: Final = frozenset({"shutting_down", "cancelled"})

ContextFor = Callable[[TaskCall], ToolContext | None]
"""Makes the context of a task from its stored caller; `None` if the caller no longer exists."""
CallerNow = Callable[[Caller, str | None], Awaitable[Caller | None]]
"""Returns a caller of a profile with its current rights; `None` if it no longer has any."""


class MakeView(Protocol):
    """`Catalog.view`."""

    def __call__(
        self,
        ctx: ToolContext,
        *,
        include: Iterable[str] | None = None,
        profile: str | None = None,
        internal: Iterable[str] = (),
    ) -> View: ...


class TaskClient:
    """`ctx.client` of a task: no client is connected, but the task may ask a person."""

    supports_ui = False
    asks_by_calling_again = False

    def __init__(self, steps: TaskSteps, agreed: Agreement | None) -> None:
        self._steps, self._agreed = steps, agreed
        self._carried: ConsentRequest | None = None
        self._has_paid = False

    def can(self, capability: str) -> bool:
        """Tell whether something can be requested: only form values, from the person."""
        return capability == "elicitation"

    async def elicit(self, message: str, schema: JSONValue = None, *, key: str | None = None) -> JSONValue:
        """Ask the person, as `ctx.ask` does."""
        return await self._steps.ask(message, schema)

    async def approve(self, request: ConsentRequest) -> bool | None:
        """Refuse: the client is no longer connected."""
        return None

    async def carried(self, request: ConsentRequest, stands: Stands) -> ConsentAnswer | None:
        """Return the approval that was given for this exact call when the task was created, unless it was revoked.

        It is only valid for the task. The task waits while the store does not respond.
        """
        agreed, self._agreed = self._agreed, None
        if agreed is None:
            return None
        this_call = Agreement(request.tool, request.definition_hash, request.args_digest, agreed.consent_id)
        if this_call != agreed or not await _still_stands(stands, agreed.consent_id):
            return None
        self._carried = request
        return ConsentAnswer(agreed.consent_id, is_yes=True)

    def keeps(self, request: ConsentRequest) -> bool:
        """Tell whether this is the approval of the task itself, which is returned if the task never ran."""
        return request is self._carried

    def begins(self, tool: str, definition_hash: str) -> None:
        """Do nothing when a call begins."""

    def has_paid(self, tool: str) -> bool:
        """Tell whether limits were charged for this call: they were for the task itself, when it was created."""
        paid, self._has_paid = not self._has_paid, True
        return paid


async def _still_stands(stands: Stands, consent_id: str) -> bool:
    is_told = False
    while True:
        try:
            return await stands(consent_id)
        except OSError as error:
            if not is_told:
                log.warning("A task waits, because its consent cannot be checked now: %s", error)
            is_told = True
            await asyncio.sleep(TASK_LOOK_S)


@dataclass(slots=True)
class _Attempt:
    """One run of a task, and how far it got."""

    steps: TaskSteps | None = None
    is_interrupted: bool = False

    @property
    def has_run(self) -> bool:
        """Whether the call passed every guard and its tool ran."""
        return self.steps is not None and self.steps.has_run


def _passing(outcome: Outcome) -> ToolError | None:
    error = outcome.error if outcome.result is None else outcome.result.error
    return error if error is not None and error.retryable and error.kind in _PASSING else None


class Execution:
    """Runs tasks of one catalog.

    Args:
        executor: runs the call.
        make_view: `Catalog.view`.
        context_for: makes the context.
        caller_now: returns a caller with its current rights.
    """

    def __init__(self, executor: Executor, make_view: MakeView, context_for: ContextFor, caller_now: CallerNow) -> None:
        self._executor, self._make_view, self._context_for = executor, make_view, context_for
        self._caller_now = caller_now
        self.running: dict[str, str] = {}
        """The calls that run tasks here, with the task of each. A task has two while a lost lease is returned."""
        self._places = Places(executor.registry.bounds.calls_in_flight)
        self._giving_back: set[asyncio.Future[None]] = set()

    def move_to_new_loop(self) -> None:
        """Move to another event loop; nothing may be running."""
        self._places = Places(self._executor.registry.bounds.calls_in_flight)

    async def run(self, call: TaskCall, journal: Journal) -> Outcome:
        """Run a task to its end when a place is free. If it ends without having run, its approval is returned.

        If something that it needs is down, it waits: the caller was told that the task continues.
        """
        attempt, is_told = _Attempt(), False
        try:
            await self._sources_listed()
            while True:
                async with self._places.taken(call.owner) as place:
                    outcome = await self._run(call, journal, place, attempt)
                refusal = None if attempt.has_run else _passing(outcome)
                if refusal is None:
                    return outcome
                if not is_told:
                    log.warning("Task %s waits until it may run: %s", call.task_id, refusal.message)
                is_told = True
                await asyncio.sleep(max(TASK_LOOK_S, refusal.retry_after_s or 0.0))
        except asyncio.CancelledError:
            attempt.is_interrupted = True
            raise
        finally:
            if call.agreed is not None and not attempt.has_run:
                # In its own task, since a second cancellation would stop this one.
                giving_back = asyncio.ensure_future(self._give_back(call.agreed, journal, attempt))
                self._giving_back.add(giving_back)
                giving_back.add_done_callback(self._giving_back.discard)
                await asyncio.shield(giving_back)

    async def _run(self, call: TaskCall, journal: Journal, place: Place, attempt: _Attempt) -> Outcome:
        executor = self._executor
        try:
            view, entry = await self._permitted(call)
        except CallError as refused:
            return Outcome(None, refused.error)
        context, call_id = view.ctx, new_id()
        steps = attempt.steps = TaskSteps(
            call.task_id, call_id, journal, timeout_s=entry.spec.timeout_s, redactor=executor.redactor(context),
            look_again=partial(self._look_again, call, context.caller.roles), place=place,
        )  # fmt: skip
        left_s = call.expires_at - executor.ports.wall_clock()
        request = Request(
            call.request_id or new_id(), TaskClient(steps, call.agreed), deadline=executor.ports.clock() + left_s,
            budget=CallBudget(), depth=call.depth, steps=steps, door=call.door, hops=call.hops,
        )  # fmt: skip
        view = view.renewed(replace(context, request=request))
        self.running[call_id] = call.task_id
        executor.task_runs += 1
        try:
            result = await self._executor.call(view, call.tool, copied(call.arguments), call_id=call_id)
        finally:
            executor.task_runs -= 1
            del self.running[call_id]
        if executor.closing and result.error is not None and result.error.kind in _INTERRUPTIONS:
            # The process ends, not the task: another worker continues it.
            raise asyncio.CancelledError
        if steps.refusal is not None:
            # Even if the tool caught it.
            return Outcome(None, steps.refusal.error)
        if result.error is not None and result.error.kind in _FAILURES:
            return Outcome(None, result.error)
        return Outcome(result)

    async def _sources_listed(self) -> None:
        """Wait for the tools of sources that still connect: after a restart, tasks may need them at once."""
        registry = self._executor.registry
        if registry.is_served:
            slow = [source for source in registry.sources.values() if isinstance(source, StartsSlowly)]
            await wait_for_listing(slow, SOURCE_START_S)

    def calls_of(self, task_id: str) -> list[str]:
        """Return the calls that run a task here."""
        return [call_id for call_id, running_id in self.running.items() if running_id == task_id]

    async def settled(self) -> None:
        """Wait until the approvals of finished tasks have been returned."""
        await asyncio.gather(*self._giving_back, return_exceptions=True)

    async def _give_back(self, agreed: Agreement, journal: Journal, attempt: _Attempt) -> None:
        """Return the approval of a task that ended without having run: refused, or cancelled while it waited.

        Not for a task that continues elsewhere, nor for one that an earlier process started: it may have run there.
        """
        if attempt.is_interrupted and not await journal.was_cancelled():
            return
        if not await journal.was_begun():
            await give_back(self._executor.ports.consents, agreed.consent_id)

    async def _permitted(self, call: TaskCall) -> tuple[View, ToolEntry]:
        """Return the tool and a view that shows it, by the current declarations.

        Raises:
            CallError: `not_found`, if the caller, the selection or the tool no longer exists; `needs_review`.
        """
        caller = await self._caller_now(call.caller, call.profile)
        context = None if caller is None else self._context_for(replace(call, caller=caller))
        if context is None:
            raise CallError("not_found", "The caller of this task no longer has any rights here.")
        view = self._view(context, call)
        if view is None:
            raise CallError("not_found", "The profile or rule that gave this caller its rights is no longer declared.")
        entry = await view.afind(call.tool)
        if entry is None:
            raise CallError("not_found", view.absence(call.tool))
        if entry.fingerprint != call.definition_hash:
            text = f"The definition of {call.tool!r} changed while the task waited: review it, then call it again."
            raise CallError("needs_review", text)
        return view, entry

    async def _look_again(self, call: TaskCall, roles: frozenset[str]) -> None:
        """Check again whether a task that began with these roles may continue.

        Raises:
            CallError: as `_permitted`; `not_found` if a role was removed.
        """
        view, _ = await self._permitted(call)
        if lost_roles := sorted(roles - view.ctx.caller.roles):
            raise CallError("not_found", f"The caller of this task no longer has the role {lost_roles[0]!r}.")

    def _view(self, ctx: ToolContext, call: TaskCall) -> View | None:
        try:
            if call.profile is not None:
                return self._make_view(ctx, profile=call.profile, internal=call.internal)
            return self._make_view(ctx, include=call.include, internal=call.internal)
        except DefinitionError:
            return None
