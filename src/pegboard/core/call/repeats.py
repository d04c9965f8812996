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

REPEAT_FAILURES = 5  # failures of one call in a row, with the same error text, before it is refused
REPEAT_PAUSE_S = 60.0  # how long the next call is refused, in seconds
REPEATING_CALLERS = 2_000  # pairs of caller and tool with counted failures
REPEATED_ARGUMENTS = 100  # different arguments counted for each pair

_COUNTED = frozenset(("tool_error", "output_invalid", "upstream_error"))
_WORD = re.compile(r"[\w.:+-]+")
_SERVER_FAULT = 500  # the first HTTP status that is the server's fault


class _Row(NamedTuple):
    """How often one call failed in a row, its error text, and the end of its pause.

    `gist` is the error text without its varying parts: ids, times, counts. `let_through` is the id of the call that
    runs after a pause and decides about the next one.
    """

    failures: int
    kind: str
    gist: str
    words: str
    until: float
    let_through: str = ""


class RepeatBreaker:
    """Counts consecutive failures of one call: caller, tool definition and arguments, however spelled.

    After five failures with the same kind and text, the next call is refused for a minute. Then one call runs; if it
    fails as well, the next minute is refused, too. A success or a different error resets the count. Retryable errors
    are never refused, so calls work as soon as a source is back. State of one executor; when full, the oldest counts
    are dropped.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        # By caller and tool, then by arguments. Usually empty; then calls are not inspected.
        self.rows = BoundedCache[Key, BoundedCache[str, _Row]](max_entries=REPEATING_CALLERS)

    def check(self, ctx: ToolContext, entry: ToolEntry, args: JSON, schema: JSON, *, name: str, call_id: str) -> None:
        """Refuse a call that failed too often; `schema` is the input schema, `name` the name that the caller uses.

        Raises:
            CallError: `rate_limited`, with the error of the failures.
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
            # Of several calls at the end of a pause, only this one runs.
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
        """Let another call through if this one ended without an outcome, by another refusal or a cancellation."""
        rows = self.rows.get(_key(ctx, entry))
        arguments = call_digest(args, schema)
        row = None if rows is None else rows.get(arguments)
        if rows is not None and row is not None and row.let_through == call_id:
            rows[arguments] = row._replace(until=self._clock(), let_through="")

    def note(
        self, ctx: ToolContext, entry: ToolEntry, args: JSON, schema: JSON, error: ToolError | None, *, call_id: str
    ) -> None:
        """Record the outcome of a call. Its id is ignored when error texts are compared."""
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
    """Return a word, or a placeholder for words with digits: `req_8f3a`, `12:00:01`, `17`."""
    return "…" if any(map(str.isdigit, word[0])) else word[0]


def _is_counted(error: ToolError) -> bool:
    if error.retryable or error.kind not in _COUNTED:
        return False
    status = error.details.get("status")
    return not isinstance(status, int) or status < _SERVER_FAULT


def _key(ctx: ToolContext, entry: ToolEntry) -> Key:
    return (*owner_of(ctx), ctx.caller.agent, entry.qualified_id, entry.fingerprint)
