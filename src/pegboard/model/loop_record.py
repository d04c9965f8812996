"""Loop record: remembers whether synchronous user code has blocked the event loop; such code then runs in a thread."""

from __future__ import annotations


class LoopRecord:
    """Starts as untried. Code that has once been quick runs on the loop; code that has blocked the loop counts as slow.

    Some code works on one thread only, such as a `sqlite3` connection. If the first run in a thread fails, that may be
    the reason: the code then returns to the loop and stays there.
    """

    __slots__ = ("_is_bound", "_is_proven", "is_slow", "is_tried")

    def __init__(self, *, is_tried: bool = False) -> None:
        self.is_tried = is_tried
        self.is_slow = self._is_proven = self._is_bound = False

    def record_loop_run(self) -> bool:
        """Record a run that blocked the loop; return True if the code should run in a thread from now on."""
        moves, self.is_tried = not (self.is_slow or self._is_bound), True
        self.is_slow = self.is_slow or moves
        return moves

    def was_tried(self, *, is_slow: bool) -> None:
        """Record the first run, which was in a thread."""
        self.is_tried, self.is_slow = True, is_slow

    def record_thread_run(self, *, failed: bool) -> bool:
        """Record a run in a thread; return True if the code should run on the loop again."""
        if failed and not self._is_proven:
            moves, self._is_bound, self.is_slow = self.is_slow, True, False
            return moves
        self._is_proven = True
        return False
