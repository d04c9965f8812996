"""Handshake: the first messages of a client, answered without the SDK, which takes longer to load than most sessions.

As the fast path, it only ever accepts: whatever is not plain is the SDK's, which is then told what it missed.
"""

from __future__ import annotations

from typing import Any

import orjson

from pegboard.model.json_types import JSON
from pegboard.providers.mcp import mcp_tool_before_2026
from pegboard.server.gateway import Gateway
from pegboard.server.mcp.fast_path import SERVER_KEY, VERSION, Answer, is_usual_client
from pegboard.server.mcp.jsonrpc import as_object, json_bytes
from pegboard.server.mcp.list_ttl import discover_ttl_ms
from pegboard.server.principal import Principal

_REVISIONS = frozenset(("2025-06-18", "2025-11-25"))
_PLAIN_CAPABILITIES: dict[str, tuple[JSON, ...]] = {
    "elicitation": ({}, {"form": {}}, {"form": {}, "url": {}}),
    "sampling": ({}, {"tools": {}}),
    "roots": ({}, {"listChanged": True}, {"listChanged": False}),
}


class Handshake:
    """What the server says of itself, in both eras.

    Args:
        gateway: the catalog's answers.
        server: what the server calls itself.
        page_tools: a longer list is cut into pages, which is the SDK's.
    """

    def __init__(self, gateway: Gateway, *, server: JSON, page_tools: int) -> None:
        self._gateway, self._server, self._page_tools = gateway, server, page_tools

    def capabilities(self) -> JSON:
        """Return what the server can do; resources and prompts only once there are any."""
        changed = {"listChanged": True}
        tools: JSON = {"logging": {}, "tools": changed}
        if not any(True for _ in self._gateway.resources.specs):
            return tools
        return {**tools, "completions": {}, "prompts": changed, "resources": {**changed, "subscribe": True}}

    def discover(self) -> Answer:
        """Answer server/discover of 2026-07-28."""
        said = {
            "supportedVersions": [VERSION],
            "capabilities": self.capabilities(),
            "ttlMs": discover_ttl_ms(self._gateway.catalog),
            "cacheScope": "private",
            "resultType": "complete",
            "_meta": {SERVER_KEY: self._server},
        }
        return Answer((orjson.dumps(said),))

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
        said = {
            "protocolVersion": params["protocolVersion"],
            "capabilities": self.capabilities(),
            "serverInfo": self._server,
        }
        return Answer((orjson.dumps(said),))

    def changed(self) -> list[bytes]:
        """Return the notifications for an earlier session that the lists have changed."""
        told = [what for what in ("tools", "prompts", "resources") if what in self.capabilities()]
        return [orjson.dumps({"jsonrpc": "2.0", "method": f"notifications/{what}/list_changed"}) for what in told]

    async def early(self, request: JSON, principal: Principal) -> Answer | None:
        """Answer a plain request of an earlier session that is just beginning; `None` when it is the SDK's."""
        params = as_object(request.get("params", {}))
        if not _is_request(request) or params is None or params:
            return None
        if request.get("method") == "ping":
            return Answer((b"{}",))
        if request.get("method") != "tools/list":
            return None
        tools = (await self._gateway.view(principal)).tools()
        if len(tools) > self._page_tools:
            return None
        return Answer((json_bytes({"tools": [mcp_tool_before_2026(entry) for entry in tools]}),))


def _is_request(request: JSON) -> bool:
    request_id: Any = request.get("id")
    return (
        request.get("jsonrpc") == "2.0"
        and type(request_id) in (int, str)
        and request.keys() <= {"jsonrpc", "id", "method", "params"}
    )
