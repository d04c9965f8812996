"""ToolHandlers: tools/list and tools/call."""

from __future__ import annotations

from collections.abc import Awaitable

from pegboard.egress.client_spans import tracer_in_use
from pegboard.model.json_types import JSON
from pegboard.server.gateway import Gateway
from pegboard.server.mcp.asking.channels import channel_of
from pegboard.server.mcp.handlers.lists import Lists
from pegboard.server.mcp.protocol.requests import McpRequest
from pegboard.server.sealing import Sealing
from pegboard.telemetry.served_request import serving_mcp


class ToolHandlers:
    """Handles the tools of a catalog.

    Args:
        gateway: the catalog's answers.
        lists: serialises lists.
        sealing: seals cursors.
    """

    def __init__(self, gateway: Gateway, lists: Lists, sealing: Sealing) -> None:
        self._gateway, self._lists, self._sealing = gateway, lists, sealing

    def list(self, request: McpRequest) -> Awaitable[JSON]:
        """Handle tools/list."""
        return self._lists.tools_page(
            request.principal,
            self._sealing,
            request.params.get("cursor"),
            capabilities=request.capabilities,
            is_earlier=request.era.is_earlier,
            hops=request.hops,
        )

    def call(self, request: McpRequest) -> Awaitable[JSON]:
        """Handle tools/call."""
        return self._call(request) if tracer_in_use() is None else self._traced(request)

    async def _traced(self, request: McpRequest) -> JSON:
        session = request.era.session
        # Not the id of the session, which is a secret.
        name = "" if session is None else session.name
        meta: JSON = request.params.get("_meta") or {}
        with serving_mcp(request.request_id, request.era.version, name, meta):
            return await self._call(request)

    def _call(self, request: McpRequest) -> Awaitable[JSON]:
        params = request.params
        arguments: JSON | None = params.get("arguments")
        return self._gateway.call(
            request.principal,
            params["name"],
            {} if arguments is None else arguments,
            channel_of(request),
            is_earlier=request.era.is_earlier,
        )
