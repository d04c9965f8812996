"""Loop record: whether code of a user, which is not async, has held the event loop once; then it runs beside it."""

from __future__ import annotations


class LoopRecord:
    """Starts as quick. Whoever sees the code hold the loop says so, and from then on it is slow.

    Some code works on one thread only, such as a connection of `sqlite3`. Where the first run beside the loop fails,
    that may be why: then the code goes back to the loop, and stays there.
    """

    __slots__ = ("_is_bound", "_is_proven", "is_slow")

    def __init__(self) -> None:
        self.is_slow = self._is_proven = self._is_bound = False

    def held_the_loop(self) -> bool:
        """Take note; tell whether that moves the code."""
        moves = not (self.is_slow or self._is_bound)
        self.is_slow = self.is_slow or moves
        return moves

    def ran_beside(self, *, failed: bool) -> bool:
        """Take note of a run beside the loop; tell whether that moves the code back."""
        if failed and not self._is_proven:
            moves, self._is_bound, self.is_slow = self.is_slow, True, False
            return moves
        self._is_proven = True
        return False
