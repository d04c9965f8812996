"""Selections: what groups and policies leave of a snapshot for each caller, kept small for many callers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import compress
from typing import NamedTuple

from pegboard.core.bounded_cache import BoundedCache
from pegboard.core.judge import Selection
from pegboard.model.bounds import SELECTIONS_KEPT, SELECTIONS_REMEMBERED
from pegboard.model.policy import Policy
from pegboard.model.tool import ToolEntry

_AS_DIGITS = bytes.maketrans(b"\0\1", b"01")
_FROM_DIGITS = bytes.maketrans(b"01", b"\0\1")
# How an entry may be hidden beside groups and policy: not at all, by how its source is alone, by more.
_NEVER, _BY_SOURCE, _BY_MORE = range(3)


class Selected(NamedTuple):
    """The entries that are left. `chosen` has a byte for each entry of the snapshot, 1 where it is left.

    `by_source` has for each source the places, in `entries`, of those that hang on nothing but how it is;
    `conditional` the places of all others that something may hide.
    """

    entries: tuple[ToolEntry, ...]
    chosen: bytes
    conditional: tuple[int, ...]
    by_source: tuple[tuple[str, tuple[int, ...]], ...]


class Selections:
    """What was selected of the entries of one snapshot, by who asked: selection and own policy.

    The last ones are kept whole. Of many more a bit for each entry is kept, from which they are made again in a
    hundredth of the time that judging takes.
    """

    def __init__(self, entries: Sequence[ToolEntry]) -> None:
        self._entries = entries
        self._hidden_by = bytes(map(_hidden_by, entries))
        self._whole = BoundedCache[tuple[Selection, Policy], Selected](max_entries=SELECTIONS_REMEMBERED)
        self._bits = BoundedCache[tuple[Selection, Policy], int](max_entries=SELECTIONS_KEPT)

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

    def _selected(self, chosen: bytes) -> Selected:
        entries = tuple(compress(self._entries, chosen))
        hidden_by = bytes(compress(self._hidden_by, chosen))
        by_source: defaultdict[str, list[int]] = defaultdict(list)
        for place in _places(hidden_by, _BY_SOURCE):
            by_source[entries[place].source or ""].append(place)
        return Selected(
            entries,
            chosen,
            tuple(_places(hidden_by, _BY_MORE)),
            tuple((source, tuple(places)) for source, places in by_source.items()),
        )


def _hidden_by(entry: ToolEntry) -> int:
    if not entry.is_conditional:
        return _NEVER
    return _BY_SOURCE if entry.hangs_on_source_alone else _BY_MORE


def _places(marks: bytes, mark: int) -> Iterable[int]:
    return [place for place, each in enumerate(marks) if each == mark] if mark in marks else ()
