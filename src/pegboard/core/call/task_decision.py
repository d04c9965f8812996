"""Task decision: decides whether a call runs now or becomes a task."""

from __future__ import annotations

from pegboard.core.call.record import Call
from pegboard.model.call_context import CallContext
from pegboard.model.error import CallError


def is_of_task(call: Call) -> bool:
    """Tell whether this call is the run of a task, and not a call nested in it."""
    steps = call.view.ctx.request.steps
    return steps is not None and steps.call_id == call.call_id


def goes_on_as_task(call: Call) -> bool:
    """Tell whether a call becomes a task: by its tool's `task`, and by the caller's request.

    An MCP client declares what it supports. In Python, over HTTP and on the command line, a tool that requires a task
    gets one; a tool with an optional task gets one on request.

    Raises:
        CallError: a task was requested but is forbidden, or is required but the client does not support tasks.
    """
    support = call.entry.spec.task
    if is_of_task(call):
        return False
    if call.ports.tasks is None:
        text = f"{call.name!r} cannot be a task: tasks are not configured here. Call it without asking for one."
        raise CallError("invalid_arguments", text)
    if not isinstance(call.view.ctx, CallContext):
        wish = getattr(call.view.ctx.request.client, "follows_task", None)
        if wish is not None:
            return wish(support, asked=call.as_task)
    if support == "forbidden":
        text = f"{call.name!r} cannot be a task. Call it without asking for one."
        raise CallError("invalid_arguments", text)
    return support == "required" or call.as_task
