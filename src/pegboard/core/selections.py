"""Selections: the tools that groups and policies select from a snapshot for each caller, stored compactly."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from functools import cached_property
from itertools import count, dropwhile
from typing import NamedTuple, TypeAlias

from pegboard.core.bounded_cache import BoundedCache
from pegboard.core.entry_change import EntryChange, Moves, Placed, picked, places_by, places_of
from pegboard.core.judge import Selection
from pegboard.model.policy import Policy
from pegboard.model.tool import ToolEntry

SELECTIONS_REMEMBERED = 256  # selections in the cache with their tools
SELECTION_CHANGES = 16  # changes of the catalog that an old selection can be updated by
SELECTIONS_KEPT = 20_000  # selections kept as one bit per tool

_BUILT = object()
_AS_DIGITS = bytes.maketrans(b"\0\1", b"01")
_FROM_DIGITS = bytes.maketrans(b"01", b"\0\1")


class SharedTools(tuple[ToolEntry, ...]):
    """Tools of a snapshot that many callers share: one tuple for all, so that derived data can be cached by it."""

    chosen: bytes
    """One byte per entry of the snapshot, 1 if selected."""


class Alike(NamedTuple):
    """Entries with the same condition: a decision on one holds for all, except in a quarantine.

    `places` are their places in the snapshot.
    """

    entry: ToolEntry
    places: tuple[int, ...]


class Selected(NamedTuple):
    """The selected entries; among those that may be hidden, the groups of equal condition and the built ones."""

    entries: SharedTools
    alike: tuple[Alike, ...]
    built: tuple[int, ...]

    @property
    def conditional(self) -> tuple[ToolEntry, ...]:
        """One entry for each condition; checking these covers all but built entries."""
        return tuple([alike.entry for alike in self.alike])


class _Bits(NamedTuple):
    """One bit per entry of one snapshot, 1 if selected."""

    moment: int
    length: int
    bits: int

    def as_chosen(self) -> bytes:
        """Return one byte per entry."""
        return f"{self.bits:0{self.length}b}".encode().translate(_FROM_DIGITS) if self.length else b""


class _Step(NamedTuple):
    """How the entries moved from one snapshot to the next."""

    moment: int
    moves: Moves


_Key: TypeAlias = tuple[Selection, Policy]
_moments = count()


class Selections:
    """The selected entries of one snapshot, by selection and own policy of the caller.

    Callers with equal results share them, whatever their policies. The most recent selections are kept whole. For many
    more, one bit per entry is kept; rebuilding a selection from it takes a hundredth of the time of a new decision.
    After a change of the snapshot only changed entries are judged.
    """

    def __init__(
        self, entries: Sequence[ToolEntry], before: Selections | None = None, change: EntryChange | None = None
    ) -> None:
        self._entries = entries
        self._alike = self._followed(before, change)
        self._whole = BoundedCache[_Key, Selected](max_entries=SELECTIONS_REMEMBERED)
        self._by_chosen = BoundedCache[bytes, Selected](max_entries=SELECTIONS_REMEMBERED)
        self._left = BoundedCache[tuple[int, tuple[int, ...], tuple[int, ...]], tuple[Selected, Selected]](
            max_entries=SELECTIONS_REMEMBERED
        )
        # Unique, not an increment: two snapshots may follow the same one, if one of them has extra tools.
        self._moment = next(_moments)
        if before is None or change is None:
            self._bits, self._steps = BoundedCache[_Key, _Bits](max_entries=SELECTIONS_KEPT), ()
        else:
            # Shared: selections of an earlier moment are updated when they are needed.
            self._bits = before._bits
            self._steps = (*before._steps, _Step(before._moment, change.moves))[-SELECTION_CHANGES:]

    def get(self, key: _Key) -> Selected | None:
        """Return the selection for this key; `None` if entries must be judged."""
        known = self._whole.get(key)
        if known is None and (bits := self._bits.get(key)) is not None and bits.moment == self._moment:
            known = self._whole.remember(key, self._selected(bits.as_chosen()))
        return known

    def before(self, key: _Key) -> tuple[bytearray, Collection[int] | None]:
        """Return one byte per entry, 1 if it was selected before, and the places to judge again.

        The places are `None` if nothing is known from before.
        """
        bits = self._bits.get(key)
        since = () if bits is None else tuple(dropwhile(lambda step: step.moment != bits.moment, self._steps))
        if bits is None or not since:
            return bytearray(len(self._entries)), None
        chosen = bytearray(bits.as_chosen())
        unjudged = bytearray(len(chosen))
        for _, moves in since:
            unjudged, chosen = moves.moved_bytes(unjudged, 1), moves.moved_bytes(chosen, 0)
        return chosen, [*places_of(1, unjudged)]

    def remember(self, key: _Key, chosen: bytes) -> Selected:
        """Store the selection, one byte per entry, and return the selected entries."""
        self._bits.remember(key, _Bits(self._moment, len(chosen), int(chosen.translate(_AS_DIGITS) or b"0", 2)))
        return self._whole.remember(key, self._selected(chosen))

    def without(self, selected: Selected, hidden: Sequence[int], places: Sequence[int]) -> Selected:
        """Return the selection without hidden entries: some groups, by number, and some single places."""
        # The selection is stored with the value, so that its id cannot be reused.
        key = (id(selected.entries), tuple(hidden), tuple(places))
        known = self._left.get(key)
        if known is None:
            chosen = bytearray(selected.entries.chosen)
            for place in (*places, *[place for number in hidden for place in selected.alike[number].places]):
                chosen[place] = 0
            known = self._left.remember(key, (selected, self._selected(bytes(chosen))))
        return known[1]

    def _selected(self, chosen: bytes) -> Selected:
        known = self._by_chosen.get(chosen)
        if known is not None:
            return known
        entries = SharedTools(picked(self._entries, chosen))
        entries.chosen = chosen
        alike, built = self._conditions
        if 0 in chosen:
            left = [tuple([place for place in places if chosen[place]]) for _, places in alike]
            alike = tuple([Alike(self._entries[places[0]], places) for places in left if places])
            built = tuple([place for place in built if chosen[place]])
        return self._by_chosen.remember(chosen, Selected(entries, alike, built))

    @cached_property
    def _conditions(self) -> tuple[tuple[Alike, ...], tuple[int, ...]]:
        """All entries that may be hidden: groups of equal condition, and the places of built entries."""
        built = self._alike.get(_BUILT, ())
        alike = [Alike(self._entries[each[0]], each) for key, each in self._alike.items() if key is not _BUILT]
        return tuple(alike), built

    def _followed(self, before: Selections | None, change: EntryChange | None) -> Mapping[Hashable, tuple[int, ...]]:
        """Return the places of the entries by condition, and those of built entries."""
        if before is not None and change is not None:
            return change.followed(before._alike, _hangs_on)
        return places_by([Placed(place, "", entry) for place, entry in enumerate(self._entries)], _hangs_on)


def _hangs_on(entry: ToolEntry) -> Hashable:
    return entry.condition if entry.builder is None else _BUILT
