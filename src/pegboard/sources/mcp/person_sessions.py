"""Person sessions: the open connections of persons to MCP servers, within limits; each is of one person's account."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from pegboard.core.after_fork import leave_to_parent, renew_after_fork
from pegboard.model.error import CallError

if TYPE_CHECKING:
    from pegboard.connections.connection_records import Person
    from pegboard.sources.mcp.supervised_source import McpSource

PERSON_SESSIONS = 500  # open sessions of persons, of all sources together
PERSON_SESSIONS_OF_SOURCE = 200  # sessions of one source

log = logging.getLogger("pegboard")


class SessionKey(NamedTuple):
    """The owner of a session. A person who connects again has another connection, and so another session.

    So has one who comes with another token that is exchanged.
    """

    source: str
    person: Person
    connection_id: str


class PersonSession:
    """One person's connection to one server, with its own lists. Made by `PersonSessions`, which also ends it."""

    def __init__(self, key: SessionKey, server: McpSource, clock: Callable[[], float]) -> None:
        self.key, self.server = key, server
        self._clock = clock
        self._calls, self._used_at = 0, clock()

    @contextmanager
    def call(self) -> Generator[None]:
        """Keep the session open during a call."""
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1
            self._used_at = self._clock()

    def is_idle(self, for_s: float = 0.0) -> bool:
        """Tell whether it has been unused for so long."""
        return self._calls == 0 and self._clock() - self._used_at >= for_s


class PersonSessions:
    """The open sessions of persons, the least recently used first. Sources of one process share it.

    A session that runs a call is not ended to make room.

    Args:
        most: how many there may be.
        most_of_source: how many of one source.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        *,
        most: int = PERSON_SESSIONS,
        most_of_source: int = PERSON_SESSIONS_OF_SOURCE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most, self._most_of_source, self._clock = most, most_of_source, clock
        self._open: OrderedDict[SessionKey, PersonSession] = OrderedDict()
        self._ending: set[asyncio.Task[None]] = set()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Leave the sessions to the parent."""
        leave_to_parent(self._open, self._ending)
        self._open, self._ending = OrderedDict(), set()

    def find(self, key: SessionKey) -> PersonSession | None:
        """Return an open session, which is then the most recently used one."""
        session = self._open.get(key)
        if session is not None:
            self._open.move_to_end(key)
        return session

    def add(self, key: SessionKey, server: McpSource, *, ends_others: bool = True) -> PersonSession:
        """Add a session of a server that is not started yet; ends idle ones to make room.

        `ends_others` ends the idle ones of the same person, over accounts that they have replaced.

        Raises:
            CallError: `busy`, if all others run calls.
        """
        for held in [each for each in self.of(key.source, key.person) if each.key != key and each.is_idle()]:
            if ends_others:
                self.end(held)
        others = list(self.of(key.source))
        if len(others) >= self._most_of_source:
            self._make_room(others)
        if len(self._open) >= self._most:
            self._make_room(list(self._open.values()))
        session = self._open[key] = PersonSession(key, server, self._clock)
        return session

    def of(self, source: str, person: Person | None = None) -> Iterator[PersonSession]:
        """Yield the open sessions of a source; those of one person, if one is given."""
        for key, session in tuple(self._open.items()):
            if key.source == source and person in (None, key.person):
                yield session

    def end(self, session: PersonSession) -> None:
        """Remove a session and close its connection; calls in flight fail."""
        if self._open.get(session.key) is session:
            del self._open[session.key]
        task = asyncio.get_running_loop().create_task(session.server.stop())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def end_idle(self, source: str, for_s: float) -> None:
        """End the sessions of a source that have been unused for so long."""
        for session in self.of(source):
            if session.is_idle(for_s):
                self.end(session)

    async def end_all(self, source: str) -> None:
        """End the sessions of a source, and wait for that."""
        for session in self.of(source):
            self.end(session)
        if self._ending:
            await asyncio.wait(tuple(self._ending))

    def _make_room(self, among: list[PersonSession]) -> None:
        oldest = next((session for session in among if session.is_idle()), None)
        if oldest is None:
            raise CallError("busy", f"All {len(among)} connections of persons are in use. Try again later.")
        self.end(oldest)
