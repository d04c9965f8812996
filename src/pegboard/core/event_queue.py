"""Event queue: read events as an async iterator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from pegboard.model.event import Event

QUEUED_EVENTS = 1_000  # events in the queue of one reader; the oldest are dropped


class EventQueue:
    """An observer that is read as an async iterator; when full, the oldest events are dropped and counted."""

    def __init__(self, *, max_events: int = QUEUED_EVENTS) -> None:
        self._events: asyncio.Queue[Event | None] = asyncio.Queue(max_events)
        self.dropped = 0

    def __getattr__(self, name: str) -> Callable[[Event], None]:
        if not name.startswith("on_"):
            raise AttributeError(name)
        return self._put

    def _put(self, event: Event | None) -> None:
        if self._events.full():
            self._events.get_nowait()
            self.dropped += 1
        self._events.put_nowait(event)

    def close(self) -> None:
        """End the iteration after the queued events."""
        self._put(None)

    async def __aiter__(self) -> AsyncIterator[Event]:
        while (event := await self._events.get()) is not None:
            yield event
