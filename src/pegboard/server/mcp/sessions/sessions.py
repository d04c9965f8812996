"""Sessions: the state of each client of the revisions before 2026-07-28."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from pegboard.model.json_types import JSON
from pegboard.server.mcp.asking.unanswered_requests import UnansweredRequests
from pegboard.server.mcp.protocol.jsonrpc import INVALID_PARAMS, RpcError
from pegboard.server.mcp.sessions.session_ids import Client, SessionIds, name_of
from pegboard.server.principal import Principal, Whose

SESSION_TELL_S = 1.0  # for telling one session of a change
SESSION_SUBSCRIPTIONS = 1_000  # to resources
SESSIONS = 10_000  # sessions of earlier revisions, open at once
SESSIONS_OF_ONE = 1_000  # a tenth of them: one credential must leave room for others
_TELLING = set[asyncio.Future[None]]()  # the event loop keeps weak references only
SESSION_IDLE_S = 1_800.0  # seconds without a request or an open stream before a session's state is forgotten


async def _tell_nobody(_message: JSON) -> None:
    """Do nothing: the default for a session without a stream."""


def _nothing(_session: Session) -> None:
    pass


@dataclass(kw_only=True, slots=True, eq=False)
class Session:
    """One client: its capabilities, subscriptions and open questions.

    `with session:` holds it for one request: only a session without requests is idle. `is_open` is set by its
    `initialize`; `tell` sends messages that do not belong to a request. `name` is used in place of its id, which is a
    secret; `ends_at` is the end of the id's validity, in seconds since 1970. `awaited` has the ids of the pages that
    its user was asked to open.
    """

    session_id: str = field(repr=False)
    owner: str
    whose: Whose
    profile: str | None
    name: str
    version: str = ""
    ends_at: float = float("inf")
    capabilities: JSON = field(default_factory=dict[str, object])
    client_name: str = ""
    is_open: bool = False
    level: str | None = None
    uris: set[str] = field(default_factory=set[str])
    awaited: set[str] = field(default_factory=set[str])
    questions: UnansweredRequests = field(default_factory=UnansweredRequests)
    tell: Callable[[JSON], Awaitable[None]] = _tell_nobody
    in_flight: int = 0
    used_at: float = 0.0
    clock: Callable[[], float] = time.monotonic

    def subscribe(self, uri: str) -> None:
        """Subscribe the client to a resource."""
        if len(self.uris) >= SESSION_SUBSCRIPTIONS:
            raise RpcError(INVALID_PARAMS, f"A session may subscribe to {SESSION_SUBSCRIPTIONS} resources.")
        self.uris.add(uri)

    def tell_soon(self, message: JSON) -> None:
        """Send a message that does not belong to a request, without waiting for a slow client."""
        task = asyncio.ensure_future(_in_time(self.tell(message)))
        _TELLING.add(task)
        task.add_done_callback(_TELLING.discard)

    def __enter__(self) -> None:
        self.in_flight += 1

    def __exit__(self, *_: object) -> None:
        self.in_flight -= 1
        self.used_at = self.clock()


class Sessions:
    """The sessions known to one worker. A session belongs to the caller who opened it; others cannot see it.

    Args:
        ids: creates ids that any worker accepts; without it, a session is known only here.
        clock: a monotonic clock in seconds.
        worker: the name of this worker, if there are several.
        refusal: the reason why clients cannot be asked during a call.
    """

    def __init__(
        self, ids: SessionIds | None = None, clock: Callable[[], float] = time.monotonic, *, worker: str = "",
        refusal: str | None = None,
    ) -> None:  # fmt: skip
        self._known: dict[str, Session] = {}
        self._by_name: dict[str, Session] = {}
        self.worker, self._refusal = worker, refusal
        self._of_one: Counter[Whose] = Counter()
        self._ids, self._clock = ids, clock
        self.on_forget: Callable[[Session], None] = _nothing
        """Called with each forgotten session; removes other state about it."""

    def has_room(self) -> bool:
        """Tell whether another session may be opened."""
        return len(self._known) < SESSIONS

    def is_full_for(self, whose: Whose) -> bool:
        """Tell whether a caller has reached its number of open sessions."""
        return self._of_one[whose] >= SESSIONS_OF_ONE

    def open(self, principal: Principal, client: Client) -> Session:
        """Return a new session."""
        if self._ids is None:
            return self._add(secrets.token_hex(16), principal, client, float("inf"))
        session_id, opened = self._ids.seal(principal.owner, client)
        return self._add(session_id, principal, opened.client, opened.ends_at)

    def reopen(self, session_id: str, principal: Principal) -> Session | None:
        """Return a session that another worker opened or that was forgotten here; `None` if the id is not valid."""
        opened = None if self._ids is None else self._ids.open(session_id, principal.owner)
        if opened is None or not (self._room_for(principal.shares_as) and self.has_room()):
            return None
        session = self._add(session_id, principal, opened.client, opened.ends_at)
        # Its client declared this at the start.
        session.is_open = True
        return session

    def _room_for(self, whose: Whose) -> bool:
        """Forget an idle session of a caller with many; tell whether there is room for another."""
        if self.is_full_for(whose):
            theirs = (session for session in self._known.values() if session.whose == whose and not session.in_flight)
            oldest = min(theirs, key=lambda session: session.used_at, default=None)
            if oldest is not None:
                self.forget(oldest)
        return not self.is_full_for(whose)

    def _add(self, session_id: str, principal: Principal, client: Client, ends_at: float) -> Session:
        session = Session(
            session_id=session_id, owner=principal.owner, whose=principal.shares_as, profile=principal.profile,
            name=name_of(session_id).hex(), version=client.version, capabilities=client.capabilities,
            client_name=client.name, ends_at=ends_at, used_at=self._clock(), clock=self._clock,
            questions=UnansweredRequests(self.worker, self._refusal),
        )  # fmt: skip
        self._known[session_id] = self._by_name[session.name] = session
        self._of_one[session.whose] += 1
        return session

    def find(self, session_id: str, owner: str) -> Session | None:
        """Return a session of this owner's whose id has not expired."""
        session = self._known.get(session_id)
        return None if session is None or session.owner != owner or self._has_expired(session) else session

    def named(self, name: str) -> Session | None:
        """Return a session by its name."""
        return self._by_name.get(name)

    def ended_elsewhere(self, name: str, ends_at: float) -> None:
        """End a session that was ended in another worker."""
        if self._ids is not None:
            self._ids.end(bytes.fromhex(name), ends_at)
        session = self._by_name.get(name)
        if session is not None:
            self.forget(session)

    def end(self, session: Session) -> None:
        """End a session: its id becomes invalid, its streams and questions end."""
        if self._ids is not None:
            self._ids.end(bytes.fromhex(session.name), session.ends_at)
        self.forget(session)

    def forget(self, session: Session) -> None:
        """Forget the state of a session. Its client may continue it while the id is valid."""
        if self._known.pop(session.session_id, None) is None:
            return
        del self._by_name[session.name]
        self._of_one[session.whose] -= 1
        if not self._of_one[session.whose]:
            del self._of_one[session.whose]
        self.on_forget(session)
        session.questions.end()

    def idle(self) -> list[Session]:
        """Return the idle sessions and those whose id has expired."""
        before = self._clock() - SESSION_IDLE_S
        return [
            session
            for session in self._known.values()
            if (not session.in_flight and session.used_at < before) or self._has_expired(session)
        ]

    def _has_expired(self, session: Session) -> bool:
        return self._ids is not None and self._ids.is_over(session.ends_at)

    # -- notifications to all sessions

    async def tell_updated(self, profile: str | None, uri: str) -> None:
        """Send resource-updated to the sessions of a profile that subscribed to the resource."""
        message: JSON = {"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": uri}}
        await asyncio.gather(
            *(_in_time(session.tell(message)) for session in self._of_profile(profile) if uri in session.uris)
        )

    async def tell(self, profile: str | None, what: str) -> None:
        """Send `tools`, `prompts` or `resources` list-changed to the sessions of a profile."""
        message: JSON = {"jsonrpc": "2.0", "method": f"notifications/{what}/list_changed"}
        await asyncio.gather(*(_in_time(session.tell(message)) for session in self._of_profile(profile)))

    async def tell_person(self, user: str, space: str | None, what: str) -> None:
        """Send `tools`, `prompts` or `resources` list-changed to the sessions of one user in a space."""
        message: JSON = {"jsonrpc": "2.0", "method": f"notifications/{what}/list_changed"}
        theirs = [each for each in self._known.values() if each.is_open and each.whose[1:3] == (user, space)]
        await asyncio.gather(*(_in_time(session.tell(message)) for session in theirs))

    def _of_profile(self, profile: str | None) -> list[Session]:
        return [session for session in self._known.values() if session.is_open and session.profile == profile]


async def _in_time(telling: Awaitable[None]) -> None:
    """Notify with a time limit: a client that does not read its stream must not block the others."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(telling, SESSION_TELL_S)
