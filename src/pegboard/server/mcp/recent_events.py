"""RecentEvents: what the SDK sent in one of its sessions, so that a client can reconnect."""

from __future__ import annotations

import re

import mcp_types as types
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore

from pegboard.server.mcp.limits import SESSION_BYTES, SESSION_MESSAGES

_NUMBER = re.compile("[0-9]{1,18}")


class RecentEvents(EventStore):
    """The latest messages of one session's streams, so that a client can reconnect; bounded in number and bytes."""

    def __init__(self) -> None:
        self._events: dict[int, tuple[str, types.JSONRPCMessage | None, int]] = {}
        self._next = self._bytes = 0

    async def store_event(self, stream_id: str, message: types.JSONRPCMessage | None) -> str:
        self._next += 1
        size = 0 if message is None else len(message.model_dump_json())
        self._events[self._next] = (stream_id, message, size)
        self._bytes += size
        while len(self._events) > SESSION_MESSAGES or (self._bytes > SESSION_BYTES and len(self._events) > 1):
            self._bytes -= self._events.pop(next(iter(self._events)))[2]
        return str(self._next)

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        after = int(last_event_id) if _NUMBER.fullmatch(last_event_id) else 0
        known = self._events.get(after)
        if known is None:
            return None
        for number, (stream, message, _) in list(self._events.items()):
            if number > after and stream == known[0] and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return known[0]
