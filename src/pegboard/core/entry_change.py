"""Entry change: the difference between the entries of two snapshots, so that unchanged derived data is reused.

In a large catalog single tools change now and then. Data derived from entries is stored by place and moves along with
them. Neighbours move together, as runs of places. Work per entry is done by the interpreter's built-in loops, since one
change among ten thousand entries must not block the event loop.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import compress, count
from operator import attrgetter, is_not
from typing import Any, NamedTuple, TypeVar

from msgspec import Struct

from pegboard.core.entry_table import Ordered
from pegboard.model.tool import ToolEntry

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
_FEW = 8  # changes below which single lookups are faster than a pass over all entries
_TOGETHER = 256  # ids that are compared at once
_NEW = -1


class Placed(NamedTuple):
    """An entry with its id and its place."""

    place: int
    key: str
    entry: ToolEntry


def _placed(ordered: Ordered, places: Iterable[int]) -> tuple[Placed, ...]:
    return tuple([Placed(place, ordered.keys[place], ordered.entries[place]) for place in places])


class Run(NamedTuple):
    """Consecutive places. Their entries were consecutive before, from `came_from` on, or are new."""

    place: int
    length: int
    came_from: int = _NEW


class Moves(NamedTuple):
    """The former places of entries, in runs; `None` if all are in the same places.

    `new` are the places of entries that are new or have changed.
    """

    runs: Sequence[Run] | None
    new: tuple[int, ...]

    def moved(self, values: Sequence[T], missing: T) -> list[T]:
        """Return values kept by place, moved to the current places; `missing` for new or changed entries."""
        if self.runs is None:
            kept = [*values]
        else:
            kept = list[T]()
            for _, length, came_from in self.runs:
                kept += [missing] * length if came_from == _NEW else values[came_from : came_from + length]
        for place in self.new:
            kept[place] = missing
        return kept

    def moved_bytes(self, values: bytes | bytearray, missing: int) -> bytearray:
        """Like `moved`, for values that are bytes."""
        kept = bytearray(values)
        if self.runs is not None:
            runs = (bytes(length) if came == _NEW else kept[came : came + length] for _, length, came in self.runs)
            kept = bytearray().join(runs)
        for place in self.new:
            kept[place] = missing
        return kept


class EntryChange(Struct, frozen=True):
    """The difference between the entries of two moments. Made by `between`.

    `added` are the new or changed entries, with their places; `removed` those that are gone or replaced, with their
    former places.
    """

    added: tuple[Placed, ...]
    removed: tuple[Placed, ...]
    moves: Moves

    @classmethod
    def between(cls, then: Ordered, now: Ordered) -> EntryChange:
        """Return the change from `then` to `now`.

        The common beginning and end are skipped: usually nearly all entries.
        """
        if len(then.keys) == len(now.keys) and then.keys == now.keys:
            places = tuple(places_of(1, bytes(map(is_not, now.entries, then.entries))))
            return cls(_placed(now, places), _placed(then, places), Moves(None, places))
        start = _alike(then.keys, now.keys)
        at_end = _alike_at_end(then.keys, now.keys, at_most=min(len(then.keys), len(now.keys)) - start)
        old_end, new_end = len(then.keys) - at_end, len(now.keys) - at_end
        was_at = dict(zip(then.keys[start:old_end], count(start), strict=False))
        came_from = [was_at.pop(key, _NEW) for key in now.keys[start:new_end]]
        runs = [
            run for run in (Run(0, start, 0), *_runs(came_from, start), Run(new_end, at_end, old_end)) if run.length
        ]
        new, gone = list[int](), [*was_at.values()]
        for place, length, came in runs:
            if came == _NEW:
                new += range(place, place + length)
                continue
            stay = now.entries[place : place + length], then.entries[came : came + length]
            for others in places_of(1, bytes(map(is_not, *stay))):
                new.append(place + others)
                gone.append(came + others)
        return cls(_placed(now, new), _placed(then, sorted(gone)), Moves(runs, tuple(new)))

    def of_others(self, then: Sequence[ToolEntry], now: Sequence[ToolEntry]) -> EntryChange:
        """Return the same change for lists derived one to one from these entries."""
        added = tuple([one._replace(entry=now[one.place]) for one in self.added])
        removed = tuple([one._replace(entry=then[one.place]) for one in self.removed])
        return EntryChange(added, removed, self.moves)

    def followed(
        self, places: Mapping[K, tuple[int, ...]], key_of: Callable[[ToolEntry], K | None]
    ) -> dict[K, tuple[int, ...]]:
        """Return the places of the entries by key; entries without a key are left out."""
        followed = {**places}
        removed, added = places_by(self.removed, key_of), places_by(self.added, key_of)
        for key, taken in removed.items():
            if self.moves.runs is None and added.get(key) == taken:
                # Other entries with the same key are in the same places.
                del added[key]
                continue
            gone = {*taken}
            if left := tuple([place for place in followed.pop(key, ()) if place not in gone]):
                followed[key] = left
        if self.moves.runs is not None:
            goes_to = _GoesTo(self.moves.runs)
            followed = {key: goes_to.all_of(known) for key, known in followed.items()}
        for key, come in added.items():
            followed[key] = tuple(sorted([*followed.get(key, ()), *come]))
        return followed


class _GoesTo:
    """Maps each former place to its current one, if there is one."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self._runs = sorted([run for run in runs if run.came_from != _NEW], key=attrgetter("came_from"))
        self._starts = [run.came_from for run in self._runs]
        first = self._runs[0] if self._runs else Run(0, 0, 0)
        self._stays_until = first.length if first.place == first.came_from == 0 else 0

    def all_of(self, places: tuple[int, ...]) -> tuple[int, ...]:
        """Return the current places of some former ones; both are in order."""
        if places[-1] < self._stays_until:
            return places
        moved = list[int]()
        at = 0
        while at < len(places):
            run = self._runs[bisect_left(self._starts, places[at] + 1) - 1]
            end = bisect_left(places, run.came_from + run.length, at)
            further = run.place - run.came_from
            moved += [place + further for place in places[at:end]] if further else places[at:end]
            at = end
        return tuple(sorted(moved))


