"""SdkServer: the SDK's low-level server on a catalog, for both eras of the protocol."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, cast

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.streamable_http import EventStore
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.inbound import InboundModernRoute, classify_inbound_request
from mcp_types import methods
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION

from pegboard.model.json_types import JSON
from pegboard.server.gateway import Gateway
from pegboard.server.mcp.asking.request_states import RequestStates
from pegboard.server.mcp.handlers.list_changes import ListChanges
from pegboard.server.mcp.handlers.lists import Lists
from pegboard.server.mcp.handlers.resource_handlers import ResourceHandlers
from pegboard.server.mcp.handlers.task_handlers import TaskHandlers
from pegboard.server.mcp.protocol.capabilities import VERSION, capabilities_before_2026, discovery, server_info
from pegboard.server.mcp.recent_events import RecentEvents
from pegboard.server.mcp.sdk_handlers import Principals, ToolHandlers, complete, plain_errors, wire
from pegboard.server.mcp.sessions.session_ids import Client
from pegboard.server.mcp.sessions.sessions import Session, Sessions
from pegboard.server.principal import Principal
from pegboard.server.sealing import Sealing

MIRRORED: ContextVar[JSON | None] = ContextVar("pegboard_mirrored", default=None)
"""The input schema of the tool that this HTTP request calls, if it is one of its caller's with mirrored headers."""


class DualEraServer(Server[Any]):
    """Announces what we say, whatever the SDK would conclude from the handlers that it has."""

    def __init__(self, gateway: Gateway, **options: Any) -> None:
        super().__init__(**server_info(gateway), **options)
        self._gateway = gateway

    def get_capabilities(self, *_args: object, **_options: object) -> types.ServerCapabilities:
        return types.ServerCapabilities.model_validate(capabilities_before_2026(self._gateway))


class SdkServer:
    """The SDK's server of one catalog, with what the fast path needs of it.

    Made anew for each run of an app, or for the connection of a stdio process. `start` and `stop` are called once each,
    on the running loop.

    Args:
        gateway: answers for the catalog.
        lists: writes its lists.
        sealing: the keys of the server.
        sessions: the sessions of earlier revisions, which are told of changes.
        only: whom a process without HTTP serves.
        only_session: its session, where that client is of an earlier revision.
    """

    def __init__(
        self, gateway: Gateway, lists: Lists, sealing: Sealing, sessions: Sessions, *, only: Principal | None = None,
        only_session: Session | None = None,
    ) -> None:  # fmt: skip
        principals = Principals(only, only_session)
        used = gateway.catalog.guards.used_answers
        states = RequestStates(sealing, principals.of, principals.request_of, used)
        tools = ToolHandlers(gateway, lists, sealing, states=states, principals=principals)
        self._gateway, self.seal = gateway, states.seal
        self._changes = ListChanges(gateway, sessions, principals.of)
        self._resources = ResourceHandlers(gateway, lists, sealing, tools=tools, principals=principals)
        self.server = DualEraServer(
            gateway,
            # Without it the SDK would run a whole tools/list to check the headers of each call.
            get_tool_input_schema=_mirrored_schema,
            on_subscriptions_listen=self._changes.listen,
        )
        add = self.server.add_request_handler
        # The SDK's own says a fixed time.
        add("server/discover", types.RequestParams, self._discover)
        # These two answer with ready wire values, which the constructor's types do not know.
        add("tools/list", types.PaginatedRequestParams, tools.list_tools)
        add("tools/call", types.CallToolRequestParams, tools.call_tool)
        TaskHandlers(gateway, sealing, tools=tools, principals=principals).register(self.server)
        # The constructor's own argument for it warns, as 2026-07-28 has no such request any more.
        add("logging/setLevel", types.SetLevelRequestParams, principals.set_level)
        self.server.middleware[:] = [plain_errors, states.boundary, principals.watch]
        self._end: Callable[[], None] = _nothing

    async def _discover(self, ctx: ServerRequestContext[Any, Any], _params: types.RequestParams) -> JSON:
        return complete(ctx, discovery(self._gateway))

    def start(self) -> None:
        """Begin to tell clients of changes."""
        self._register_resources()
        self._end = self._gateway.resources.subscribe(self._register_resources)
        self._changes.start()

    def stop(self) -> None:
        """Tell no more, and end every open listen stream with its result."""
        self._end()
        self._end = _nothing
        self._changes.stop()

    def _register_resources(self) -> None:
        """Answer for resources and prompts from when there is the first."""
        self._resources.register(self.server)


def _mirrored_schema(_name: str) -> JSON | None:
    return MIRRORED.get()


def _nothing() -> None:
    pass


def introduced(request: JSON) -> Client | None:
    """Return what an initialize says; `None` when it is not in order, and the SDK's to refuse."""
    params: Any = request.get("params")
    if type(request.get("id")) not in (int, str) or request.get("jsonrpc") != "2.0" or not isinstance(params, dict):
        return None
    try:
        methods.validate_client_request("initialize", LATEST_HANDSHAKE_VERSION, cast("JSON", params))
        client = types.InitializeRequestParams.model_validate(params, by_name=False)
    except ValueError:
        return None
    known = client.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS
    return Client(client.protocol_version if known else LATEST_HANDSHAKE_VERSION, wire(client.capabilities))


class SdkSessions(StreamableHTTPSessionManager):
    """The SDK's sessions: behind one of ours each, which says how long it lives.

    The SDK hands one event store to all sessions and names streams by request id only, so with a shared store one
    session could replay another's messages. The manager reads `event_store` once for each session that it opens.
    """

    @property
    def event_store(self) -> EventStore:  # pyright: ignore[reportIncompatibleVariableOverride] - an attribute in the SDK
        return RecentEvents()

    @event_store.setter
    def event_store(self, value: EventStore | None) -> None:
        pass


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
