"""After fork: recreates in a child process the threads and connections that it cannot inherit."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol
from weakref import WeakSet

# Keeps the parent's objects alive: freeing them would close what both share, or notify the parent's event loop.
_of_the_parent: list[object] = []


class Inheritor(Protocol):
    """Something that works in one process only, although a fork copies it."""

    def after_fork(self) -> None:
        """Release what belongs to the parent; called in the child, before any of its code."""
        ...


class Lock(Protocol):
    """Any lock for threads."""

    def acquire(self, blocking: bool = True) -> bool: ...

    def release(self) -> None: ...


_inheritors = WeakSet[Inheritor]()


def renew_after_fork(inheritor: Inheritor) -> None:
    """Call `after_fork` of this object in every child that this process forks."""
    _inheritors.add(inheritor)


def is_held(lock: Lock) -> bool:
    """Return whether, in a child, another thread held a lock at the fork: nobody will release it here."""
    if not lock.acquire(blocking=False):
        return True
    lock.release()
    return False


def leave_to_parent(*things: object) -> None:
    """Keep the parent's objects, unused, for as long as the child lives."""
    _of_the_parent.extend(things)


def _renew() -> None:  # pragma: no cover - in forked children, which tests/security/test_after_fork.py watches
    for inheritor in list(_inheritors):
        inheritor.after_fork()


if hasattr(os, "register_at_fork"):  # pragma: no branch - there is nothing to fork on Windows
    os.register_at_fork(after_in_child=_renew)


class Threads:
    """Worker threads, started with the first work. A forked child starts its own."""

    def __init__(self, most: int, *, name: str) -> None:
        self._most, self._name = most, name
        self._executor: ThreadPoolExecutor | None = None
        renew_after_fork(self)

    @property
    def executor(self) -> ThreadPoolExecutor:
        """The argument for `loop.run_in_executor`."""
        if self._executor is None:
            self._executor = ThreadPoolExecutor(self._most, thread_name_prefix=self._name)
        return self._executor

    def after_fork(self) -> None:
        """Forget the threads, which run in the parent."""
        leave_to_parent(self._executor)
        self._executor = None

    def close(self) -> None:
        """End the threads when their work is done, without waiting for them."""
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=False, cancel_futures=True)
