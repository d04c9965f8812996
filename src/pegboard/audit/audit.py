"""Audit: receives the records of every call, and hands them to the writer; fills the port `AuditLog`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import cast

from pegboard.audit.audit_row import AuditRow
from pegboard.audit.audit_writer import AuditWriter
from pegboard.audit.recent_calls import RecentCalls
from pegboard.core.call.finished_call import NOT_READ, FinishedCall, FinishedRun, StartedCall
from pegboard.core.digests import canonical_json
from pegboard.core.judge import VISIBLE
from pegboard.core.ports import AuditEvent
from pegboard.model.json_types import JSON, JSONValue
from pegboard.model.result import Content, TextContent


class Audit:
    """The audit of one catalog; a `CallObserver` and an `AuditLog`. It costs a call about a microsecond.

    Args:
        writer: writes the rows.
        is_required: whether calls that change something are refused while nothing can be recorded.
    """

    times_stages = True

    def __init__(self, writer: AuditWriter, *, is_required: bool = False) -> None:
        self.writer, self.is_required = writer, is_required
        self.recent_calls = RecentCalls(writer.store)
        self._put = writer.put
        # Without the method in between, which would cost each call a tenth of the whole.
        self.started = writer.put  # type: ignore[method-assign] - takes any record

    @property
    def is_up(self) -> bool:
        return self.writer.is_up

    def fault(self) -> str:
        """Return why records are not stored now; empty if they are. Tries a store that was not tried yet."""
        return self.writer.fault()

    def started(self, call: StartedCall) -> None:
        """Record the start of a call; it becomes a row only if the call runs for longer than a batch."""
        self._put(call)

    def finished(self, call: FinishedCall) -> None:
        """Record a call that has ended."""
        # Unpacked at once, and made without calling the class: each costs a call less than reading its fields.
        (
            started, tool, entry, arguments, is_flat, judge, consent, consent_id, limit_keys, kind, unknown, upstream,
            account, costs, duration_s, marks, ended, result, redactor,
        ) = call  # fmt: skip
        content = result.content
        if len(content) == 1 and type(block := content[0]) is TextContent and (text := block.text).isascii():
            size = len(text)
        else:
            size = _size(content)
        if is_flat:
            copied = {**cast("JSON", arguments)}
        else:
            # Without decoding, each result of orjson would occupy a kilobyte until it is written.
            copied = "" if arguments is NOT_READ else canonical_json(arguments).decode("utf-8", "surrogatepass")
        # The fields of an `EndedCall`.
        self._put((
            started, tool, entry, copied, judge() if entry is None else VISIBLE, consent, consent_id, limit_keys,
            kind, unknown, upstream, account, costs, duration_s, marks, ended, size, redactor,
        ))  # fmt: skip

    def begin_run(self, started: StartedCall) -> None:
        """Record the start of an agent's run; it becomes a row only if the run takes longer than a batch."""
        self._put(started)

    def end_run(self, run: FinishedRun) -> None:
        """Record an agent's run that has ended."""
        self._put(run._replace(arguments=canonical_json(run.arguments), output=len(canonical_json(run.output))))

    def note(self, event: AuditEvent, detail: Mapping[str, JSONValue], *, by: str = "") -> None:
        """Record a change of what may be called; `detail` must contain no secret."""
        self.writer.put(AuditRow(event=event, at=self.writer.now(), credential=by, detail=detail))

    async def close(self) -> None:
        """Write the remaining rows, in a thread."""
        await asyncio.to_thread(self.writer.close)


def _size(content: Iterable[Content]) -> int:
    """Return the bytes of a result's texts."""
    size = 0
    for block in content:
        text = getattr(block, "text", None)
        if type(text) is str:
            size += len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
    return size
