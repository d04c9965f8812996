"""Relay: forwards the calls of a sub-agent as events to observers of the surrounding call."""

from __future__ import annotations

from typing import Any

from pegboard.model.call_context import SubAgent
from pegboard.model.event import Event
from pegboard.model.json_types import JSONValue
from pegboard.model.result import ToolResult


class Relay:
    """An observer of all calls of one sub-agent. Nested agents' calls already arrive as sub-agent events."""

    def __init__(self, sub: SubAgent) -> None:
        self._sub = sub
        for name in ("start", "chunk", "tool_call", "tool_result", "end"):
            setattr(self, f"on_sub_agent_{name}", sub.pass_on)
        self.on_progress = self.on_batch_started = self.on_batch_completed = sub.pass_on

    def on_tool_call(self, event: Event) -> Any:
        """Report the start of the sub-agent's call."""
        return self._sub.tool_call(event.tool, event.payload.get("arguments"), call_id=event.call_id)

    def on_tool_result(self, event: Event) -> Any:
        """Report the end of the sub-agent's call."""
        result: Any = event.payload.get("result")
        return self._sub.tool_result(event.tool, plain(result), ok=bool(event.ok), call_id=event.call_id)


def plain(result: ToolResult) -> JSONValue:
    """Return a result as JSON: its structured value, or its text."""
    return result.structured if result.has_structured else result.text
