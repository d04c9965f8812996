"""Audit page: the newest rows of the audit, for operators: who called what, what became of it, and why."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from starlette.responses import Response

from pegboard.audit.audit import Audit
from pegboard.audit.audit_query import AuditFilter, newest_rows
from pegboard.audit.audit_row import AuditRow
from pegboard.server.console.frame import frame
from pegboard.server.console.outcome_words import outcome_in_words, outcome_meant
from pegboard.server.console.page_error import PageError, only_operators
from pegboard.server.console.pages import Pages
from pegboard.server.console.shown_json import one_line, pretty
from pegboard.server.console.shown_time import stages_of, took
from pegboard.server.console.table_file import Cell, iso_time, links_of, table_file
from pegboard.server.console.visit import Visit
from pegboard.storage.store_error import StoreError

AUDIT_ROWS_SHOWN = 200  # rows on one page
ARGUMENTS_SHOWN_CHARS = 160  # of a call in the list
_DECISIONS = ("consent_decided", "grant_given", "consent_forgotten")
_ACCOUNTS = ("account_connected", "account_disconnected")
_ANSWERS = {"approved": "yes", "denied": "no", "granted": "allowed", "forgotten": "revoked"}
_COLUMNS = ("time", "event", "tool", "who", "profile", "door", "outcome", "decision", "ms", "call_id")
_FILTERS = ("tool", "user", "space", "kind")


class AuditLine(NamedTuple):
    """A row with its times in words, the name of its caller, and the tool and answer of a person's decision.

    `arguments` are those of the call in one line, for people who may see them; the audit has them with
    `bodies: redacted`.
    """

    row: AuditRow
    at: str
    took: str
    who: str
    about: str
    answer: str
    arguments: str = ""


class Facet(NamedTuple):
    """An outcome or event of the shown rows: its name, its words, and the number of rows."""

    kind: str
    words: str
    rows: int


class AuditPage:
    """`/console/audit` and `/console/audit/{id}`."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages

    async def list(self, visit: Visit) -> Response:
        only_operators(visit)
        audit = audit_of(visit)
        # `a_user` and not `user`: that is the caller whose eyes an operator looks through.
        chosen = {name: visit.query.get(f"a_{name}", "").strip()[:200] for name in _FILTERS}
        rows = [] if audit is None else await _rows(audit, _filter(chosen))
        lines = [audit_line(row)._replace(arguments=_arguments(visit, row)) for row in rows]
        file = table_file(visit, "audit", _COLUMNS, lambda: [_cells(line) for line in lines])
        if file is not None:
            return file
        values = {
            "has_audit": audit is not None, "rows": lines, "files": links_of(visit, "/audit"), "chosen": chosen,
            "is_filtered": any(chosen.values()), "facets": [] if chosen["kind"] else _facets(rows),
            "fault": "" if audit is None or audit.is_up else audit.fault(),
            "most": AUDIT_ROWS_SHOWN,
        }  # fmt: skip
        return self._pages.page("audit.html", {**frame(visit, "audit"), **values})

    async def show(self, visit: Visit) -> Response:
        only_operators(visit)
        audit = audit_of(visit)
        call_id = visit.path["id"]
        found = [] if audit is None else await _rows(audit, AuditFilter(call_id=call_id))
        # The filter takes the beginning of an id, too.
        rows = [row for row in found if row.call_id == call_id]
        if not rows:
            raise PageError(404, "Not found", f"No row of the audit has the call id {call_id!r}.")
        row = rows[0]
        values = {
            "one": audit_line(row),
            "arguments": pretty(row.arguments) if visit.sees_bodies and row.arguments is not None else "",
            "stages": stages_of(row.stage_s),
            "detail": pretty(dict(row.detail)) if row.detail else "",
        }
        return self._pages.page("audit_row.html", {**frame(visit, "audit"), **values})


def _arguments(visit: Visit, row: AuditRow) -> str:
    return one_line(row.arguments, ARGUMENTS_SHOWN_CHARS) if visit.sees_bodies and row.arguments is not None else ""


def _cells(line: AuditLine) -> Sequence[Cell]:
    row = line.row
    outcome = line.answer or row.outcome or row.event
    return (iso_time(row.at), row.event, row.tool or row.name, line.who, row.profile, row.door, outcome, row.decision,
            round(row.duration_s * 1000, 3), row.call_id)  # fmt: skip


def _facets(rows: Sequence[AuditRow]) -> list[Facet]:
    """Return the outcomes of the rows, the most frequent first; one alone tells nothing."""
    counts = Counter(row.outcome or row.event for row in rows).most_common()
    facets = [Facet(kind, outcome_in_words("" if kind == "begin" else kind), count) for kind, count in counts]
    return facets if len(facets) > 1 else []


def _filter(chosen: Mapping[str, str]) -> AuditFilter:
    kind = outcome_meant(chosen["kind"])
    return AuditFilter(tool=chosen["tool"], user=chosen["user"], space=chosen["space"], kind=kind)


def audit_of(visit: Visit) -> Audit | None:
    """Return the audit of the server, if it has one that can be read."""
    audit = visit.gateway.catalog.executor.ports.audit
    return audit if isinstance(audit, Audit) else None


async def _rows(audit: Audit, wanted: AuditFilter) -> list[AuditRow]:
    try:
        return await asyncio.to_thread(newest_rows, audit.writer.store, wanted, limit=AUDIT_ROWS_SHOWN)
    except StoreError as error:
        raise PageError(503, "Not now", f"The audit cannot be read: {error}.") from None


def audit_line(row: AuditRow) -> AuditLine:
    """Return a row for a page."""
    at = datetime.fromtimestamp(row.at, tz=UTC).strftime("%Y-%m-%d %H:%M:%S")
    spent = took(row.duration_s) if row.event == "call" else ""
    who, about, answer = _who(row), "", ""
    if row.event in _DECISIONS:
        caller = row.detail.get("user") or "an anonymous caller"
        because = f": {row.detail['reason']}" if row.detail.get("reason") else ""
        about, answer = f"{row.detail.get('tool', '')} for {caller}{because}", _answered(row)
        who = row.user or row.credential  # the name of the person
    elif row.event in _ACCOUNTS:
        because = f": {row.detail['reason']}" if row.detail.get("reason") else ""
        about = f"{row.detail.get('source', '')} of {row.detail.get('user', '')}{because}"
    return AuditLine(row, at, spent, who, about, answer)


def _who(row: AuditRow) -> str:
    """Return the caller, or the person who made a change; the server makes some by itself."""
    if row.event in ("call", "begin"):
        return row.user or row.credential[:12] or "nobody"
    return row.user or row.credential or "the server"


def _answered(row: AuditRow) -> str:
    """Return a person's decision in words; one that waits for a second person has its progress."""
    decision, progress = str(row.detail.get("decision", "")), row.detail.get("progress")
    return f"{_ANSWERS.get(decision, decision)}{f', {progress}' if progress and decision == 'approved' else ''}"
