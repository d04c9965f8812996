"""Loop guard: notice a session that asks the same discovery question again and again."""

from __future__ import annotations

import threading

from pegboard.core.after_fork import renew_after_fork
from pegboard.core.bounded_cache import BoundedCache
from pegboard.core.digests import digest
from pegboard.model.context import ToolContext

LOOP_NUDGE_CALLS = 3  # equal questions of one session, and the answer nudges
LOOP_SESSIONS = 2_000  # whose questions are remembered
LOOP_QUESTIONS = 50  # of one session that are remembered

Session = tuple[str | None, ...]


class LoopGuard:
    """Counts equal discovery requests of each session, as far back as 50 different ones; in memory, bounded.

    It changes no answer and no list: from the third time on, the answer is the same with a nudge to call.
    """

    def __init__(self) -> None:
        self._asked = BoundedCache[Session, BoundedCache[str, int]](max_entries=LOOP_SESSIONS)
        self._lock = threading.Lock()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Let go of what a thread of the parent held."""
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
        """Forget what a session has asked: it has called a tool."""
        with self._lock:
            self._asked.pop(_session(ctx, profile), None)


def _session(ctx: ToolContext, profile: str | None) -> Session:
    return (profile, ctx.user_id, ctx.space_id, ctx.session_id, ctx.agent)
