"""Running: execute the handler inside its around-hooks, under timeout, cancellation and concurrency cap."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from pegboard.core.call.stages import Call
from pegboard.core.hooks import wrap
from pegboard.core.stepping import InterruptedWaitError, Rest, begin
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON, is_awaitable
from pegboard.model.tool import Handler

if TYPE_CHECKING:
    from pegboard.core.executor import Guards

_MAX_THREADS = 64


class Lanes:
    """The worker threads for sync handlers, and how many calls each capped tool has running."""

    def __init__(self) -> None:
        self._threads: ThreadPoolExecutor | None = None
        self._running: dict[str, int] = {}

    def enter(self, call: Call, cap: int) -> None:
        """Take a place in the tool's lane; `busy` when all are taken."""
        running = self._running.get(call.entry.qualified_id, 0)
        if running >= cap:
            text = f"{call.name!r} runs at most {cap} at once, and {running} are running. Try again in a moment."
            raise CallError("busy", text, retry_after_s=1.0)
        self._running[call.entry.qualified_id] = running + 1

    def leave(self, call: Call) -> None:
        self._running[call.entry.qualified_id] -= 1

    def thread(self, code: Callable[[], Any]) -> asyncio.Future[Any]:
        """Start `code` in a worker thread, with the caller's context variables."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_MAX_THREADS, thread_name_prefix="pegboard-tool")
        return asyncio.get_running_loop().run_in_executor(self._threads, contextvars.copy_context().run, code)

    def close(self) -> None:
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=False, cancel_futures=True)


def start(call: Call, guards: Guards) -> Any:
    """Begin the work. Returns what the handler gave, or a `Rest` for `finish` when it really waits.

    Raises:
        CallError: `timeout`, `cancelled`, `shutting_down`, `busy`, or what the handler chose to raise.
        BaseException: anything else that the handler raised.
    """
    spec, handler = call.entry.spec, call.entry.handler
    if handler is None:
        raise CallError("tool_error", f"{call.name!r} is declared without a handler, so it cannot be run here.")
    call.timeout_s = guards.bounds.tool_timeout_s if spec.timeout_s is None else spec.timeout_s
    if call.view.ctx.deadline is not None:
        call.timeout_s = min(call.timeout_s, call.view.ctx.deadline - guards.clock())
    if spec.max_concurrency is not None:
        guards.lanes.enter(call, spec.max_concurrency)
    call.ran = True
    value = None
    try:
        if call.hooks.around:
            value = _settled(wrap(call.hooks.around, call, lambda: _innermost(call, guards, handler))())
        elif call.entry.runs == "thread":
            value = _in_thread(call, guards, handler)
        else:
            value = handler(call.ctx if call.entry.needs_context else None, call.args)  # type: ignore[arg-type] - it said so
            if not is_awaitable(value):
                return value
        value = begin(value, timeout_s=call.timeout_s, watch=call)
        return value
    except InterruptedWaitError as stopped:
        raise _interrupted(call, stopped) from None
    finally:
        if spec.max_concurrency is not None and type(value) is not Rest:
            guards.lanes.leave(call)


async def finish(call: Call, guards: Guards, rest: Rest) -> object:
    """Wait for work that has begun; raises as `start` does."""
    try:
        return await rest
    except InterruptedWaitError as stopped:
        raise _interrupted(call, stopped) from None
    finally:
        if call.entry.spec.max_concurrency is not None:
            guards.lanes.leave(call)


async def _innermost(call: Call, guards: Guards, handler: Handler) -> object:
    if call.entry.runs == "thread":
        return await _in_thread(call, guards, handler)
    return await _settled(handler(call.ctx, call.args))


async def _settled(value: object) -> object:
    """Handlers and around-hooks may give a value or something to await."""
    return await value if is_awaitable(value) else value


async def _in_thread(call: Call, guards: Guards, handler: Handler) -> object:
    ctx, args = call.ctx, call.args
    value, error = await guards.lanes.thread(lambda: _outcome(handler, ctx, args))
    if error is not None:
        raise error
    # A plain callable may hide an async one, e.g. a decorator without functools.wraps: that runs on the loop.
    return await _settled(value)


def _outcome(handler: Handler, ctx: Any, args: JSON) -> tuple[object, BaseException | None]:
    # A future cannot carry StopIteration, and takes some exceptions as its own; a pair carries all.
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
