"""SessionHandlers: the start of a connection in both eras, and the log level of a session."""

from __future__ import annotations

from pegboard.model.json_types import JSON
from pegboard.server.gateway import Gateway
from pegboard.server.mcp.protocol.capabilities import discovery, initialization
from pegboard.server.mcp.protocol.requests import McpRequest
from pegboard.server.mcp.protocol.revisions import EARLIER_VERSIONS, LATEST_EARLIER
from pegboard.server.mcp.sessions.session_ids import CLIENT_NAME_CHARS, Client


class SessionHandlers:
    """server/discover of 2026-07-28; initialize, ping and logging/setLevel of earlier revisions.

    Args:
        gateway: the catalog's answers.
    """

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def discover(self, _request: McpRequest) -> JSON:
        """Handle server/discover."""
        return discovery(self._gateway)

    async def initialize(self, request: McpRequest) -> JSON:
        """Handle initialize; sent again in a session, it declares the client's capabilities again."""
        session, client = request.session, client_of(request.params)
        session.version, session.capabilities, session.client_name = client
        return initialization(self._gateway, client.version)

    async def ping(self, _request: McpRequest) -> JSON:
        """Handle ping."""
        return {}

    async def set_level(self, request: McpRequest) -> JSON:
        """Handle logging/setLevel."""
        request.session.level = request.params["level"]
        return {}


def client_of(params: JSON) -> Client:
    """Return the client's identity and capabilities from an initialize, with the negotiated revision."""
    version = params["protocolVersion"]
    # Without lone surrogates: it becomes part of the id of the session.
    name = str(params["clientInfo"]["name"]).encode("utf-8", "replace").decode()[:CLIENT_NAME_CHARS]
    return Client(version if version in EARLIER_VERSIONS else LATEST_EARLIER, params["capabilities"], name)
