"""Token cache: the tokens of persons in memory, each confirmed by the store within the last second."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pegboard.connections.auth_settings import AuthSettings
from pegboard.connections.connection_records import AccessToken, Person
from pegboard.connections.connection_store import ConnectionStore
from pegboard.connections.limits import KEPT_TOKENS
from pegboard.core.after_fork import leave_to_parent, renew_after_fork
from pegboard.core.bounded_cache import BoundedCache

ASKED_AFTER = 0.75  # share of a token's time of use until the store is asked about it


class _Entry:
    """One token, and when the store confirmed it.

    It is used without a question until `ask_at`, and while a question is open `until`, both on the monotonic clock;
    never from `renew_at` on, on the clock of the store.
    """

    __slots__ = ("ask_at", "is_used", "renew_at", "token", "until")

    def __init__(self, token: AccessToken, renew_at: float) -> None:
        self.token, self.renew_at = token, renew_at
        self.ask_at = self.until = 0.0
        self.is_used = False
        """Whether a call has used it since the store was asked about it."""


class TokenCache:
    """Holds tokens of persons. A token is used for at most `kept_s` seconds after the store has confirmed it.

    To confirm a token is to compare its version, which decrypts nothing. A store that answers at once is asked by the
    call itself. Any other one is asked in a thread about all tokens in use, after three quarters of the time, and calls
    do not wait for that. Only a call that finds its token older than `kept_s` waits.

    Args:
        store: the store of connections.
        kept_s: seconds.
        clock: seconds, monotonic.
    """

    def __init__(self, store: ConnectionStore, *, kept_s: float, clock: Callable[[], float]) -> None:
        self._store, self._kept_s, self._clock = store, kept_s, clock
        self._entries = BoundedCache[tuple[Person, AuthSettings], _Entry](max_entries=KEPT_TOKENS)
        self._check: asyncio.Task[frozenset[_Entry]] | None = None
        self._next_check_at = 0.0
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Leave the running check to the parent."""
        leave_to_parent(self._check)
        self._check = None

    def remember(
        self, person: Person, settings: AuthSettings, token: AccessToken, *, asked_at: float, lasts_s: float, now: float
    ) -> None:
        """Hold a token.

        Args:
            person: whose token it is.
            settings: the source.
            token: the token.
            asked_at: when the store was asked for it, on the monotonic clock: later changes must count in time.
            lasts_s: seconds until it should be refreshed.
            now: the time of the store.
        """
        entry = _Entry(token, now + lasts_s)
        self._confirm(entry, asked_at, now)
        self._entries.remember((person, settings), entry)

    def forget(self, person: Person, settings: AuthSettings) -> None:
        """Drop a token."""
        self._entries.pop((person, settings), None)

    def get(self, person: Person, settings: AuthSettings) -> AccessToken | None:
        """Return a token that may be used now; `None` if there is none, or the store must be waited for."""
        key = (person, settings)
        entry = self._entries.get(key)
        if entry is None:
            return None
        now, entry.is_used = self._clock(), True
        if now < entry.ask_at:
            return entry.token
        answer = self._store.version_at_once(entry.token.connection_id)
        if answer is not None:
            version, stored_now = answer
            return entry.token if self._is_current(key, entry, version, now, stored_now) else None
        if now >= entry.until:
            return None
        if now >= self._next_check_at:
            # Not for each call while the store does not answer.
            self._next_check_at = now + self._kept_s * (1 - ASKED_AFTER)
            self._started_check()
        return entry.token

    async def confirmed(self, person: Person, settings: AuthSettings) -> AccessToken | None:
        """Return a token after the store has confirmed it; `None` if it has another one, or there is none here.

        Raises:
            StoreError: the store does not answer.
        """
        key = (person, settings)
        while (entry := self._entries.get(key)) is not None:
            entry.is_used = True
            # A check that was begun before may not include it; the next one does.
            if entry in await asyncio.shield(self._started_check()):
                return entry.token if self._entries.get(key) is entry else None
        return None

    def _started_check(self) -> asyncio.Task[frozenset[_Entry]]:
        task = self._check
        if task is None or task.done() or task.get_loop() is not asyncio.get_running_loop():
            # A separate task: other calls wait for it, too.
            task = self._check = asyncio.create_task(self._check_used(), name="check-tokens")
            task.add_done_callback(_take_exception)
        return task

    async def _check_used(self) -> frozenset[_Entry]:
        """Ask the store about all tokens that calls have used since it was asked about them. Return their entries."""
        asked_at = self._clock()
        used = {key: entry for key, entry in list(self._entries.items()) if entry.is_used}
        for entry in used.values():
            entry.is_used = False
        versions, stored_now = await self._store.versions([entry.token.connection_id for entry in used.values()])
        for key, entry in used.items():
            self._is_current(key, entry, versions.get(entry.token.connection_id), asked_at, stored_now)
        return frozenset(used.values())

    def _is_current(
        self,
        key: tuple[Person, AuthSettings],
        entry: _Entry,
        version: int | None,
        asked_at: float,
        stored_now: float,
    ) -> bool:
        """Tell whether an entry has the stored version and need not be refreshed; drop it otherwise."""
        if version == entry.token.version and stored_now < entry.renew_at:
            self._confirm(entry, asked_at, stored_now)
            return True
        if self._entries.get(key) is entry:
            self.forget(*key)
        return False

    def _confirm(self, entry: _Entry, asked_at: float, stored_now: float) -> None:
        entry.until = asked_at + min(self._kept_s, entry.renew_at - stored_now)
        entry.ask_at = min(entry.until, asked_at + self._kept_s * ASKED_AFTER)

    async def close(self) -> None:
        """Wait until the store has answered."""
        task = self._check
        if task is not None and not task.done() and task.get_loop() is asyncio.get_running_loop():
            await asyncio.wait([task])


def _take_exception(task: asyncio.Task[frozenset[_Entry]]) -> None:
    if not task.cancelled():
        task.exception()  # calls that waited have received it; for the others the next question counts
