"""Find page: a search over tools, profiles, pages and calls; the command palette shows the same results."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import NamedTuple

from starlette.responses import Response

from pegboard.audit.audit import Audit
from pegboard.audit.audit_query import AuditFilter, newest_rows
from pegboard.audit.audit_row import AuditRow
from pegboard.auth.rule_callers import rule_callers
from pegboard.server.console.board import pegs_of
from pegboard.server.console.decision_words import meaning_of
from pegboard.server.console.frame import frame, tabs_of
from pegboard.server.console.outcome_words import outcome_in_words
from pegboard.server.console.pages import Pages
from pegboard.server.console.shown_time import ago
from pegboard.server.console.visit import Lens, Visit
from pegboard.storage.store_error import StoreError

FIND_QUERY_CHARS = 200  # of a search
FIND_HITS = 12  # results of each kind
FIND_ROWS = 2_000  # newest audit rows that a search reads, since the palette searches at each letter

_CALL_ID = re.compile(r"[0-9a-f]{32}")


class Hit(NamedTuple):
    """A result: its kind in one word, its name, a text next to it, and the address of its page."""

    kind: str
    name: str
    text: str
    href: str


class FindPage:
    """`/console/find`."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages

    async def show(self, visit: Visit) -> Response:
        query = visit.query.get("find", "").strip()[:FIND_QUERY_CHARS]
        words = query.casefold().split()
        hits = [*_pages(visit, words), *_profiles(visit, words), *_callers(visit, words)]
        if words:
            hits = [*hits, *await _tools(visit, words), *await _calls(visit, query)]
        return self._pages.page("find.html", {**frame(visit, "find"), "query": query, "hits": hits})


def _pages(visit: Visit, words: Sequence[str]) -> list[Hit]:
    tabs = [one for one in tabs_of(visit) if _has(f"{one.label} {one.about}", words)]
    return [Hit("page", one.label, one.about, visit.url(one.path)) for one in tabs]


def _profiles(visit: Visit, words: Sequence[str]) -> list[Hit]:
    names = [one for one in visit.profiles if words and _has(one, words)]
    return [Hit("profile", one, "its board", visit.url(profile=one)) for one in names[:FIND_HITS]]


def _callers(visit: Visit, words: Sequence[str]) -> list[Hit]:
    found = [one for one in callers_of(visit) if _has(f"{one.name} {one.text}", words)] if words else []
    return found[:FIND_HITS]


def callers_of(visit: Visit) -> list[Hit]:
    """Return the callers that the rules name, for operators, each with the board that it sees."""
    rules = visit.gateway.registry.declarations.identity
    if not visit.is_operator or rules is None:
        return []
    hits = list[Hit]()
    for caller in rule_callers(rules, visit.profiles):
        lens = Lens(
            profile=next(iter(caller.profiles), None) or "", user=caller.user or "", space=caller.space or "",
            role=", ".join(caller.roles),
        )  # fmt: skip
        profiles = ", ".join(filter(None, caller.profiles))
        text = f"{caller.name}, its board{f'; profile {profiles}' if profiles else ''}"
        hits.append(Hit("caller", caller.user or caller.name, text, visit.address("", lens.query())))
    return hits


async def _tools(visit: Visit, words: Sequence[str]) -> list[Hit]:
    """Return the tools with all words, those with the words in the name first."""
    shown = [
        (not _has(peg.name, words), peg, entry.spec.description.strip().partition("\n")[0])
        for entry, peg in await pegs_of(visit, visit.view())
        if _has(f"{peg.name} {entry.spec.title or ''} {entry.spec.description}", words)
    ]
    shown.sort(key=lambda one: one[0])
    return [
        Hit(
            "tool",
            peg.name,
            text if peg.code == "visible" else f"hidden: {meaning_of(peg.code)}",
            visit.url(f"/tools/{peg.name}"),
        )
        for _, peg, text in shown[:FIND_HITS]
    ]


async def _calls(visit: Visit, query: str) -> list[Hit]:
    """Return recent calls of tools with the query in their name, or the call with this id; for operators."""
    audit = visit.gateway.catalog.executor.ports.audit
    if not visit.is_operator or not isinstance(audit, Audit):
        return []
    is_id = _CALL_ID.fullmatch(query) is not None
    wanted = AuditFilter(call_id=query) if is_id else AuditFilter(tool=f"*{query}*")
    reads = None if is_id else FIND_ROWS
    try:
        found = await asyncio.to_thread(newest_rows, audit.writer.store, wanted, limit=FIND_HITS, reads=reads)
    except StoreError:
        return [Hit("calls", "Calls cannot be searched now", "the audit cannot be read", visit.url("/audit"))]
    rows = {row.call_id: row for row in found if row.call_id}
    return [
        Hit("call", row.tool or row.name, _call_words(row, visit.now()), visit.url(f"/audit/{call_id}"))
        for call_id, row in rows.items()
    ]


def _call_words(row: AuditRow, now: float) -> str:
    return f"{outcome_in_words(row.outcome or row.event)} by {row.user or 'nobody known'}, {ago(row.at, now)}"


def _has(text: str, words: Sequence[str]) -> bool:
    folded = text.casefold()
    return all(word in folded for word in words)
