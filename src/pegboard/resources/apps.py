"""Apps: the MIME type and content security policy of MCP Apps interfaces."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pegboard.core.names import nearest
from pegboard.model.error import DefinitionError

APP_SCHEME = "ui://"
APP_MIME_TYPE = "text/html;profile=mcp-app"
_KEYS = {"connect_domains": "connectDomains", "resource_domains": "resourceDomains"}
# An origin, optionally with `*.` for subdomains. Characters that could end or widen a policy are excluded.
_ORIGIN = re.compile(r"(https?|wss?)://(\*\.)?[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*(:[0-9]{1,5})?")


def with_content_security(
    meta: Mapping[str, Any], csp: Mapping[str, Sequence[str]], *, uri: str, where: str
) -> dict[str, Any]:
    """Return the metadata of an interface with the origins that it may reach.

    Raises:
        DefinitionError: it is not an interface, a key is unknown, or an origin is invalid.
    """
    if not uri.startswith(APP_SCHEME):
        raise DefinitionError(f"{where}: csp= is for interfaces, at {APP_SCHEME!r}…; not for {uri!r}.")
    for key, origins in csp.items():
        if key not in _KEYS:
            raise DefinitionError(f"{where}: unknown key {key!r} in csp.{nearest(key, _KEYS, label='Keys')}")
        if isinstance(origins, str):
            raise DefinitionError(f"{where}: csp {key}: give a list of origins, such as [{origins!r}].")
        for origin in origins:
            if not _ORIGIN.fullmatch(origin):
                text = "is not an origin; write one such as 'https://api.example.com' or 'https://*.example.com'"
                raise DefinitionError(f"{where}: csp {key}: {origin!r} {text}.")
    ui = {**meta.get("ui", {}), "csp": {_KEYS[key]: list(origins) for key, origins in csp.items()}}
    return {**meta, "ui": ui}
