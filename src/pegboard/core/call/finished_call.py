"""Finished call: what is known of a call when it begins and when it is over, for audit, traces and metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple, Protocol

from pegboard.core.call.limit_keys import Hits
from pegboard.core.digests import digest
from pegboard.model.caller import Caller
from pegboard.model.decision import Decision
from pegboard.model.error import ErrorKind
from pegboard.model.json_types import JSON
from pegboard.model.tool import ToolEntry

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


class FinishedCall:
    """A call that is over, refused ones too. It changes no more; what an observer does not ask for costs nothing.

    Args:
        started: what was known when it began.
        tool: the wire name, or the name that was asked where no tool of it is visible.
        entry: the tool; `None` where none is visible.
        arguments: those that were judged good. They belong to the call: an observer digests or copies them at once.
        judge: tells how the judge decided, with the rule; asked at most by those who write it down.
        consent: empty where nobody was asked, else `yes`, `no`, or `nobody` where nobody could be.
        consent_id: the record of the answer, or of the question that was filed; empty where there is none.
        limit_keys: the windows that the call was charged to.
        kind: `ok`, or the kind of its error.
        stage_s: the seconds of each stage that was entered; empty unless an observer `times_stages`.
    """

    __slots__ = (
        "_judge", "arguments", "consent", "consent_id", "duration_s", "entry", "kind", "limit_keys", "outcome_unknown",
        "stage_s", "started", "tool", "upstream",
    )  # fmt: skip

    # By position: names would cost every call a dictionary.
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
    ) -> None:
        self.started, self.tool, self.entry, self.arguments, self._judge = started, tool, entry, arguments, judge
        self.consent, self.consent_id, self.limit_keys = consent, consent_id, limit_keys
        self.kind, self.outcome_unknown = kind, outcome_unknown
        self.upstream, self.duration_s, self.stage_s = upstream, duration_s, stage_s

    @property
    def qualified_id(self) -> str:
        """The one identity of the tool; empty where none is visible."""
        return "" if self.entry is None else self.entry.qualified_id

    @property
    def definition_hash(self) -> str:
        """The fingerprint of the tool's definition, as a consent is bound to it; empty where none is visible."""
        return "" if self.entry is None else self.entry.fingerprint

    @property
    def decision(self) -> Decision | None:
        """How the judge decided; `None` where the call never got there, or nobody could say without awaiting."""
        return self._judge()

    def arguments_digest(self) -> str:
        """Return the SHA-256 of the arguments, as a consent is bound to it."""
        return digest(self.arguments)


class Observed:
    """A call whose beginning observers were told, and what is kept of it for its end."""

    __slots__ = ("charged", "marks", "started", "upstream")

    def __init__(self, started: StartedCall) -> None:
        self.started = started
        self.marks: list[tuple[str, float]] = []
        """When each stage was entered; empty unless an observer times them."""
        self.charged: Hits = ()
        """The windows that it was charged to."""
        self.upstream: UpstreamOutcome | None = None


class CallObserver(Protocol):
    """Takes both records of every call: the audit, traces, metrics. What it raises is logged and changes nothing.

    It is called on the loop, once each, in order; what takes time goes through a queue of its own. `times_stages` says
    whether it wants the seconds of each stage, which somebody must take.
    """

    times_stages: bool

    def started(self, call: StartedCall) -> None: ...

    def finished(self, call: FinishedCall) -> None: ...


def stage_seconds(marks: list[tuple[str, float]], ended: float) -> dict[str, float]:
    """Return the seconds of each stage, from the times at which they were entered; empty where nobody took them."""
    following = [*[at for _, at in marks[1:]], ended][: len(marks)]
    return {stage: after - at for (stage, at), after in zip(marks, following, strict=True)}
