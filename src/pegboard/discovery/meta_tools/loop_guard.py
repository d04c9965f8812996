"""Loop guard: detects a session that repeats the same discovery request."""

from __future__ import annotations

import threading

from pegboard.core.after_fork import renew_after_fork
from pegboard.core.bounded_cache import BoundedCache
from pegboard.core.digests import digest
from pegboard.model.context import ToolContext

LOOP_NUDGE_CALLS = 3  # equal requests of one session until the answer includes a hint
LOOP_SESSIONS = 2_000  # sessions that are tracked
LOOP_QUESTIONS = 50  # requests of one session that are tracked

Session = tuple[str | None, ...]


class LoopGuard:
    """Counts equal discovery requests of each session among its last 50 different ones; in memory, bounded.

    It changes no answers or lists: from the third time on, the answer includes a hint to call a tool.
    """

    def __init__(self) -> None:
        self._asked = BoundedCache[Session, BoundedCache[str, int]](max_entries=LOOP_SESSIONS)
        self._lock = threading.Lock()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Replace the lock that a thread of the parent may hold."""
        self._lock = threading.Lock()

    def nudges(self, ctx: ToolContext, profile: str | None, tool: str, request: object) -> bool:
        """Count a request; tell whether it is at least the third of its kind in this session."""
        key = digest([tool, request])
        with self._lock:
            session = _session(ctx, profile)
            asked = self._asked.get(session)
            if asked is None:
                asked = BoundedCache[str, int](max_entries=LOOP_QUESTIONS)
            self._asked.remember(session, asked)
            return asked.remember(key, asked.get(key, 0) + 1) >= LOOP_NUDGE_CALLS

    def went_on(self, ctx: ToolContext, profile: str | None) -> None:
        """Forget the requests of a session, because it has called a tool."""
        with self._lock:
            self._asked.pop(_session(ctx, profile), None)


def _session(ctx: ToolContext, profile: str | None) -> Session:
    return (profile, ctx.user_id, ctx.space_id, ctx.session_id, ctx.agent)
