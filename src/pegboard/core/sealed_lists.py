"""Sealed lists: the entries that sources list, sealed once each, so that a change of one costs what one costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pegboard.core.names import fold
from pegboard.core.validated_entry import seal
from pegboard.model.bounds import Bounds
from pegboard.model.tool import ToolEntry


class Sealed(NamedTuple):
    """An entry as a source lists it, its folded qualified id, and the entry as it is used."""

    listed: ToolEntry
    key: str
    entry: ToolEntry


class SealedLists:
    """What each source listed last, sealed. An entry that is listed again, the very same, stays the same."""

    def __init__(self) -> None:
        self._lists: dict[object, dict[int, Sealed]] = {}
        self._bounds: Bounds | None = None

    def sealed(self, source: object, listed: Sequence[ToolEntry], bounds: Bounds) -> Sequence[Sealed]:
        """Return the entries of a listing. `source` is by what it is known.

        Raises:
            DefinitionError: a name that cannot be, a schema that is none.
            CallError: `schema_too_complex`.
        """
        if bounds != self._bounds:
            self._lists, self._bounds = {}, bounds
        # By identity: each listed entry is kept here, so that its id cannot come to mean another.
        known = self._lists.get(source, {})
        now = self._lists[source] = {id(entry): known.get(id(entry)) or _sealed(entry, bounds) for entry in listed}
        return [now[id(entry)] for entry in listed]

    def keep_only(self, sources: set[object]) -> None:
        """Forget the lists of all other sources."""
        for gone in self._lists.keys() - sources:
            del self._lists[gone]


def _sealed(entry: ToolEntry, bounds: Bounds) -> Sealed:
    sealed = seal(entry, bounds)
    return Sealed(entry, fold(sealed.qualified_id), sealed)
