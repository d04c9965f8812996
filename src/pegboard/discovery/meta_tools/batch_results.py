"""Batch results: the results of a batch in wire form, within the size limit of a result."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from pegboard.core.json_text import json_bytes
from pegboard.model.error import ErrorKind, ToolError
from pegboard.model.json_types import JSON
from pegboard.model.result import Content, TextContent, ToolResult
from pegboard.providers.mcp import mcp_error

BATCH_ROOM_BYTES = 4_096  # bytes of a useTools answer reserved for the text around the results


class Outcome(Struct, frozen=True, kw_only=True):
    """The outcome of one call of a batch: its result, or the reason for having none."""

    index: int
    agent: str
    tool: str
    call_id: str
    result: ToolResult | None = None
    fault: str = ""
    fault_kind: ErrorKind = "not_found"
    correct: str = ""
    is_skipped: bool = False

    @property
    def has_failed(self) -> bool:
        return bool(self.fault) or (self.result is not None and self.result.is_error)


def shown_outcomes(done: Sequence[Outcome], *, cap_bytes: int) -> ToolResult:
    """Return the result of a batch: its JSON as text and structured output, then the media of its calls.

    A result that does not fit is left out, with a note: the call itself has run.
    """
    left = cap_bytes - BATCH_ROOM_BYTES
    items: list[JSON] = []
    media: list[Content] = []
    for outcome in done:
        blocks = _media_of(outcome)
        item = _shown(outcome, first_block=len(media) + 1)
        size = len(json_bytes(item)) + sum(_size(block) for block in blocks)
        if size > left:
            item, blocks = _without_data(outcome), []
            size = len(json_bytes(item))
        left -= size
        items.append(item)
        media.extend(blocks)
    failed = sum(outcome.has_failed for outcome in done)
    shown: JSON = {"success": failed == 0, "data": {"results": items}}
    if failed:
        shown["error"] = f"{failed} of {len(done)} failed"
    return ToolResult((TextContent(json_bytes(shown).decode()), *media), shown, has_structured=True)


def _shown(outcome: Outcome, *, first_block: int) -> JSON:
    item = _head(outcome)
    result = outcome.result
    if outcome.is_skipped:
        return {**item, "skipped": True}
    if result is None:
        return {**item, "error": {"kind": outcome.fault_kind, "message": outcome.fault}}
    if result.is_error:
        item["error"] = _error(result.error, result)
        if outcome.correct:
            item["error"]["correct"] = outcome.correct
    else:
        item["data"] = result.structured if result.has_structured else result.text
    blocks = len(_media_of(outcome))
    if blocks:
        item["media"] = [f"block {number}" for number in range(first_block, first_block + blocks)]
    if result.meta:
        item["meta"] = dict(result.meta)
    return item


def _head(outcome: Outcome) -> JSON:
    return {
        "index": outcome.index,
        "agent": outcome.agent,
        "tool": outcome.tool,
        "call_id": outcome.call_id,
        "success": not outcome.has_failed and not outcome.is_skipped,
    }


def _without_data(outcome: Outcome) -> JSON:
    note = "left out: the results of this batch are too large together. Call it alone, or ask it for less."
    return {**_head(outcome), "data": None, "note": note}


def _error(error: ToolError | None, result: ToolResult) -> JSON:
    return {"kind": "tool_error", "message": result.text} if error is None else mcp_error(error)


def _media_of(outcome: Outcome) -> list[Content]:
    content = () if outcome.result is None else outcome.result.content
    return [block for block in content if not isinstance(block, TextContent)]


def _size(block: Content) -> int:
    return sum(len(part if isinstance(part, bytes) else str(part).encode()) for part in block if part is not None)
