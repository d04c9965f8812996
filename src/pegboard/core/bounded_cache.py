"""A bounded cache: a dict of answers that can be had again, which forgets the oldest when it is full."""

from __future__ import annotations

import threading
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class BoundedCache(dict[K, V]):
    """Holds at most `max_entries` entries; of one too many, the one that was remembered longest ago goes.

    It is a dict, so that asking costs what asking a dict costs. Write with `remember` alone, from any thread. Reading
    makes no entry younger: whoever wants that remembers it again.

    For what can be made again. Whoever must not lose an entry (a limit's count, a used ticket) needs a store that
    refuses when it is full.
    """

    __slots__ = ("_writing", "max_entries")

    def __init__(self, *, max_entries: int) -> None:
        super().__init__()
        self.max_entries = max_entries
        self._writing = threading.Lock()

    def remember(self, key: K, value: V) -> V:
        """Keep a value as the youngest entry, and return it."""
        with self._writing:
            self.pop(key, None)
            while len(self) >= self.max_entries:
                del self[next(iter(self))]
            self[key] = value
        return value
