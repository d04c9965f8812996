"""ResourceHandlers: resources, prompts and completions of the catalog over MCP."""

from __future__ import annotations

import base64
from collections.abc import Awaitable
from typing import Any

from pegboard.core.view import View
from pegboard.model.json_types import JSON
from pegboard.model.result import AudioContent, Content, ImageContent, ResourceContent, TextContent, ToolResult
from pegboard.providers.mcp import mcp_content
from pegboard.resources import CompletionSpec, PromptSpec, ResourceSpec
from pegboard.resources.skills import SCHEME
from pegboard.server.gateway import Gateway
from pegboard.server.mcp.asking.channels import channel_of
from pegboard.server.mcp.asking.client_channel import ClientChannel
from pegboard.server.mcp.handlers.lists import Lists
from pegboard.server.mcp.handlers.skill_handlers import skill_contents
from pegboard.server.mcp.limits import LIST_TTL_MS
from pegboard.server.mcp.protocol.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, RpcError, as_object
from pegboard.server.mcp.protocol.requests import McpRequest
from pegboard.server.sealing import Sealing

MCP_SUGGESTIONS = 100  # values in one completion; the protocol's own limit


class ResourceHandlers:
    """resources/*, prompts/* and completion/complete.

    Args:
        gateway: the catalog's answers.
        lists: serialises lists.
        sealing: seals cursors.
    """

    def __init__(self, gateway: Gateway, lists: Lists, sealing: Sealing) -> None:
        self._gateway, self._resources, self._lists, self._sealing = gateway, gateway.resources, lists, sealing

    # -- lists

    def _page(self, request: McpRequest, kind: str) -> Awaitable[JSON]:
        return self._lists.resources_page(
            request.principal, self._sealing, request.params.get("cursor"), kind=kind, hops=request.hops
        )

    def list_resources(self, request: McpRequest) -> Awaitable[JSON]:
        """Handle resources/list."""
        return self._page(request, "resources")

    def list_templates(self, request: McpRequest) -> Awaitable[JSON]:
        """Handle resources/templates/list."""
        return self._page(request, "resourceTemplates")

    def list_prompts(self, request: McpRequest) -> Awaitable[JSON]:
        """Handle prompts/list."""
        return self._page(request, "prompts")

    # -- one of them

    async def read(self, request: McpRequest) -> JSON:
        """Handle resources/read."""
        uri: str = request.params["uri"]
        if (skill_file := await self._skill_file(request, uri)) is not None:
            return {"contents": [skill_file], "ttlMs": LIST_TTL_MS, "cacheScope": "private"}
        channel = channel_of(request)
        view = self._gateway.resource_view(request.principal, channel)
        match = await self._resources.find_resource(uri, view)
        if match is None:
            raise _no_resource(uri)
        key, spec, values = match
        result = await self._run(view, key, dict(values), channel, _no_resource(uri))
        if not isinstance(result, ToolResult):
            return result
        contents = [_with_interface(spec, _contents(uri, spec, block, result)) for block in result.content]
        return {"contents": contents, "ttlMs": LIST_TTL_MS, "cacheScope": "private"}

    async def _skill_file(self, request: McpRequest, uri: str) -> JSON | None:
        if not uri.startswith(SCHEME):
            return None
        return skill_contents(await self._lists.skills(request.principal), uri)

    async def get_prompt(self, request: McpRequest) -> JSON:
        """Handle prompts/get."""
        name, channel = request.params["name"], channel_of(request)
        absent = RpcError(INVALID_PARAMS, f"No prompt {name!r} is available to this caller.")
        view, arguments = self._gateway.resource_view(request.principal, channel), request.params.get("arguments")
        key = await self._resources.find_prompt(name, view)
        result = await self._run(view, key, dict(arguments or {}), channel, absent)
        if not isinstance(result, ToolResult):
            return result
        roles: Any = result.structured
        messages = [
            {"role": role, "content": mcp_content(block)} for role, block in zip(roles, result.content, strict=True)
        ]
        return {"messages": messages}

    async def complete(self, request: McpRequest) -> JSON:
        """Handle completion/complete."""
        params = request.params
        is_prompt = params["ref"]["type"] == "ref/prompt"
        named, argument = params["ref"]["name" if is_prompt else "uri"], params["argument"]
        view = self._gateway.resource_view(request.principal)
        snapshot = await view.prepared_snapshot()
        visible = (self._resources.prompts if is_prompt else self._resources.resources)(view, within=snapshot)
        if not any((spec.name if isinstance(spec, PromptSpec) else spec.uri) == named for _, spec in visible):
            what = "prompt" if is_prompt else "resource"
            raise RpcError(INVALID_PARAMS, f"No {what} {named!r} is available to this caller.")
        others: JSON = as_object((as_object(params.get("context")) or {}).get("arguments")) or {}
        words: list[str] = []
        for entry in view.tools(within=snapshot):
            spec = self._resources.spec(entry)
            if isinstance(spec, CompletionSpec) and spec.completes(named, argument["name"]):
                known = entry.spec.input_schema.get("properties", {})
                context = {name: value for name, value in others.items() if name in known and name != "value"}
                channel = ClientChannel({})
                channel.hops = request.hops
                calling = self._gateway.resource_view(request.principal, channel)
                values = {**context, "value": argument["value"]}
                result = await self._run(calling, entry.qualified_id, values, channel)
                structured: Any = result.structured if isinstance(result, ToolResult) else None
                words.extend(str(word) for word in structured or ())
        shown = words[:MCP_SUGGESTIONS]
        return {"completion": {"values": shown, "total": len(words), "hasMore": len(words) > len(shown)}}

    async def _run(
        self, view: View, key: str, arguments: JSON, channel: ClientChannel, absent: RpcError | None = None
    ) -> ToolResult | JSON:
        result = await self._gateway.run(view, key, arguments, channel, absent=absent)
        if isinstance(result, ToolResult) and result.error is not None:
            error = result.error
            if error.kind == "not_found" and absent is not None:
                # A missing resource of a template reads like one this caller may not have.
                raise absent
            code = INVALID_PARAMS if error.kind == "invalid_arguments" else INTERNAL_ERROR
            raise RpcError(code, error.message, {"kind": error.kind, "retryable": error.retryable})
        return result

    # -- subscriptions of earlier revisions

    async def subscribe(self, request: McpRequest) -> JSON:
        """Handle resources/subscribe."""
        uri: str = request.params["uri"]
        view = self._gateway.resource_view(request.principal)
        is_known = await self._skill_file(request, uri) is not None
        if not is_known and await self._resources.find_resource(uri, await view.prepare()) is None:
            raise _no_resource(uri)
        request.session.subscribe(uri)
        return {}

    async def unsubscribe(self, request: McpRequest) -> JSON:
        """Handle resources/unsubscribe."""
        request.session.uris.discard(request.params["uri"])
        return {}


def _no_resource(uri: str) -> RpcError:
    return RpcError(INVALID_PARAMS, f"No resource {uri!r} is available to this caller.", {"uri": uri})


def _with_interface(spec: ResourceSpec, contents: JSON) -> JSON:
    """Return contents with the `_meta` a host needs to show them as an interface, such as allowed hosts."""
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
            raise RpcError(INTERNAL_ERROR, f"The resource {uri!r} returned a link; it must return contents.")
