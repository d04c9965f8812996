"""Finished call: the records of a call's start and end, for audit, traces and metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, Protocol

from pegboard.core.digests import digest
from pegboard.core.redaction import Redactor
from pegboard.model.call_context import AccountUse, UpstreamOutcome
from pegboard.model.caller import Caller
from pegboard.model.decision import Decision
from pegboard.model.error import ErrorKind
from pegboard.model.json_types import JSONValue
from pegboard.model.result import ToolResult
from pegboard.model.tool import ToolEntry

Marks = Sequence[str | float]
"""The stages that were entered, in order, each followed by its time. Flat: audit keeps thousands of them for a moment,
and each object more slows down the garbage collection."""
AUDIT_WAIT: Final = "audit_wait"
"""The first stage of a call that waited for room in the audit."""
NOT_READ: Final = None
"""Stands for the arguments of a call that ended before they were read."""
CallKind = ErrorKind | Literal["ok", "moved"]
"""`moved` is the run of a task that was stopped although the task continues, in another worker or later."""


class StartedCall(NamedTuple):
    """A call that begins. `name` is the requested name, which may not be a tool; `at` is seconds since 1970.

    `client` is the name that the client program gives itself; empty if it gives none.
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
    client: str
    at: float
    rule: str = ""
    redactor: Redactor | None = None


class FinishedCall(NamedTuple):
    """A call that has ended, including refused ones. Fields that no observer reads cost nothing.

    Attributes:
        started: the record of its start.
        tool: the wire name, or the requested name if no such tool is visible.
        entry: the tool; `None` if no such tool is visible.
        arguments: the valid arguments, or those that were sent if they are not valid; `NOT_READ` if the call ended
            before. They belong to the call: an observer digests or copies them at once.
        is_flat: whether they are an object without lists and objects in it, so that a shallow copy shares nothing.
        judge: computes the judge's decision and its rule; called only by observers that record it.
        consent: empty if nobody was asked, else `yes`, `no`, or `nobody` if nobody could be asked.
        consent_id: the id of the answer or of the filed question; empty if there is none.
        limit_keys: the rate-limit windows charged for the call, and its counters of budgets.
        kind: `ok`, or the kind of its error.
        account: the account at the service behind the tool over which it was sent; `None` if it used none.
        costs: what the call has cost, in millionths of each unit: declared by its tool, or reported while it ran.
        marks: when each stage was entered; empty unless an observer sets `times_stages`.
        result: the result that the caller gets. An observer must not keep it.
        redactor: removes the secrets in use; `None` if there are none.
    """

    started: StartedCall
    tool: str
    entry: ToolEntry | None
    arguments: JSONValue
    is_flat: bool
    judge: Callable[[], Decision | None]
    consent: str
    consent_id: str
    limit_keys: tuple[tuple[str | None, ...], ...]
    kind: CallKind
    outcome_unknown: bool
    upstream: UpstreamOutcome | None
    account: AccountUse | None
    costs: Mapping[str, int]
    duration_s: float
    marks: Marks
    ended: float
    """When it ended, on the clock of `marks`."""
    result: ToolResult
    redactor: Redactor | None

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
        return self.judge()

    def arguments_digest(self) -> str:
        """Return the SHA-256 of the arguments, as consents use it."""
        return digest(self.arguments)

    @property
    def stage_s(self) -> Mapping[str, float]:
        """The seconds spent in each stage; empty unless an observer sets `times_stages`."""
        return stage_seconds(self.marks, self.ended)


class FinishedRun(NamedTuple):
    """An agent's run that has ended and that no call of a tool surrounds, including refused ones.

    `arguments` are the query and the variables of the prompt. `costs` are in millionths of each unit.
    """

    started: StartedCall
    agent: str
    arguments: JSONValue
    kind: CallKind
    costs: Mapping[str, int]
    duration_s: float
    output: JSONValue


class CallObserver(Protocol):
    """Receives both records of every call: audit, traces, metrics. Its exceptions are logged and change nothing.

    It is called on the loop, once per record, in order; slow work belongs in its own queue. `times_stages` says whether
    it needs the seconds of each stage, which cost time to measure.
    """

    times_stages: bool

    def started(self, call: StartedCall) -> None: ...

    def finished(self, call: FinishedCall) -> None: ...


def stage_seconds(marks: Marks, ended: float) -> dict[str, float]:
    """Return the seconds of each stage from its entry times, in whole microseconds; empty if they were not measured."""
    stages: dict[str, float] = {}
    pairs: Iterator[Any] = iter(marks)
    stage, began = next(pairs, None), next(pairs, 0.0)
    while stage is not None:
        following, at = next(pairs, None), next(pairs, ended)
        stages[stage] = round(at - began, 6)
        stage, began = following, at
    return stages
