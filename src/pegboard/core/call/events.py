"""Events: tell observers what happens in a call. They can never change or break it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Mapping
from threading import get_ident
from typing import TYPE_CHECKING, Any

from pegboard.core.stepping import is_cancelled
from pegboard.model.event import Event, EventType
from pegboard.model.json_types import JSONValue, is_awaitable
from pegboard.model.result import new_tuple

if TYPE_CHECKING:
    from pegboard.core.call.stages import Call

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


class Listeners(dict[EventType, tuple[Callable[[Event], Any], ...]]):
    """The methods of some observers that hear a type of event; each is looked up once."""

    def __init__(self, observers: tuple[Any, ...] = ()) -> None:
        super().__init__()
        self.observers = observers

    def __missing__(self, type_: EventType) -> tuple[Callable[[Event], Any], ...]:
        methods = (getattr(observer, type_, None) for observer in self.observers)
        found = self[type_] = tuple(method for method in methods if method is not None)
        return found


def emit(call: Call, type_: EventType, payload: Mapping[str, JSONValue], ok: bool | None = None) -> Delivered:
    """Send one event of a call, from its loop or from a worker thread, to all who listen.

    They are told in order; async ones follow in one chain of tasks.
    """
    if get_ident() != call.thread:
        call.loop.call_soon_threadsafe(emit, call, type_, payload, ok)
        return DELIVERED
    listening = call.listeners[type_]
    if listening:
        ctx = call.view.ctx
        # A result is clean already; what a tool says on its way is not.
        if call.redactor is not None and type_ != "on_tool_result":
            payload = call.redactor.value(dict(payload))
        event = new_tuple(Event, (
            type_, call.known_as, ctx.request_id, call.call_id, ctx.parent_call, next(ctx.sequence),
            call.guards.wall_clock(), ok, payload,
        ))  # fmt: skip
        for listen in listening:
            try:
                answer = listen(event)
            except BaseException:  # boundary: foreign code; an observer breaks nothing
                log.warning("An observer raised in %s; the call goes on.", type_, exc_info=True)
                continue
            if answer is not None and is_awaitable(answer):
                call.told = call.loop.create_task(_listen(call.told, answer, type_, call.guards.bounds.hook_s))
    return DELIVERED if call.told is None else Delivered(call.told)


async def _listen(before: asyncio.Task[None] | None, answer: Awaitable[Any], event_type: str, limit_s: float) -> None:
    if before is not None:
        await asyncio.wait([before])
    try:
        await asyncio.wait_for(answer, limit_s)
    except BaseException:
        if is_cancelled():
            raise
        log.warning("An observer failed in %s; the call goes on.", event_type, exc_info=True)
