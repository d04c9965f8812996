"""A bounded cache: a dict of values that can be computed again; when full, it drops the oldest."""

from __future__ import annotations

import os
import threading
from typing import ClassVar, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class BoundedCache(dict[K, V]):
    """Holds at most `max_entries` entries and drops the oldest one when full.

    It is a dict, so a lookup costs the same as in a dict. Write only with `remember`, from any thread. Reading does not
    make an entry younger; call `remember` again for that.

    Only for values that can be recreated. Data that must not be lost (a limit's count, a used ticket) needs a store
    that refuses writes when it is full.
    """

    __slots__ = ("max_entries",)

    # One lock for all caches, recreated in a forked child, where the thread that held it does not exist. Reentrant,
    # since a dropped entry may have a finalizer that calls `remember`.
    _writing: ClassVar = threading.RLock()

    def __init__(self, *, max_entries: int) -> None:
        super().__init__()
        self.max_entries = max_entries

    @classmethod
    def after_fork(cls) -> None:
        """Replace, in a child, the lock that a thread of the parent may hold."""
        cls._writing = threading.RLock()

    def remember(self, key: K, value: V) -> V:
        """Store a value as the youngest entry, and return it."""
        with self._writing:
            self.pop(key, None)
            while len(self) >= self.max_entries:
                del self[next(iter(self))]
            self[key] = value
        return value


if hasattr(os, "register_at_fork"):  # pragma: no branch - there is nothing to fork on Windows
    os.register_at_fork(after_in_child=BoundedCache.after_fork)
