"""Repeats: stop a caller who makes the same failing call again and again."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from pegboard.core.bounded_cache import BoundedCache
from pegboard.core.call.limit_keys import Key, owner_of
from pegboard.core.call.one_call import call_digest
from pegboard.model.context import ToolContext
from pegboard.model.error import CallError, ToolError
from pegboard.model.json_types import JSON
from pegboard.model.tool import ToolEntry

REPEAT_FAILURES = 5  # of one call, in a row and in the same words
REPEAT_PAUSE_S = 60.0  # and the next is refused for this long
REPEATING_CALLERS = 2_000  # pairs of caller and tool with failures that are counted
REPEATED_ARGUMENTS = 100  # and of each, different arguments

_COUNTED = frozenset(("tool_error", "output_invalid", "upstream_error"))
_WORD = re.compile(r"[\w.:+-]+")
_SERVER_FAULT = 500  # HTTP statuses from here on are the other side's fault


class _Row(NamedTuple):
    """How often one call failed in a row, in which words, and until when it is refused.

    `gist` are the words without what is another each time: ids, times, counts. `let_through` is the id of the call that
    decides about the next minute, since the pause is over.
    """

    failures: int
    kind: str
    gist: str
    words: str
    until: float
    let_through: str = ""


class RepeatBreaker:
    """Counts failures in a row of one call: the caller, the tool as it is defined, the arguments, however spelled.

    After five of one kind and text the next is refused for a minute; then one is let through, which decides about the
    next minute. A success ends the row, and so does every other error: what is retryable is never refused, so that a
    source which is back serves the next call at once. State of one executor; bounded, the oldest rows go.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        # By caller and tool, then by arguments. While it is empty, as it mostly is, calls are not looked at.
        self.rows = BoundedCache[Key, BoundedCache[str, _Row]](max_entries=REPEATING_CALLERS)

    def check(self, ctx: ToolContext, entry: ToolEntry, args: JSON, schema: JSON, *, name: str, call_id: str) -> None:
        """Refuse a call that failed too often; `schema` is that of its arguments, `name` what the caller knows it as.

        Raises:
            CallError: `rate_limited`, with what failed.
        """
        rows = self.rows.get(_key(ctx, entry))
        if rows is None:
            return
        arguments = call_digest(args, schema)
        row = rows.get(arguments)
        if row is None or row.failures < REPEAT_FAILURES or row.let_through == call_id:
            return
        now = self._clock()
        if row.until <= now:
            # Of those that come together it alone runs.
            rows[arguments] = row._replace(until=now + REPEAT_PAUSE_S, let_through=call_id)
            return
        wait_s = row.until - now
        text = (
            f"{name!r} was not run: with these very arguments it failed {row.failures} times in a row, the last "
            f"time with {row.kind}: {row.words} Change the arguments or use another tool; the same call is taken again "
            f"in {wait_s:.3g} s."
        )
        details = {"failed": row.kind, "times": row.failures}
        raise CallError("rate_limited", text, retry_after_s=wait_s, details=details)

    def give_back(self, ctx: ToolContext, entry: ToolEntry, args: JSON, schema: JSON, *, call_id: str) -> None:
        """Let another one through, where this call was and told nothing: it was refused for something else, or left."""
        rows = self.rows.get(_key(ctx, entry))
        arguments = call_digest(args, schema)
        row = None if rows is None else rows.get(arguments)
        if rows is not None and row is not None and row.let_through == call_id:
            rows[arguments] = row._replace(until=self._clock(), let_through="")

    def note(
        self, ctx: ToolContext, entry: ToolEntry, args: JSON, schema: JSON, error: ToolError | None, *, call_id: str
    ) -> None:
        """Count how a call that ran has ended; its id stands in some texts, and makes them no other ones."""
        key = _key(ctx, entry)
        rows = self.rows.get(key)
        if error is None or not _is_counted(error):
            if rows is not None and rows.pop(call_digest(args, schema), None) is not None and not rows:
                self.rows.pop(key, None)
            return
        arguments = call_digest(args, schema)
        words = error.message.replace(call_id, "…")
        before = None if rows is None else rows.get(arguments)
        gist = _WORD.sub(_without_digits, words)
        failures = before.failures + 1 if before is not None and before[1:3] == (error.kind, gist) else 1
        until = self._clock() + REPEAT_PAUSE_S if failures >= REPEAT_FAILURES else 0.0
        if rows is None:
            rows = BoundedCache[str, _Row](max_entries=REPEATED_ARGUMENTS)
        self.rows.remember(key, rows).remember(arguments, _Row(failures, error.kind, gist, words, until))


def _without_digits(word: re.Match[str]) -> str:
    """Return a word, or what stands for all that have digits: `req_8f3a`, `12:00:01`, `17`."""
    return "…" if any(map(str.isdigit, word[0])) else word[0]


def _is_counted(error: ToolError) -> bool:
    if error.retryable or error.kind not in _COUNTED:
        return False
    status = error.details.get("status")
    return not isinstance(status, int) or status < _SERVER_FAULT


def _key(ctx: ToolContext, entry: ToolEntry) -> Key:
    return (*owner_of(ctx), ctx.caller.agent, entry.qualified_id, entry.fingerprint)
