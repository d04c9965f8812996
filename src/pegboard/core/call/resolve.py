"""Resolve: find the tool of a call in the caller's View; every other name gets the same error."""

from __future__ import annotations

from pegboard.core.call.record import Asked, Call
from pegboard.core.judge import UP
from pegboard.core.lifecycle import end_of
from pegboard.core.snapshot import Snapshot
from pegboard.core.view import View
from pegboard.model.call_context import CallContext
from pegboard.model.context import ToolContext
from pegboard.model.error import CallError
from pegboard.model.tool import ToolEntry


def resolve(call: Call, snapshot: Snapshot) -> None:
    """Find the tool in the snapshot that the call began with. Unknown and hidden names get the same error.

    Raises:
        AsyncPredicateError: a predicate of the tool must be awaited; `resolve_awaiting` does that.
    """
    keep(call, call.view.find(call.name, within=snapshot, can_wait=True), snapshot)


async def resolve_awaiting(call: Call) -> None:
    """Like `resolve`, awaiting async predicates."""
    entry = await call.view.afind(call.name)
    keep(call, entry, call.view.snapshot)


def keep(call: Call, entry: ToolEntry | None, snapshot: Snapshot) -> None:
    """Store the tool found by the View, unless something other than visibility blocks its calls now."""
    view, name = call.view, call.name
    if entry is None:
        call.executor.flood.count(view.ctx)
        raise absent(view, name)
    if entry.is_for_apps_alone and not may_use_interface(view.ctx):
        raise absent(view, name)
    spec, wire_name = entry.spec, entry.wire_name
    plan = snapshot.plans.get(wire_name)
    if plan is None or plan.entry is not entry:
        plan = view.plan(entry, snapshot)
    call.entry, call.plan = entry, plan
    call.known_as, call.hooks = wire_name, plan.hooks
    if spec.deprecated is not None or spec.replaced_by is not None:
        call.warnings = {"deprecated": end_of(spec)}
    if entry.source is not None or call.ports.audit is not None:
        check_standing(call)
    if name != wire_name and (former := snapshot.former_name(name)) is not None:
        call.warnings = {**(call.warnings or {}), "renamed": f"{former!r} is now called {wire_name!r}"}


async def callable_tool(view: View, name: str) -> ToolEntry | None:
    """Return the tool if a call of this name would find it, else `None`."""
    entry = await view.afind(name)
    return None if entry is None or (entry.is_for_apps_alone and not may_use_interface(view.ctx)) else entry


def may_use_interface(ctx: ToolContext) -> bool:
    """Tell whether a caller may call tools for interfaces: a client from outside must show interfaces.

    Host code and tools may call them, also on behalf of a client without interfaces.
    """
    request = ctx.request
    is_from_outside = bool(request.hops) and request.parent_call is None and request.steps is None
    if not is_from_outside or isinstance(ctx, CallContext):
        return True
    return request.client is not None and request.client.supports_ui


def check_standing(call: Asked) -> None:
    """Refuse a visible tool that waits for a review, or that must not run unrecorded."""
    ports, entry, name = call.ports, call.entry, call.name
    if entry.source is not None and entry.qualified_id in call.executor.registry.states().get(entry.source, UP).changed:
        text = f"The definition of {name!r} changed since it was accepted; a person must review it first."
        raise CallError("needs_review", text)
    if ports.audit is not None and ports.audit_required and not ports.audit.is_up and not entry.spec.is_read_only:
        text = f"{name!r} changes things and the audit log is down. Read-only tools still work."
        raise CallError("audit_unavailable", text)


def absent(view: View, name: str) -> CallError:
    """Return the error for every name that the caller may not use; for a tool past its end date it says so."""
    return CallError("not_found", view.absence(name))
