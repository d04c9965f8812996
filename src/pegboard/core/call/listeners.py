"""Listeners: the observers of a call's events, and the awaitable that emitting returns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, Final, get_args

from pegboard.model.error import DefinitionError
from pegboard.model.event import Event, EventType

EVENT_TYPES: Final[tuple[EventType, ...]] = get_args(EventType)


def as_observers(callbacks: object) -> tuple[Any, ...]:
    """Return observers from one object, a list of them, or `None`.

    Raises:
        DefinitionError: an object has no observer method, such as a function or a dict of functions.
    """
    if callbacks is None:
        return ()
    observers: tuple[Any, ...] = tuple(callbacks) if isinstance(callbacks, list | tuple) else (callbacks,)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] - any objects
    for observer in observers:
        if not _hears_any(observer):
            raise DefinitionError(
                f"callbacks: {type(observer).__name__!r} has no event method. Give an object with methods such as "
                "`on_tool_call(event)` and `on_tool_result(event)`."
            )
    return observers


def _hears_any(observer: object) -> bool:
    for name in EVENT_TYPES:  # noqa: SIM110 - a generator costs as much again, and each call with progress asks
        if hasattr(observer, name):
            return True
    return False


class SubAgentObservers(tuple[Any, ...]):
    """The observers of a sub-agent's calls: the bridge to the surrounding call, and callbacks passed to single calls.

    Observers of every call receive these events through the surrounding call, and not a second time.
    """

    __slots__ = ()


def joined(observers: object, more: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return observers with some more, keeping the class `SubAgentObservers`."""
    every = (*as_observers(observers), *more)
    return SubAgentObservers(every) if type(observers) is SubAgentObservers else every


class Delivered:
    """The return value of emitting: already done for sync observers, awaitable for async ones; awaiting is optional."""

    __slots__ = ("_wait",)

    def __init__(self, wait: Callable[[], Awaitable[None]] | None = None) -> None:
        self._wait = wait

    def __await__(self) -> Generator[Any, None, None]:
        if self._wait is not None:
            yield from self._wait().__await__()


DELIVERED = Delivered()


class Listeners(dict[EventType, tuple[Callable[[Event], Any], ...]]):
    """The methods of some observers by event type; each method is looked up once.

    `general` observers receive an event before them.
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
