"""Derived names: derive the name of an entry from its name elsewhere."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from pegboard.core.names import legal

NAMESPACE_CHARS = 32
_FILLING = re.compile(r"^(?:mcp[-_])?(?:server[-_])|^mcp[-_]|[-_]mcp(?:[-_]server)?$|[-_]server$", re.IGNORECASE)
_HOST_FILLING = frozenset(
    {"www", "mcp", "api", "com", "net", "org", "io", "dev", "app", "ai", "co", "sse", "server", "docs"}
)


def entry_name(text: str) -> str:
    """Return the name of an entry: `files` for `@scope/server-files@1.2`, and for `@files/mcp`."""
    scoped = re.fullmatch(r"@([^/]+)/(?:mcp|server|mcp[-_]server)(?:@.*)?", text)
    if scoped is not None:
        return namespace(scoped[1])
    plain = text.rstrip("/").rpartition("/")[2] or text
    plain = re.split(r"(?<=.)@|==|>=|<=|~=|\[|:(?=[\w.-]+$)", plain)[0]
    plain = re.sub(r"\.(?:py|js|mjs|cjs|ts|json|ya?ml|sh|exe)$", "", plain)
    short = _FILLING.sub("", plain)
    return namespace(short or plain)


def namespace(text: str) -> str:
    """Return a legal entry name for any text."""
    name = re.sub(r"_{2,}", "_", legal(text)).strip("_-")[:NAMESPACE_CHARS].strip("_-")
    return name or "server"


def group_stem(name: str) -> str:
    """Return the prefix of an entry's group names."""
    return re.sub(r"[^a-z0-9_]", "_", name.lower())


def name_of_address(url: str) -> str:
    """Return an entry name for an address: `notion` for `https://mcp.notion.com/mcp`."""
    host = urlsplit(url).hostname or ""
    if re.fullmatch(r"[\d.:a-f]+", host) or host == "localhost":
        return "local"
    parts = [part for part in host.split(".") if part not in _HOST_FILLING]
    return namespace(parts[-1] if parts else host)


def free_name(name: str, taken: set[str]) -> str:
    """Return the name, with a number if it is taken."""
    candidate, number = name, 2
    while candidate.casefold() in taken:
        candidate = f"{name[: NAMESPACE_CHARS - 3]}_{number}"
        number += 1
    taken.add(candidate.casefold())
    return candidate
