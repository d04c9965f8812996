"""Validated lists: the entries that sources list, sealed once each, so that a change of one costs what one costs."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from operator import is_
from typing import NamedTuple

from pegboard.core.names import fold
from pegboard.core.validated_entry import seal
from pegboard.model.bounds import Bounds
from pegboard.model.tool import ToolEntry

log = logging.getLogger("pegboard")


class ValidatedList(NamedTuple):
    """The entries as a source lists them, and as they are used, by folded qualified id.

    Of those that are listed twice the first counts; the others are `doubled`. What cannot be a tool is `known` alone.
    """

    listed: tuple[ToolEntry, ...]
    entries: Mapping[str, ToolEntry]
    doubled: tuple[ToolEntry, ...]
    known: Mapping[int, tuple[str, ToolEntry | None]]


class ValidatedLists:
    """What each source listed last, sealed. An entry that is listed again, the very same, stays the same."""

    def __init__(self) -> None:
        self._lists: dict[tuple[str, str], ValidatedList] = {}
        self._bounds: Bounds | None = None

    def sealed(self, source: tuple[str, str], listed: Sequence[ToolEntry], bounds: Bounds) -> ValidatedList:
        """Return the entries of a listing, without those that cannot be: each is said in the log, once.

        `source` is its name, and what it lists.
        """
        if bounds != self._bounds:
            self._lists, self._bounds = {}, bounds
        before, listed = self._lists.get(source), tuple(listed)
        if before is not None and len(before.listed) == len(listed) and all(map(is_, before.listed, listed)):
            return before
        # By identity: each listed entry is kept here, so that its id cannot come to mean another.
        earlier = dict[int, tuple[str, ToolEntry | None]]() if before is None else before.known
        known = {id(entry): earlier.get(id(entry)) or _sealed(source[0], entry, bounds) for entry in listed}
        entries: dict[str, ToolEntry] = {}
        doubled: list[ToolEntry] = []
        for key, entry in map(known.__getitem__, map(id, listed)):
            if entry is not None and entries.setdefault(key, entry) is not entry:
                doubled.append(entry)
        self._lists[source] = now = ValidatedList(listed, entries, tuple(doubled), known)
        return now

    def keep_only(self, sources: set[tuple[str, str]]) -> None:
        """Forget the lists of all other sources."""
        for gone in self._lists.keys() - sources:
            del self._lists[gone]


def _sealed(source: str, entry: ToolEntry, bounds: Bounds) -> tuple[str, ToolEntry | None]:
    try:
        sealed = seal(entry, bounds)
    except Exception as error:  # noqa: BLE001 - boundary: what a source lists is not ours
        log.warning("Source %r: a tool was left out: %s", source, error)
        return "", None
    return fold(sealed.qualified_id), sealed
