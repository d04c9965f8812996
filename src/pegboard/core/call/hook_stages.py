"""Hook stages: run the user's hooks before, after and at the end of a call, each with a time limit."""

from __future__ import annotations

import asyncio
import logging
from contextvars import Context, copy_context
from time import perf_counter
from typing import Any

from pegboard.core.call.arguments import copied_arguments, judged_arguments, read_arguments
from pegboard.core.call.limit_keys import owner_of
from pegboard.core.call.output import checked
from pegboard.core.call.record import Call
from pegboard.core.coroutine_runner import (
    BOUND_CODE,
    LOOP_BLOCKED_S,
    SLOW_CODE,
    CancelScope,
    InterruptedWaitError,
    Pending,
    is_on_loop,
)
from pegboard.core.coroutine_runner import begin as begin_waiting
from pegboard.core.hooks import describe
from pegboard.core.normalise import is_whole_result, normalise
from pegboard.core.schema import copied
from pegboard.model.error import CallError
from pegboard.model.hook import Hook, Verdict
from pegboard.model.json_types import is_awaitable
from pegboard.model.result import ToolResult

log = logging.getLogger("pegboard")


async def ask_before(call: Call) -> None:
    """Run the before-hooks in order. A deny, an error or a timeout ends the call; new arguments are validated again."""
    hooks, judged = call.hooks.before, copied_arguments(call)
    rewrites = index = 0
    while index < len(hooks):
        hook = hooks[index]
        index += 1
        try:
            verdict = run_hook(hook, (call,), call)
            if verdict is not None and not isinstance(verdict, Verdict):
                verdict = _verdict(await verdict)
        except (CallError, asyncio.CancelledError, InterruptedWaitError):
            raise
        except BaseException as error:  # boundary: foreign code; before the tool it fails closed
            log.warning("Before-hook %s failed; %r was refused.", describe(hook), call.name, exc_info=error)
            raise CallError("hook_refused", f"A check before {call.name!r} failed, so it was not run.") from error
        # The next hook and the tool see the validated arguments, even if this hook changed the dict.
        if call.args != judged:
            call.args = copied(judged)
        if verdict is None or verdict.kind == "allow":
            continue
        if verdict.kind == "deny":
            raise CallError(verdict.error_kind, verdict.reason or "Tool execution was aborted")
        if verdict.kind == "ask":
            call.question = verdict.reason or f"{describe(hook)} asks for approval"
            continue
        rewrites += 1
        if rewrites > call.bounds.argument_rewrites:
            raise CallError(
                "hook_refused", f"Hooks rewrote the arguments of {call.name!r} {rewrites} times; that is too often."
            )
        if verdict.args != judged:
            call.args = judged_arguments(call, read_arguments(verdict.args, call.bounds)[0])
            judged = copied(call.args)
            # Every hook must see the final arguments.
            index = 0


def _verdict(answer: object) -> Verdict | None:
    if answer is None or isinstance(answer, Verdict):
        return answer
    raise TypeError(f"a hook must give a Verdict or None, not a {type(answer).__name__}")


async def ask_after(call: Call, result: ToolResult) -> ToolResult:
    """Pass the result to the after-hooks and check their replacements. A failing hook is skipped."""
    structured = result.structured
    unchanged = copied(structured)
    for hook in call.hooks.after:
        try:
            # A slow hook runs in a thread, which may write to the result after the check.
            shown = result.with_structured(copied(result.structured)) if hook.pace.is_slow else result
            changed: Any = run_hook(hook, (call, shown), call)
            if changed is not None and is_awaitable(changed):
                changed = await changed
        except (asyncio.CancelledError, InterruptedWaitError):
            raise
        except BaseException as error:  # boundary: foreign code; the action is done, so its result is kept
            log.warning("After-hook %s failed on %r.", describe(hook), call.name, exc_info=error)
            if hook.required:
                raise _refused_after(call, error) from error
            changed = None
        if structured != unchanged:
            # The hook got a copy, so changes that it made there are lost: nobody would have checked them.
            structured = copied(unchanged)
            result = result.with_structured(structured)
        if changed is not None:
            call.is_by_hand = is_whole_result(changed)
            result = checked(call, normalise(changed), changed)
            structured = result.structured
            unchanged = copied(structured)
    call.spare_copy = unchanged
    return result


def _refused_after(call: Call, error: BaseException) -> CallError:
    if isinstance(error, CallError):
        return error
    text = f"A required check after {call.name!r} failed. It was run: do not repeat it unseen."
    return CallError("hook_refused", text, outcome_unknown=True)


class HookTimeoutError(Exception):
    """A hook did not answer in time."""


def run_hook(hook: Hook, args: tuple[object, ...], call: Call, scope: CancelScope | None = None) -> Any:
    """Run one hook within its time limit. Returns its value, or an awaitable if an async hook has to wait.

    `scope` can stop it from outside: the call, unless another scope is passed for a hook that runs after the call.
    """
    started = perf_counter()
    answer = _beside_the_loop(hook, args, call) if hook.pace.is_slow else hook.run(*args)
    if answer is None or not is_awaitable(answer):
        held_s = perf_counter() - started
        if held_s > LOOP_BLOCKED_S and is_on_loop() and hook.pace.record_loop_run():
            log.warning(SLOW_CODE, "Hook", describe(hook), held_s * 1e3)
    else:
        outer, inner = scope or call, CancelScope(hook.name)
        inner.reason = outer.reason
        answer = begin_waiting(answer, timeout_s=call.bounds.hook_s, scope=inner)
        if type(answer) is Pending:
            return _async_hook(answer, hook, inner, outer)
        held_s = perf_counter() - started
    if held_s > call.bounds.hook_s:
        raise HookTimeoutError(f"{describe(hook)} took more than {call.bounds.hook_s:g} s")
    return answer


async def _beside_the_loop(hook: Hook, args: tuple[object, ...], call: Call) -> Any:
    """Run a hook that has blocked the event loop in a thread, and keep the context variables that it sets."""

    def run() -> tuple[Any, Context]:
        return hook.run(*args), copy_context()

    try:
        answer, seen = await call.executor.checkers.run(run, caller=owner_of(call.view.ctx))
    except (CallError, asyncio.CancelledError):
        raise
    except BaseException:
        if hook.pace.record_thread_run(failed=True):
            log.warning(BOUND_CODE, "Hook", describe(hook))
        raise
    hook.pace.record_thread_run(failed=False)
    here = copy_context()
    for variable, value in seen.items():
        if variable not in here or here[variable] is not value:
            variable.set(value)
    return await answer if answer is not None and is_awaitable(answer) else answer


async def _async_hook(pending: Pending, hook: Hook, inner: CancelScope, outer: CancelScope) -> Any:
    outer.attach(lambda: inner.interrupt(outer.reason or "cancelled"))
    try:
        return await pending
    except InterruptedWaitError as stopped:
        if outer.reason is not None:
            raise
        raise HookTimeoutError(f"{describe(hook)} gave no answer in time") from stopped
    finally:
        outer.attach(None)


async def tell_hooks(call: Call, result: ToolResult) -> None:
    """Run `on_error` and `on_complete`. The call is over, so their changes to the result are discarded."""
    result = result.with_structured(copied(result.structured))
    for hook in (*(call.hooks.on_error if result.is_error else ()), *call.hooks.on_complete):
        try:
            answer = run_hook(hook, (call, result), call, scope=CancelScope(call.name))
            if answer is not None and is_awaitable(answer):
                await answer
        except BaseException:  # boundary: foreign code
            log.warning("Hook %s failed after %r.", describe(hook), call.name, exc_info=True)
