"""Registered later: keep the registrations of a running catalog across a reload, unless the files now conflict."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from pegboard.core.declarations import Declarations
from pegboard.core.registry import Registry
from pegboard.model.error import DefinitionError
from pegboard.model.tool import ToolEntry

log = logging.getLogger("pegboard")


def keep_registered(reloaded: Registry, running: Declarations, of_files: Declarations) -> None:
    """Add to a new catalog the registrations that were made after the previous one was built from its files.

    Current declarations of the files win, and registrations that no longer fit are dropped; both are logged.

    Args:
        reloaded: the new catalog, not yet served.
        running: all current declarations.
        of_files: the entries from the files.
    """
    for name, question in _later(running.predicates, of_files.predicates).items():
        if name not in reloaded.predicates:
            reloaded.add_predicate(name, question)
    for name, description in _later(running.groups, of_files.groups).items():
        if name not in reloaded.groups:
            reloaded.add_group(name, description)
    for name, agent in _later(running.agents, of_files.agents).items():
        if name in reloaded.declarations.agents:
            log.warning("The agent %r was registered while it ran; the files declare it now, and theirs counts.", name)
            continue
        try:
            reloaded.add_agent(agent)
        except DefinitionError as error:
            log.warning("The agent %r was registered while it ran, and no longer fits the files: %s", name, error)
    for known, loaded, now in (
        (running.tools, of_files.tools, reloaded.declarations.tools),
        (running.resources, of_files.resources, reloaded.declarations.resources),
    ):
        for key, entry in _later(known, loaded).items():
            if key in now:
                log.warning(
                    "%r was registered while it ran; the files declare it now, and theirs counts.", _name(entry)
                )
            else:
                _keep(reloaded, entry)


def _later(running: Mapping[str, Any], of_files: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in running.items() if of_files.get(name) is not value}


def _keep(reloaded: Registry, entry: ToolEntry) -> None:
    try:
        reloaded.add(entry)
        try:
            reloaded.snapshot("tools" if entry.offer is None else "resources")
        except DefinitionError:
            reloaded.remove(entry.qualified_id)
            raise
    except DefinitionError as error:
        log.warning("%r was registered while it ran, and no longer fits the files: %s", _name(entry), error)


def _name(entry: ToolEntry) -> str:
    return entry.qualified_id
