"""Capabilities: what the server announces of itself, in both eras, whoever writes it to the wire."""

from __future__ import annotations

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
    """Return what the server calls itself."""
    return {"name": gateway.catalog.name, "version": __version__}


def has_resources(gateway: Gateway) -> bool:
    """Tell whether there is a resource, a skill, a prompt or a completion; until then nothing of them is announced."""
    return bool(gateway.registry.declarations.skills) or any(True for _ in gateway.resources.specs)


def capabilities(gateway: Gateway) -> JSON:
    """Return what the server can do that both eras say alike."""
    tools: JSON = {"logging": {}, "tools": _CHANGED}
    if gateway.registry.declarations.skills:
        tools["extensions"] = {SKILLS_EXTENSION: {"directoryRead": True}}
    if not has_resources(gateway):
        return tools
    return {**tools, "completions": {}, "prompts": _CHANGED, "resources": {**_CHANGED, "subscribe": True}}


def capabilities_before_2026(gateway: Gateway) -> JSON:
    """Return what the server can do, as the revisions before 2026-07-28 say it."""
    shown = capabilities(gateway)
    if gateway.catalog.executor.ports.tasks is not None:
        shown["tasks"] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
    return shown


def capabilities_of_2026(gateway: Gateway) -> JSON:
    """Return what the server can do, as 2026-07-28 says it."""
    shown = capabilities(gateway)
    if gateway.catalog.executor.ports.tasks is not None:
        shown["extensions"] = {**shown.get("extensions", {}), TASKS_EXTENSION: {}}
    return shown


def changing_lists(gateway: Gateway) -> list[str]:
    """Return the lists of whose changes clients are told: `tools`, and once there are any `prompts` and `resources`."""
    announced = capabilities(gateway)
    return [name for name in ("tools", "prompts", "resources") if name in announced]


def discovery(gateway: Gateway) -> JSON:
    """Return the result of server/discover of 2026-07-28, without what every result of that revision has."""
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
