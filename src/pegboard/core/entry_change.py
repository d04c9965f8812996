"""Entry change: how the entries of one moment follow those of the moment before, so that what stays is not made anew.

Of a large catalog one tool changes now and then. Whatever is worked out of its entries is kept by their places; here it
moves along with them. All that is done for each entry is done by the interpreter's own loops: ten thousand entries
must not hold the event loop for what happened to one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress, count
from operator import eq, is_not, ne
from typing import Any, NamedTuple, TypeVar

from pegboard.model.tool import ToolEntry

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class Moves(NamedTuple):
    """Where entries were before: the place of each, `None` where all are in the same places; and the places of others.

    `new` are the places of entries that were not there before, or not as they are.
    """

    came_from: Sequence[int] | None
    new: tuple[int, ...]

    def moved(self, values: Sequence[T], missing: T) -> list[T]:
        """Return what was kept by place, by the places of now; `missing` for the entries that are new or others."""
        if self.came_from is not None:
            return list(map([*values, missing].__getitem__, self.came_from))
        kept = [*values]
        for place in self.new:
            kept[place] = missing
        return kept


class Placed(NamedTuple):
    """An entry with its id and its place."""

    place: int
    key: str
    entry: ToolEntry


class _Ordered(NamedTuple):
    """The ids and the entries of one moment in their order."""

    keys: Sequence[str]
    entries: Sequence[ToolEntry]

    def at(self, places: Sequence[int]) -> tuple[Placed, ...]:
        return tuple([Placed(place, self.keys[place], self.entries[place]) for place in places])


@dataclass(frozen=True, slots=True)
class EntryChange:
    """What became of the entries of one moment in the next. Made by `between`.

    `added` are the entries that are new or others, with their places; `removed` those that are gone or replaced, with
    the places that they had.
    """

    added: tuple[Placed, ...]
    removed: tuple[Placed, ...]
    moves: Moves
    _goes_to: Sequence[int] = ()

    @classmethod
    def between(cls, then: Mapping[str, ToolEntry], now: Mapping[str, ToolEntry]) -> EntryChange:
        """Return the change from `then` to `now`, both by id and in the order of their places.

        What is the same at the beginning and at the end is not looked up: nearly all, as a rule.
        """
        if len(then) == len(now) and all(map(eq, then, now)):
            differs = bytes(map(is_not, now.values(), then.values()))
            places = tuple(compress(count(), differs))
            keys = [*compress(now, differs)]
            added, removed = (
                tuple(map(Placed, places, keys, compress(entries.values(), differs))) for entries in (now, then)
            )
            return cls(added, removed, Moves(None, places))
        return cls._moved(_Ordered([*then], [*then.values()]), _Ordered([*now], [*now.values()]))

    @classmethod
    def _moved(cls, then: _Ordered, now: _Ordered) -> EntryChange:
        start = _alike(then.keys, now.keys)
        same_at_end = _alike(then.keys[start:][::-1], now.keys[start:][::-1])
        old_end, new_end = len(then.keys) - same_at_end, len(now.keys) - same_at_end
        was_at = dict(zip(then.keys[start:old_end], count(start), strict=False))
        came_from = [*range(start)]
        for key, entry in zip(now.keys[start:new_end], now.entries[start:new_end], strict=True):
            place = was_at.get(key, -1)
            came_from.append(place if place >= 0 and then.entries[place] is entry else -1)
        came_from += range(old_end, len(then.keys))
        for place in compress(count(), map(is_not, now.entries[:start], then.entries)):
            came_from[place] = -1
        for place in compress(count(new_end), map(is_not, now.entries[new_end:], then.entries[old_end:])):
            came_from[place] = -1
        goes_to = [-1] * (len(then.keys) + 1)
        for place, came in enumerate(came_from):
            goes_to[came] = place
        goes_to.pop()
        new, gone = _places_of(-1, came_from), _places_of(-1, goes_to)
        return cls(now.at(new), then.at(gone), Moves(came_from, new), goes_to)

    def of_others(self, then: Sequence[ToolEntry], now: Sequence[ToolEntry]) -> EntryChange:
        """Return the same change of what was made of these entries, one of each."""
        added = tuple([one._replace(entry=now[one.place]) for one in self.added])
        removed = tuple([one._replace(entry=then[one.place]) for one in self.removed])
        return EntryChange(added, removed, self.moves, self._goes_to)

    def followed(
        self, places: Mapping[K, tuple[int, ...]], key_of: Callable[[ToolEntry], K | None]
    ) -> dict[K, tuple[int, ...]]:
        """Return the places of the entries of each key; those without a key are left out."""
        added = places_by(self.added, key_of)
        if self.moves.came_from is not None:
            goes_to = self._goes_to.__getitem__
            kept = {key: [to for to in map(goes_to, known) if to >= 0] for key, known in places.items()}
            for key, places_of in added.items():
                kept[key] = [*kept.get(key, ()), *places_of]
            return {key: tuple(sorted(known)) for key, known in kept.items() if known}
        removed = places_by(self.removed, key_of)
        followed = {**places}
        for key in {**removed, **added}:
            known = {*followed.pop(key, ())}.difference(removed.get(key, ())).union(added.get(key, ()))
            if known:
                followed[key] = tuple(sorted(known))
        return followed


def places_by(entries: Iterable[Placed], key_of: Callable[[ToolEntry], K | None]) -> dict[K, tuple[int, ...]]:
    """Return the places of the entries of each key; those without a key are left out."""
    by_key: defaultdict[K, list[int]] = defaultdict(list)
    for place, _, entry in entries:
        if (key := key_of(entry)) is not None:
            by_key[key].append(place)
    return {key: tuple(places) for key, places in by_key.items()}


def _alike(keys: Sequence[str], others: Sequence[str]) -> int:
    """Return how many keys are the same at the beginning."""
    return next(compress(count(), map(ne, keys, others)), min(len(keys), len(others)))


def _places_of(value: int, values: Sequence[int]) -> tuple[int, ...]:
    return tuple(compress(count(), map(value.__eq__, values)))


class Column:
    """What is worked out of each entry of a snapshot by itself, by place; `known` has a 1 where it is."""

    __slots__ = ("known", "values")

    def __init__(self, values: list[Any], known: bytearray) -> None:
        self.values, self.known = values, known

    def fill(self, place: int, value: object) -> None:
        """Keep a value; it is known only when it stands there, as others may read it in the meantime."""
        self.values[place] = value
        self.known[place] = 1


class Columns:
    """The columns of a snapshot; they follow the entries that stay."""

    def __init__(self, entries: Sequence[ToolEntry], before: Columns | None, moves: Moves | None) -> None:
        self._entries = entries
        self._columns: dict[Hashable, Column] = {}
        if before is not None and moves is not None:
            # What is known is copied first: what somebody fills in meanwhile is then there, or is filled in again.
            for key, column in [*before._columns.items()]:
                known = bytearray(moves.moved(column.known, 0))
                self._columns[key] = Column(moves.moved(column.values, None), known)

    def column(self, key: Hashable) -> Column:
        """Return the column of a key, for you to fill in."""
        column = self._columns.get(key)
        if column is None:
            size = len(self._entries)
            column = self._columns[key] = Column([None] * size, bytearray(size))
        return column

    def whole(self, key: Hashable, of: Callable[[ToolEntry], T]) -> list[T]:
        """Return `of` of each entry, worked out where it is not known."""
        column = self.column(key)
        while (place := column.known.find(0)) >= 0:
            column.fill(place, of(self._entries[place]))
        return column.values
