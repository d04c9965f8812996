"""Call backpressure: make calls wait for room in the queue of the audit, the callers in turn."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Hashable
from contextlib import suppress
from typing import NamedTuple

AUDIT_WAIT_S = 5.0  # seconds that a call waits for room, at most
AUDIT_WAITING_CALLS = 10_000  # calls that wait; further ones go on


class _WaitingCall(NamedTuple):
    future: asyncio.Future[None]
    loop: asyncio.AbstractEventLoop


class CallBackpressure:
    """Makes calls wait while the writer of the audit is behind; fills the port `Backpressure`.

    The writer turns it on when its queue is half full, and lets calls go on after each batch: one of each caller in
    turn, so that a caller with many calls does not delay those of others. While the store does not work, or has stored
    nothing for as long as a call waits, nothing waits: `stop` lets all calls go on, until `resume`.

    Calls wait in any event loop and thread; the methods may be called in any thread.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Forget the calls that wait, which belong to the parent process."""
        self.is_on = False
        self.is_stopped = False
        self._lock = threading.Lock()
        self._waiting: dict[Hashable, deque[_WaitingCall]] = {}
        self._count = 0
        self._turns = 0

    @property
    def waiting(self) -> int:
        """The number of calls that wait now."""
        with self._lock:
            # Those whose time is over, or that were cancelled, stay in their queue until it is their turn.
            return sum(not call.future.done() for calls in self._waiting.values() for call in calls)

    async def wait(self, owner: Hashable) -> None:
        """Wait for the turn of one call of this caller, at most `AUDIT_WAIT_S` seconds."""
        loop = asyncio.get_running_loop()
        call = _WaitingCall(loop.create_future(), loop)
        with self._lock:
            if not self.is_on or self._count >= AUDIT_WAITING_CALLS:
                return
            self._waiting.setdefault(owner, deque()).append(call)
            self._count += 1
        timer = loop.call_later(AUDIT_WAIT_S, self._give_up, call, self._turns)
        try:
            await call.future
        finally:
            timer.cancel()

    def turn_on(self) -> bool:
        """Make calls wait from now on, unless it is stopped; return whether they did not before."""
        with self._lock:
            if self.is_on or self.is_stopped:
                return False
            self.is_on = True
            return True

    def let_go(self, count: int) -> None:
        """Let this many calls continue after a batch was stored. Once no call is left, new calls no longer wait."""
        with self._lock:
            self.is_stopped = False
            self._turns += 1
            while self._waiting and count > 0:
                owner, calls = next(iter(self._waiting.items()))
                del self._waiting[owner]
                call = calls.popleft()
                self._count -= 1
                if calls:
                    # Behind all other callers.
                    self._waiting[owner] = calls
                if not call.future.done():
                    count -= 1
                    _go_on(call)
            if not self._waiting and count > 0:
                self.is_on = False

    def stop(self) -> None:
        """Let all calls go on, now and until a batch is stored: waiting would not help."""
        with self._lock:
            waiting, self._waiting, self._count = self._waiting, {}, 0
            self.is_on, self.is_stopped = False, True
        for calls in waiting.values():
            for call in calls:
                _go_on(call)

    def _give_up(self, call: _WaitingCall, turns: int) -> None:
        """Let a call go on whose time is over; and all others if no batch was stored in that time."""
        _done(call.future)
        if self._turns == turns:
            self.stop()


def _go_on(call: _WaitingCall) -> None:
    # No call is left on a closed loop.
    with suppress(RuntimeError):
        call.loop.call_soon_threadsafe(_done, call.future)


def _done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
