"""Sources page: where tools come from: the state of each source and store, and what the lock holds back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from starlette.responses import Response

from pegboard.core.ports import Source
from pegboard.model.probe import Probe
from pegboard.model.source_state import SourceState
from pegboard.server.console.frame import frame
from pegboard.server.console.page_error import only_operators
from pegboard.server.console.pages import Pages
from pegboard.server.console.shown_time import took
from pegboard.server.console.visit import Visit
from pegboard.telemetry.part_states import PartStates

LEFT_OUT_SHOWN = 100  # tools of one source that were left out, or that the lock holds back


class SourceRow(NamedTuple):
    """A source: how many tools it has, and the names that are held back or were left out."""

    name: str
    state: SourceState
    tools: int
    quarantined: list[str]
    changed: list[str]
    rejected: list[tuple[str, str]]


class PartRow(NamedTuple):
    """A store, bus or server that the catalog depends on, and its latest probe."""

    kind: str
    name: str
    probe: Probe
    time: str


class SourcesPage:
    """`/console/sources`, for operators."""

    def __init__(self, pages: Pages, part_states: PartStates) -> None:
        self._pages, self._part_states = pages, part_states

    async def show(self, visit: Visit) -> Response:
        only_operators(visit)
        registry = visit.gateway.registry
        sources: Mapping[str, Source] = registry.sources
        probes = await self._part_states.probes()
        values = {
            "rows": sorted((_row(name, source) for name, source in sources.items()), key=_worst_first),
            "parts": [PartRow(kind, name, probe, took(probe.seconds)) for (kind, name), probe in probes.items()],
            "own": sum(entry.source is None for entry in registry.snapshot().entries),
        }
        return self._pages.page("sources.html", {**frame(visit, "sources"), **values})


def _row(name: str, source: Source) -> SourceRow:
    state = source.state()
    rejected = [(str(one[0]), str(one[1])) for one in getattr(source, "rejected", ())]
    return SourceRow(
        name, state, len(source.entries()), sorted(state.quarantined)[:LEFT_OUT_SHOWN],
        sorted(state.changed)[:LEFT_OUT_SHOWN], rejected[:LEFT_OUT_SHOWN],
    )  # fmt: skip


def _worst_first(row: SourceRow) -> tuple[bool, bool, str]:
    return row.state.is_up, not (row.quarantined or row.changed), row.name
