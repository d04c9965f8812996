"""Grepping: finds the lines of documents that match a pattern."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from pegboard.model.document import DocumentFilters
from pegboard.model.json_types import JSON
from pegboard.workspace.linear_patterns import LinearPattern, linear, literal
from pegboard.workspace.paging import fitting_count
from pegboard.workspace.store.connection import Connection
from pegboard.workspace.store.readable_spaces import ReadableSpaces

GREP_LINE_CHARS = 1_000  # characters shown of one line

_LINE_BREAK = re.compile(r"\n|\\n")
_BY_LINES: Final = "Lines are looked at one by one: a pattern with a line break fits none. Look for one of its lines."


def grep(
    db: Connection,
    within: ReadableSpaces,
    pattern: str,
    *,
    is_regex: bool,
    ignore_case: bool,
    filters: DocumentFilters,
    context_lines: int,
    limit: int,
) -> JSON:
    """Return the matching lines, by source, path and line; `total` also counts those not shown."""
    condition, values = within.filtered(db, filters)
    written = pattern if is_regex else literal(pattern)
    # The whole text is searched first, since most have no match; then each line separately.
    of_line = linear(written, ignore_case=ignore_case)
    has_any = None if "\\A" in written or "\\z" in written else linear(f"(?m:{written})", ignore_case=ignore_case)
    rows = db.scan(
        f"""
        select documents.id, documents.name, texts.text
        from documents
            join sources on sources.n = documents.source_n
            join texts on texts.document_n = documents.n
        where {condition} order by sources.name, sources.id, documents.folder, documents.name
        """,  # noqa: S608 - conditions of ours
        values,
    )
    matches: list[JSON] = []
    total = scanned = 0
    for row in rows:
        document_id, name, text = row[0], row[1], str(row[2]).encode()
        scanned += 1
        if has_any is not None and has_any.search(text) is None:
            continue
        for match in _in_text(text, of_line, context_lines):
            total += 1
            if len(matches) < limit:
                matches.append({"document_id": document_id, "name": name, **match})
    count = fitting_count(matches)
    answer: JSON = {"matches": matches[:count], "total": total, "files_scanned": scanned, "truncated": count < total}
    return {**answer, "note": _BY_LINES} if total == 0 and _LINE_BREAK.search(pattern) else answer


def _in_text(text: bytes, pattern: LinearPattern, context_lines: int) -> Iterator[JSON]:
    lines = text.split(b"\n")
    begin = 0
    for place, line in enumerate(lines):
        match = pattern.search(line)
        shown = line.decode()
        if match is not None:
            start, end = (len(line[:at].decode()) for at in match.span())
            yield {
                "line": place + 1, "start": begin + start, "end": begin + end, "text": _cut(shown, start),
                "before": [_cut(each.decode(), 0) for each in lines[max(0, place - context_lines) : place]],
                "after": [_cut(each.decode(), 0) for each in lines[place + 1 : place + 1 + context_lines]],
            }  # fmt: skip
        begin += len(shown) + 1


def _cut(line: str, at: int) -> str:
    """Return a line; of a long one the part around a place."""
    if len(line) <= GREP_LINE_CHARS:
        return line
    first = max(0, min(at - GREP_LINE_CHARS // 2, len(line) - GREP_LINE_CHARS))
    return f"{'…' if first else ''}{line[first : first + GREP_LINE_CHARS]}…"
