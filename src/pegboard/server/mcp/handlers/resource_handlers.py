"""ResourceHandlers: resources, prompts and completions over MCP, on what the catalog has of them."""

from __future__ import annotations

import base64
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server

from pegboard.core.view import View
from pegboard.model.json_types import JSON
from pegboard.model.result import AudioContent, Content, ImageContent, ResourceContent, TextContent, ToolResult
from pegboard.providers.mcp import mcp_content
from pegboard.resources import CompletionSpec, PromptSpec, ResourceSpec
from pegboard.resources.skills import SCHEME
from pegboard.server.gateway import INTERNAL_ERROR, INVALID_PARAMS, Gateway, RpcError
from pegboard.server.mcp.asking.client_channel import ClientChannel
from pegboard.server.mcp.handlers.lists import Lists
from pegboard.server.mcp.handlers.skill_handlers import SkillHandlers, skill_contents
from pegboard.server.mcp.limits import LIST_TTL_MS
from pegboard.server.mcp.protocol.capabilities import has_resources
from pegboard.server.mcp.sdk_handlers import Principals, ToolHandlers, complete, hops_of, isolated
from pegboard.server.sealing import Sealing

MCP_SUGGESTIONS = 100  # of one completion; the protocol's own limit

Ctx = ServerRequestContext[Any, Any]


class ResourceHandlers:
    """resources/*, prompts/* and completion/complete."""

    def __init__(
        self, gateway: Gateway, lists: Lists, sealing: Sealing, *, tools: ToolHandlers, principals: Principals
    ) -> None:
        self._gateway, self._resources, self._lists, self._sealing = gateway, gateway.resources, lists, sealing
        self._channel, self._principal_of, self._session_of = tools.channel, principals.of, principals.session_of
        self._skills = SkillHandlers(lists, sealing, principals)
        self._is_registered = False

    def register(self, server: Server[Any]) -> None:
        """Add the handlers to a server, once there is one of them; until then nothing of it is announced."""
        if self._is_registered or not has_resources(self._gateway):
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
        self._skills.register(server)

    # -- lists

    async def _page(self, ctx: Ctx, params: types.PaginatedRequestParams, kind: str) -> JSON:
        principal = self._principal_of(ctx)
        return complete(
            ctx, await self._lists.resources_page(principal, self._sealing, params.cursor, kind=kind, hops=hops_of(ctx))
        )

    async def list_resources(self, ctx: Ctx, params: types.PaginatedRequestParams) -> JSON:
        return await self._page(ctx, params, "resources")

    async def list_templates(self, ctx: Ctx, params: types.PaginatedRequestParams) -> JSON:
        return await self._page(ctx, params, "resourceTemplates")

    async def list_prompts(self, ctx: Ctx, params: types.PaginatedRequestParams) -> JSON:
        return await self._page(ctx, params, "prompts")

    # -- one of them

    def _view(self, ctx: Ctx, channel: ClientChannel | None = None) -> View:
        """Return what the sender of a request may have; with a channel, to call on."""
        return self._gateway.resource_view(self._principal_of(ctx), channel)

    async def read(self, ctx: Ctx, params: types.ReadResourceRequestParams) -> JSON:
        uri = str(params.uri)
        absent = RpcError(INVALID_PARAMS, f"No resource {uri!r} is available to this caller.", {"uri": uri})
        if (skill_file := await self._skill_file(ctx, uri)) is not None:
            return complete(ctx, {"contents": [skill_file], "ttlMs": LIST_TTL_MS, "cacheScope": "private"})
        channel = await self._channel(ctx, params)
        view = self._view(ctx, channel)
        match = await self._resources.find_resource(uri, view)
        if match is None:
            raise absent
        key, spec, values = match
        result = await self._run(view, key, dict(values), channel, absent)
        if not isinstance(result, ToolResult):
            return result
        contents = [_with_interface(spec, _contents(uri, spec, block, result)) for block in result.content]
        return complete(ctx, {"contents": contents, "ttlMs": LIST_TTL_MS, "cacheScope": "private"})

    async def _skill_file(self, ctx: Ctx, uri: str) -> JSON | None:
        if not uri.startswith(SCHEME):
            return None
        return skill_contents(await self._lists.skills(self._principal_of(ctx)), uri)

    async def get_prompt(self, ctx: Ctx, params: types.GetPromptRequestParams) -> JSON:
        absent = RpcError(INVALID_PARAMS, f"No prompt {params.name!r} is available to this caller.")
        key, channel = f"prompt.{params.name}", await self._channel(ctx, params)
        result = await self._run(self._view(ctx, channel), key, dict(params.arguments or {}), channel, absent)
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
        view = self._view(ctx)
        snapshot = await view.prepared_snapshot()
        visible = (self._resources.prompts if is_prompt else self._resources.resources)(view, within=snapshot)
        if not any((spec.name if isinstance(spec, PromptSpec) else spec.uri) == named for _, spec in visible):
            what = "prompt" if is_prompt else "resource"
            raise RpcError(INVALID_PARAMS, f"No {what} {named!r} is available to this caller.")
        words: list[str] = []
        for entry in view.tools(within=snapshot):
            spec = self._resources.spec(entry)
            if isinstance(spec, CompletionSpec) and spec.completes(named, params.argument.name):
                known = entry.spec.input_schema.get("properties", {})
                others = {} if params.context is None else (params.context.arguments or {})
                context = {name: value for name, value in others.items() if name in known and name != "value"}
                channel, words_of = ClientChannel({}), {**context, "value": params.argument.value}
                channel.hops = hops_of(ctx)
                result = await self._run(self._view(ctx, channel), entry.qualified_id, words_of, channel)
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
            if error.kind == "not_found" and absent is not None:
                # One of a template that is not there reads as one that is nobody's.
                raise absent
            code = INVALID_PARAMS if error.kind == "invalid_arguments" else INTERNAL_ERROR
            raise RpcError(code, error.message, {"kind": error.kind, "retryable": error.retryable})
        return result

    # -- subscriptions of the earlier revisions

    async def subscribe(self, ctx: Ctx, params: types.SubscribeRequestParams) -> JSON:
        uri = str(params.uri)
        is_known = await self._skill_file(ctx, uri) is not None
        if not is_known and await self._resources.find_resource(uri, await self._view(ctx).prepare()) is None:
            raise RpcError(INVALID_PARAMS, f"No resource {uri!r} is available to this caller.", {"uri": uri})
        self._session_of(ctx).subscribe(uri)
        return {}

    async def unsubscribe(self, ctx: Ctx, params: types.UnsubscribeRequestParams) -> JSON:
        self._session_of(ctx).uris.discard(str(params.uri))
        return {}


def _with_interface(spec: ResourceSpec, contents: JSON) -> JSON:
    """Return contents with what a host must know to show them as an interface, such as what it may reach."""
    interface = (spec.meta or {}).get("ui")
    return {"_meta": {"ui": interface}, **contents} if interface else contents


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
            if block.meta:
                inner["_meta"] = {**dict(block.meta), **inner.get("_meta", {})}
            return {**inner, "uri": uri, **({"mimeType": spec.mime_type} if spec.mime_type else {})}
        case _:
            raise RpcError(INTERNAL_ERROR, f"The resource {uri!r} gave a link; it must give contents.")
