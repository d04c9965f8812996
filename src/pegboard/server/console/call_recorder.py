"""Call recorder: keeps what observers learn of the calls of one request, for the person who made it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pegboard.core.call.finished_call import FinishedCall, StartedCall

RECORDED_CALLS = 200  # calls of one request that are shown


class RecordedCall(NamedTuple):
    """A finished call; `stage_s` are the seconds in each stage, in order."""

    tool: str
    call_id: str
    is_nested: bool
    kind: str
    duration_s: float
    stage_s: Mapping[str, float]


class CallRecorder:
    """A `CallObserver` for the calls of one request; it keeps neither arguments nor results."""

    times_stages = True

    def __init__(self, request_id: str) -> None:
        self._request_id = request_id
        self.calls: list[RecordedCall] = []

    def started(self, call: StartedCall) -> None:
        """Do nothing: a call is kept when it ends."""

    def finished(self, call: FinishedCall) -> None:
        """Keep a call of the request."""
        began = call.started
        if began.request_id == self._request_id and len(self.calls) < RECORDED_CALLS:
            is_nested = began.parent_call_id is not None
            self.calls.append(
                RecordedCall(call.tool, began.call_id, is_nested, call.kind, call.duration_s, dict(call.stage_s))
            )
