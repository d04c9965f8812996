"""Selections: what groups and policies leave of a snapshot for each caller, kept small for many callers."""

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

SELECTIONS_REMEMBERED = 256  # with the tools that they leave
SELECTION_CHANGES = 16  # of the catalog, over which what was selected is followed
SELECTIONS_KEPT = 20_000  # with a bit for each tool of the catalog

_BUILT = object()
_AS_DIGITS = bytes.maketrans(b"\0\1", b"01")
_FROM_DIGITS = bytes.maketrans(b"01", b"\0\1")


class KeptTools(tuple[ToolEntry, ...]):
    """Tools of a snapshot that many callers have: one tuple for all of them, so that what is made of it can be kept."""

    chosen: bytes
    """A byte for each entry of the snapshot, 1 where it is among them."""


class Alike(NamedTuple):
    """The entries that hang on the same: whoever judges one of them knows of all, but where a source is quarantined.

    `places` are those in the snapshot.
    """

    entry: ToolEntry
    places: tuple[int, ...]


class Selected(NamedTuple):
    """The entries that are left, and of those that something may hide: the ones alike, and the places of built ones."""

    entries: KeptTools
    alike: tuple[Alike, ...]
    built: tuple[int, ...]

    @property
    def conditional(self) -> tuple[ToolEntry, ...]:
        """One entry for each condition: who asks these has asked for all but the built ones."""
        return tuple([alike.entry for alike in self.alike])


class _Bits(NamedTuple):
    """A bit for each entry of the snapshot of a moment, 1 where it is selected."""

    moment: int
    length: int
    bits: int

    def as_chosen(self) -> bytes:
        """Return a byte for each."""
        return f"{self.bits:0{self.length}b}".encode().translate(_FROM_DIGITS) if self.length else b""


class _Step(NamedTuple):
    """How the entries moved from the snapshot of a moment to the next one."""

    moment: int
    moves: Moves


_Key: TypeAlias = tuple[Selection, Policy]
_moments = count()


class Selections:
    """What was selected of the entries of one snapshot, by who asked: selection and own policy.

    Those for whom the same is left share it, whatever their policies say. The last ones are kept whole. Of many more a
    bit for each entry is kept, from which they are made again in a hundredth of the time that judging takes; after a
    change of the snapshot, too, where only what changed is judged.
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
        # Unique, and not one more than before: two snapshots may follow the same one, if one of them has extra tools.
        self._moment = next(_moments)
        if before is None or change is None:
            self._bits, self._steps = BoundedCache[_Key, _Bits](max_entries=SELECTIONS_KEPT), ()
        else:
            # Shared: what was judged at one moment is followed to a later one when it is asked for there.
            self._bits = before._bits
            self._steps = (*before._steps, _Step(before._moment, change.moves))[-SELECTION_CHANGES:]

    def get(self, key: _Key) -> Selected | None:
        """Return what was selected for this one; `None` where something must be judged."""
        known = self._whole.get(key)
        if known is None and (bits := self._bits.get(key)) is not None and bits.moment == self._moment:
            known = self._whole.remember(key, self._selected(bits.as_chosen()))
        return known

    def before(self, key: _Key) -> tuple[bytearray, Collection[int] | None]:
        """Return a byte for each entry, 1 where it was selected before, and the places that must be judged anew.

        `None` of them where nothing is known of before.
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
        """Keep the entries that are left, a byte for each, and return what is selected."""
        self._bits.remember(key, _Bits(self._moment, len(chosen), int(chosen.translate(_AS_DIGITS) or b"0", 2)))
        return self._whole.remember(key, self._selected(chosen))

    def without(self, selected: Selected, hidden: Sequence[int], places: Sequence[int]) -> Selected:
        """Return what is selected without what is hidden: some of those alike, by number, and some single places."""
        # The selection stands beside it, so that the id cannot come to mean another.
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
        entries = KeptTools(picked(self._entries, chosen))
        entries.chosen = chosen
        alike, built = self._conditions
        if 0 in chosen:
            left = [tuple([place for place in places if chosen[place]]) for _, places in alike]
            alike = tuple([Alike(self._entries[places[0]], places) for places in left if places])
            built = tuple([place for place in built if chosen[place]])
        return self._by_chosen.remember(chosen, Selected(entries, alike, built))

    @cached_property
    def _conditions(self) -> tuple[tuple[Alike, ...], tuple[int, ...]]:
        """All entries that something may hide: those alike together, and the places of those that are built."""
        built = self._alike.get(_BUILT, ())
        alike = [Alike(self._entries[each[0]], each) for key, each in self._alike.items() if key is not _BUILT]
        return tuple(alike), built

    def _followed(self, before: Selections | None, change: EntryChange | None) -> Mapping[Hashable, tuple[int, ...]]:
        """Return the places of the entries of each condition, and of those that are built."""
        if before is not None and change is not None:
            return change.followed(before._alike, _hangs_on)
        return places_by([Placed(place, "", entry) for place, entry in enumerate(self._entries)], _hangs_on)


def _hangs_on(entry: ToolEntry) -> Hashable:
    return entry.condition if entry.builder is None else _BUILT
