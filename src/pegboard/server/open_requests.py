"""OpenRequests: what a door has open, and how much of it is one caller's."""

from __future__ import annotations

from pegboard.model.bounds import share_of_one
from pegboard.server.principal import Principal, Whose


class OpenRequests:
    """Counts the open requests of one door: at most `limit`, and of one caller three quarters of that."""

    def __init__(self, limit: int) -> None:
        self._limit, self._share = limit, share_of_one(limit)
        self._total = 0
        self._of_one: dict[Whose, int] = {}

    @property
    def is_full(self) -> bool:
        """Whether nobody more is taken, whoever it is."""
        return self._total >= self._limit

    def enter(self, principal: Principal) -> Whose | None:
        """Count one more and return whose it is, for `leave`; `None` where the door is full, or the caller's share is
        given.
        """
        whose = principal.shares_as
        of_one = self._of_one.get(whose, 0)
        if of_one >= self._share or self._total >= self._limit:
            return None
        self._of_one[whose] = of_one + 1
        self._total += 1
        return whose

    def reenter(self, whose: Whose) -> None:
        """Count again one that was let in and left for a while."""
        self._of_one[whose] = self._of_one.get(whose, 0) + 1
        self._total += 1

    def leave(self, whose: Whose) -> None:
        """Count one less of whom `enter` named."""
        self._total -= 1
        left = self._of_one.pop(whose) - 1
        if left:
            self._of_one[whose] = left
