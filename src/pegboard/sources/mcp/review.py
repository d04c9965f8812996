"""Review: compares a server's current tools with the accepted ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from pegboard.model.json_types import JSON
from pegboard.sources.mcp.definition_changes import Change, classify, skeleton
from pegboard.sources.mcp.lock_file import LockFile
from pegboard.sources.mcp.server_settings import ServerSettings, Trust

_FLAGGED: frozenset[Change] = frozenset({"look_alike", "imperative_text", "hidden_text"})


class Reviewed(Struct, frozen=True, kw_only=True):
    """The listed tools by original name, and the tools held back.

    `hidden` tools are new or look like others, `changed` ones stay listed as they were accepted; `accepted` are to be
    pinned now.
    """

    listed: Mapping[str, JSON] = field(default_factory=dict[str, JSON])
    hidden: Mapping[str, tuple[Change, ...]] = field(default_factory=dict[str, tuple[Change, ...]])
    changed: Mapping[str, tuple[Change, ...]] = field(default_factory=dict[str, tuple[Change, ...]])
    accepted: Mapping[str, JSON] = field(default_factory=dict[str, JSON])

    @property
    def flagged(self) -> frozenset[str]:
        """The tools held back whose change looks like an attack."""
        held = (*self.hidden.items(), *self.changed.items())
        return frozenset(name for name, changes in held if not _FLAGGED.isdisjoint(changes))


class _Drawn:
    """The shapes of the accepted names, computed once on demand."""

    def __init__(self, accepted: Iterable[str]) -> None:
        self._accepted = accepted
        self._skeletons: frozenset[str] | None = None

    def has(self, name: str) -> bool:
        """Tell whether a new name looks like an accepted one."""
        if self._skeletons is None:
            self._skeletons = frozenset(map(skeleton, self._accepted))
        return skeleton(name) in self._skeletons


def trust_of(settings: ServerSettings, lock: LockFile) -> Trust:
    """Return the trust in a server: the operator's setting, else `pinned` if there is a lock."""
    return settings.trust or ("pinned" if lock.existed else "first_use")


def listed_of(offered: Mapping[str, JSON], settings: ServerSettings, lock: LockFile) -> Mapping[str, JSON]:
    """Return the listed tools: each as it was accepted, or as it is offered if it never was."""
    if trust_of(settings, lock) == "any" or lock.fault:
        return offered
    pins = lock.pins(settings.name)
    return {name: pins.get(name, definition) for name, definition in offered.items()}


def review(offered: Mapping[str, JSON], settings: ServerSettings, lock: LockFile) -> Reviewed:
    """Judge each tool separately, so that one awaiting review does not hold back others."""
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
    """Return for each tool the output of `pegboard lock diff`: changes, new tools, lookalikes and removed tools."""
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
