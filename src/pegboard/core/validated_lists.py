"""Validated lists: the entries that sources list, sealed once each, so that a change of one costs what one costs."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from operator import is_
from typing import NamedTuple

from pegboard.core.definition_redaction import DefinitionRedactor
from pegboard.core.names import fold
from pegboard.core.validated_entry import seal
from pegboard.model.bounds import Bounds
from pegboard.model.secret import Secret
from pegboard.model.tool import ToolEntry

log = logging.getLogger("pegboard")


class Known(NamedTuple):
    """What became of one listed entry: `sealed`, with its folded qualified id, of what was left without secrets."""

    key: str = ""
    sealed: ToolEntry | None = None
    cleaned: ToolEntry | None = None


class ValidatedList(NamedTuple):
    """The entries as a source lists them, and as they are used, by folded qualified id.

    Of those that are listed twice the first counts; the others are `doubled`. What cannot be a tool is `known` alone.
    """

    listed: tuple[ToolEntry, ...]
    secrets: tuple[Secret, ...]
    entries: Mapping[str, ToolEntry]
    doubled: tuple[ToolEntry, ...]
    known: Mapping[int, Known]


class ValidatedLists:
    """What each source listed last, sealed. An entry that is listed again, the very same, stays the same."""

    def __init__(self) -> None:
        self._lists: dict[tuple[str, str], ValidatedList] = {}
        self._bounds: Bounds | None = None
        self._secrets: tuple[Secret, ...] = ()
        self._redactor = DefinitionRedactor(())

    def sealed(
        self, source: tuple[str, str], listed: Sequence[ToolEntry], bounds: Bounds, secrets: tuple[Secret, ...]
    ) -> ValidatedList:
        """Return the entries of a listing, without those that cannot be: each is said in the log, once.

        `source` is its name, and what it lists; `secrets` are what no entry may say.
        """
        if bounds != self._bounds:
            self._lists, self._bounds = {}, bounds
        before, listed = self._lists.get(source), tuple(listed)
        is_as_secret = before is not None and before.secrets == secrets
        is_as_long = before is not None and len(before.listed) == len(listed)
        if before is not None and is_as_secret and is_as_long and all(map(is_, before.listed, listed)):
            return before
        redactor = self._redactor_of(secrets)
        # By identity: each listed entry is kept here, so that its id cannot come to mean another.
        earlier = dict[int, Known]() if before is None else before.known
        known: dict[int, Known] = {}
        for entry in listed:
            one = earlier.get(id(entry))
            known[id(entry)] = one if one and is_as_secret else _sealed(source[0], entry, bounds, redactor, one)
        entries: dict[str, ToolEntry] = {}
        doubled: list[ToolEntry] = []
        for key, entry, _ in map(known.__getitem__, map(id, listed)):
            if entry is not None and entries.setdefault(key, entry) is not entry:
                doubled.append(entry)
        self._lists[source] = now = ValidatedList(listed, secrets, entries, tuple(doubled), known)
        return now

    def without_secrets(
        self, source: str, listed: Sequence[ToolEntry], secrets: tuple[Secret, ...]
    ) -> Iterator[ToolEntry]:
        """Yield the entries of a listing that one agent alone has, as they may be shown."""
        redactor = self._redactor_of(secrets)
        for entry in listed:
            if (cleaned := _cleaned(source, entry, redactor)) is not None:
                yield cleaned

    def keep_only(self, sources: set[tuple[str, str]]) -> None:
        """Forget the lists of all other sources."""
        for gone in self._lists.keys() - sources:
            del self._lists[gone]

    def _redactor_of(self, secrets: tuple[Secret, ...]) -> DefinitionRedactor:
        if secrets != self._secrets:
            self._secrets, self._redactor = secrets, DefinitionRedactor(secrets)
        return self._redactor


def _cleaned(source: str, entry: ToolEntry, redactor: DefinitionRedactor) -> ToolEntry | None:
    try:
        return redactor.entry(entry)
    except Exception as error:  # noqa: BLE001 - boundary: what a source lists is not ours
        log.warning("Source %r: a tool was left out: %s", source, error)
        return None


def _sealed(source: str, entry: ToolEntry, bounds: Bounds, redactor: DefinitionRedactor, before: Known | None) -> Known:
    cleaned = _cleaned(source, entry, redactor)
    if before is not None and before.cleaned is cleaned:
        # Other secrets, and none of them in it: the very same, so that nothing that hangs on it is made anew.
        return before
    if cleaned is None:
        return Known()
    try:
        sealed = seal(cleaned, bounds)
    except Exception as error:  # noqa: BLE001 - boundary: what a source lists is not ours
        log.warning("Source %r: a tool was left out: %s", source, error)
        return Known(cleaned=cleaned)
    return Known(fold(sealed.qualified_id), sealed, cleaned)
