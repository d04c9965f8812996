"""Listeners: who listens to the events of a call, and what sending one gives back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any

from pegboard.model.event import Event, EventType


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

    def __missing__(self, event_type: EventType) -> tuple[Callable[[Event], Any], ...]:
        methods = (getattr(observer, event_type, None) for observer in self.observers)
        listening = self[event_type] = tuple(method for method in methods if method is not None)
        return listening
