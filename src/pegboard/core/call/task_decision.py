"""Task decision: whether a call runs here and now, or goes on as a task that is asked for later."""

from __future__ import annotations

from pegboard.core.call.record import Call
from pegboard.model.call_context import CallContext
from pegboard.model.error import CallError


def is_of_task(call: Call) -> bool:
    """Tell whether this very call is what a task runs; those that it makes in turn are not."""
    steps = call.view.ctx.request.steps
    return steps is not None and steps.call_id == call.call_id


def goes_on_as_task(call: Call) -> bool:
    """Tell whether a call shall be a task: by its tool's `task`, and by what was asked for.

    A client over MCP says what it can follow; in Python, over HTTP and on the command line a call whose tool requires
    it is a task, and any other that may be one where it is asked for.

    Raises:
        CallError: a task was asked for and cannot be, or is required of a client that cannot follow one.
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
