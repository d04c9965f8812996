"""Memory answers: people's answers, kept in one process without a store. It has no inbox."""

from __future__ import annotations

from collections.abc import Callable

from pegboard.consent.limits import CONSENT_DECLINED_S, CONSENT_GOOD_S
from pegboard.consent.owners import principal_key, session_key
from pegboard.core.bounded_cache import BoundedCache
from pegboard.core.identifiers import new_id
from pegboard.model.consent import ConsentAnswer, ConsentRequest

CONSENT_REMEMBERED = 10_000  # answers kept in memory

Key = tuple[str, ...]


class MemoryConsents:
    """Keeps refusals by session, and approvals that a call returned unused; implements `ports.ConsentRecords`.

    When full, the oldest are forgotten; then a person is asked again.

    Args:
        wall_clock: seconds since 1970.
    """

    takes_questions = False

    def __init__(self, wall_clock: Callable[[], float]) -> None:
        self._clock = wall_clock
        self._declined = BoundedCache[Key, tuple[str, float]](max_entries=CONSENT_REMEMBERED)
        self._agreed = BoundedCache[Key, tuple[str, float]](max_entries=CONSENT_REMEMBERED)
        self._used = BoundedCache[str, tuple[Key, float]](max_entries=CONSENT_REMEMBERED)

    async def recall(self, request: ConsentRequest) -> ConsentAnswer | None:
        """Return the valid answer for a call; see `ports.ConsentRecords`."""
        declined = self._declined.get(_no_key(request))
        if declined is not None and declined[1] > self._clock():
            return ConsentAnswer(declined[0], is_yes=False)
        key = _yes_key(request)
        agreed = self._agreed.pop(key, None)
        if agreed is None or agreed[1] <= self._clock():
            return None
        self._used.remember(agreed[0], (key, agreed[1]))
        return ConsentAnswer(agreed[0], is_yes=True)

    async def has_yes(self, request: ConsentRequest) -> bool:
        """Tell whether a call returned an approval unused; see `ports.ConsentRecords`."""
        tool, now = _yes_key(request)[:-1], self._clock()
        return any(key[:-1] == tool and ends > now for key, (_, ends) in list(self._agreed.items()))

    async def progress(self, request: ConsentRequest) -> str:
        """Return nothing: memory has no questions; see `ports.ConsentRecords`."""
        return ""

    async def declined(self, request: ConsentRequest) -> str:
        """Return nothing: reasons are given in an inbox; see `ports.ConsentRecords`."""
        return ""

    async def edited(self, consent_id: str) -> None:
        """Return `None`: arguments are edited in an inbox; see `ports.ConsentRecords`."""

    async def record(self, request: ConsentRequest, *, is_yes: bool, decided_by: str) -> ConsentAnswer:
        """Remember an answer; see `ports.ConsentRecords`."""
        consent_id, now = new_id(), self._clock()
        if is_yes:
            self._used.remember(consent_id, (_yes_key(request), now + CONSENT_GOOD_S))
        else:
            self._declined.remember(_no_key(request), (consent_id, now + CONSENT_DECLINED_S))
        return ConsentAnswer(consent_id, is_yes)

    async def stands(self, consent_id: str) -> bool:
        """Return True: approvals in memory cannot be revoked; see `ports.ConsentRecords`."""
        return True

    async def give_back(self, consent_id: str) -> None:
        """Return an unused approval; see `ports.ConsentRecords`."""
        used = self._used.pop(consent_id, None)
        if used is not None:
            self._agreed.remember(used[0], (consent_id, used[1]))

    async def file(self, request: ConsentRequest, text: str) -> str:
        """Raise an error: memory has no inbox.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError("There is no inbox.")

    def link(self, consent_id: str) -> str | None:
        """Return `None`: there is no page."""
        return None


def _no_key(request: ConsentRequest) -> Key:
    return (session_key(request), request.tool, request.args_digest)


def _yes_key(request: ConsentRequest) -> Key:
    return (principal_key(request), request.tool, request.definition_hash, request.args_digest)
