"""Dispatcher: one table of methods for both eras of the protocol, used by every transport.

`dispatch` checks a request and returns its answer, or the work that computes it. The cache in `ready_bytes.py`
recognises common requests without the models of the MCP SDK, and calls the same handlers.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import orjson

from pegboard.lazy import LazyModule
from pegboard.model.json_types import JSON
from pegboard.server.gateway import Gateway
from pegboard.server.mcp.asking.notifications import LEVELS, MessageOutlet
from pegboard.server.mcp.asking.request_states import ASKING_METHODS, RequestStates
from pegboard.server.mcp.handlers.list_changes import ListChanges
from pegboard.server.mcp.handlers.lists import Lists
from pegboard.server.mcp.handlers.resource_handlers import ResourceHandlers
from pegboard.server.mcp.handlers.session_handlers import SessionHandlers
from pegboard.server.mcp.handlers.skill_handlers import SkillHandlers
from pegboard.server.mcp.handlers.task_handlers import TaskHandlers
from pegboard.server.mcp.handlers.tool_handlers import ToolHandlers
from pegboard.server.mcp.protocol.answers import Answer, Stream, error_answer
from pegboard.server.mcp.protocol.capabilities import SERVER_KEY, has_resources, server_info
from pegboard.server.mcp.protocol.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    RpcError,
    as_object,
    is_id,
    json_bytes,
)
from pegboard.server.mcp.protocol.requests import CAPABILITIES_KEY, LEVEL_KEY, PROGRESS_KEY, Era, McpRequest
from pegboard.server.mcp.protocol.revisions import LATEST_EARLIER
from pegboard.server.principal import Principal
from pegboard.server.sealing import Sealing

if TYPE_CHECKING:
    import mcp_types as types
    from pydantic import BaseModel

    from pegboard.server.mcp.protocol import request_checks
else:
    types = LazyModule("mcp_types")
    request_checks = LazyModule("pegboard.server.mcp.protocol.request_checks")

log = logging.getLogger("pegboard.serve")
Handler = Callable[[McpRequest], Awaitable[JSON]]
_CACHEABLE: Final = frozenset(
    ("tools/list", "resources/list", "resources/templates/list", "resources/read", "prompts/list")
)
"""Methods whose results state, since 2026-07-28, how long they may be cached."""
_BEFORE_INITIALIZE: Final = frozenset(("initialize", "ping"))


class Method(NamedTuple):
    """One method: the loader of its params model, and its handler.

    Models are loaded by the first request that needs one. `era` limits a method to the revisions that have it;
    `is_offered` tells whether this server currently offers it.
    """

    params: Callable[[], type[BaseModel]]
    handler: Handler
    era: Literal["both", "earlier", "2026"] = "both"
    is_offered: Callable[[], bool] | None = None


class Dispatcher:
    """Answers requests of both eras.

    Args:
        gateway: the catalog's answers.
        lists: serialises lists.
        sealing: the server's keys.
        changes: the open listen streams.
    """

    def __init__(self, gateway: Gateway, lists: Lists, sealing: Sealing, changes: ListChanges) -> None:
        self._states = RequestStates(sealing, gateway.catalog.executor.ports.used_answers)
        self._meta: JSON = {SERVER_KEY: server_info(gateway)}
        self._tail = b',"resultType":"complete","_meta":%b}' % orjson.dumps(self._meta)
        self._methods = _methods(gateway, lists, sealing, changes)

    def dispatch(self, message: JSON, era: Era, principal: Principal) -> Answer | Stream:
        """Return a refusal, or the work that computes the answer.

        `message` is a JSON-RPC request as classified by `kind_of`.
        """
        try:
            return self.begin(self._checked(message, era, principal))
        except RpcError as error:
            return error_answer(error)

    def begin(self, request: McpRequest) -> Stream:
        """Return the work for a request whose form was already checked."""
        return Stream(json_bytes(request.request_id), self._answered(request), request.outlet)

    async def _answered(self, request: McpRequest) -> Answer:
        """Return the answer to a request, whatever its handler does."""
        try:
            if request.state is not None:
                await self._states.spend(request.state)
            result = await self._methods[request.method].handler(request)
            if "requestState" in result and request.method in ASKING_METHODS:
                result = self._states.seal(result, request)
            return self._complete(result, request)
        except RpcError as error:
            return error_answer(error)
        except Exception:  # boundary: the server's outermost handler; a bug says nothing to the client
            log.exception("A request (%s) failed.", request.method)
            return error_answer(RpcError(INTERNAL_ERROR, "Internal server error"))

    async def guarded(self, parts: Awaitable[tuple[bytes, ...]]) -> Answer:
        """Return an answer whose bytes are ready, in parts, or the error."""
        try:
            return Answer(await parts)
        except RpcError as error:
            return error_answer(error)
        except Exception:  # boundary: as in `_answered`
            log.exception("A list failed.")
            return error_answer(RpcError(INTERNAL_ERROR, "Internal server error"))

    def _complete(self, result: JSON, request: McpRequest) -> Answer:
        """Return a result with the fields that every result of its era has."""
        if request.era.session is not None:
            if "ttlMs" in result and request.method in _CACHEABLE:
                result = {key: value for key, value in result.items() if key not in ("ttlMs", "cacheScope")}
            return Answer((json_bytes(result),))
        if result and "_meta" not in result and "resultType" not in result:
            return Answer((json_bytes(result)[:-1], self._tail))
        meta = {**result.get("_meta", {}), **self._meta}
        members = {key: value for key, value in result.items() if key != "_meta"}
        return Answer((json_bytes({"resultType": "complete", **members, "_meta": meta}),))

    # -- checks

    def _checked(self, message: JSON, era: Era, principal: Principal) -> McpRequest:
        """Return a request in the form of its method and revision.

        Raises:
            RpcError: it has another form, or the method does not exist.
        """
        name, params = message["method"], as_object(message.get("params"))
        session, state = era.session, None
        if session is None:
            request_checks.check_envelope(name, params)
            assert params is not None
            if name in ASKING_METHODS and params.get("requestState") is not None:
                state = self._states.open(params["requestState"], name, params, principal)
        method = self._methods.get(name)
        if method is None or method.era == ("earlier" if session is None else "2026"):
            raise RpcError(METHOD_NOT_FOUND, "Method not found", name)
        request_checks.check_params(name, era.version or LATEST_EARLIER, params, method.params())
        if method.is_offered is not None and not method.is_offered():
            raise RpcError(METHOD_NOT_FOUND, "Method not found", name)
        if session is not None and not session.version and name not in _BEFORE_INITIALIZE:
            raise RpcError(INVALID_PARAMS, "Invalid request parameters", "")
        params = {} if params is None else params
        meta: JSON = params.get("_meta") or {}
        token, level = meta.get(PROGRESS_KEY), meta.get(LEVEL_KEY)
        return McpRequest(
            name,
            message["id"],
            params,
            principal,
            era,
            meta[CAPABILITIES_KEY] if session is None else session.capabilities,
            MessageOutlet(),
            token if is_id(token) else None,
            level if level in LEVELS else None,
            state,
        )


def _methods(gateway: Gateway, lists: Lists, sealing: Sealing, changes: ListChanges) -> dict[str, Method]:
    """Return the methods of both eras. Source: the schemas of MCP 2025-11-25 and 2026-07-28, and their extensions."""
    tools, resources = ToolHandlers(gateway, lists, sealing), ResourceHandlers(gateway, lists, sealing)
    tasks, skills, session = TaskHandlers(gateway, sealing), SkillHandlers(lists, sealing), SessionHandlers(gateway)

    def page() -> type[BaseModel]:
        return types.PaginatedRequestParams

    def plain() -> type[BaseModel]:
        return types.RequestParams

    def task() -> type[BaseModel]:
        return request_checks.TaskParams

    def any_resource() -> bool:
        return has_resources(gateway)

    def resource(params: Callable[[], type[BaseModel]], handler: Handler, era: Any = "both") -> Method:
        return Method(params, handler, era, any_resource)

    return {
        "initialize": Method(lambda: types.InitializeRequestParams, session.initialize, "earlier"),
        "ping": Method(plain, session.ping, "earlier"),
        "logging/setLevel": Method(lambda: types.SetLevelRequestParams, session.set_level, "earlier"),
        "server/discover": Method(plain, session.discover, "2026"),
        "subscriptions/listen": Method(lambda: types.SubscriptionsListenRequestParams, changes.listen, "2026"),
        "tools/list": Method(page, tools.list),
        "tools/call": Method(lambda: types.CallToolRequestParams, tools.call),
        "resources/list": resource(page, resources.list_resources),
        "resources/templates/list": resource(page, resources.list_templates),
        "resources/read": resource(lambda: types.ReadResourceRequestParams, resources.read),
        "resources/subscribe": resource(lambda: types.SubscribeRequestParams, resources.subscribe, "earlier"),
        "resources/unsubscribe": resource(lambda: types.UnsubscribeRequestParams, resources.unsubscribe, "earlier"),
        "resources/directory/read": resource(lambda: request_checks.DirectoryParams, skills.read_directory),
        "prompts/list": resource(page, resources.list_prompts),
        "prompts/get": resource(lambda: types.GetPromptRequestParams, resources.get_prompt),
        "completion/complete": resource(lambda: types.CompleteRequestParams, resources.complete),
        "skills/list": resource(page, skills.list),
        "skills/get": resource(lambda: request_checks.SkillParams, skills.get),
        "tasks/get": Method(task, tasks.get),
        "tasks/cancel": Method(task, tasks.cancel),
        "tasks/update": Method(lambda: request_checks.UpdateTaskParams, tasks.update, "2026"),
        "tasks/result": Method(task, tasks.result, "earlier"),
        "tasks/list": Method(page, tasks.list, "earlier"),
    }
