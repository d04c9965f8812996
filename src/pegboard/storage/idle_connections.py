"""Idle connections: those of a store that are open and unused, and work on one that another thread may stop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

from pegboard.core.after_fork import leave_to_parent, renew_after_fork


class Closable(Protocol):
    """A connection."""

    def close(self) -> object: ...


C = TypeVar("C", bound=Closable)


class IdleConnections(Generic[C]):
    """Keeps open connections for the next use. A forked child begins without any: they belong to its parent.

    Args:
        keep: the maximum number kept.
    """

    def __init__(self, *, keep: int) -> None:
        self._keep = keep
        self._idle: list[C] = []
        self._closings = 0
        self._lock = threading.Lock()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Leave the connections to the parent."""
        leave_to_parent(self._idle)
        self._idle, self._lock = [], threading.Lock()

    @property
    def closings(self) -> int:
        """The number of times that all were closed, for `give_back`; read it before taking or opening a connection."""
        return self._closings

    def take(self) -> C | None:
        """Return a connection; `None` if there is none."""
        with self._lock:
            return self._idle.pop() if self._idle else None

    def give_back(self, connection: C, *, is_sound: bool, closings: int) -> None:
        """Keep a connection for the next use, or close it if it is not sound, or there are enough.

        It is also closed if all were closed since: the work of a cancelled caller may end after that.
        """
        with self._lock:
            if is_sound and closings == self._closings and len(self._idle) < self._keep:
                self._idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        """Close all of them."""
        with self._lock:
            idle, self._idle = self._idle, []
            self._closings += 1
        for connection in idle:
            connection.close()


class StoppedError(Exception):
    """The work was stopped before it began."""


class StoppableWork(Generic[C]):
    """One piece of work on a connection, which `stop` ends from another thread.

    Args:
        interrupt: interrupts what the connection does now.
    """

    def __init__(self, interrupt: Callable[[C], object]) -> None:
        self._interrupt = interrupt
        self._connection: C | None = None
        self._is_stopped = False
        self._lock = threading.Lock()

    @contextmanager
    def on(self, connection: C) -> Generator[None]:
        """Work on a connection.

        Raises:
            StoppedError: `stop` was called before.
        """
        with self._lock:
            if self._is_stopped:
                raise StoppedError
            self._connection = connection
        try:
            yield
        finally:
            with self._lock:
                self._connection = None

    def stop(self) -> None:
        """Interrupt the work, or keep it from beginning."""
        with self._lock:
            self._is_stopped = True
            if self._connection is not None:
                self._interrupt(self._connection)
