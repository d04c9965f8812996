"""Entry table: immutable mapping of ids to entries in order of declaration; adding an entry makes no copy."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import count
from typing import NamedTuple

from pegboard.model.tool import ToolEntry


class Ordered(NamedTuple):
    """Entries with their folded qualified ids, in their order."""

    keys: list[str]
    entries: Sequence[ToolEntry]


class _Storage:
    """Storage shared by tables that grew from each other. It only grows; each table sees a prefix of it."""

    __slots__ = ("entries", "keys", "lock", "places")

    def __init__(self, entries: Mapping[str, ToolEntry]) -> None:
        self.keys, self.entries = list(entries), list(entries.values())
        self.places = dict(zip(self.keys, count(), strict=False))
        self.lock = threading.Lock()

    def append(self, size: int, added: Mapping[str, ToolEntry]) -> bool:
        """Add new entries after the first `size`; `False` if another table did so first."""
        with self.lock:
            if len(self.entries) != size:
                return False
            for place, (key, entry) in enumerate(added.items(), start=size):
                self.keys.append(key)
                self.entries.append(entry)
                self.places[key] = place
            return True

    def after_fork(self) -> None:
        """Replace the lock in a child; entries that a thread of the parent was adding belong to no table."""
        self.lock = threading.Lock()

    def replaced(self, entries: Mapping[str, ToolEntry]) -> _Storage:
        """Return a new storage with some entries replaced; a full copy is faster than one by keys."""
        copied = _Storage({})
        with self.lock:
            copied.keys, copied.entries, copied.places = self.keys.copy(), self.entries.copy(), self.places.copy()
        for key, entry in entries.items():
            copied.entries[copied.places[key]] = entry
        return copied

    def without(self, place: int, size: int) -> _Storage:
        """Return a new storage of the first `size` entries without one."""
        copied = _Storage({})
        copied.keys, copied.entries = self.keys[:size], self.entries[:size]
        del copied.keys[place], copied.entries[place]
        copied.places = dict(zip(copied.keys, count(), strict=False))
        return copied


class EntryTable(Mapping[str, ToolEntry]):
    """Entries by folded qualified id, in order of declaration.

    Catalogs are often filled tool by tool, and 10,000 declarations must not make 10,000 copies of a mapping. A new
    table therefore appends to the storage of its predecessor, which still sees only its own prefix. Tables are copied
    only to replace or remove entries.
    """

    __slots__ = ("_size", "_storage")

    def __init__(self, storage: _Storage | None = None, size: int = 0) -> None:
        self._storage, self._size = storage or _Storage({}), size

    @classmethod
    def of(cls, entries: Mapping[str, ToolEntry]) -> EntryTable:
        return cls(_Storage(entries), len(entries))

    def __getitem__(self, key: str) -> ToolEntry:
        place = self._storage.places[key]
        if place >= self._size:
            raise KeyError(key)
        return self._storage.entries[place]

    def __iter__(self) -> Iterator[str]:
        return iter(self._storage.keys[: self._size])

    def __len__(self) -> int:
        return self._size

    def after_fork(self) -> None:
        """Let a forked child change tables derived from this one, even if a thread of the parent held the lock."""
        self._storage.after_fork()

    def ordered(self) -> Ordered:
        """Return copies of both, for the caller to change."""
        return Ordered(self._storage.keys[: self._size], self._storage.entries[: self._size])

    def has_none_of(self, keys: Collection[str]) -> bool:
        """Tell whether none of these keys is here. May say no because of another table with the same storage."""
        return self._storage.places.keys().isdisjoint(keys)

    def to_dict(self) -> dict[str, ToolEntry]:
        """Return a copy, for the caller to change; faster than reading each entry."""
        return dict(zip(self, self._storage.entries, strict=False))

    def with_entries(self, added: Mapping[str, ToolEntry]) -> EntryTable:
        """Return the table with these entries; known keys are replaced in place, others appended."""
        if self.keys().isdisjoint(added) and self._storage.append(self._size, added):
            return EntryTable(self._storage, self._size + len(added))
        if not added:
            return self
        if self._size != len(self._storage.entries) or not self.keys() >= added.keys():
            return EntryTable.of({**self.to_dict(), **added})
        return EntryTable(self._storage.replaced(added), self._size)

    def without(self, key: str) -> EntryTable:
        """Return the table without one entry; `KeyError` where there is none."""
        place = self._storage.places[key]
        if place >= self._size:
            raise KeyError(key)
        return EntryTable(self._storage.without(place, self._size), self._size - 1)