def places_by(entries: Iterable[Placed], key_of: Callable[[ToolEntry], K | None]) -> dict[K, tuple[int, ...]]:
    """Return the places of the entries by key; entries without a key are left out."""
    by_key: defaultdict[K, list[int]] = defaultdict(list)
    for place, _, entry in entries:
        if (key := key_of(entry)) is not None:
            by_key[key].append(place)
    return {key: tuple(places) for key, places in by_key.items()}


def places_of(value: int, values: bytes | bytearray) -> Iterator[int]:
    """Yield the places of a rare value among bytes."""
    place = values.find(value)
    while place >= 0:
        yield place
        place = values.find(value, place + 1)


def picked(values: Sequence[T], chosen: bytes) -> list[T]:
    """Return the values whose place has a 1; the cost depends on how many are chosen."""
    if chosen.count(1) * _FEW > len(chosen):
        return [*compress(values, chosen)]
    return [values[place] for place in places_of(1, chosen)]


def _alike(keys: list[str], others: list[str]) -> int:
    """Return how many keys are equal at the beginning."""
    length, same = min(len(keys), len(others)), 0
    while same < length and keys[same : same + _TOGETHER] == others[same : same + _TOGETHER]:
        same += _TOGETHER
    while same < length and keys[same] == others[same]:
        same += 1
    return min(same, length)


def _alike_at_end(keys: list[str], others: list[str], *, at_most: int) -> int:
    """Return how many keys are equal at the end, at most `at_most`."""
    keys, others = keys[len(keys) - at_most :][::-1], others[len(others) - at_most :][::-1]
    return _alike(keys, others)


def _runs(came_from: Iterable[int], first: int) -> Iterator[Run]:
    """Yield the runs of places from the first on, each with its former place."""
    place, length, start = first, 0, _NEW
    for came in came_from:
        if length and came == (_NEW if start == _NEW else start + length):
            length += 1
            continue
        if length:
            yield Run(place, length, start)
        place, length, start = place + length, 1, came
    if length:
        yield Run(place, length, start)


class Column:
    """Values computed from single entries of a snapshot, by place; `known` has a 1 for each computed one."""

    __slots__ = ("known", "values")

    def __init__(self, values: list[Any], known: bytearray) -> None:
        self.values, self.known = values, known

    def fill(self, place: int, value: object) -> None:
        """Store the value before marking it as known, since other threads may read it."""
        self.values[place] = value
        self.known[place] = 1


class Columns:
    """The columns of a snapshot; they follow the entries that stay."""

    def __init__(self, entries: Sequence[ToolEntry], before: Columns | None, moves: Moves | None) -> None:
        self._entries = entries
        self._columns: dict[Hashable, Column] = {}
        if before is not None and moves is not None:
            # Copy `known` first: a value added meanwhile is then copied too, or computed again.
            for key, column in [*before._columns.items()]:
                known = moves.moved_bytes(column.known, 0)
                self._columns[key] = Column(moves.moved(column.values, None), known)

    def column(self, key: Hashable) -> Column:
        """Return the column of a key, for the caller to fill."""
        column = self._columns.get(key)
        if column is None:
            size = len(self._entries)
            column = self._columns[key] = Column([None] * size, bytearray(size))
        return column

    def whole(self, key: Hashable, of: Callable[[ToolEntry], T]) -> list[T]:
        """Return `of` of each entry, computing it where it is unknown."""
        column = self.column(key)
        while (place := column.known.find(0)) >= 0:
            column.fill(place, of(self._entries[place]))
        return column.values
