"""ResourceHandlers: resources, prompts and completions over MCP, on what the catalog has of them."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server

from pegboard.core.digests import digest
from pegboard.core.view import View
from pegboard.model.bounds import LIST_TTL_MS, MCP_PAGE_RESOURCES, MCP_SUGGESTIONS
from pegboard.model.json_types import JSON
from pegboard.model.result import AudioContent, Content, ImageContent, ResourceContent, TextContent, ToolResult
from pegboard.providers.mcp import mcp_content
from pegboard.resources import CompletionSpec, PromptSpec, ResourceSpec
from pegboard.server.gateway import INVALID_PARAMS, Gateway, RpcError
from pegboard.server.mcp.client_channel import ClientChannel
from pegboard.server.mcp.list_ttl import list_ttl_ms, starting
from pegboard.server.mcp.sdk_handlers import ToolHandlers, complete, isolated
from pegboard.server.mcp.sealing import Sealing
from pegboard.server.mcp.sessions import Sessions
from pegboard.server.principal import Principal

Ctx = ServerRequestContext[Any, Any]
INTERNAL_ERROR = -32603


class ListRequest(NamedTuple):
    """Who asks for a list, of what, what they may have, and how long they may keep it."""

    principal: Principal
    view: View
    kind: str
    ttl_ms: int


class ResourceHandlers:
    """resources/*, prompts/* and completion/complete."""

    def __init__(
        self,
        gateway: Gateway,
        sealing: Sealing,
        sessions: Sessions,
        tools: ToolHandlers,
        principal_of: Callable[[Ctx], Principal],
    ) -> None:
        self._gateway, self._resources, self._sealing, self._sessions = gateway, gateway.resources, sealing, sessions
        self._channel, self._principal_of = tools.channel, principal_of
        self._is_registered = False

    def register(self, server: Server[Any]) -> None:
        """Add the handlers to a server, once there is one of them; until then nothing of it is announced."""
        if self._is_registered or not any(True for _ in self._resources.specs):
            return
        self._is_registered = True
        add = server.add_request_handler
        add("resources/list", types.PaginatedRequestParams, self.list_resources)
        add("resources/templates/list", types.PaginatedRequestParams, self.list_templates)
        add("resources/read", types.ReadResourceRequestParams, self.read)
        add("resources/subscribe", types.SubscribeRequestParams, self.subscribe)
        add("resources/unsubscribe", types.UnsubscribeRequestParams, self.unsubscribe)
        add("prompts/list", types.PaginatedRequestParams, self.list_prompts)
        add("prompts/get", types.GetPromptRequestParams, self.get_prompt)
        add("completion/complete", types.CompleteRequestParams, self.complete)

    # -- lists

    async def _view(self, ctx: Ctx) -> tuple[Principal, View]:
        principal = self._principal_of(ctx)
        return principal, await self._resources.view(
            self._gateway.context(principal), profile=principal.profile
        ).prepare()

    def _asking_view(self, ctx: Ctx, channel: ClientChannel) -> View:
        """Return a view to call on, whose calls may ask the client."""
        principal = self._principal_of(ctx)
        return self._resources.view(self._gateway.context(principal, channel), profile=principal.profile)

    async def _asked(self, ctx: Ctx, kind: str) -> ListRequest:
        awaited = starting(self._gateway.catalog)
        principal, view = await self._view(ctx)
        space = "prompt" if kind == "prompts" else "resource"
        return ListRequest(principal, view, kind, list_ttl_ms(awaited, view, space=space))

    def _page(self, ctx: Ctx, asked: ListRequest, items: Sequence[JSON], cursor: str | None) -> JSON:
        kind = asked.kind
        first, end, following = self._sealing.page(
            asked.principal.owner, kind, digest(items), size=MCP_PAGE_RESOURCES, length=len(items), cursor=cursor
        )
        page: JSON = {kind: list(items[first:end]), "ttlMs": asked.ttl_ms, "cacheScope": "private"}
        return complete(ctx, page if following is None else {**page, "nextCursor": following})

    async def list_resources(self, ctx: Ctx, params: types.PaginatedRequestParams) -> JSON:
        asked = await self._asked(ctx, "resources")
        items = [_resource(spec, "uri") for _, spec in self._resources.resources(asked.view) if not spec.variables]
        return self._page(ctx, asked, items, params.cursor)

    async def list_templates(self, ctx: Ctx, params: types.PaginatedRequestParams) -> JSON:
        asked = await self._asked(ctx, "resourceTemplates")
        items = [_resource(spec, "uriTemplate") for _, spec in self._resources.resources(asked.view) if spec.variables]
        return self._page(ctx, asked, items, params.cursor)

    async def list_prompts(self, ctx: Ctx, params: types.PaginatedRequestParams) -> JSON:
        asked = await self._asked(ctx, "prompts")
        items = [_prompt(spec) for _, spec in self._resources.prompts(asked.view)]
        return self._page(ctx, asked, items, params.cursor)

    # -- one of them

    async def read(self, ctx: Ctx, params: types.ReadResourceRequestParams) -> JSON:
        uri = str(params.uri)
        absent = RpcError(INVALID_PARAMS, f"No resource {uri!r} is available to this caller.", {"uri": uri})
        channel = self._channel(ctx, params)
        view = self._asking_view(ctx, channel)
        match = await self._resources.find_resource(uri, view)
        if match is None:
            raise absent
        key, spec, values = match
        result = await self._run(view, key, dict(values), channel, absent)
        if not isinstance(result, ToolResult):
            return result
        contents = [_contents(uri, spec, block, result) for block in result.content]
        return complete(ctx, {"contents": contents, "ttlMs": LIST_TTL_MS, "cacheScope": "private"})

    async def get_prompt(self, ctx: Ctx, params: types.GetPromptRequestParams) -> JSON:
        absent = RpcError(INVALID_PARAMS, f"No prompt {params.name!r} is available to this caller.")
        key, channel = f"prompt.{params.name}", self._channel(ctx, params)
        result = await self._run(self._asking_view(ctx, channel), key, dict(params.arguments or {}), channel, absent)
        if not isinstance(result, ToolResult):
            return result
        roles: Any = result.structured
        messages = [
            {"role": role, "content": mcp_content(block)} for role, block in zip(roles, result.content, strict=True)
        ]
        return complete(ctx, {"messages": messages})

    async def complete(self, ctx: Ctx, params: types.CompleteRequestParams) -> JSON:
        named = params.ref.name if isinstance(params.ref, types.PromptReference) else params.ref.uri
        is_prompt = isinstance(params.ref, types.PromptReference)
        view = (await self._view(ctx))[1]
        visible = self._resources.prompts(view) if is_prompt else self._resources.resources(view)
        if not any((spec.name if isinstance(spec, PromptSpec) else spec.uri) == named for _, spec in visible):
            what = "prompt" if is_prompt else "resource"
            raise RpcError(INVALID_PARAMS, f"No {what} {named!r} is available to this caller.")
        words: list[str] = []
        for entry in view.tools():
            spec = self._resources.spec(entry)
            if isinstance(spec, CompletionSpec) and spec.completes(named, params.argument.name):
                known = entry.spec.input_schema.get("properties", {})
                others = {} if params.context is None else (params.context.arguments or {})
                context = {name: value for name, value in others.items() if name in known and name != "value"}
                channel, words_of = ClientChannel({}), {**context, "value": params.argument.value}
                result = await self._run(self._asking_view(ctx, channel), entry.qualified_id, words_of, channel)
                structured: Any = result.structured if isinstance(result, ToolResult) else None
                words.extend(str(word) for word in structured or ())
        shown = words[:MCP_SUGGESTIONS]
        completion = {"values": shown, "total": len(words), "hasMore": len(words) > len(shown)}
        return complete(ctx, {"completion": completion})

    async def _run(
        self, view: View, key: str, arguments: JSON, channel: ClientChannel, absent: RpcError | None = None
    ) -> ToolResult | JSON:
        result = await isolated(self._gateway.run(view, key, arguments, channel, absent=absent))
        if isinstance(result, ToolResult) and result.error is not None:
            error = result.error
            code = INVALID_PARAMS if error.kind == "invalid_arguments" else INTERNAL_ERROR
            raise RpcError(code, error.message, {"kind": error.kind, "retryable": error.retryable})
        return result

    # -- subscriptions of the earlier revisions

    async def subscribe(self, ctx: Ctx, params: types.SubscribeRequestParams) -> JSON:
        uri = str(params.uri)
        if await self._resources.find_resource(uri, (await self._view(ctx))[1]) is None:
            raise RpcError(INVALID_PARAMS, f"No resource {uri!r} is available to this caller.", {"uri": uri})
        self._sessions.subscribe(ctx, uri)
        return {}

    async def unsubscribe(self, ctx: Ctx, params: types.UnsubscribeRequestParams) -> JSON:
        self._sessions.unsubscribe(ctx, str(params.uri))
        return {}


def _resource(spec: ResourceSpec, uri_key: str) -> JSON:
    shown = {"name": spec.name, "title": spec.title, "description": spec.description, "mimeType": spec.mime_type}
    return _without_empty({uri_key: spec.uri, **shown, "icons": list(spec.icons), "_meta": spec.meta})


def _prompt(spec: PromptSpec) -> JSON:
    arguments = [
        _without_empty({"name": one.name, "description": one.description, "required": one.is_required})
        for one in spec.arguments
    ]
    shown = {"name": spec.name, "title": spec.title, "description": spec.description, "arguments": arguments}
    return _without_empty({**shown, "icons": list(spec.icons), "_meta": spec.meta})


def _without_empty(shown: JSON) -> JSON:
    return {key: value for key, value in shown.items() if value not in (None, "", [])}


def _contents(uri: str, spec: ResourceSpec, block: Content, result: ToolResult) -> JSON:
    """Return one part of a resource's contents."""
    match block:
        case TextContent(text):
            plain = "application/json" if result.has_structured else "text/plain"
            return {"uri": uri, "mimeType": spec.mime_type or plain, "text": text}
        case ImageContent(data, mime_type) | AudioContent(data, mime_type):
            blob = base64.b64encode(data).decode()
            return {"uri": uri, "mimeType": spec.mime_type or mime_type, "blob": blob}
        case ResourceContent():
            inner: JSON = mcp_content(block)["resource"]
            return {**inner, "uri": uri, **({"mimeType": spec.mime_type} if spec.mime_type else {})}
        case _:
            raise RpcError(INTERNAL_ERROR, f"The resource {uri!r} gave a link; it must give contents.")
