"""Executor: run one guarded call, the only way a handler is ever reached."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pegboard.core.availability import States
from pegboard.core.call import run as running
from pegboard.core.call import stages
from pegboard.core.call.consent import ask_consent, consent_reason
from pegboard.core.call.events import DELIVERED, Delivered, Listeners, as_observers, emit
from pegboard.core.call.output import ask_after, checked, clean_error, finished
from pegboard.core.call.rate_limit import FloodGuard, MemoryLimitStore
from pegboard.core.call.run import Lanes
from pegboard.core.call.stages import Call
from pegboard.core.hooks import describe
from pegboard.core.normalise import normalise
from pegboard.core.ports import AuditLog, ConsentInbox, LimitStore, Telemetry
from pegboard.core.redaction import Redactor
from pegboard.core.schema import copied
from pegboard.core.stepping import InterruptedWaitError, Watch
from pegboard.model.bounds import DEFAULT_BOUNDS, Bounds
from pegboard.model.context import ToolContext
from pegboard.model.error import AsyncPredicateError, CallError, ToolError
from pegboard.model.json_types import JSON, is_awaitable
from pegboard.model.rate_limit import RateLimit
from pegboard.model.result import TextContent, ToolResult, call_error
from pegboard.model.secret import Secret

if TYPE_CHECKING:
    from pegboard.core.view import View

log = logging.getLogger("pegboard")


@dataclass(kw_only=True, slots=True)
class Guards:
    """What the stages share: limits, clocks, ports. State of one Executor."""

    bounds: Bounds = DEFAULT_BOUNDS
    clock: Callable[[], float] = time.monotonic
    wall_clock: Callable[[], float] = time.time
    limits: LimitStore | None = None
    default_limit: RateLimit | None = None
    inbox: ConsentInbox | None = None
    audit: AuditLog | None = None
    audit_required: bool = False
    telemetry: Telemetry | None = None
    call_observers: tuple[Telemetry, ...] = ()
    repair: Callable[[Call, Callable[[object], JSON]], bool] = lambda call, judge: False
    states: Callable[[], States] = dict
    secrets: Sequence[Secret] = ()
    listeners: Listeners = field(default_factory=Listeners)
    in_flight: dict[str, Call] = field(default_factory=dict[str, Call])
    lanes: Lanes = field(default_factory=Lanes)
    closing: bool = False
    flood: FloodGuard = field(init=False)
    local_limits: MemoryLimitStore = field(init=False)
    _redactors: dict[tuple[Secret, ...], Redactor] = field(default_factory=dict[tuple[Secret, ...], Redactor])

    def __post_init__(self) -> None:
        per_minute = RateLimit(max_calls=self.bounds.invalid_calls_per_minute, window_s=60.0)
        self.flood = FloodGuard(per_minute, clock=self.clock)
        self.local_limits = MemoryLimitStore(clock=self.clock, max_keys=self.bounds.ratelimit_keys)
        if self.limits is None:  # pyright: ignore[reportUnnecessaryComparison] - said above
            self.limits = self.local_limits

    def observe(self, observer: object) -> Callable[[], None]:
        """Tell an observer of every call from now on; returns the function that ends it."""
        self.listeners = Listeners((*self.listeners.observers, observer))

        def end() -> None:
            self.listeners = Listeners(tuple(known for known in self.listeners.observers if known is not observer))

        return end

    def record(self, observer: Telemetry) -> Callable[[], None]:
        """Tell an observer how every call ended from now on; returns the function that ends it."""
        self.call_observers = (*self.call_observers, observer)

        def end() -> None:
            self.call_observers = tuple(known for known in self.call_observers if known is not observer)

        return end

    def adopt(self, bounds: Bounds, default_limit: RateLimit | None) -> None:
        """Hold other bounds from now on; what was counted so far stays counted."""
        self.bounds, self.default_limit = bounds, default_limit
        self.flood.limit = replace(self.flood.limit, max_calls=bounds.invalid_calls_per_minute)
        for store in (self.limits, self.local_limits):
            if isinstance(store, MemoryLimitStore):
                store.max_keys = bounds.ratelimit_keys

    def redactor(self, ctx: ToolContext) -> Redactor | None:
        """Return what removes every secret in use in this context, or `None` where there is none."""
        if not (self.secrets or ctx.secrets or ctx.upstream_credentials):
            return None
        in_use = (*ctx.secrets.values(), *ctx.upstream_credentials.values(), *self.secrets)
        found = self._redactors.get(in_use)
        if found is None:
            if len(self._redactors) >= 256:
                self._redactors.clear()
            found = self._redactors[in_use] = Redactor(in_use)
        return found


class Executor:
    """Runs guarded calls: the stages in their order, an end to each of them, and nothing around them.

    The order is argued in docs/decisions/0001.
    """

    def __init__(self, guards: Guards) -> None:
        self.guards = guards
        # A call can be cancelled by its id, so ids must be unguessable; one random prefix a process keeps them cheap.
        self._prefix, self._numbers = f"{os.urandom(12).hex()}-", itertools.count(1)

    async def call(
        self,
        view: View,
        name: str,
        args: object = None,
        *,
        callbacks: object = None,
        raise_errors: bool = False,
        call_id: str | None = None,
    ) -> ToolResult:
        """Run one call; see `View.call`. Ends exactly once, with a result or a typed error.

        Raises:
            asyncio.CancelledError: the caller's own task was cancelled.
            CallError: the result is an error and `raise_errors` is set.
        """
        guards, ctx = self.guards, view.ctx
        identity = call_id or self._prefix + str(next(self._numbers))
        listeners = guards.listeners
        if ctx.callbacks is not None or callbacks is not None:
            own = (*as_observers(ctx.callbacks), *as_observers(callbacks))
            listeners = Listeners((*listeners.observers, *own))
        call = Call(view, name, args, identity, listeners, guards, guards.redactor(ctx))
        guards.in_flight[identity] = call
        try:
            result = await self._guarded(call)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                result = self._failed(call, CallError("cancelled", f"{name!r} was cancelled by its caller."))
                await self._tell_hooks(call, result)
                self._record(call, result)
                raise
            result = self._failed(call, CallError("cancelled", f"{name!r} cancelled itself.", outcome_unknown=call.ran))
        except BaseException as error:  # noqa: BLE001 - boundary: foreign code
            result = self._failed(call, error)
        finally:
            guards.in_flight.pop(identity, None)
        if call.hooks.on_complete or call.hooks.on_error:
            await self._tell_hooks(call, result)
        told = self._record(call, result)
        if told is not DELIVERED:
            await told
        if raise_errors and result.error is not None:
            raise call_error(result.error)
        return result

    async def _guarded(self, call: Call) -> ToolResult:
        """The ten stages but the last, in order. Each refuses by raising."""
        guards, view = self.guards, call.view
        if call.listeners["on_tool_call"]:
            told = emit(call, "on_tool_call", {"arguments": stages.seen_arguments(call, guards)})
            if told is not DELIVERED:
                await told
        stages.begin(call, guards)
        snapshot = view.snapshot
        try:
            entry = view.find(call.name, within=snapshot)
        except AsyncPredicateError:
            entry, snapshot = await view.afind(call.name), view.snapshot
        stages.take(call, entry, snapshot, guards)
        stages.check_arguments(call, guards)
        if call.hooks.before:
            await stages.ask_hooks(call, guards)
        limits = stages.limits_of(call, guards)
        reason = consent_reason(call)
        if reason is not None:
            if limits and (asked := stages.pass_limits(call, guards, limits, charge=False)) is not None:
                await asked
            await ask_consent(call, guards, reason)
        if limits and (asked := stages.pass_limits(call, guards, limits, charge=True)) is not None:
            await asked
        value = running.start(call, guards)
        if type(value) is running.Rest:
            value = await running.finish(call, guards, value)
        call.is_by_hand = type(value) is ToolResult
        result = checked(call, normalise(value))
        if call.hooks.after:
            result = await ask_after(call, guards, result)
        if call.warnings is not None:
            result = result._replace(meta={**result.meta, **call.warnings})
        return finished(call, guards, result)

    def _failed(self, call: Call, error: BaseException) -> ToolResult:
        """Return the result of a call that raised. Only `CallError` says anything to the model."""
        if isinstance(error, InterruptedWaitError):
            text = f"{call.name!r} was stopped {'after' if call.ran else 'before'} it ran ({error.reason})."
            error = CallError(error.reason, text, outcome_unknown=call.ran)
        redactor = call.redactor
        if isinstance(error, CallError):
            told = error.error
        else:
            log.error("%s", _log_text(call, error, redactor))
            text = f"An unexpected error occurred (call {call.call_id})."
            told = ToolError(kind="tool_error", message=text, outcome_unknown=call.ran)
        if redactor is not None:
            told = clean_error(told, redactor)
        return ToolResult((TextContent(told.message),), is_error=True, error=told)

    async def _tell_hooks(self, call: Call, result: ToolResult) -> None:
        # The call is over: what a hook writes into the result that it is shown is lost.
        result = result.with_structured(copied(result.structured))
        for hook in (*(call.hooks.on_error if result.is_error else ()), *call.hooks.on_complete):
            try:
                told = stages.run_hook(hook, (call, result), self.guards, Watch(call.name))
                if told is not None and is_awaitable(told):
                    await told
            except BaseException:  # boundary: foreign code
                log.warning("Hook %s failed after %r.", describe(hook), call.name, exc_info=True)

    def _record(self, call: Call, result: ToolResult) -> Delivered:
        """Stage 10: tell observers, audit and metrics, exactly once. Nothing here changes the result."""
        # The context holds the call, to send its events; a ring of both would keep arguments until the next collection.
        guards, call.made_ctx = self.guards, None
        kind = "ok" if result.error is None else result.error.kind
        duration_s = guards.clock() - call.started
        if guards.audit is not None or guards.telemetry is not None or guards.call_observers:
            self._report(call, kind, duration_s)
        if result.structured is not None and call.listeners["on_tool_result"]:
            # What an observer writes into its event must not reach the caller.
            result = result.with_structured(copied(result.structured))
        told = {"result": result, "kind": kind, "duration_s": duration_s}
        return emit(call, "on_tool_result", told, not result.is_error)

    def _report(self, call: Call, kind: str, duration_s: float) -> None:
        guards = self.guards
        try:
            if guards.audit is not None:
                guards.audit.record({"call_id": call.call_id, "tool": call.known_as, "kind": kind})
            if guards.telemetry is not None:
                guards.telemetry.finished(tool=call.known_as, kind=kind, duration_s=duration_s)
            for observer in guards.call_observers:
                observer.finished(tool=call.known_as, kind=kind, duration_s=duration_s)
        except Exception:
            log.warning("The end of %r could not be recorded.", call.name, exc_info=True)

    # -- from outside

    def cancel(self, call_id: str) -> bool:
        """Stop a running call; `False` when there is none with this id. Call it from the loop's own thread."""
        call = self.guards.in_flight.get(call_id)
        if call is not None:
            call.interrupt("cancelled")
        return call is not None

    async def close(self, *, grace_s: float = 10.0) -> None:
        """Take no more calls, let running ones end for `grace_s`, then stop the rest with `shutting_down`."""
        guards = self.guards
        guards.closing = True
        ends = guards.clock() + grace_s
        while guards.in_flight and guards.clock() < ends:  # noqa: ASYNC110 - at shutdown only; an event would cost every call
            await asyncio.sleep(0.01)
        for call in tuple(guards.in_flight.values()):
            call.interrupt("shutting_down")
        guards.lanes.close()


def _log_text(call: Call, error: BaseException, redactor: Redactor | None) -> str:
    """Return the log entry of an unexpected error, without secrets, also for one whose own text raises."""
    try:
        trace = "".join(traceback.format_exception(error))
    except BaseException as broken:  # noqa: BLE001 - boundary: foreign code
        trace = f"{type(error).__name__} (its text raised {type(broken).__name__})"
    text = f"Tool {call.name!r} failed in call {call.call_id}:\n{trace}"
    return text if redactor is None else redactor.text(text)
