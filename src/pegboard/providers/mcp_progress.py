"""MCP progress: pass on what a tool says of its progress, and what happens below it, to the client that asked."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from pegboard.model.event import Event

PROGRESS_MESSAGE_CHARS = 2_000  # of one step of progress that a client is told

Tell: TypeAlias = "Callable[[float, float | None, str], Awaitable[None]]"
"""Sends a client how far a call is, of how much, and a word about it."""


class Progress:
    """An observer of one call, over whatever speaks MCP. What does not go up is left out, as the protocol wants.

    Each event of a sub-agent is one step further, with what happened as its message; of its answer that is the text.
    """

    own_call_only = True
    part_of_answer = True

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
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
        await self._tell(
            done, total if isinstance(total, int | float) else None, message if isinstance(message, str) else ""
        )

    async def on_sub_agent_start(self, event: Event) -> None:
        """Say which agent begins."""
        await self._step(f"{_indent(event)}{event.payload.get('agent')}: started")

    async def on_sub_agent_chunk(self, event: Event) -> None:
        """Send the text that it has answered since."""
        await self._step(str(event.payload.get("text", "")))

    async def on_sub_agent_tool_call(self, event: Event) -> None:
        """Say which tool it calls."""
        await self._step(f"{_indent(event)}{event.payload.get('agent')}: calls {event.payload.get('tool')}")

    async def on_sub_agent_tool_result(self, event: Event) -> None:
        """Say how that went; what it gave is for the agent."""
        went = "answered" if event.ok else "failed"
        await self._step(f"{_indent(event)}{event.payload.get('agent')}: {event.payload.get('tool')} {went}")

    async def on_sub_agent_end(self, event: Event) -> None:
        """Say how the agent ended."""
        await self._step(f"{_indent(event)}{event.payload.get('agent')}: {event.payload.get('status')}")

    async def _step(self, message: str) -> None:
        # Beyond 1, where no fraction that a tool tells can come back to.
        self._last = math.floor(max(self._last, 0.0)) + 1.0
        await self._tell(self._last, None, message[:PROGRESS_MESSAGE_CHARS])


def _indent(event: Event) -> str:
    depth = event.payload.get("depth")
    return "  " * (depth - 1) if isinstance(depth, int) else ""
