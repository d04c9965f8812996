"""Review: hold what a server offers now against what was accepted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from pegboard.model.json_types import JSON
from pegboard.sources.mcp.definition_changes import Change, classify, skeleton
from pegboard.sources.mcp.lock_file import LockFile
from pegboard.sources.mcp.server_settings import ServerSettings, Trust


class Reviewed(Struct, frozen=True, kw_only=True):
    """What is listed, by the tools' own names, and what is held back.

    `hidden` tools are new or look like others, `changed` ones stay listed as they were accepted; `accepted` are those
    to pin now.
    """

    listed: Mapping[str, JSON] = field(default_factory=dict[str, JSON])
    hidden: Mapping[str, tuple[Change, ...]] = field(default_factory=dict[str, tuple[Change, ...]])
    changed: Mapping[str, tuple[Change, ...]] = field(default_factory=dict[str, tuple[Change, ...]])
    accepted: Mapping[str, JSON] = field(default_factory=dict[str, JSON])


class _Drawn:
    """How the names that were accepted look, worked out once for all that is held against them, and if anything is."""

    def __init__(self, accepted: Iterable[str]) -> None:
        self._accepted = accepted
        self._skeletons: frozenset[str] | None = None

    def has(self, name: str) -> bool:
        """Tell whether a name that was not accepted looks like one that was."""
        if self._skeletons is None:
            self._skeletons = frozenset(map(skeleton, self._accepted))
        return skeleton(name) in self._skeletons


def trust_of(settings: ServerSettings, lock: LockFile) -> Trust:
    """Return how far a server is trusted: as the operator says, else `pinned` once there is a lock."""
    return settings.trust or ("pinned" if lock.existed else "first_use")


def listed_of(offered: Mapping[str, JSON], settings: ServerSettings, lock: LockFile) -> Mapping[str, JSON]:
    """Return what is listed of an offer: each tool as it was accepted, or as it is offered where it never was."""
    if trust_of(settings, lock) == "any" or lock.fault:
        return offered
    pins = lock.pins(settings.name)
    return {name: pins.get(name, definition) for name, definition in offered.items()}


def review(offered: Mapping[str, JSON], settings: ServerSettings, lock: LockFile) -> Reviewed:
    """Judge each tool by itself: one that must wait holds back no other."""
    trust = trust_of(settings, lock)
    if trust == "any":
        return Reviewed(listed=offered)
    if lock.fault:
        return Reviewed(listed=offered, hidden=dict.fromkeys(offered, ("new",)))
    pins = lock.pins(settings.name)
    drawn = _Drawn(pins)
    hidden: dict[str, tuple[Change, ...]] = {}
    changed: dict[str, tuple[Change, ...]] = {}
    accepted: dict[str, JSON] = {}
    for name, definition in offered.items():
        pinned = pins.get(name)
        if pinned is not None:
            if changes := classify(pinned, lock.comparable(settings.name, definition)):
                changed[name] = changes
        elif drawn.has(name):
            hidden[name] = ("look_alike",)
        elif trust == "pinned":
            hidden[name] = ("new",)
        else:
            accepted[name] = definition
    listed = listed_of(offered, settings, lock)
    return Reviewed(listed=listed, hidden=hidden, changed=changed, accepted=accepted)


def differences(offered: Mapping[str, JSON], server: str, lock: LockFile) -> dict[str, tuple[Change, ...]]:
    """Return by tool what `pegboard lock diff` shows of a server: changes, new ones, look-alikes, and what is gone."""
    pins = lock.pins(server)
    drawn = _Drawn(pins)
    differing: dict[str, tuple[Change, ...]] = {name: ("gone",) for name in pins if name not in offered}
    for name, definition in offered.items():
        if name in pins:
            changes = classify(pins[name], lock.comparable(server, definition))
        else:
            changes = ("look_alike",) if drawn.has(name) else ("new",)
        if changes:
            differing[name] = changes
    return differing
