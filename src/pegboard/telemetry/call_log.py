"""Call log: one log line for each finished or refused call, without arguments and results."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from pegboard.core.call.finished_call import FinishedCall, StartedCall
from pegboard.egress.client_spans import current_trace
from pegboard.model.caller import Caller

if TYPE_CHECKING:
    from pegboard.core.call.record import ExecutorState

LOGGED_NAME_CHARS = 128  # characters of a requested name in the call log
LOGGED_REASON_CHARS = 500  # characters of the reason why a tool is hidden

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
        started = call.started
        caller_name, tool, took_ms = (
            name_of(started.caller),
            call.tool[:LOGGED_NAME_CHARS],
            round(call.duration_s * 1e3, 3),
        )
        caller, entry = started.caller, call.entry
        fields = {
            "call_id": started.call_id, "request_id": started.request_id, "caller": caller_name,
            "profile": started.profile, "door": started.door, "tool": tool, "outcome": call.kind, "ms": took_ms,
            "worker": os.getpid(),
        }  # fmt: skip
        more = {
            "key": caller.key, "space": caller.space_id, "address": caller.address, "consent": call.consent,
            "parent_call_id": started.parent_call_id, "source": None if entry is None else entry.source,
            **_refusal(call),
        }  # fmt: skip
        fields |= {name: value for name, value in more.items() if value}
        if (trace := current_trace()) is not None:
            fields["trace_id"], fields["span_id"] = trace
        why = f": {fields['reason']}" if "reason" in fields else ""
        through = f" through {started.profile}" if started.profile else ""
        text = "call %s by %s%s: %s %s in %.1f ms%s"
        log.info(text, started.call_id, caller_name, through, tool, call.kind, took_ms, why, extra={"fields": fields})


def _refusal(call: FinishedCall) -> Mapping[str, str]:
    """Return the code and the rule that hid the tool; nothing if it is visible, or if no such tool is declared."""
    decision = None if call.kind == "ok" else call.decision
    if decision is None or decision.visible:
        return {}
    return {"code": decision.code, "reason": decision.reason[:LOGGED_REASON_CHARS]}


def name_of(caller: Caller) -> str:
    """Return the user's name, or else the name of the key or credential; never a secret."""
    return caller.user_id or caller.key or caller.credential


def log_calls(executor: ExecutorState) -> Callable[[], None]:
    """Log the calls from now on if the log takes them, so that nobody pays for lines that nobody reads.

    Returns a function that stops logging.
    """
    return executor.record(CallLog()) if log.isEnabledFor(logging.INFO) else lambda: None
