"""A bounded cache: a dict of answers that can be had again, which forgets the oldest when it is full."""

from __future__ import annotations

import os
import threading
from typing import ClassVar, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class BoundedCache(dict[K, V]):
    """Holds at most `max_entries` entries; of one too many, the one that was remembered longest ago goes.

    It is a dict, so that asking costs what asking a dict costs. Write with `remember` alone, from any thread. Reading
    makes no entry younger: whoever wants that remembers it again.

    For what can be made again. Whoever must not lose an entry (a limit's count, a used ticket) needs a store that
    refuses when it is full.
    """

    __slots__ = ("max_entries",)

    # One for all of them, which a forked child makes anew: a thread that held it goes on in the parent alone. What
    # goes may have a finalizer that remembers something itself.
    _writing: ClassVar = threading.RLock()

    def __init__(self, *, max_entries: int) -> None:
        super().__init__()
        self.max_entries = max_entries

    @classmethod
    def after_fork(cls) -> None:
        """Let go, in a child, of what a thread of the parent held."""
        cls._writing = threading.RLock()

    def remember(self, key: K, value: V) -> V:
        """Keep a value as the youngest entry, and return it."""
        with self._writing:
            self.pop(key, None)
            while len(self) >= self.max_entries:
                del self[next(iter(self))]
            self[key] = value
        return value


if hasattr(os, "register_at_fork"):  # pragma: no branch - there is nothing to fork on Windows
    os.register_at_fork(after_in_child=BoundedCache.after_fork)
