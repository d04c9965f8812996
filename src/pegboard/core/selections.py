"""Selections: what groups and policies leave of a snapshot for each caller, kept small for many callers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from functools import cached_property
from itertools import compress
from typing import NamedTuple

from pegboard.core.bounded_cache import BoundedCache
from pegboard.core.judge import Selection
from pegboard.model.bounds import SELECTIONS_KEPT, SELECTIONS_REMEMBERED
from pegboard.model.policy import Policy
from pegboard.model.tool import ToolEntry

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


class Selections:
    """What was selected of the entries of one snapshot, by who asked: selection and own policy.

    Those for whom the same is left share it, whatever their policies say. The last ones are kept whole. Of many more a
    bit for each entry is kept, from which they are made again in a hundredth of the time that judging takes.
    """

    def __init__(self, entries: Sequence[ToolEntry]) -> None:
        self._entries = entries
        self._whole = BoundedCache[tuple[Selection, Policy], Selected](max_entries=SELECTIONS_REMEMBERED)
        self._bits = BoundedCache[tuple[Selection, Policy], int](max_entries=SELECTIONS_KEPT)
        self._by_chosen = BoundedCache[bytes, Selected](max_entries=SELECTIONS_REMEMBERED)
        self._left = BoundedCache[tuple[int, tuple[int, ...], tuple[int, ...]], tuple[Selected, Selected]](
            max_entries=SELECTIONS_REMEMBERED
        )

    def get(self, key: tuple[Selection, Policy]) -> Selected | None:
        """Return what was selected for this one; `None` where it must be judged."""
        known = self._whole.get(key)
        if known is None and (bits := self._bits.get(key)) is not None:
            digits = f"{bits:0{len(self._entries)}b}".encode()
            known = self._whole.remember(key, self._selected(digits.translate(_FROM_DIGITS)))
        return known

    def remember(self, key: tuple[Selection, Policy], places: Iterable[int]) -> Selected:
        """Keep the places of the entries that are left, and return what is selected."""
        chosen = bytearray(len(self._entries))
        for place in places:
            chosen[place] = 1
        self._bits.remember(key, int(chosen.translate(_AS_DIGITS) or b"0", 2))
        return self._whole.remember(key, self._selected(bytes(chosen)))

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
        entries = KeptTools(compress(self._entries, chosen))
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
        by_condition: defaultdict[Hashable, list[int]] = defaultdict(list)
        built: list[int] = []
        for place, entry in enumerate(self._entries):
            if entry.builder is not None:
                built.append(place)
            elif (condition := entry.condition) is not None:
                by_condition[condition].append(place)
        return tuple([Alike(self._entries[each[0]], tuple(each)) for each in by_condition.values()]), tuple(built)
