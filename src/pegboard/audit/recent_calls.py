"""Recent calls: the newest calls of an audit in memory, so that a page can count them without reading them again."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from sys import intern
from threading import Lock
from typing import Any, Generic, NamedTuple, TypeVar, get_args

import msgspec
from msgspec import Struct

from pegboard.audit.audit_row import NO_COSTS, NO_STAGES, has_run
from pegboard.audit.audit_store import AuditStore
from pegboard.audit.usage import UsageCounter, UsageField, UsageRow, UsageSpan, by_frequency, value_of

RECENT_CALLS = 50_000  # in memory, about 200 bytes each
RECOUNTED_CALLS = 1_000  # beyond this number of changes, a recount is cheaper
COUNTED_WINDOWS = 8  # fields and periods whose counts are held, each up to 0.5 MB


class CountedCalls(NamedTuple):
    """The counts of all calls, of each value of a field, and of each span of time; and the ids of their tools."""

    whole: UsageRow
    rows: Sequence[UsageRow]
    spans: Sequence[UsageSpan]
    tools: frozenset[str]


class _Read(Struct, gc=False):
    """The fields of an `AuditRow` that are counted, or mark the place to continue. Decoding the others costs time."""

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


Key = TypeVar("Key", str, int)

_decoder = msgspec.json.Decoder(_Read)


class _Mark(NamedTuple):
    """The newest row that was read, and the number and newest time of chain heads written by deletions and changes."""

    seq: int
    previous: str
    heads: tuple[int, float]


class _Columns:
    """The fields of many calls, one list per field: selecting from lists and adding them up needs no Python loop."""

    def __init__(self) -> None:
        self.at: list[float] = []
        self.outcome: list[str] = []
        self.ran_s: list[float | None] = []
        self.argument_bytes: list[int] = []
        self.result_bytes: list[int] = []
        self.costs: list[Mapping[str, float]] = []
        self.tool_id: list[str] = []
        self.values: dict[UsageField, list[str]] = {field: [] for field in get_args(UsageField)}

    def __len__(self) -> int:
        return len(self.at)

    def add(self, row: _Read) -> int:
        """Add a call by its start time; return its place."""
        place = bisect_right(self.at, row.at)
        self.at.insert(place, row.at)
        self.outcome.insert(place, intern(row.outcome))
        self.ran_s.insert(place, row.duration_s if has_run(row.outcome, row.stage_s) else None)
        self.argument_bytes.insert(place, row.argument_bytes)
        self.result_bytes.insert(place, row.result_bytes)
        self.costs.insert(place, row.costs or NO_COSTS)
        self.tool_id.insert(place, intern(row.tool))
        for field, column in self.values.items():
            column.insert(place, intern(value_of(row, field)))
        return place

    def since(self, at: float) -> range:
        """Return the places of the calls that began at this time or later."""
        return range(bisect_left(self.at, at), len(self.at))

    def drop(self, count: int) -> None:
        """Drop the oldest calls."""
        for column in self._all():
            del column[:count]

    def count(self, places: Sequence[int]) -> UsageCounter:
        """Count the calls at these places."""
        counter = UsageCounter()
        if places:
            # `itemgetter` returns a tuple only for two places or more, so the first is given twice.
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


class _Window(Generic[Key]):
    """The counts of the calls since a time, by a key; updated as calls end and grow too old."""

    def __init__(self, key_of: Callable[[_Columns, int], Key], since: float, calls: _Columns) -> None:
        self.since, self._key_of, self.parts = since, key_of, dict[Key, UsageCounter]()
        self.add(calls, calls.since(since))

    def add(self, calls: _Columns, places: Iterable[int]) -> None:
        for key, counter in self._counters(calls, places):
            if key in self.parts:
                self.parts[key].merge(counter)
            else:
                self.parts[key] = counter

    def subtract(self, calls: _Columns, places: Iterable[int]) -> None:
        for key, counter in self._counters(calls, places):
            self.parts[key].subtract(counter)
            if self.parts[key].is_empty:
                del self.parts[key]

    def _counters(self, calls: _Columns, places: Iterable[int]) -> Iterator[tuple[Key, UsageCounter]]:
        by_key = defaultdict[Key, list[int]](list)
        for place in places:
            by_key[self._key_of(calls, place)].append(place)
        return ((key, calls.count(each)) for key, each in by_key.items())


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
        self._windows = OrderedDict[tuple[UsageField | float, float], _Window[Any]]()

    def counted(self, by: UsageField, *, now: float, period_s: float, span_s: float) -> CountedCalls:
        """Return the counts of the calls that began in the last `period_s` seconds.

        Args:
            by: the field whose values are counted.
            now: the end of the period, in seconds since 1970.
            period_s: its length.
            span_s: the length of each span. Spans begin at multiples of it, so that the first is not whole.

        Raises:
            StoreError: the store cannot be read.
        """
        with self._lock:
            self._read_on()
            since = now - period_s
            windows = (
                self._window(by, period_s, since, lambda calls, place: calls.values[by][place]),
                self._window(span_s, period_s, since, lambda calls, place: int(calls.at[place] // span_s)),
            )
            # Calls that run are counted only for this question, since they have no outcome yet.
            running = _Columns()
            for row in self._running.values():
                running.add(row)
            places = running.since(since)
            for window in windows:
                window.add(running, places)
            try:
                tool_ids = [running.tool_id[each] for each in places]
                return self._answer(*windows, now=now, span_s=span_s, running=tool_ids)
            finally:
                for window in windows:
                    window.subtract(running, places)

    def _answer(
        self, by_value: _Window[str], by_span: _Window[int], *, now: float, span_s: float, running: Sequence[str]
    ) -> CountedCalls:
        whole, empty, since = UsageCounter(), UsageCounter(), by_value.since
        for part in by_span.parts.values():
            whole.merge(part)
        return CountedCalls(
            whole=whole.counted(""),
            rows=by_frequency(part.counted(value) for value, part in by_value.parts.items()),
            spans=[
                UsageSpan(at=number * span_s, usage=by_span.parts.get(number, empty).counted(""))
                for number in range(int(since // span_s), int(now // span_s) + 1)
            ],
            tools=frozenset(self._ended.tool_id[self._ended.since(since).start :]).union(running),
        )

    def _window(
        self, name: UsageField | float, period_s: float, since: float, key_of: Callable[[_Columns, int], Key]
    ) -> _Window[Key]:
        """Return the counts by a key since a time; updates the counts of the last question if little has changed."""
        window = self._windows.get((name, period_s))
        too_old = range(0)
        if window is not None:
            too_old = range(self._ended.since(window.since).start, self._ended.since(since).start)
        if window is None or since < window.since or len(too_old) > RECOUNTED_CALLS:
            window = _Window(key_of, since, self._ended)
        else:
            window.subtract(self._ended, too_old)
            window.since = since
        self._windows[name, period_s] = window
        self._windows.move_to_end((name, period_s))
        if len(self._windows) > COUNTED_WINDOWS:
            self._windows.popitem(last=False)
        return window

    def _read_on(self) -> None:
        """Read the rows that are newer than the mark; all rows, if the marked one is no longer part of the audit."""
        chains = self._store.chains()
        changed = [head.at for chain in chains for head in self._store.heads(chain) if head.kind != "head"]
        heads = (len(changed), max(changed, default=0.0))
        mark = self._mark if len(chains) == 1 else None
        if mark is None or mark.heads != heads or (rows := self._newer(mark)) is None:
            self._ended, self._running = _Columns(), {}
            self._windows.clear()
            rows = self._newer(None) or []
        if len(rows) > RECOUNTED_CALLS:
            self._windows.clear()
        for row in reversed(rows):
            if row.event == "begin":
                self._running[row.call_id] = row
            elif row.event == "call":
                self._running.pop(row.call_id, None)
                self._add(row)
        if (surplus := len(self._ended) - self._most) > 0:
            self._drop(surplus)
        if rows:
            self._mark = _Mark(rows[0].seq, rows[0].previous, heads)

    def _add(self, row: _Read) -> None:
        place = self._ended.add(row)
        for window in self._windows.values():
            if row.at >= window.since:
                window.add(self._ended, (place,))

    def _drop(self, count: int) -> None:
        for window in self._windows.values():
            window.subtract(self._ended, range(self._ended.since(window.since).start, count))
        self._ended.drop(count)

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
