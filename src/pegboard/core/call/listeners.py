"""Listeners: who listens to the events of a call, and what sending one gives back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, Final, get_args

from pegboard.model.error import DefinitionError
from pegboard.model.event import Event, EventType

EVENT_TYPES: Final[tuple[EventType, ...]] = get_args(EventType)


def as_observers(callbacks: object) -> tuple[Any, ...]:
    """Return observers from one object, a list of them, or `None`.

    Raises:
        DefinitionError: one that hears nothing, such as a function or a dict of them.
    """
    if callbacks is None:
        return ()
    observers: tuple[Any, ...] = tuple(callbacks) if isinstance(callbacks, list | tuple) else (callbacks,)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] - any objects
    for observer in observers:
        if not _hears_any(observer):
            raise DefinitionError(
                f"callbacks: {type(observer).__name__!r} hears no event. Give an object with methods such as "
                "`on_tool_call(event)` and `on_tool_result(event)`."
            )
    return observers


def _hears_any(observer: object) -> bool:
    for name in EVENT_TYPES:  # noqa: SIM110 - a generator costs as much again, and each call with progress asks
        if hasattr(observer, name):
            return True
    return False


class SubAgentObservers(tuple[Any, ...]):
    """Those who hear the calls of a sub-agent: what tells the call around it, and whoever was given to one of them.

    Who observes every call hears of these from the call around them, and not a second time.
    """

    __slots__ = ()


def joined(observers: object, more: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return observers with some more; those of a sub-agent stay such."""
    every = (*as_observers(observers), *more)
    return SubAgentObservers(every) if type(observers) is SubAgentObservers else every


class Delivered:
    """What emitting gives back: done already for sync observers, to be awaited for async ones; awaiting is optional."""

    __slots__ = ("_wait",)

    def __init__(self, wait: Callable[[], Awaitable[None]] | None = None) -> None:
        self._wait = wait

    def __await__(self) -> Generator[Any, None, None]:
        if self._wait is not None:
            yield from self._wait().__await__()


DELIVERED = Delivered()


class Listeners(dict[EventType, tuple[Callable[[Event], Any], ...]]):
    """The methods of some observers that hear a type of event; each is looked up once.

    `general` are others, who hear it before them.
    """

    __slots__ = ("general", "observers")

    def __init__(self, observers: tuple[Any, ...] = (), general: Listeners | None = None) -> None:
        self.observers, self.general = observers, general

    def __missing__(self, event_type: EventType) -> tuple[Callable[[Event], Any], ...]:
        listening = () if self.general is None else self.general[event_type]
        for observer in self.observers:
            method = getattr(observer, event_type, None)
            if method is not None:
                listening = (*listening, method)
        self[event_type] = listening
        return listening
