"""Recent calls: the newest calls of an audit in memory, so that a page can count them without reading them again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from sys import intern
from threading import Lock
from typing import Any, NamedTuple, get_args

import msgspec
from msgspec import Struct

from pegboard.audit.audit_row import NO_COSTS, NO_STAGES, has_run
from pegboard.audit.audit_store import AuditStore
from pegboard.audit.usage import UsageCounter, UsageField, UsageRow, UsageSpan, by_frequency, value_of

RECENT_CALLS = 50_000  # in memory, about 200 bytes each


class CountedCalls(NamedTuple):
    """The counts of all calls, of each value of a field, and of each span of time; and the ids of their tools."""

    whole: UsageRow
    rows: Sequence[UsageRow]
    spans: Sequence[UsageSpan]
    tools: frozenset[str]


class _Read(Struct, gc=False):
    """The fields of an `AuditRow` that are counted or needed to read on; the others are skipped, which is faster."""

    at: float
    seq: int = 0
    previous: str = ""
    event: str = "call"
    call_id: str = ""
    name: str = ""
    tool: str = ""
    profile: str = ""
    user: str = ""
    agent: str = ""
    key: str = ""
    space: str = ""
    door: str = ""
    outcome: str = ""
    duration_s: float = 0.0
    stage_s: Mapping[str, float] = NO_STAGES
    argument_bytes: int = 0
    result_bytes: int = 0
    costs: Mapping[str, float] = NO_COSTS


_decoder = msgspec.json.Decoder(_Read)


class _Mark(NamedTuple):
    """The newest row that was read, and the number and time of the heads of rows that were deleted or changed."""

    seq: int
    previous: str
    heads: tuple[int, float]


class _Columns:
    """The same fields of many calls, with a list for each: lists are chosen from and summed without a Python loop."""

    def __init__(self) -> None:
        self.at: list[float] = []
        self.outcome: list[str] = []
        self.ran_s: list[float | None] = []
        self.argument_bytes: list[int] = []
        self.result_bytes: list[int] = []
        self.costs: list[Mapping[str, float]] = []
        self.tool_id: list[str] = []
        self.values: dict[UsageField, list[str]] = {field: [] for field in get_args(UsageField)}

    def add(self, row: _Read) -> None:
        self.at.append(row.at)
        self.outcome.append(intern(row.outcome))
        self.ran_s.append(row.duration_s if has_run(row.outcome, row.stage_s) else None)
        self.argument_bytes.append(row.argument_bytes)
        self.result_bytes.append(row.result_bytes)
        self.costs.append(row.costs or NO_COSTS)
        self.tool_id.append(intern(row.tool))
        for field, column in self.values.items():
            column.append(intern(value_of(row, field)))

    def drop_oldest(self, most: int) -> None:
        """Leave the newest calls."""
        if (surplus := len(self.at) - most) > 0:
            for column in self._all():
                del column[:surplus]

    def with_others(self, rows: Iterable[_Read]) -> _Columns:
        """Return a copy with more calls."""
        copy = _Columns()
        for column, own in zip(copy._all(), self._all(), strict=True):
            column.extend(own)
        for row in rows:
            copy.add(row)
        return copy

    def count(self, places: Sequence[int]) -> UsageCounter:
        """Count the calls at these places."""
        counter = UsageCounter()
        if places:
            # One place more, since a single one would give no tuple.
            chosen = itemgetter(places[0], *places)
            counter.add_many(*(
                chosen(column)[1:]
                for column in (self.outcome, self.ran_s, self.argument_bytes, self.result_bytes, self.costs)
            ))  # fmt: skip
        return counter

    def _all(self) -> tuple[list[Any], ...]:
        return (
            self.at, self.outcome, self.ran_s, self.argument_bytes, self.result_bytes, self.costs, self.tool_id,
            *self.values.values(),
        )  # fmt: skip


class RecentCalls:
    """The newest calls of an audit store, which other processes may write too.

    Each question reads the rows that are new since the last one. Everything is read again after rows were deleted or
    lost a person's names, and for each question while the audit has several chains. The method blocks: call it in a
    thread.

    Args:
        store: the audit.
        most: calls to hold.
    """

    def __init__(self, store: AuditStore, *, most: int = RECENT_CALLS) -> None:
        self._store, self._most = store, most
        self._lock = Lock()
        self._mark: _Mark | None = None
        self._ended, self._running = _Columns(), dict[str, _Read]()

    def counted(self, by: UsageField, *, since: float, until: float, spans: int) -> CountedCalls:
        """Return the counts of the calls that began between two times, in seconds since 1970.

        Args:
            by: the field whose values are counted.
            since: the beginning of the first span.
            until: the end of the last span.
            spans: their number; all have the same length.

        Raises:
            StoreError: the store cannot be read.
        """
        with self._lock:
            self._read_on()
            calls = self._ended.with_others(self._running.values()) if self._running else self._ended
            span_s = (until - since) / spans
            places = [place for place, at in enumerate(calls.at) if since <= at < until]
            by_value = defaultdict[str, list[int]](list)
            by_span: list[list[int]] = [[] for _ in range(spans)]
            ats, values = calls.at, calls.values[by]
            for place in places:
                by_value[values[place]].append(place)
                by_span[int((ats[place] - since) / span_s)].append(place)
            return CountedCalls(
                whole=calls.count(places).counted(""),
                rows=by_frequency(calls.count(each).counted(value) for value, each in by_value.items()),
                spans=[
                    UsageSpan(at=since + number * span_s, usage=calls.count(each).counted(""))
                    for number, each in enumerate(by_span)
                ],
                tools=frozenset(calls.tool_id[place] for place in places),
            )

    def _read_on(self) -> None:
        """Read the rows that are newer than the mark; all, if what was read is not a part of the audit any more."""
        chains = self._store.chains()
        changed = [head.at for chain in chains for head in self._store.heads(chain) if head.kind != "head"]
        heads = (len(changed), max(changed, default=0.0))
        mark = self._mark if len(chains) == 1 else None
        if mark is None or mark.heads != heads or (rows := self._newer(mark)) is None:
            self._ended, self._running = _Columns(), {}
            rows = self._newer(None) or []
        for row in reversed(rows):
            if row.event == "begin":
                self._running[row.call_id] = row
            elif row.event == "call":
                self._running.pop(row.call_id, None)
                self._ended.add(row)
        self._ended.drop_oldest(self._most)
        if rows:
            self._mark = _Mark(rows[0].seq, rows[0].previous, heads)

    def _newer(self, mark: _Mark | None) -> list[_Read] | None:
        """Return the rows after the mark, the newest first, at most as many as are held; `None` if it is lost."""
        rows: list[_Read] = []
        for raw in self._store.newest(since=0.0):
            try:
                row = _decoder.decode(raw)
            except (msgspec.DecodeError, ValueError):
                # `verify` names it.
                continue
            if mark is not None and row.seq <= mark.seq:
                return rows if (row.seq, row.previous) == (mark.seq, mark.previous) else None
            rows.append(row)
            if len(rows) >= self._most:
                return rows if mark is None else None
        return rows if mark is None else None
