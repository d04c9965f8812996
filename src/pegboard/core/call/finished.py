"""Finished: what is known of a call when it begins and when it is over; audit, traces and metrics observe these."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Protocol

from pegboard.core.digests import digest
from pegboard.model.caller import Caller
from pegboard.model.decision import Decision
from pegboard.model.error import ErrorKind
from pegboard.model.json_types import JSON

CallKind = ErrorKind | Literal["ok"]


class UpstreamOutcome(NamedTuple):
    """How the three layers of an upstream ended, each in a word such as `ok`, `503`, `lost` or `is_error`."""

    transport: str = ""
    protocol: str = ""
    tool: str = ""


class StartedCall(NamedTuple):
    """A call that begins. `name` is what was asked for, which may be no tool; `at` is seconds since 1970."""

    call_id: str
    request_id: str
    parent_call_id: str | None
    name: str
    caller: Caller
    profile: str | None
    door: str
    at: float


class FinishedCall(NamedTuple):
    """A call that is over, refused ones too.

    `tool` is the wire name, or the name that was asked where no tool of it is visible; `qualified_id` and
    `definition_hash` are empty then. `decision` is how the judge decided, with the rule; `None` where the call never
    got there, or nobody could say without awaiting. `consent` is empty where nobody was asked, else `yes`, `no`, or
    `nobody` where nobody could be.
    `limit_keys` are the windows that the call was charged to. `stage_s` has the seconds of each stage that was entered.
    `arguments` are those that were judged good; they belong to the call, so an observer digests or copies them at once.
    """

    started: StartedCall
    tool: str
    qualified_id: str
    definition_hash: str
    arguments: JSON
    decision: Decision | None
    consent: str
    limit_keys: tuple[tuple[str | None, ...], ...]
    kind: CallKind
    outcome_unknown: bool
    upstream: UpstreamOutcome | None
    duration_s: float
    stage_s: Mapping[str, float]

    def arguments_digest(self) -> str:
        """Return the SHA-256 of the arguments, as a consent is bound to it."""
        return digest(self.arguments)


class CallObserver(Protocol):
    """Takes both records of every call: the audit, traces, metrics. What it raises is logged and changes nothing.

    It is called on the loop, once each, in order; what takes time goes through a queue of its own.
    """

    def started(self, call: StartedCall) -> None: ...

    def finished(self, call: FinishedCall) -> None: ...


def stage_seconds(marks: list[tuple[str, float]], ended: float) -> dict[str, Any]:
    """Return the seconds of each stage, from the times at which they were entered."""
    following = [at for _, at in marks[1:]] + [ended]
    return {stage: after - at for (stage, at), after in zip(marks, following, strict=True)}
