"""Alert states: the faults of a running catalog: of its sources, probes, config, audit, tasks and questions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from pegboard.core.call.budget_levels import BudgetLevel
from pegboard.model.alert import AlertKind, AlertState
from pegboard.model.consent import Consent
from pegboard.model.probe import PartKind, Probe
from pegboard.model.source_state import SourceState
from pegboard.model.task import TaskRecord

BUDGET_NEARLY = 0.8  # the part of a budget that is reported before all of it is used
TASK_STUCK_S = 900.0  # seconds without any sign of progress until a task counts as stuck

OF_SOURCES: Final[tuple[AlertKind, ...]] = ("down", "changed", "quarantined", "flagged")
"""The alerts about sources; while a source connects, none of them is known."""
_HELD = "calls are refused until `pegboard lock accept`"


def states_of_sources(states: Mapping[str, SourceState]) -> Iterator[AlertState]:
    """Yield the faults of sources, except of those that still connect."""
    for name, state in states.items():
        if is_undecided(state):
            continue
        if not state.is_up or state.status != "ok":
            reason = f": {state.reason}" if state.reason else ""
            yield AlertState(kind="down", subject=name, text=f"The source {name!r} is {state.status}{reason}")
        held: tuple[tuple[AlertKind, frozenset[str], str], ...] = (
            ("changed", state.changed, f"changed upstream, and {_HELD}"),
            ("quarantined", state.quarantined, "new or suspicious, and hidden until `pegboard lock accept`"),
            ("flagged", state.flagged, "may be an attack: a look-alike name, or a text that steers the model"),
        )
        for kind, tools, text in held:
            if tools:
                names = tuple(sorted(tools))
                yield AlertState(kind=kind, subject=name, text=f"{', '.join(names)}: {text}", names=names)


def is_undecided(state: SourceState) -> bool:
    """Tell whether a source still connects for the first time, so that nothing can be said of it."""
    return state.status == "connecting"


def states_of_parts(probes: Mapping[tuple[PartKind, str], Probe]) -> Iterator[AlertState]:
    """Yield the parts that do not work: `store_down` for stores and the bus, `down` for servers and models."""
    for (part, name), probe in probes.items():
        if not probe.ok:
            kind: AlertKind = "store_down" if part in ("store", "bus") else "down"
            subject = name if part == "store" else f"{part} {name}"
            yield AlertState(kind=kind, subject=subject, text=f"The {part} {name} does not work: {probe.detail}")


def states_of_config(problems: Sequence[object]) -> Iterator[AlertState]:
    """Yield one state while the last change of the config is refused."""
    if problems:
        listed = tuple(map(str, problems))
        text = f"The last change of the config was refused ({len(listed)} problems): {listed[0]}"
        yield AlertState(kind="config_refused", subject="config", text=text, names=listed[:10])


def states_of_budgets(levels: Iterable[BudgetLevel]) -> Iterator[AlertState]:
    """Yield the budgets that are used up, and those of which four fifths are used."""
    for level in levels:
        if level.ratio >= BUDGET_NEARLY:
            # Another part in `names` is another state, which is sent again.
            part, what = ("100%", "is used up") if level.ratio >= 1.0 else (f"{BUDGET_NEARLY:.0%}", "is nearly used up")
            ends = datetime.fromtimestamp(level.counter.ends_s, UTC).isoformat(timespec="minutes")
            text = (
                f"The budget {level.name} {what}: {level.used:,g} of {level.limit:,g} {level.counter.unit} per "
                f"{level.budget.period_text}; it resets at {ends.replace('+00:00', 'Z')}"
            )
            yield AlertState(kind="budget", subject=f"{level.name}, {level.counter.unit}", text=text, names=(part,))


def states_of_audit(fault: str) -> Iterator[AlertState]:
    """Yield one state while the audit does not record everything."""
    if fault:
        yield AlertState(kind="audit_broken", subject="audit", text=f"The audit does not record all calls: {fault}")


def states_of_tasks(records: Iterable[TaskRecord], *, now: float) -> Iterator[AlertState]:
    """Yield the tasks that should run and have shown no sign of progress for `TASK_STUCK_S`."""
    for record in records:
        silent_s = now - record.updated_at
        if record.state == "working" and silent_s > TASK_STUCK_S:
            worker = f"worker {record.worker}" if record.worker else "no worker"
            text = f"The task {record.task_id} of {record.tool} has not moved for {silent_s / 60:.0f} min ({worker})"
            yield AlertState(kind="task_stuck", subject=record.task_id, text=text, names=(record.tool,))


def states_of_questions(questions: Iterable[Consent]) -> Iterator[AlertState]:
    """Yield the calls that wait for a person. The arguments stay in the inbox."""
    for question in questions:
        owner = question.user_id or question.credential or "somebody"
        text = f"{owner} asks to run {question.tool}; decide with `pegboard consent show {question.id}`"
        yield AlertState(kind="consent_waiting", subject=question.id, text=text, names=(question.tool,))
