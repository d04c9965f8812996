"""OpenRequests: what a door has open, and how much of it is one caller's."""

from __future__ import annotations

from pegboard.model.bounds import share_of_one
from pegboard.server.principal import Principal


class OpenRequests:
    """Counts the open requests of one door: at most `limit`, and of one caller three quarters of that."""

    def __init__(self, limit: int) -> None:
        self._limit, self._share = limit, share_of_one(limit)
        self._total = 0
        self._of_one: dict[tuple[str | None, ...], int] = {}

    @property
    def is_full(self) -> bool:
        """Whether nobody more is taken, whoever it is."""
        return self._total >= self._limit

    def enter(self, principal: Principal) -> bool:
        """Count one more; `False` where the door is full, or has given this caller its share."""
        whose = principal.shares_as
        of_one = self._of_one.get(whose, 0)
        if of_one >= self._share or self._total >= self._limit:
            return False
        self._of_one[whose] = of_one + 1
        self._total += 1
        return True

    def reenter(self, principal: Principal) -> None:
        """Count again one that was let in and left for a while."""
        whose = principal.shares_as
        self._of_one[whose] = self._of_one.get(whose, 0) + 1
        self._total += 1

    def leave(self, principal: Principal) -> None:
        """Count one less."""
        whose = principal.shares_as
        self._total -= 1
        if self._of_one[whose] == 1:
            del self._of_one[whose]
        else:
            self._of_one[whose] -= 1
