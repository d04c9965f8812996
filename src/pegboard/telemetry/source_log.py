"""Source log: one warning for each source that is lost or returns, and for tools that are held back for review."""

from __future__ import annotations

import logging
from collections.abc import Callable

from pegboard.core.registry import Registry
from pegboard.model.source_state import SourceState

log = logging.getLogger("pegboard")


class SourceLog:
    """Compares the states of the sources with the previous ones, whenever the catalog changes.

    A server has one while it runs; `log_sources` makes and ends it. A source that still connects for the first time is
    not lost.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._known: dict[str, SourceState] = {}
        self._lost: set[str] = set()

    def compare(self) -> None:
        """Log the differences since the last comparison."""
        states, names = self._registry.states(), self._registry.sources
        for name in names:
            state = states.get(name, SourceState())
            if state is not self._known.get(name):
                self._compare(name, state, self._known.get(name, SourceState()))
                self._known[name] = state
        for name in self._known.keys() - names.keys():
            del self._known[name]
            self._lost.discard(name)

    def _compare(self, name: str, state: SourceState, before: SourceState) -> None:
        if state.is_up and name in self._lost:
            self._lost.discard(name)
            _warn("source_returned", f"{name!r} works again", source=name)
        elif not state.is_up and state.status != "connecting" and name not in self._lost:
            self._lost.add(name)
            reason = f": {state.reason}" if state.reason else ""
            _warn("source_lost", f"{name!r} is {state.status}, and its tools are hidden{reason}", source=name)
        if changed := sorted(state.changed - before.changed):
            text = "changed upstream, and calls are refused until `pegboard lock accept`"
            _warn("tools_changed", f"{', '.join(changed)} {text}", source=name, tools=changed)
        if quarantined := sorted(state.quarantined - before.quarantined):
            text = "new or suspicious, and hidden until `pegboard lock accept`"
            _warn("tools_quarantined", f"{', '.join(quarantined)} {text}", source=name, tools=quarantined)
        if flagged := sorted(state.flagged - before.flagged):
            text = "may be an attack: a look-alike name, or a text that steers the model or is hidden from people"
            _warn("tools_flagged", f"{', '.join(flagged)} {text}", source=name, tools=flagged)


def _warn(event: str, text: str, **fields: object) -> None:
    log.warning("%s: %s", event, text, extra={"fields": {"event": event, **fields}})


def log_sources(registry: Registry) -> Callable[[], None]:
    """Log changes of the sources from now on; returns a function that stops this."""
    source_log = SourceLog(registry)
    source_log.compare()
    return registry.subscribe(source_log.compare)
