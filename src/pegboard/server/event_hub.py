"""EventHub: the open event streams of callers, and the running calls that they may cancel."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from pegboard.core.call.listeners import as_observers
from pegboard.model.bounds import MIB
from pegboard.model.context import ToolContext
from pegboard.model.event import Event
from pegboard.model.json_types import JSON
from pegboard.model.result import ToolResult
from pegboard.providers.mcp import mcp_result
from pegboard.server.bus import ALONE, NO_BUS, Others
from pegboard.server.principal import Principal

STREAM_EVENTS = 1_000  # events waiting for one listener; the oldest are dropped
STREAM_BYTES = 4 * MIB  # of them

Owner = tuple[str, str | None, str | None]
"""The owner of calls and streams: the verified credential, and the user and space that the host derived from it."""


def owner_of(principal: Principal, ctx: ToolContext) -> Owner:
    """Return the owner of the calls on a context."""
    return principal.identity.credential, ctx.user_id, ctx.space_id


class Outbox:
    """Server-sent events that wait for their reader; when the queue is full, the oldest are dropped and counted."""

    def __init__(self) -> None:
        self._frames: deque[bytes] = deque()
        self._size = self._dropped = 0
        self.wake = asyncio.Event()

    @property
    def waiting(self) -> int:
        """The number of waiting events."""
        return len(self._frames)

    async def filled(self, timeout_s: float) -> bool:
        """Wait for an event or for `wake`; return False after the timeout."""
        try:
            async with asyncio.timeout(timeout_s):
                await self.wake.wait()
        except TimeoutError:
            return False
        return True

    def put(self, frame: bytes) -> None:
        """Add an event; only from the loop's own thread."""
        self._frames.append(frame)
        self._size += len(frame)
        while len(self._frames) > STREAM_EVENTS or (self._size > STREAM_BYTES and len(self._frames) > 1):
            self._size -= len(self._frames.popleft())
            self._dropped += 1
        self.wake.set()

    def take(self) -> bytes:
        """Return all waiting events, preceded by the number of dropped ones if there are any."""
        self.wake.clear()
        notice = frame("dropped", {"events": self._dropped}) if self._dropped else b""
        frames = notice + b"".join(self._frames)
        self._frames.clear()
        self._size = self._dropped = 0
        return frames


