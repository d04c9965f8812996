"""Review: hold what a server offers now against what was accepted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from pegboard.frozen import frozen
from pegboard.model.json_types import JSON
from pegboard.sources.mcp.definition_changes import Change, classify, looks_like
from pegboard.sources.mcp.lock_file import LockFile
from pegboard.sources.mcp.server_settings import ServerSettings, Trust


@frozen
class Reviewed:
    """What is listed, by the tools' own names, and what is held back.

    `hidden` tools are new or look like others, `changed` ones stay listed as they were accepted; `accepted` are those
    to pin now.
    """

    listed: Mapping[str, JSON] = field(default_factory=dict[str, JSON])
    hidden: Mapping[str, tuple[Change, ...]] = field(default_factory=dict[str, tuple[Change, ...]])
    changed: Mapping[str, tuple[Change, ...]] = field(default_factory=dict[str, tuple[Change, ...]])
    accepted: Mapping[str, JSON] = field(default_factory=dict[str, JSON])


def trust_of(settings: ServerSettings, lock: LockFile) -> Trust:
    """Return how far a server is trusted: as the operator says, else `pinned` once there is a lock."""
    return settings.trust or ("pinned" if lock.existed else "first_use")


def review(offered: Mapping[str, JSON], settings: ServerSettings, lock: LockFile) -> Reviewed:
    """Judge each tool by itself: one that must wait holds back no other."""
    trust = trust_of(settings, lock)
    if trust == "any":
        return Reviewed(listed=offered)
    if lock.fault:
        return Reviewed(listed=offered, hidden=dict.fromkeys(offered, ("new",)))
    pins = lock.pins(settings.name)
    listed: dict[str, JSON] = {}
    hidden: dict[str, tuple[Change, ...]] = {}
    changed: dict[str, tuple[Change, ...]] = {}
    accepted: dict[str, JSON] = {}
    for name, definition in offered.items():
        pinned = pins.get(name)
        listed[name] = definition if pinned is None else pinned
        if pinned is not None:
            if changes := classify(pinned, lock.comparable(settings.name, definition)):
                changed[name] = changes
        elif any(looks_like(name, known) for known in pins):
            hidden[name] = ("look_alike",)
        elif trust == "pinned":
            hidden[name] = ("new",)
        else:
            accepted[name] = definition
    return Reviewed(listed=listed, hidden=hidden, changed=changed, accepted=accepted)


def differences(offered: Mapping[str, JSON], server: str, lock: LockFile) -> dict[str, tuple[Change, ...]]:
    """Return by tool what `pegboard lock diff` shows of a server: changes, new ones, look-alikes, and what is gone."""
    pins = lock.pins(server)
    differing: dict[str, tuple[Change, ...]] = {name: ("gone",) for name in pins if name not in offered}
    for name, definition in offered.items():
        if name in pins:
            changes = classify(pins[name], lock.comparable(server, definition))
        else:
            changes = ("look_alike",) if any(looks_like(name, known) for known in pins) else ("new",)
        if changes:
            differing[name] = changes
    return differing
