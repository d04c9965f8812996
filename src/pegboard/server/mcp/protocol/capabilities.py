"""Capabilities: the server's name, capabilities and instructions, in the form of both eras."""

from __future__ import annotations

from pegboard.core.ports import ListsForPersons
from pegboard.model.json_types import JSON
from pegboard.server.gateway import Gateway
from pegboard.server.mcp.handlers.list_ttl import discover_ttl_ms
from pegboard.server.mcp.protocol.revisions import VERSION
from pegboard.server.mcp.protocol.task_wire import TASKS_EXTENSION
from pegboard.version import __version__

SKILLS_EXTENSION = "io.modelcontextprotocol/skills"
SERVER_KEY = "io.modelcontextprotocol/serverInfo"
_CHANGED: JSON = {"listChanged": True}


def server_info(gateway: Gateway) -> JSON:
    """Return the server's name and version."""
    return {"name": gateway.catalog.name, "version": __version__}


def has_resources(gateway: Gateway) -> bool:
    """Tell whether there may be a resource, skill, prompt or completion; otherwise these are not announced.

    What people's accounts offer is known only after they have connected them, and capabilities are read once.
    """
    sources = gateway.registry.sources.values()
    return (
        bool(gateway.registry.declarations.skills)
        or any(True for _ in gateway.resources.specs)
        or any(isinstance(source, ListsForPersons) for source in sources)
    )


def capabilities(gateway: Gateway) -> JSON:
    """Return the capabilities that both eras express alike."""
    tools: JSON = {"logging": {}, "tools": _CHANGED}
    if gateway.registry.declarations.skills:
        tools["extensions"] = {SKILLS_EXTENSION: {"directoryRead": True}}
    if not has_resources(gateway):
        return tools
    return {**tools, "completions": {}, "prompts": _CHANGED, "resources": {**_CHANGED, "subscribe": True}}


def capabilities_before_2026(gateway: Gateway) -> JSON:
    """Return the capabilities in the form of the revisions before 2026-07-28."""
    shown = capabilities(gateway)
    if gateway.catalog.executor.ports.tasks is not None:
        shown["tasks"] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
    return shown


def capabilities_of_2026(gateway: Gateway) -> JSON:
    """Return the capabilities in the form of 2026-07-28."""
    shown = capabilities(gateway)
    if gateway.catalog.executor.ports.tasks is not None:
        shown["extensions"] = {**shown.get("extensions", {}), TASKS_EXTENSION: {}}
    return shown


def discovery(gateway: Gateway) -> JSON:
    """Return the result of a 2026-07-28 server/discover, without the fields common to all its results."""
    return {
        "supportedVersions": [VERSION],
        "capabilities": capabilities_of_2026(gateway),
        "ttlMs": discover_ttl_ms(gateway.catalog),
        "cacheScope": "private",
    }


def initialization(gateway: Gateway, version: str) -> JSON:
    """Return the result of initialize of an earlier revision."""
    return {
        "protocolVersion": version,
        "capabilities": capabilities_before_2026(gateway),
        "serverInfo": server_info(gateway),
    }
