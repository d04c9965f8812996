"""Handshake: the first messages of a client, answered without the SDK, which takes longer to load than most sessions.

As the fast path, it only ever accepts: whatever is not plain is the SDK's, which is then told what it missed.
"""

from __future__ import annotations

from typing import Any

import orjson

from pegboard.model.json_types import JSON
from pegboard.server.gateway import Gateway
from pegboard.server.mcp.fast_path import Answer, is_usual_client
from pegboard.server.mcp.protocol.capabilities import changing_lists, initialization
from pegboard.server.mcp.protocol.jsonrpc import as_object

_REVISIONS = frozenset(("2025-06-18", "2025-11-25"))
_PLAIN_CAPABILITIES: dict[str, tuple[JSON, ...]] = {
    "elicitation": ({}, {"form": {}}, {"form": {}, "url": {}}),
    "sampling": ({}, {"tools": {}}),
    "roots": ({}, {"listChanged": True}, {"listChanged": False}),
}


class Handshake:
    """The beginning of a session of an earlier revision.

    Args:
        gateway: answers for the catalog.
    """

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def initialize(self, request: JSON) -> Answer | None:
        """Answer a plain initialize of an earlier revision; `None` when it is the SDK's."""
        params = as_object(request.get("params")) or {}
        capabilities = as_object(params.get("capabilities"))
        if (
            request.get("method") != "initialize"
            or not _is_request(request)
            or params.keys() != {"protocolVersion", "capabilities", "clientInfo"}
            or params["protocolVersion"] not in _REVISIONS
            or capabilities is None
            or any(value not in _PLAIN_CAPABILITIES.get(name, ()) for name, value in capabilities.items())
            or not is_usual_client(params["clientInfo"])
        ):
            return None
        return Answer((orjson.dumps(initialization(self._gateway, params["protocolVersion"])),))

    def changed(self) -> list[bytes]:
        """Return the notifications for an earlier session that the lists have changed."""
        methods = (f"notifications/{name}/list_changed" for name in changing_lists(self._gateway))
        return [orjson.dumps({"jsonrpc": "2.0", "method": method}) for method in methods]


def _is_request(request: JSON) -> bool:
    request_id: Any = request.get("id")
    return (
        request.get("jsonrpc") == "2.0"
        and type(request_id) in (int, str)
        and request.keys() <= {"jsonrpc", "id", "method", "params"}
    )
