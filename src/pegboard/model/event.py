"""Event: something that happened in a call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, Protocol

from pegboard.model.json_types import JSONValue

EventType = Literal[
    "on_tool_call", "on_tool_result", "on_sub_agent_start", "on_sub_agent_chunk", "on_sub_agent_tool_call",
    "on_sub_agent_tool_result", "on_sub_agent_end", "on_progress", "on_batch_started", "on_batch_completed",
]  # fmt: skip


class Event(NamedTuple):
    """Something that happened in a call. `seq` grows within a request; `at` is seconds since 1970."""

    type: EventType
    tool: str
    request_id: str
    call_id: str
    parent_call_id: str | None
    seq: int
    at: float
    ok: bool | None = None
    payload: Mapping[str, JSONValue] = {}


class Observer(Protocol):
    """An object with some of the methods named in `EventType`, each taking an `Event`, sync or async."""
