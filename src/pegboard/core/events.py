"""Events: tell observers what happens in a call. They can never change or break it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Mapping
from threading import get_ident
from typing import Any

from pegboard.base.bounds import DEFAULT_BOUNDS
from pegboard.base.content import new_tuple
from pegboard.base.model import Event, EventType, JSONValue, is_awaitable
from pegboard.base.redaction import Redactor
from pegboard.base.waiting import is_cancelled
from pegboard.core.context import ToolContext

log = logging.getLogger("pegboard")


def as_observers(callbacks: object) -> tuple[Any, ...]:
    """Return observers from one object, a list of them, or `None`."""
    if callbacks is None:
        return ()
    return tuple(callbacks) if isinstance(callbacks, list | tuple) else (callbacks,)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] - any objects


class Delivered:
    """What emitting gives back: done already for sync observers, to be awaited for async ones; awaiting is optional."""

    __slots__ = ("_task",)

    def __init__(self, task: asyncio.Task[None] | None = None) -> None:
        self._task = task

    def __await__(self) -> Generator[Any, None, None]:
        if self._task is not None:
            yield from asyncio.shield(self._task).__await__()


DELIVERED = Delivered()


class Emitter:
    """Sends the events of one call, in order, to all observers. Async ones follow in one chain of tasks."""

    __slots__ = ("_clock", "_ctx", "_loop", "_observers", "_redactor", "_tail", "_thread", "call_id", "tool")

    def __init__(
        self, observers: tuple[Any, ...], ctx: ToolContext, call_id: str, tool: str, clock: Callable[[], float],
        redactor: Redactor | None,
    ) -> None:  # fmt: skip
        self._observers, self._ctx, self._clock, self._redactor = observers, ctx, clock, redactor
        self.call_id, self.tool = call_id, tool
        self._tail: asyncio.Task[None] | None = None
        self._loop, self._thread = asyncio.get_running_loop(), get_ident()

    def __call__(self, type_: EventType, payload: Mapping[str, JSONValue], ok: bool | None = None) -> Delivered:
        """Emit one event, from the loop or from a worker thread."""
        ctx = self._ctx
        # A result is clean already; what a tool says on its way is not.
        if self._redactor is not None and type_ != "on_tool_result":
            payload = self._redactor.value(dict(payload))
        event = new_tuple(Event, (
            type_, self.tool, ctx.request_id, self.call_id, ctx.parent_call, next(ctx.sequence), self._clock(), ok,
            payload,
        ))  # fmt: skip
        if get_ident() != self._thread:
            self._loop.call_soon_threadsafe(self._deliver, event)
            return DELIVERED
        return self._deliver(event)

    def _deliver(self, event: Event) -> Delivered:
        for observer in self._observers:
            listen = getattr(observer, event.type, None)
            if listen is None:
                continue
            try:
                answer = listen(event)
            except BaseException:  # boundary: foreign code; an observer breaks nothing
                log.warning("An observer raised in %s; the call goes on.", event.type, exc_info=True)
                continue
            if answer is not None and is_awaitable(answer):
                self._tail = self._loop.create_task(_listen(self._tail, answer, event.type))
        return DELIVERED if self._tail is None else Delivered(self._tail)


async def _listen(before: asyncio.Task[None] | None, answer: Awaitable[Any], event_type: str) -> None:
    if before is not None:
        await asyncio.wait([before])
    try:
        await asyncio.wait_for(answer, DEFAULT_BOUNDS.hook_s)
    except BaseException:
        if is_cancelled():
            raise
        log.warning("An observer failed in %s; the call goes on.", event_type, exc_info=True)


def quiet(_type: EventType, _payload: Mapping[str, JSONValue], _ok: bool | None = None) -> Delivered:
    """Emit to nobody; what a call has that nobody observes."""
    return DELIVERED
