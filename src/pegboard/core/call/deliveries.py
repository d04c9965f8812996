"""Deliveries: sends the events of a call to async observers, in order, without delaying the call for long."""

from __future__ import annotations

import asyncio
import logging
from asyncio import AbstractEventLoop
from collections.abc import Awaitable
from functools import partial
from inspect import CORO_CREATED, getcoroutinestate, iscoroutine
from typing import Any

from pegboard.core.call.listeners import DELIVERED, Delivered
from pegboard.core.coroutine_runner import is_cancelled

OBSERVERS_S = 0.1  # seconds that a call waits for async observers; once they have exceeded that, calls no longer wait
OBSERVED_EVENTS = 10_000  # events that wait for async observers; further ones are dropped for them

log = logging.getLogger("pegboard")


class AsyncObservers:
    """State of the async observers that all calls of a catalog share. `unheard` are tasks that still deliver."""

    def __init__(self) -> None:
        self.unheard: set[asyncio.Task[None]] = set()
        self.lag = False
        """Whether they have been slow once; then calls no longer wait for them."""

    def note_lag(self, how: str) -> None:
        """Record that they are slow; logged once."""
        if not self.lag:
            log.warning("Async observers of calls %s: calls no longer wait for them.", how)
        self.lag = True


class Deliveries:
    """The events of one call that async observers have yet to receive: two chains of tasks, each in order.

    Events that belong to the answer, such as progress, are delivered before it; the others get a short wait.
    """

    def __init__(self, observers: AsyncObservers, loop: AbstractEventLoop, limit_s: float) -> None:
        self._observers, self._loop, self._limit_s = observers, loop, limit_s
        self._last: asyncio.Task[None] | None = None
        self._last_of_answer: asyncio.Task[None] | None = None

    def add(self, answer: Awaitable[Any], event_type: str, *, is_part_of_answer: bool) -> None:
        """Run an observer's code after the earlier ones are done, each within its limit."""
        if is_part_of_answer:
            self._last_of_answer = self._loop.create_task(
                _hear(self._last_of_answer, answer, event_type, self._limit_s)
            )
            return
        unheard = self._observers.unheard
        if len(unheard) >= OBSERVED_EVENTS:
            _forget(answer)
            self._observers.note_lag("are so slow that events are lost")
            return
        self._last = task = self._loop.create_task(_hear(self._last, answer, event_type, self._limit_s))
        unheard.add(task)
        task.add_done_callback(partial(_delivered, unheard, answer))

    def delivered(self) -> Delivered:
        """Return an awaitable for the observers, if the call must wait for them."""
        if self._last is None and self._last_of_answer is None:
            return DELIVERED
        return Delivered(partial(self._settled, self._last_of_answer, self._last))

    async def _settled(self, answering: asyncio.Task[None] | None, delivering: asyncio.Task[None] | None) -> None:
        if answering is not None:
            await asyncio.wait([answering])
        if delivering is None or self._observers.lag:
            return
        if not (await asyncio.wait([delivering], timeout=OBSERVERS_S))[0]:
            self._observers.note_lag("are slow")


def _delivered(unheard: set[asyncio.Task[None]], answer: Awaitable[Any], task: asyncio.Task[None]) -> None:
    unheard.discard(task)
    # At exit the loop cancels coroutines that have not started.
    _forget(answer)


def _forget(answer: Awaitable[Any]) -> None:
    if iscoroutine(answer) and getcoroutinestate(answer) == CORO_CREATED:
        answer.close()


async def _hear(before: asyncio.Task[None] | None, answer: Awaitable[Any], event_type: str, limit_s: float) -> None:
    if before is not None:
        await asyncio.wait([before])
    try:
        await asyncio.wait_for(answer, limit_s)
    except BaseException:
        if is_cancelled():
            raise
        log.warning("An observer failed in %s; the call continues.", event_type, exc_info=True)
