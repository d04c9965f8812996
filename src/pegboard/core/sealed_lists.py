"""Sealed lists: the entries that sources list, sealed once each, so that a change of one costs what one costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import is_
from typing import NamedTuple

from pegboard.core.names import fold
from pegboard.core.validated_entry import seal
from pegboard.model.bounds import Bounds
from pegboard.model.tool import ToolEntry


class SealedList(NamedTuple):
    """The entries as a source lists them, and as they are used, by folded qualified id.

    Of those that are listed twice the first counts; the others are `doubled`.
    """

    listed: tuple[ToolEntry, ...]
    entries: Mapping[str, ToolEntry]
    doubled: tuple[ToolEntry, ...]
    known: Mapping[int, tuple[str, ToolEntry]]


class SealedLists:
    """What each source listed last, sealed. An entry that is listed again, the very same, stays the same."""

    def __init__(self) -> None:
        self._lists: dict[object, SealedList] = {}
        self._bounds: Bounds | None = None

    def sealed(self, source: object, listed: Sequence[ToolEntry], bounds: Bounds) -> SealedList:
        """Return the entries of a listing. `source` is by what it is known.

        Raises:
            DefinitionError: a name that cannot be, a schema that is none.
            CallError: `schema_too_complex`.
        """
        if bounds != self._bounds:
            self._lists, self._bounds = {}, bounds
        before, listed = self._lists.get(source), tuple(listed)
        if before is not None and len(before.listed) == len(listed) and all(map(is_, before.listed, listed)):
            return before
        # By identity: each listed entry is kept here, so that its id cannot come to mean another.
        earlier = dict[int, tuple[str, ToolEntry]]() if before is None else before.known
        known = {id(entry): earlier.get(id(entry)) or _sealed(entry, bounds) for entry in listed}
        entries: dict[str, ToolEntry] = {}
        doubled: list[ToolEntry] = []
        for key, entry in map(known.__getitem__, map(id, listed)):
            if entries.setdefault(key, entry) is not entry:
                doubled.append(entry)
        self._lists[source] = now = SealedList(listed, entries, tuple(doubled), known)
        return now

    def keep_only(self, sources: set[object]) -> None:
        """Forget the lists of all other sources."""
        for gone in self._lists.keys() - sources:
            del self._lists[gone]


def _sealed(entry: ToolEntry, bounds: Bounds) -> tuple[str, ToolEntry]:
    sealed = seal(entry, bounds)
    return fold(sealed.qualified_id), sealed
