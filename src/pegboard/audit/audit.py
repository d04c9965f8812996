"""Audit: receives the records of every call, and hands them to the writer; fills the port `AuditLog`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import orjson

from pegboard.audit.audit_row import AuditRow
from pegboard.audit.audit_writer import AuditWriter
from pegboard.audit.call_rows import EndedCall
from pegboard.core.call.finished_call import FinishedCall, StartedCall
from pegboard.core.digests import canonical_json
from pegboard.core.judge import VISIBLE
from pegboard.core.ports import AuditEvent
from pegboard.model.json_types import JSON, JSONValue
from pegboard.model.result import ToolResult, new_tuple

_CANONICAL = orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS


class Audit:
    """The audit of one catalog; a `CallObserver` and an `AuditLog`. It costs a call about a microsecond.

    Args:
        writer: writes the rows.
        is_required: whether calls that change something are refused while nothing can be recorded.
    """

    times_stages = True

    def __init__(self, writer: AuditWriter, *, is_required: bool = False) -> None:
        self.writer, self.is_required = writer, is_required

    @property
    def is_up(self) -> bool:
        return self.writer.is_up

    def fault(self) -> str:
        """Return why records are not stored now; empty if they are. Tries a store that was not tried yet."""
        return self.writer.fault()

    def started(self, call: StartedCall) -> None:
        """Record the start of a call; it becomes a row only if the call runs for longer than a batch."""
        self.writer.put(call)

    def finished(self, call: FinishedCall) -> None:
        """Record a call that has ended."""
        entry, redactor = call.entry, call.redactor
        self.writer.put(new_tuple(EndedCall, (
            call.started, call.tool, entry, _written(call.arguments), call.decision if entry is None else VISIBLE,
            call.consent, call.consent_id, call.limit_keys, call.kind, call.outcome_unknown, call.upstream,
            call.duration_s, call.stage_s, _size(call.result), redactor,
        )))  # fmt: skip

    def note(self, event: AuditEvent, detail: Mapping[str, JSONValue], *, by: str = "") -> None:
        """Record a change of what may be called; `detail` must contain no secret."""
        self.writer.put(AuditRow(event=event, at=self.writer.now(), credential=by, detail=detail))

    async def close(self) -> None:
        """Write what is left, in a thread."""
        await asyncio.to_thread(self.writer.close)


def _written(arguments: JSON) -> bytes:
    """Return the canonical JSON of arguments, which nobody can change later."""
    try:
        return orjson.dumps(arguments, option=_CANONICAL, default=str)
    except TypeError:
        return canonical_json(arguments)


def _size(result: ToolResult) -> int:
    """Return the bytes of a result's texts."""
    size = 0
    for block in result.content:
        text = getattr(block, "text", None)
        if type(text) is str:
            size += len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
    return size
