"""Coroutine runner: run foreign coroutines to their end or to a time limit, in the caller's own task.

Coroutines are stepped by hand. One that never waits costs neither a task nor a timer. One that waits gets a timer; if
it ignores its cancellation twice it is abandoned, so the caller gets an answer soon after the deadline in any case.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from time import perf_counter, thread_time
from types import CoroutineType
from typing import Any, Literal, cast

STEP_GRACE_S = 0.25  # seconds that code may continue after a cancellation; after the second one it is abandoned
STEP_GRACE_TURNS = 25  # turns of the event loop that it gets in any case: a busy loop takes long for each
LOOP_BLOCKED_S = 0.1  # seconds of CPU without a break before async code is logged as blocking the event loop
CLOSES = 10  # attempts to close abandoned code, which may wait again while it cleans up
CPU_SAMPLE_S = 0.01  # how long a reading of the CPU clock is reused, in seconds; the log may be late by as much


log = logging.getLogger("pegboard")
SLOW_CODE = (
    "%s %r held the event loop for %.0f ms, and every call with it: it runs in a worker thread from now on. "
    "Make it async, or quick."
)
BOUND_CODE = (
    "%s %r failed in its first run in a worker thread, as code does that belongs to one thread: it runs on the event "
    "loop again, and may hold it. Make it async."
)
Reason = Literal["timeout", "cancelled", "shutting_down"]
_STOPPED = "stopped from outside"


class InterruptedWaitError(Exception):
    """The code was stopped: by its time limit, by a cancellation from outside, or at shutdown."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason: Reason = reason


class CancelScope:
    """Something that can be interrupted: its current wait, or the next one. `reason` is why."""

    __slots__ = ("_stop", "is_left", "name", "reason")

    def __init__(self, name: str) -> None:
        self.name = name
        self.reason: Reason | None = None
        self.is_left = False
        """Whether the surrounding code abandoned it; it can no longer wait."""
        self._stop: Callable[[], None] | None = None

    @property
    def runs_on_loop(self) -> bool:
        """Whether the code that `name` names runs in the event loop's thread."""
        return True

    def interrupt(self, reason: Reason) -> None:
        """Stop it, once. Call this from the loop's own thread."""
        if self.reason is None:
            self.reason = reason
            if self._stop is not None:
                self._stop()

    def attach(self, stop: Callable[[], None] | None) -> None:
        """Set the function that stops the current wait; `None` if there is no wait."""
        self._stop = stop


def is_cancelled() -> bool:
    """Tell whether the running task itself was cancelled, as opposed to code in it that raised `CancelledError`."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def is_stop(error: asyncio.CancelledError) -> bool:
    """Tell whether a cancellation comes from outside the code that sees it: from its task or a surrounding scope.

    A nested call runs in the same task as the outer one, so only the message of the exception distinguishes the outer
    call's stop from a cancellation by the inner code.
    """
    return is_cancelled() or _is_stop_of_a_scope(error)


def _is_stop_of_a_scope(error: asyncio.CancelledError) -> bool:
    return bool(error.args) and error.args[0] is _STOPPED


def is_on_loop() -> bool:
    """Tell whether the current thread runs an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def coroutine_of(value: Awaitable[Any]) -> Any:
    """Return a coroutine for any awaitable."""
    return await value


def begin(code: Awaitable[Any], *, timeout_s: float, scope: CancelScope) -> Any:
    """Take the first step. Returns the value of code that is already done, or else a `Pending` to await.

    Raises:
        InterruptedWaitError: it was stopped before it began.
        BaseException: any exception of the code.
    """
    steps: Any = code if type(code) is CoroutineType else coroutine_of(code)  # pyright: ignore[reportUnknownVariableType] - any
    if scope.reason is not None:
        steps.close()
        raise InterruptedWaitError(scope.reason)
    started = perf_counter()
    if started - _sample.taken_at > CPU_SAMPLE_S:
        _sample.take()
    try:
        waited = steps.send(None)
    except StopIteration as stop:
        return stop.value
    finally:
        if perf_counter() - started > LOOP_BLOCKED_S:
            _warn_blocked(started, scope)
    return Pending(steps, waited, timeout_s, scope)


class _CpuSample(threading.local):
    """A recent reading of the thread's CPU clock; the system call is too slow for every step."""

    taken_at = float("-inf")
    cpu_s = 0.0

    def take(self) -> None:
        self.taken_at, self.cpu_s = perf_counter(), thread_time()


