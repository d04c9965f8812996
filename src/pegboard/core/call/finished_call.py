"""Finished call: the records of a call's start and end, for audit, traces and metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple, Protocol

from pegboard.core.call.limit_keys import Hits
from pegboard.core.digests import digest
from pegboard.core.redaction import Redactor
from pegboard.model.caller import Caller
from pegboard.model.decision import Decision
from pegboard.model.error import ErrorKind
from pegboard.model.json_types import JSON
from pegboard.model.result import ToolResult
from pegboard.model.tool import ToolEntry

CallKind = ErrorKind | Literal["ok", "moved"]
"""`moved` is the run of a task that was stopped although the task goes on, in another worker or later."""


class UpstreamOutcome(NamedTuple):
    """The outcome of each of an upstream's three layers, as a word such as `ok`, `503`, `lost` or `is_error`."""

    transport: str = ""
    protocol: str = ""
    tool: str = ""


class StartedCall(NamedTuple):
    """A call that begins. `name` is the requested name, which may not be a tool; `at` is seconds since 1970.

    `rule` is the place in the config that declares its profile, as `file:line`. `redactor` removes the secrets in use;
    `None` if there are none.
    """

    call_id: str
    request_id: str
    parent_call_id: str | None
    name: str
    caller: Caller
    profile: str | None
    door: str
    at: float
    rule: str = ""
    redactor: Redactor | None = None


class FinishedCall:
    """A call that has ended, including refused ones. Immutable; fields that no observer reads cost nothing.

    Args:
        started: the record of its start.
        tool: the wire name, or the requested name if no such tool is visible.
        entry: the tool; `None` if no such tool is visible.
        arguments: the valid arguments. They belong to the call: an observer digests or copies them at once.
        judge: computes the judge's decision and its rule; called only by observers that record it.
        consent: empty if nobody was asked, else `yes`, `no`, or `nobody` if nobody could be asked.
        consent_id: the id of the answer or of the filed question; empty if there is none.
        limit_keys: the rate-limit windows charged for the call.
        kind: `ok`, or the kind of its error.
        stage_s: the seconds spent in each stage; empty unless an observer sets `times_stages`.
        result: the result that the caller gets. An observer must not keep it.
        redactor: removes the secrets in use; `None` if there are none.
    """

    __slots__ = (
        "_judge", "arguments", "consent", "consent_id", "duration_s", "entry", "kind", "limit_keys", "outcome_unknown",
        "redactor", "result", "stage_s", "started", "tool", "upstream",
    )  # fmt: skip

    # Positional: keyword arguments would cost every call a dictionary.
    def __init__(
        self,
        started: StartedCall,
        tool: str,
        entry: ToolEntry | None,
        arguments: JSON,
        judge: Callable[[], Decision | None],
        consent: str,
        consent_id: str,
        limit_keys: tuple[tuple[str | None, ...], ...],
        kind: CallKind,
        outcome_unknown: bool,
        upstream: UpstreamOutcome | None,
        duration_s: float,
        stage_s: Mapping[str, float],
        result: ToolResult,
        redactor: Redactor | None,
    ) -> None:
        self.started, self.tool, self.entry, self.arguments, self._judge = started, tool, entry, arguments, judge
        self.consent, self.consent_id, self.limit_keys = consent, consent_id, limit_keys
        self.kind, self.outcome_unknown = kind, outcome_unknown
        self.upstream, self.duration_s, self.stage_s = upstream, duration_s, stage_s
        self.result, self.redactor = result, redactor

    @property
    def qualified_id(self) -> str:
        """The unique id of the tool; empty if none is visible."""
        return "" if self.entry is None else self.entry.qualified_id

    @property
    def definition_hash(self) -> str:
        """The fingerprint of the tool's definition, as consents use it; empty if no tool is visible."""
        return "" if self.entry is None else self.entry.fingerprint

    @property
    def decision(self) -> Decision | None:
        """The judge's decision; `None` if the call ended before, or if it needs awaiting."""
        return self._judge()

    def arguments_digest(self) -> str:
        """Return the SHA-256 of the arguments, as consents use it."""
        return digest(self.arguments)


class Observed:
    """A call whose start observers have seen, and the data needed for its end."""

    __slots__ = ("charged", "marks", "started", "upstream")

    def __init__(self, started: StartedCall) -> None:
        self.started = started
        self.marks: list[tuple[str, float]] = []
        """The times at which stages were entered; empty unless an observer times them."""
        self.charged: Hits = ()
        """The rate-limit windows charged for it."""
        self.upstream: UpstreamOutcome | None = None


class CallObserver(Protocol):
    """Receives both records of every call: audit, traces, metrics. Its exceptions are logged and change nothing.

    It is called on the loop, once per record, in order; slow work belongs in its own queue. `times_stages` says whether
    it needs the seconds of each stage, which cost time to measure.
    """

    times_stages: bool

    def started(self, call: StartedCall) -> None: ...

    def finished(self, call: FinishedCall) -> None: ...


def stage_seconds(marks: list[tuple[str, float]], ended: float) -> dict[str, float]:
    """Return the seconds of each stage from its entry times; empty if they were not measured."""
    following = [*[at for _, at in marks[1:]], ended][: len(marks)]
    return {stage: after - at for (stage, at), after in zip(marks, following, strict=True)}
