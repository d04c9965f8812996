"""OpenRequests: the open requests of one door, and each caller's share."""

from __future__ import annotations

from pegboard.model.bounds import share_of_one
from pegboard.server.principal import Principal, Whose


class OpenRequests:
    """Counts the open requests of one door: at most `limit`, of which one caller may have three quarters."""

    def __init__(self, limit: int) -> None:
        self._limit, self._share = limit, share_of_one(limit)
        self._total = 0
        self._of_one: dict[Whose, int] = {}

    @property
    def is_full(self) -> bool:
        """Whether the door is full for every caller."""
        return self._total >= self._limit

    def enter(self, principal: Principal) -> Whose | None:
        """Count a request and return its owner, for `leave`; `None` if the door is full or the caller has used up its
        share.
        """
        whose = principal.shares_as
        of_one = self._of_one.get(whose, 0)
        if of_one >= self._share or self._total >= self._limit:
            return None
        self._of_one[whose] = of_one + 1
        self._total += 1
        return whose

    def reenter(self, whose: Whose) -> None:
        """Count a request again that left for a while."""
        self._of_one[whose] = self._of_one.get(whose, 0) + 1
        self._total += 1

    def leave(self, whose: Whose) -> None:
        """Remove a request of the owner that `enter` returned."""
        self._total -= 1
        left = self._of_one.pop(whose) - 1
        if left:
            self._of_one[whose] = left
