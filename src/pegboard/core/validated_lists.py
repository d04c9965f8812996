"""Validated lists: the entries that sources list, each sealed once, so that a changed entry costs only itself."""

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
    """A listed entry and its sealed, redacted form with its folded qualified id."""

    key: str = ""
    sealed: ToolEntry | None = None
    cleaned: ToolEntry | None = None


class ValidatedList(NamedTuple):
    """The entries as a source lists them, and as they are used, by folded qualified id.

    Of entries with the same id the first is used; the others are `doubled`. Invalid entries are only in `known`.
    """

    listed: tuple[ToolEntry, ...]
    secrets: tuple[Secret, ...]
    entries: Mapping[str, ToolEntry]
    doubled: tuple[ToolEntry, ...]
    known: Mapping[int, Known]


class ValidatedLists:
    """The last sealed list of each source. An entry object that is listed again is reused."""

    def __init__(self) -> None:
        self._lists: dict[tuple[str, str], ValidatedList] = {}
        self._bounds: Bounds | None = None
        self._secrets: tuple[Secret, ...] = ()
        self._redactor = DefinitionRedactor(())

    def sealed(
        self, source: tuple[str, str], listed: Sequence[ToolEntry], bounds: Bounds, secrets: tuple[Secret, ...]
    ) -> ValidatedList:
        """Return the valid entries of a listing; each invalid one is logged once.

        `source` is its name and the kind of its list; `secrets` are removed from all entries.
        """
        if bounds != self._bounds:
            self._lists, self._bounds = {}, bounds
        before, listed = self._lists.get(source), tuple(listed)
        is_as_secret = before is not None and before.secrets == secrets
        is_as_long = before is not None and len(before.listed) == len(listed)
        if before is not None and is_as_secret and is_as_long and all(map(is_, before.listed, listed)):
            return before
        redactor = self._redactor_of(secrets)
        # By identity: the cache keeps each listed entry alive, so that its id cannot be reused.
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
        """Yield the redacted entries of a private list of one agent."""
        redactor = self._redactor_of(secrets)
        for entry in listed:
            if (cleaned := _cleaned(source, entry, redactor)) is not None:
                yield cleaned

    def text(self, text: str, secrets: tuple[Secret, ...]) -> str:
        """Return a text of a source without secrets."""
        return self._redactor_of(secrets).text(text)

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
        # The secrets changed, but the entry contains none of them: keep the same object for everything derived from it.
        return before
    if cleaned is None:
        return Known()
    try:
        sealed = seal(cleaned, bounds)
    except Exception as error:  # noqa: BLE001 - boundary: what a source lists is not ours
        log.warning("Source %r: a tool was left out: %s", source, error)
        return Known(cleaned=cleaned)
    return Known(fold(sealed.qualified_id), sealed, cleaned)
