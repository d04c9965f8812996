"""Audit query: the newest rows that match a filter, one for each call."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Struct

from pegboard.audit.audit_row import AuditRow, read_row
from pegboard.audit.audit_store import AuditStore
from pegboard.audit.hash_chain import hash_of
from pegboard.core.names import matches
from pegboard.model.json_types import JSON

AUDIT_FOUND_ROWS = 10_000  # rows that one query may return


class AuditFilter(Struct, frozen=True, kw_only=True):
    """Select rows of the audit. An empty field accepts everything.

    `tool` is a glob over qualified ids and requested names. `call_id` may be the beginning of an id. `kind` is an
    outcome, such as `rate_limited`, or an event, such as `config_taken`. `since` and `until` are seconds since 1970.
    """

    tool: str = ""
    user: str = ""
    key: str = ""
    space: str = ""
    profile: str = ""
    agent: str = ""
    kind: str = ""
    call_id: str = ""
    since: float = 0.0
    until: float = math.inf
    longer_than_s: float = 0.0

    def accepts(self, row: AuditRow) -> bool:
        """Tell whether a row is wanted."""
        return (
            (not self.tool or matches(self.tool, (row.tool, row.name)))
            and self.user in ("", row.user)
            and self.key in ("", row.key)
            and self.space in ("", row.space)
            and self.profile in ("", row.profile)
            and self.agent in ("", row.agent)
            and self.kind in ("", row.outcome, row.event)
            and row.call_id.startswith(self.call_id)
            and self.since <= row.at < self.until
            and (not self.longer_than_s or row.duration_s > self.longer_than_s)
        )


class Page(NamedTuple):
    """Rows, the newest first, and the cursor of the page of older ones; empty if there are none."""

    rows: list[AuditRow]
    cursor: str


def newest_rows(store: AuditStore, wanted: AuditFilter, *, limit: int, reads: int | None = None) -> list[AuditRow]:
    """Return the newest rows that match, the newest first; `reads` limits the search to the newest rows.

    Raises:
        StoreError: the store cannot be read.
    """
    return newest_page(store, wanted, limit=limit, reads=reads).rows


def newest_page(
    store: AuditStore, wanted: AuditFilter, *, limit: int, cursor: str = "", reads: int | None = None
) -> Page:
    """Return the newest rows that match, or those after a cursor. Rows that are written meanwhile change no later page.

    Raises:
        StoreError: the store cannot be read.
        LookupError: the row of the cursor no longer exists.
    """
    found: list[AuditRow] = []
    is_reached, last = not cursor, ""
    for raw, row in _one_a_call(_read(islice(store.newest(since=wanted.since), reads))):
        if not is_reached:
            is_reached = hash_of(raw) == cursor
        elif wanted.accepts(row):
            if len(found) >= limit:
                return Page(found, last)
            found.append(row)
            last = hash_of(raw)
    if not is_reached:
        raise LookupError("The cursor does not lead to a row; it may have been deleted. Begin again without it.")
    return Page(found, "")


def calls_since(store: AuditStore, since: float) -> Iterator[AuditRow]:
    """Yield a row for each call that began at `since` or later, about in the order of their ends.

    Calls that never ended come last, with their `begin` row.

    Raises:
        StoreError: the store cannot be read.
    """
    chains = [_rows(stored.raw for stored in store.rows(chain)) for chain in store.chains()]
    yield from _calls(heapq.merge(*chains, key=_ended_at), since)


def calls_in_export(path: Path, since: float) -> Iterator[AuditRow]:
    """Yield the calls in the output of `pegboard audit export`, as `calls_since` does.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as lines:  # raw: the operator's own file
        yield from _calls(_rows(lines), since)


def _ended_at(row: AuditRow) -> float:
    return row.at + row.duration_s


def _calls(rows: Iterable[AuditRow], since: float) -> Iterator[AuditRow]:
    running: dict[str, AuditRow] = {}
    for row in rows:
        if row.at < since:
            continue
        if row.event == "begin":
            running[row.call_id] = row
        elif row.event == "call":
            running.pop(row.call_id, None)
            yield row
    yield from running.values()


def shown_row(row: AuditRow) -> JSON:
    """Return a row as JSON for people and programs, with its time in ISO form."""
    shown: JSON = msgspec.to_builtins(row)
    return {**shown, "event": row.event, "time": iso_time(row.at)}


def iso_time(at: float) -> str:
    """Return seconds since 1970 in ISO form, in milliseconds."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _rows(raws: Iterable[bytes]) -> Iterator[AuditRow]:
    return (row for _, row in _read(raws))


def _read(raws: Iterable[bytes]) -> Iterator[tuple[bytes, AuditRow]]:
    for raw in raws:
        try:
            yield raw, read_row(raw)
        except (msgspec.DecodeError, ValueError):
            # `verify` names it.
            continue


def _one_a_call(rows: Iterable[tuple[bytes, AuditRow]]) -> Iterator[tuple[bytes, AuditRow]]:
    """Leave out the `begin` rows of calls that have ended; their end is newer."""
    ended = set[str]()
    for raw, row in rows:
        if row.event == "call":
            # Few calls have two rows; their ids are what must be remembered.
            ended.add(row.call_id)
        elif row.event == "begin" and row.call_id in ended:
            continue
        yield raw, row