class EventHub:
    """The listeners, and the running calls of each owner; with a bus, those of other workers too.

    Args:
        others: the other workers.
    """

    def __init__(self, others: Others = ALONE) -> None:
        self._bus = others.bus
        self.refusal = NO_BUS if others.are_known and others.bus is None else None
        """The reason why all workers cannot be asked."""
        self._elsewhere: dict[Owner, set[str]] = {}
        self._streams: dict[Owner, list[Outbox]] = {}
        self._running: dict[str, Owner] = {}
        self.streams = 0
        """The number of open event streams."""
        self.cancel: Callable[[str], bool] = _cancel_nothing
        """Ends a running call."""
        if self._bus is not None:
            self._bus.on("hello", self._on_hello)
            self._bus.on("gone", self._on_gone)
            self._bus.on("events.listening", self._on_listening)
            self._bus.on("events.event", self._on_event)
            self._bus.on("calls.cancel", self._on_cancel)

    def follow(
        self, ctx: ToolContext, principal: Principal, *, own: Outbox | None = None
    ) -> tuple[ToolContext, Follower]:
        """Return a context whose calls are reported to the streams of its owner, and to their own stream."""
        follower = Follower(self, owner_of(principal, ctx), own)
        # On the context, not the call: sub-agents' calls inherit the observer.
        return ctx.with_request(observers=(*as_observers(ctx.callbacks), follower)), follower

    def has_listener(self, principal: Principal, ctx: ToolContext) -> bool:
        """Tell whether anybody listens to the calls on a context."""
        if not self._streams and not self._elsewhere:
            return False
        owner = owner_of(principal, ctx)
        return owner in self._streams or owner in self._elsewhere

    def owns(self, owner: Owner, call_id: str) -> bool:
        """Tell whether a call with this id is running for this owner."""
        return self._running.get(call_id) == owner

    def listen(self, owner: Owner, outbox: Outbox) -> Callable[[], None]:
        """Send the events of an owner's calls to `outbox`; returns the function that ends it."""
        self._streams.setdefault(owner, []).append(outbox)
        self.streams += 1
        self._say_listening(owner, is_on=True)

        def end() -> None:
            boxes = self._streams[owner]
            boxes.remove(outbox)
            self.streams -= 1
            if not boxes:
                del self._streams[owner]
                self._say_listening(owner, is_on=False)

        return end

    # -- other workers

    def _say_listening(self, owner: Owner, *, is_on: bool, to: str = "all") -> None:
        if self._bus is not None:
            self._bus.tell_soon("events.listening", {"owner": owner, "is_on": is_on}, to=to)

    def _on_hello(self, worker: str, _body: JSON) -> None:
        for owner in self._streams:
            self._say_listening(owner, is_on=True, to=worker)

    def _on_listening(self, worker: str, body: JSON) -> None:
        owner = _owner(body["owner"])
        if body["is_on"]:
            self._elsewhere.setdefault(owner, set()).add(worker)
        else:
            self._forget(owner, worker)

    def _on_gone(self, worker: str, _body: JSON) -> None:
        for owner in list(self._elsewhere):
            self._forget(owner, worker)

    def _forget(self, owner: Owner, worker: str) -> None:
        listening = self._elsewhere.get(owner, set())
        listening.discard(worker)
        if not listening:
            self._elsewhere.pop(owner, None)

    def _on_event(self, _worker: str, body: JSON) -> None:
        for box in self._streams.get(_owner(body["owner"]), ()):
            box.put(body["frame"].encode())

    def _on_cancel(self, _worker: str, body: JSON) -> JSON:
        call_id = str(body["call"])
        return {"is_cancelled": self.owns(_owner(body["owner"]), call_id) and self.cancel(call_id)}

    async def cancel_elsewhere(self, owner: Owner, call_id: str) -> bool:
        """Cancel a call of this owner in another worker; `False` if there is none.

        Raises:
            ConnectionError: the other workers cannot be asked.
        """
        if self._bus is None:
            return False
        asked: JSON = {"owner": owner, "call": call_id}
        answers = await self._bus.ask("calls.cancel", asked, is_enough=_is_cancelled)
        return any(map(_is_cancelled, answers.bodies))

    # -- events

    def publish(self, owner: Owner, event: Event, own: Outbox | None) -> None:
        """Forward one event of a call, and record the start and end of calls."""
        if event.type == "on_tool_call":
            self._running[event.call_id] = owner
        elif event.type == "on_tool_result":
            self._running.pop(event.call_id, None)
        boxes = [*self._streams.get(owner, ()), *(() if own is None else (own,))]
        elsewhere = self._elsewhere.get(owner, ())
        if boxes or elsewhere:
            shown = frame(event.type, wire_event(event))
            for worker in elsewhere:
                assert self._bus is not None
                self._bus.tell_soon("events.event", {"owner": owner, "frame": shown.decode()}, to=worker)
            for box in boxes:
                box.put(shown)


def _owner(parts: list[str | None]) -> Owner:
    credential, user, space = parts
    return str(credential), user, space


def _is_cancelled(answer: JSON) -> bool:
    return answer["is_cancelled"]


def _cancel_nothing(_call_id: str) -> bool:
    return False


class Follower:
    """The observer of the calls on one context; `call_id` is the id of the first."""

    def __init__(self, event_hub: EventHub, owner: Owner, own: Outbox | None) -> None:
        self._event_hub, self._owner, self._own = event_hub, owner, own
        self.call_id = ""

    def __getattr__(self, name: str) -> Callable[[Event], None]:
        if not name.startswith("on_"):
            raise AttributeError(name)
        return self._observed

    def _observed(self, event: Event) -> None:
        self.call_id = self.call_id or event.call_id
        # The call's own stream ends with the result itself.
        is_end = event.type == "on_tool_result" and event.call_id == self.call_id
        self._event_hub.publish(self._owner, event, None if is_end else self._own)


def wire_event(event: Event) -> JSON:
    """Return an event in its wire form; results are in the form of MCP."""
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
    """Return JSON; values in a tool's progress that are not JSON are sent as text."""
    try:
        return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS)
    except TypeError:
        # Integers over 64 bits and lone surrogates, which clients may send.
        return json.dumps(value, default=str, allow_nan=False, separators=(",", ":")).encode()