_sample = _CpuSample()


def _stack_of(code: Any) -> str:
    """Return the function, file and line of each coroutine that a suspended coroutine waits in, innermost last."""
    calls: list[str] = []
    while (frame := getattr(code, "cr_frame", None) or getattr(code, "gi_frame", None)) is not None:
        calls.append(f"{frame.f_code.co_name} ({frame.f_code.co_filename}:{frame.f_lineno})")
        code = getattr(code, "cr_await", None) or getattr(code, "gi_yieldfrom", None)
    return " > ".join(calls)


def _warn_blocked(started: float, scope: CancelScope) -> None:
    """Log that code blocked the loop, if its CPU time shows it: on a busy machine any step can take long."""
    held_s = thread_time() - _sample.cpu_s - (started - _sample.taken_at)
    if held_s > LOOP_BLOCKED_S and scope.runs_on_loop:
        log.warning("%r held the event loop for %.0f ms, and every other call with it: make it a plain `def`, "
                    "which runs in a worker thread.", scope.name, held_s * 1e3)  # fmt: skip


class Begun:
    """The rest of a coroutine after its first step; awaiting it continues in the caller's own task."""

    def __init__(self, code: Coroutine[Any, Any, Any], waited: Any) -> None:
        self._code, self._waited = code, waited

    def __await__(self) -> Generator[Any, Any, Any]:
        waited = self._waited
        while True:
            try:
                value_sent = yield waited
            except BaseException as error:  # noqa: BLE001 - boundary: handed on to the coroutine that waits
                step, value = self._code.throw, error
            else:
                step, value = self._code.send, value_sent
            try:
                waited = step(value)
            except StopIteration as done:
                return done.value


def first_step(code: Coroutine[Any, Any, Any]) -> Any:
    """Take the first step. Returns the value of code that is already done, or else the rest to await.

    Most code never waits and then needs no supervision. `begin` does the same under a time limit.
    """
    try:
        waited = code.send(None)
    except StopIteration as done:
        return done.value
    return Begun(code, waited)


