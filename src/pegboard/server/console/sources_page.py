"""Sources page: the sources of tools, the tools that the lock holds back, and the effect of changed config files."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from starlette.responses import RedirectResponse, Response

from pegboard.core.digests import digest
from pegboard.core.json_text import json_bytes, json_value
from pegboard.core.ports import Reviewable, Source
from pegboard.core.redaction import Redactor
from pegboard.model.json_types import JSON
from pegboard.model.probe import Probe
from pegboard.model.record import replace
from pegboard.model.source_state import HeldDefinition, SourceState
from pegboard.server.console.frame import frame
from pegboard.server.console.natural_order import natural_key
from pegboard.server.console.page_error import PageError, no_such_page, only_operators
from pegboard.server.console.pages import SECURITY_HEADERS, Pages
from pegboard.server.console.pending_config import PendingConfig
from pegboard.server.console.shown_json import exact_json
from pegboard.server.console.shown_time import took
from pegboard.server.console.visit import Visit
from pegboard.telemetry.part_states import PROBE_WAIT_S, PartStates

LEFT_OUT_SHOWN = 100  # tools of one source that were left out, or that the lock holds back
DIFF_LINES = 400  # of one definition that differs
PLAN_CHANGES = 500  # rows of a plan on one page

LineKind = Literal["same", "gone", "new"]


class Line(NamedTuple):
    """A line of two definitions that are compared."""

    kind: LineKind
    text: str


class HeldRow(NamedTuple):
    """A tool that waits for review: `read` is the digest of what the page shows, and `more` counts lines left out."""

    id: str
    changes: str
    is_flagged: bool
    lines: list[Line]
    more: int
    read: str


class SourceRow(NamedTuple):
    """A source: how many tools it has, and what is held back or was left out.

    `held` has definitions to compare; `quarantined` and `changed` are names of others.
    """

    name: str
    state: SourceState
    tools: int
    held: list[HeldRow]
    quarantined: list[str]
    changed: list[str]
    rejected: list[tuple[str, str]]


class PartRow(NamedTuple):
    """A store, bus or server that the catalog depends on, and its latest probe."""

    kind: str
    name: str
    probe: Probe
    time: str


class PlanRow(NamedTuple):
    """A change of a plan, with the profiles that it concerns."""

    kind: str
    tool: str
    what: str
    detail: str
    example: str
    profiles: str


class SourcesPage:
    """`/console/sources` and below, for operators.

    Args:
        pages: renders the templates.
        part_states: the probes of what the catalog depends on.
        pending: the files of the config; `None` if the host made the catalog.
        has_others: whether other workers serve, which would not notice an accepted definition.
    """

    def __init__(
        self, pages: Pages, part_states: PartStates, pending: PendingConfig | None, *, has_others: bool
    ) -> None:
        self._pages, self._part_states, self._pending = pages, part_states, pending
        self._may_accept = not has_others or (pending is not None and pending.is_watched)

    async def show(self, visit: Visit) -> Response:
        """Show each source, the worst first, and whether the files of the config have changed."""
        only_operators(visit)
        registry, pending = visit.gateway.registry, self._pending
        sources: Mapping[str, Source] = registry.sources
        states = registry.states()
        # A server may repeat a secret that was sent to it.
        clean = Redactor(visit.gateway.catalog.secrets)
        probes = await self._part_states.probes(at_most_s=PROBE_WAIT_S)
        values = {
            "rows": sorted(
                (_row(name, source, states.get(name), clean) for name, source in sources.items()), key=_worst_first
            ),
            "parts": [
                PartRow(kind, name, replace(probe, detail=clean.text(probe.detail)), took(probe.seconds))
                for (kind, name), probe in probes.items()
            ],
            "own": sum(entry.source is None for entry in registry.snapshot().entries),
            "may_accept": self._may_accept, "done": visit.query.get("done", ""),
            "problems": [] if pending is None else [str(problem) for problem in pending.problems()],
            "mark": "" if pending is None else await asyncio.to_thread(pending.mark),
        }  # fmt: skip
        return self._pages.page("sources.html", {**frame(visit, "sources"), **values})

    async def accept(self, visit: Visit) -> Response:
        """Accept a definition exactly as the page showed it."""
        only_operators(visit)
        source: Any = visit.gateway.registry.sources.get(visit.path["name"])
        if not isinstance(source, Reviewable):
            raise no_such_page()
        if not self._may_accept:
            raise PageError(409, "Not possible", "Other workers would not notice. Use `pegboard lock accept`.")
        read = visit.form.get("read", "")
        held = next((one for one in source.held() if _digest(one) == read), None)
        if held is None:
            text = "The definition has changed since the page was shown, or was accepted meanwhile. Read it again."
            raise PageError(409, "Changed meanwhile", text)
        try:
            source.accept_held(held)
        except OSError as error:
            text = f"The lock cannot be written: {error.strerror or error}. Until the restart, this process uses it."
            raise PageError(503, "Not stored", text) from error
        if self._pending is not None:
            # The lock belongs to the files of the config; nobody has changed those.
            self._pending.note_lock()
        word = "forgotten" if held.offered is None else "accepted"
        visit.note("lock_accepted", {"accepted": [], "forgotten": [], word: [held.id]})
        return _done(visit, word)

    async def compare(self, visit: Visit) -> Response:
        """Show what the files of the config would change."""
        only_operators(visit)
        if self._pending is None:
            raise no_such_page()
        change = await self._pending.compare()
        values = {
            "mark": change.mark, "plan": change.plan, "problems": [str(problem) for problem in change.problems],
            "rows": [] if change.plan is None else _plan_rows(change.plan),
            "may_take": self._pending.may_take and bool(change.mark), "is_watched": self._pending.is_watched,
        }  # fmt: skip
        return self._pages.page("plan.html", {**frame(visit, "sources"), **values})

    async def take(self, visit: Visit) -> Response:
        """Use the files of the config as the page compared them."""
        only_operators(visit)
        if self._pending is None or not self._pending.may_take:
            raise no_such_page()
        if not await self._pending.take(visit.form.get("mark", ""), by=visit.name):
            text = "The files have changed since they were compared, or were refused. Compare them again."
            raise PageError(409, "Not taken", text)
        return _done(visit, "taken")


def _row(name: str, source: Source, state: SourceState, clean: Redactor) -> SourceRow:
    rejected = [(str(one[0]), clean.text(str(one[1]))) for one in getattr(source, "rejected", ())]
    held = list[HeldRow]()
    if isinstance(source, Reviewable):
        held = [_held(one, state, clean) for one in source.held()[:LEFT_OUT_SHOWN]]
    compared = {one.id for one in held}
    return SourceRow(
        name, state, len(source.entries()), held, sorted(state.quarantined - compared)[:LEFT_OUT_SHOWN],
        sorted(state.changed - compared)[:LEFT_OUT_SHOWN], rejected[:LEFT_OUT_SHOWN],
    )  # fmt: skip


def _held(one: HeldDefinition, state: SourceState, clean: Redactor) -> HeldRow:
    lines = _lines(*(None if each is None else clean.value(each) for each in (one.accepted, one.offered)))
    changes = ", ".join(change.replace("_", " ") for change in one.changes)
    shown = lines[:DIFF_LINES]
    return HeldRow(one.id, changes, one.id in state.flagged, shown, len(lines) - len(shown), _digest(one))


def _digest(one: HeldDefinition) -> str:
    return digest([one.id, one.accepted, one.offered])


def _lines(accepted: JSON | None, offered: JSON | None) -> list[Line]:
    """Return the lines of both definitions that differ, each with one line around it."""
    old, new = (_sorted_lines(definition) for definition in (accepted, offered))
    kinds: dict[str, LineKind] = {" ": "same", "-": "gone", "+": "new"}
    # The first two lines name files.
    compared = [*difflib.unified_diff(old, new, n=1, lineterm="")][2:]
    return [Line(kinds[line[0]], line[1:]) for line in compared if line[0] in kinds]


def _sorted_lines(definition: JSON | None) -> list[str]:
    if definition is None:
        return []
    return exact_json(json_value(json_bytes(definition, sort_keys=True))).splitlines()


def _plan_rows(plan: JSON) -> list[PlanRow]:
    """Return one row for each change, with all profiles that it concerns."""
    profiles: dict[tuple[str, ...], list[str]] = {}
    groups: Sequence[JSON] = [*plan["profiles"], {"profile": "", "changes": plan["all_profiles"]}]
    for one in groups:
        for change in one["changes"]:
            key = tuple(change[name] or "" for name in ("kind", "tool", "what", "detail", "example"))
            profiles.setdefault(key, []).append(one["profile"] or "all")
    rows = [PlanRow(*key, ", ".join(names)) for key, names in profiles.items()]  # pyright: ignore[reportCallIssue] - five
    return rows[:PLAN_CHANGES]


def _worst_first(row: SourceRow) -> tuple[bool, bool, str]:
    return row.state.is_up, not (row.held or row.quarantined or row.changed), natural_key(row.name)


def _done(visit: Visit, what: str) -> Response:
    return RedirectResponse(visit.url("/sources", done=what), status_code=303, headers=SECURITY_HEADERS)
