"""Progress: pass on what a tool says of its progress to the client that asked for it."""

from __future__ import annotations

from pegboard.model.event import Event
from pegboard.server.mcp.client_channel import ClientChannel


class Progress:
    """An observer of one call. What does not go up is left out, as the protocol wants."""

    own_call_only = True
    part_of_answer = True

    def __init__(self, channel: ClientChannel) -> None:
        self._channel = channel
        self._last = -1.0

    async def on_progress(self, event: Event) -> None:
        """Send one event; of `ctx.emit` payloads those with a number under `progress`."""
        payload = event.payload
        done, total = payload.get("fraction"), 1.0
        if done is None:
            done, total = payload.get("progress"), payload.get("total")
        if not isinstance(done, int | float) or done <= self._last:
            return
        self._last = done
        message = payload.get("message")
        await self._channel.progress(
            done, total if isinstance(total, int | float) else None, message if isinstance(message, str) else ""
        )
