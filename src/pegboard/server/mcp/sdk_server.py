"""Server: the SDK's low-level server on a catalog, for both eras of the protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.shared.inbound import InboundModernRoute, classify_inbound_request
from mcp_types import methods
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from pegboard.model.bounds import MCP_PAGE_TOOLS
from pegboard.model.json_types import JSON
from pegboard.server.gateway import Gateway
from pegboard.server.mcp.fast_path import VERSION, server_words
from pegboard.server.mcp.list_changes import ListChanges
from pegboard.server.mcp.list_ttl import discover_ttl_ms
from pegboard.server.mcp.resource_handlers import ResourceHandlers
from pegboard.server.mcp.sdk_handlers import Principals, ToolHandlers, plain_errors
from pegboard.server.mcp.sealing import Sealing
from pegboard.server.mcp.sessions import Sessions
from pegboard.server.principal import Principal

MIRRORED: ContextVar[JSON | None] = ContextVar("pegboard_mirrored", default=None)
"""The input schema of the tool that this HTTP request calls, if it is one of its caller's with mirrored headers."""


class DualEraServer(Server[Any]):
    """Announces list-changed to the earlier revisions too; the SDK's HTTP manager passes no options."""

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        changed = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)
        return super().create_initialization_options(
            notification_options or changed, experimental_capabilities, extensions
        )


class SdkServer:
    """The server of one catalog with the parts that its doors need."""

    def __init__(
        self,
        server: DualEraServer,
        *,
        gateway: Gateway,
        sealing: Sealing,
        changes: ListChanges,
        resources: ResourceHandlers,
    ) -> None:
        self.server, self._gateway, self._sealing, self._changes, self._resources = (
            server,
            gateway,
            sealing,
            changes,
            resources,
        )
        self._end: Callable[[], None] = _nothing

    def start(self) -> None:
        """Begin to tell clients of changes, on the running loop."""
        self._announce()
        self._end = self._gateway.resources.subscribe(self._announce)
        self._changes.start()

    def stop(self) -> None:
        """Tell no more, and end every open listen stream with its result."""
        self._end()
        self._end = _nothing
        self._changes.stop()

    def _announce(self) -> None:
        """Announce resources and prompts from when there is the first."""
        self._resources.register(self.server)

    async def seal(self, result: JSON, params: Mapping[str, Any], principal: Principal) -> JSON:
        """Seal the state of a result that asks for input, for a call that did not come through the SDK."""
        ctx = ServerRequestContext[Any, Any](
            session=None,  # pyright: ignore[reportArgumentType] - sealing looks at method, params and principal alone
            lifespan_context={},
            protocol_version=VERSION,
            method="tools/call",
            params=params,
            request=_RequestOf(principal),
        )
        return await self._sealing.seal(result, params, ctx=ctx)


def _nothing() -> None:
    pass


class _RequestOf:
    """Stands for the HTTP request of a principal."""

    def __init__(self, principal: Principal) -> None:
        self.scope = {Principals.KEY: principal}


def build(
    gateway: Gateway, *, only: Principal | None = None, keys: tuple[bytes, ...] = (), page_tools: int = MCP_PAGE_TOOLS
) -> SdkServer:
    """Return the SDK's server on a gateway; `only` is whom a process without HTTP serves."""
    principals = Principals(only)
    sessions = Sessions(principals.of)
    sealing = Sealing(principals.of, audience=gateway.catalog.name, keys=keys)
    changes = ListChanges(gateway, sessions, principals.of)
    tools = ToolHandlers(gateway, sealing, sessions, principals, page_tools=page_tools)
    server = DualEraServer(
        **server_words(gateway.catalog.name),
        # Without it the SDK would run a whole tools/list to check the headers of each call.
        get_tool_input_schema=lambda _name: MIRRORED.get(),
        on_subscriptions_listen=changes.listen,
    )

    async def discover(ctx: ServerRequestContext[Any, Any], _params: types.RequestParams) -> types.DiscoverResult:
        return types.DiscoverResult(
            supported_versions=list(MODERN_PROTOCOL_VERSIONS),
            capabilities=server.get_capabilities(protocol_version=ctx.protocol_version),
            instructions=server.instructions,
            ttl_ms=discover_ttl_ms(gateway.catalog),
            cache_scope="private",
        )

    # The SDK's own says a fixed time.
    server.add_request_handler("server/discover", types.RequestParams, discover)
    # These two answer with ready wire values, which the constructor's types do not know.
    server.add_request_handler("tools/list", types.PaginatedRequestParams, tools.list_tools)
    server.add_request_handler("tools/call", types.CallToolRequestParams, tools.call_tool)
    # The constructor's own argument for it warns, as 2026-07-28 has no such request any more.
    server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, sessions.set_level)
    resources = ResourceHandlers(gateway, sealing, sessions, tools, principals.of)
    server.middleware[:] = [plain_errors, sealing.boundary, sessions.watch]
    return SdkServer(server, gateway=gateway, sealing=sealing, changes=changes, resources=resources)


def accepts(meta: JSON) -> bool:
    """Tell whether the SDK accepts the envelope of a request of 2026-07-28."""
    route = classify_inbound_request({"method": "tools/list", "params": {"_meta": meta}})
    if not isinstance(route, InboundModernRoute):
        return False
    try:
        methods.validate_client_request("tools/list", VERSION, {"_meta": meta})
    except ValueError:
        return False
    return True
