"""EventHub: the event streams that callers have open, and the running calls that they may cancel."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from pegboard.core.call.listeners import as_observers
from pegboard.model.bounds import STREAM_BYTES, STREAM_EVENTS
from pegboard.model.context import ToolContext
from pegboard.model.event import Event
from pegboard.model.json_types import JSON
from pegboard.model.result import ToolResult
from pegboard.providers.mcp import mcp_result
from pegboard.server.principal import Principal

Owner = tuple[str, str | None, str | None]
"""Whose calls and streams they are: the verified credential, and the user and space that the host made of it."""


def owner_of(principal: Principal, ctx: ToolContext) -> Owner:
    """Return whose calls are those on a context."""
    return principal.identity.credential, ctx.user_id, ctx.space_id


class Outbox:
    """Server-sent events that wait for their reader; when it is full, the oldest are dropped and counted."""

    def __init__(self) -> None:
        self._frames: deque[bytes] = deque()
        self._size = self._dropped = 0
        self.wake = asyncio.Event()

    @property
    def waiting(self) -> int:
        """How many events wait."""
        return len(self._frames)

    async def filled(self, timeout_s: float) -> bool:
        """Wait until somebody puts something in, or sets `wake`; tell whether that was in time."""
        try:
            async with asyncio.timeout(timeout_s):
                await self.wake.wait()
        except TimeoutError:
            return False
        return True

    def put(self, frame: bytes) -> None:
        """Add an event; from the loop's own thread."""
        self._frames.append(frame)
        self._size += len(frame)
        while len(self._frames) > STREAM_EVENTS or (self._size > STREAM_BYTES and len(self._frames) > 1):
            self._size -= len(self._frames.popleft())
            self._dropped += 1
        self.wake.set()

    def take(self) -> bytes:
        """Return all that waits; before it the number of dropped events, if any were."""
        self.wake.clear()
        lost = frame("dropped", {"events": self._dropped}) if self._dropped else b""
        taken = lost + b"".join(self._frames)
        self._frames.clear()
        self._size = self._dropped = 0
        return taken


class EventHub:
    """Who listens, and which calls run for whom."""

    def __init__(self) -> None:
        self._streams: dict[Owner, list[Outbox]] = {}
        self._running: dict[str, Owner] = {}
        self.streams = 0
        """How many event streams are open."""

    def follow(
        self, ctx: ToolContext, principal: Principal, *, own: Outbox | None = None
    ) -> tuple[ToolContext, Follower]:
        """Return a context whose calls are followed by the streams of its owner, and by one of their own."""
        follower = Follower(self, owner_of(principal, ctx), own)
        # On the context, not on the call: calls of sub-agents inherit the observer.
        return ctx.with_request(observers=(*as_observers(ctx.callbacks), follower)), follower

    def has_listener(self, principal: Principal, ctx: ToolContext) -> bool:
        """Tell whether somebody listens to the events of the calls on a context."""
        return bool(self._streams) and owner_of(principal, ctx) in self._streams

    def owns(self, owner: Owner, call_id: str) -> bool:
        """Tell whether a call of this id runs, and for this owner."""
        return self._running.get(call_id) == owner

    def listen(self, owner: Owner, outbox: Outbox) -> Callable[[], None]:
        """Put the events of an owner's calls into `outbox`; returns the function that ends it."""
        self._streams.setdefault(owner, []).append(outbox)
        self.streams += 1

        def end() -> None:
            boxes = self._streams[owner]
            boxes.remove(outbox)
            self.streams -= 1
            if not boxes:
                del self._streams[owner]

        return end

    def publish(self, owner: Owner, event: Event, own: Outbox | None) -> None:
        """Pass on one event of a call, and note where the call begins and ends."""
        if event.type == "on_tool_call":
            self._running[event.call_id] = owner
        elif event.type == "on_tool_result":
            self._running.pop(event.call_id, None)
        boxes = [*self._streams.get(owner, ()), *(() if own is None else (own,))]
        if boxes:
            shown = frame(event.type, wire_event(event))
            for box in boxes:
                box.put(shown)


class Follower:
    """The observer of the calls on one context; `call_id` is that of the first."""

    def __init__(self, event_hub: EventHub, owner: Owner, own: Outbox | None) -> None:
        self._event_hub, self._owner, self._own = event_hub, owner, own
        self.call_id = ""

    def __getattr__(self, name: str) -> Callable[[Event], None]:
        if not name.startswith("on_"):
            raise AttributeError(name)
        return self._observed

    def _observed(self, event: Event) -> None:
        self.call_id = self.call_id or event.call_id
        # Its own stream ends with the result itself.
        is_end = event.type == "on_tool_result" and event.call_id == self.call_id
        self._event_hub.publish(self._owner, event, None if is_end else self._own)


def wire_event(event: Event) -> JSON:
    """Return an event as clients get it; the result of a call in the form of MCP."""
    return {
        "type": event.type,
        "tool": event.tool,
        "requestId": event.request_id,
        "callId": event.call_id,
        "parentCallId": event.parent_call_id,
        "seq": event.seq,
        "at": event.at,
        "ok": event.ok,
        "payload": {key: _wire(value) for key, value in event.payload.items()},
    }


def _wire(value: Any) -> Any:
    return mcp_result(value) if isinstance(value, ToolResult) else value


def frame(name: str, value: Mapping[str, Any]) -> bytes:
    """Return one server-sent event."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), wire_json(value))


def wire_json(value: object) -> bytes:
    """Return JSON; what is no JSON, in what a tool says on its way, goes out as its text."""
    try:
        return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS)
    except TypeError:
        # Integers over 64 bit and lone surrogates, which clients may send.
        return json.dumps(value, default=str, allow_nan=False, separators=(",", ":")).encode()
