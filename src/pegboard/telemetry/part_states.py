"""Part states: probe the stores, buses and servers of a catalog, remember the results for a moment, and log changes."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol

from pegboard.core.registry import Registry
from pegboard.egress.limits import PROBE_S
from pegboard.model.error import CallError, DefinitionError
from pegboard.model.probe import Part, PartKind, Probe

PROBE_KEPT_S = 2.0  # how long the result of a probe is used again, in seconds
PROBE_WAIT_S = 0.5  # how long an answer to an operator waits for a new result if there is an older one, in seconds

PartKey = tuple[PartKind, str]

log = logging.getLogger("pegboard")


class Declaring(Protocol):
    """A catalog; only its registry is needed here."""

    @property
    def registry(self) -> Registry: ...


def parts_of(catalog: Declaring) -> Iterator[Part]:
    """Yield the dependencies of a catalog; the server of a source is included once the source is up."""
    sources = catalog.registry.sources
    for part in catalog.registry.declarations.parts(catalog):
        if not part.source or sources[part.source].state().status == "ok":
            yield part


async def probe_all(parts: Iterable[Part], *, deadline_s: float = PROBE_S) -> dict[PartKey, Probe]:
    """Probe all parts at the same time; a part that takes longer than the deadline has failed."""
    named: dict[PartKey, Part] = {(part.kind, part.name): part for part in parts}
    probes = await asyncio.gather(*(_probe(part, deadline_s) for part in named.values()))
    return dict(zip(named, probes, strict=True))


async def _probe(part: Part, deadline_s: float) -> Probe:
    started_at = time.monotonic()
    detail = ""
    try:
        async with asyncio.timeout(deadline_s):
            await part.check()
    except TimeoutError:
        detail = f"it did not answer within {deadline_s:g} s"
    except (OSError, CallError, DefinitionError, ImportError) as error:
        detail = str(error) or type(error).__name__
    return Probe(ok=not detail, detail=detail, seconds=time.monotonic() - started_at)


class _Known(NamedTuple):
    """The latest probe of a part, which may still be running, its start time, and the previous result."""

    probe: asyncio.Task[Probe]
    began: float
    previous: Probe | None


def _latest(known: _Known) -> Probe:
    if known.probe.done() or known.previous is None:
        return known.probe.result()
    return known.previous


class PartStates:
    """The latest probe of each part of a running catalog.

    A server has one, and uses it on its event loop. A part is probed again on request if its latest probe is
    two seconds old, whether that failed or not. Nothing runs in the background, so there is nothing to close. A part
    that stops working is logged as `part_lost`, and as `part_returned` when it works again, or when a reload has left
    it out.

    Args:
        parts: returns the current parts.
        clock: a monotonic clock in seconds.
    """

    def __init__(self, parts: Callable[[], Iterable[Part]], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._parts, self._clock = parts, clock
        self._known: dict[PartKey, _Known] = {}
        self._lost: dict[PartKey, Part] = {}

    async def probes(self, *, only_required: bool = False, at_most_s: float | None = None) -> Mapping[PartKey, Probe]:
        """Return the probes of all parts, or of the required ones only.

        With `at_most_s`, a part that does not answer in time gets its previous result, if there is one: a part that
        hangs must not make each answer to a load balancer take 5 seconds.
        """
        now = self._clock()
        wanted: dict[PartKey, Part] = {
            (part.kind, part.name): part for part in self._parts() if part.is_required or not only_required
        }
        if not only_required:
            self._forget_removed(wanted)
        for key, part in wanted.items():
            known = self._known.get(key)
            if known is None or (known.probe.done() and now - known.began >= PROBE_KEPT_S):
                previous = None if known is None or known.probe.exception() else known.probe.result()
                self._known[key] = _Known(asyncio.ensure_future(self._logged(key, part)), now, previous)
        known_parts = [self._known[key] for key in wanted]
        # Others may wait for the same probes: a caller that leaves must not cancel them, and `wait` does not.
        if running := [known.probe for known in known_parts]:
            await asyncio.wait(running, timeout=at_most_s)
        if first := [known.probe for known in known_parts if known.previous is None and not known.probe.done()]:
            await asyncio.wait(first)
        return {key: _latest(known) for key, known in zip(wanted, known_parts, strict=True)}

    def _forget_removed(self, wanted: Mapping[PartKey, Part]) -> None:
        """Log the end of outages of parts that the config no longer uses, such as a mistyped address."""
        for key, part in list(self._lost.items()):
            # The part of a source is left out while the source itself does not work.
            if key not in wanted and not part.source:
                del self._lost[key]
                _warn("part_returned", f"the config no longer uses the {part.kind} {part.name}", part)

    async def _logged(self, key: PartKey, part: Part) -> Probe:
        """Probe a part, and log a change since its previous probe."""
        probe = await _probe(part, PROBE_S)
        named = f"the {part.kind} {part.name}"
        if probe.ok and key in self._lost:
            del self._lost[key]
            _warn("part_returned", f"{named} works again", part)
        elif not probe.ok and key not in self._lost:
            self._lost[key] = part
            _warn("part_lost", f"{named} does not work: {probe.detail}", part)
        return probe


def _warn(event: str, text: str, part: Part) -> None:
    log.warning("%s: %s", event, text, extra={"fields": {"event": event, "kind": part.kind, "part": part.name}})
