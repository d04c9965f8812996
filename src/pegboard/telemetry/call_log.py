"""Call log: one log line for each finished or refused call, without arguments and results."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from pegboard.core.call.finished_call import FinishedCall, StartedCall
from pegboard.egress.client_spans import current_trace
from pegboard.model.caller import Caller

if TYPE_CHECKING:
    from pegboard.core.call.record import ExecutorState

LOGGED_NAME_CHARS = 128  # characters of a requested name in the call log

log = logging.getLogger("pegboard.calls")


class CallLog:
    """Logs finished calls at level info; a record's `fields` has the values of the line by name.

    A `CallObserver`, from `Executor.record` on.
    """

    times_stages = False

    def started(self, call: StartedCall) -> None:
        """Do nothing: a call is logged when it ends."""

    def finished(self, call: FinishedCall) -> None:
        """Log one call."""
        began = call.started
        who, tool, took_ms = name_of(began.caller), call.tool[:LOGGED_NAME_CHARS], round(call.duration_s * 1e3, 3)
        fields = {
            "call_id": began.call_id, "request_id": began.request_id, "caller": who, "profile": began.profile,
            "door": began.door, "tool": tool, "outcome": call.kind, "ms": took_ms,
        }  # fmt: skip
        if (trace := current_trace()) is not None:
            fields["trace_id"], fields["span_id"] = trace
        through = f" through {began.profile}" if began.profile else ""
        text = "call %s by %s%s: %s %s in %.1f ms"
        log.info(text, began.call_id, who, through, tool, call.kind, took_ms, extra={"fields": fields})


def name_of(caller: Caller) -> str:
    """Return the user's name, or else the credential's name; never a secret."""
    return caller.user_id or caller.credential


def log_calls(executor: ExecutorState) -> Callable[[], None]:
    """Log the calls from now on if the log takes them, so that nobody pays for lines that nobody reads.

    Returns a function that stops logging.
    """
    return executor.record(CallLog()) if log.isEnabledFor(logging.INFO) else lambda: None