class Pending:
    """The rest of a coroutine that has begun to wait; steps it whenever its awaited future is done.

    Awaiting it raises `InterruptedWaitError` if it was stopped, and `CancelledError` if the caller's own task was
    cancelled.
    """

    __slots__ = (
        "_cancelled",
        "_cancelling",
        "_code",
        "_given_up",
        "_grace",
        "_is_stop_sent",
        "_is_stopped_around",
        "_loop",
        "_scope",
        "_task",
        "_timeout_s",
        "_timer",
        "_waited",
        "_waker",
    )  # fmt: skip

    def __init__(self, code: Coroutine[Any, Any, Any], waited: Any, timeout_s: float, scope: CancelScope) -> None:
        self._code, self._waited, self._timeout_s, self._scope = code, waited, timeout_s, scope
        self._loop = asyncio.get_running_loop()
        self._waker = self._loop.create_future()
        self._given_up = self._is_stop_sent = self._is_stopped_around = False
        self._cancelled: asyncio.CancelledError | None = None
        self._grace: asyncio.TimerHandle | None = None

    def __await__(self) -> Generator[Any, None, Any]:
        scope = self._scope
        self._task = cast("asyncio.Task[Any]", asyncio.current_task())
        self._cancelling = self._task.cancelling()
        self._timer = self._loop.call_later(self._timeout_s, scope.interrupt, "timeout")
        scope.attach(self._stop)
        try:
            while True:
                try:
                    thrown = yield from self._until_done()
                except GeneratorExit:
                    scope.is_left = True
                    raise
                if self._given_up:
                    self._leave()
                    raise self._cancelled or InterruptedWaitError(scope.reason or "timeout")
                started = perf_counter()
                if started - _sample.taken_at > CPU_SAMPLE_S:
                    _sample.take()
                try:
                    self._waited = self._code.send(None) if thrown is None else self._code.throw(thrown)
                finally:
                    if perf_counter() - started > LOOP_BLOCKED_S:
                        _warn_blocked(started, scope)
        except StopIteration as stop:
            return stop.value
        except asyncio.CancelledError:
            # A cancellation from outside takes precedence: the caller must see it as such.
            if scope.reason is None or self._is_stopped_around or self._task.cancelling() > self._cancelling:
                raise
            raise InterruptedWaitError(scope.reason) from None
        except GeneratorExit:
            self._code.close()
            raise
        finally:
            scope.attach(None)
            self._timer.cancel()
            if self._grace is not None:
                self._grace.cancel()

    def _until_done(self) -> Generator[Any, None, BaseException | None]:
        """Wait until the awaited future is done or the code is abandoned; return the exception to throw into it."""
        waited = self._waited
        if waited is None:
            # A bare yield, as in `sleep(0)`: let the loop run once.
            try:
                yield None
            except asyncio.CancelledError as error:
                self._cancel_by(error)
                return error
            return self._tell()
        waited._asyncio_future_blocking = False
        if self._scope.reason is not None and not self._is_stop_sent:
            # The stop arrived just as the last wait ended, so there was no wait to cancel.
            self._is_stop_sent = waited.cancel(_STOPPED)
        waited.add_done_callback(self._wake)
        while True:
            self._waker = self._loop.create_future()
            if waited.done() or self._given_up:
                return None
            try:
                yield from self._waker
            except asyncio.CancelledError as error:
                # The caller, or a scope in the code itself, cancels: keep the message, which scopes read.
                self._cancel_by(error)
                if not waited.cancel(*error.args[:1]):
                    return error
            else:
                return None

    def _tell(self) -> BaseException | None:
        """Return the exception that stops the code, once: a second one would interrupt its clean-up."""
        if self._scope.reason is None or self._is_stop_sent:
            return None
        self._is_stop_sent = True
        return asyncio.CancelledError(_STOPPED)

    def _wake(self, _done: object) -> None:
        if not self._waker.done():
            self._waker.set_result(None)

    def _stop(self) -> None:
        """Cancel the code, and abandon it if it has not ended after the grace period."""
        self._timer.cancel()
        if self._grace is not None:
            self._grace.cancel()
        self._tick(STEP_GRACE_TURNS)
        if self._waited is not None:
            self._is_stop_sent = self._waited.cancel(_STOPPED)

    def _cancel_by(self, error: asyncio.CancelledError) -> None:
        self._cancelled = error
        self._is_stopped_around |= _is_stop_of_a_scope(error)
        if self._grace is None:
            self._tick(STEP_GRACE_TURNS)
        elif self._scope.reason is None and self._task.cancelling() == self._cancelling + 1:
            # All cancellations before this one were undone, as by scopes that end one of several attempts to connect.
            self._grace.cancel()
            self._tick(STEP_GRACE_TURNS)

    def _tick(self, turns_left: int, *, is_second: bool = False) -> None:
        """Count the turns of the loop in a grace period. At its end, cancel the code once more, then abandon it."""
        if turns_left:
            tick = partial(self._tick, turns_left - 1, is_second=is_second)
            self._grace = self._loop.call_later(STEP_GRACE_S / STEP_GRACE_TURNS, tick)
            return
        self._grace = None
        # A cancellation of the caller that its own scope in the code has undone by now does not count.
        if self._scope.reason is None and self._task.cancelling() <= self._cancelling:
            return
        if is_second:
            self._given_up = True
            self._wake(None)
            return
        # A library can swallow a cancellation that arrives while it cancels its own tasks: anyio's `connect_tcp` does
        # so when it has connected.
        message = (_STOPPED,) if self._cancelled is None else self._cancelled.args[:1]
        self._is_stop_sent = self._waited is not None and self._waited.cancel(*message)
        self._tick(STEP_GRACE_TURNS, is_second=True)

    def _leave(self) -> None:
        log.warning(
            "%r ignored its cancellation and was abandoned, so what it holds may leak. It waits in %s.",
            self._scope.name, _stack_of(self._code),
        )  # fmt: skip
        refusal: BaseException | None = None
        for _ in range(CLOSES):
            # Each attempt ends the wait that the clean-up is at. What stays open could cancel the caller's task later:
            # an `asyncio.timeout` in the code belongs to that task.
            try:
                self._code.close()
            except BaseException as error:  # noqa: BLE001 - boundary: foreign code that fails as it ends, or waits again
                refusal = error
            if getattr(self._code, "cr_frame", None) is None:
                break
        if refusal is not None:
            log.warning("%r refused to be closed.", self._scope.name, exc_info=refusal)
