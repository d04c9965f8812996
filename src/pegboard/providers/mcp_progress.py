"""MCP progress: sends a tool's progress and its nested calls to the client as progress notifications."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from pegboard.model.event import Event

PROGRESS_MESSAGE_CHARS = 2_000  # characters of one progress message

Tell: TypeAlias = "Callable[[float, float | None, str], Awaitable[None]]"
"""Sends a client the progress of a call, the total and a message."""


class Progress:
    """An observer of one call, for any MCP transport. Values that do not increase are skipped, as MCP requires.

    Each event of a sub-agent counts as one step, with a message; the message for a part of its answer is that text.
    """

    own_call_only = True
    part_of_answer = True

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._last = -1.0

    async def on_progress(self, event: Event) -> None:
        """Send one event; of `ctx.emit` payloads only those with a number under `progress`."""
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
        """Report the start of a sub-agent."""
        await self._step(f"{_indent(event)}{event.payload.get('agent')}: started")

    async def on_sub_agent_chunk(self, event: Event) -> None:
        """Send the next part of its answer."""
        await self._step(str(event.payload.get("text", "")))

    async def on_sub_agent_tool_call(self, event: Event) -> None:
        """Report its tool call."""
        await self._step(f"{_indent(event)}{event.payload.get('agent')}: calls {event.payload.get('tool')}")

    async def on_sub_agent_tool_result(self, event: Event) -> None:
        """Report the outcome of its tool call; the result itself is for the agent."""
        outcome = "answered" if event.ok else "failed"
        await self._step(f"{_indent(event)}{event.payload.get('agent')}: {event.payload.get('tool')} {outcome}")

    async def on_sub_agent_end(self, event: Event) -> None:
        """Report the end of a sub-agent."""
        await self._step(f"{_indent(event)}{event.payload.get('agent')}: {event.payload.get('status')}")

    async def _step(self, message: str) -> None:
        # Above 1, so that a later fraction of the tool cannot fall behind.
        self._last = math.floor(max(self._last, 0.0)) + 1.0
        await self._tell(self._last, None, message[:PROGRESS_MESSAGE_CHARS])


def _indent(event: Event) -> str:
    depth = event.payload.get("depth")
    return "  " * (depth - 1) if isinstance(depth, int) else ""
