"""Resource wire: requests for a server's resources, prompts and completions, and their answers."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import mcp_types as types
from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError
from pydantic import TypeAdapter, ValidationError

from pegboard.model.error import CallError
from pegboard.model.json_types import JSON
from pegboard.model.result import ResourceContent, ToolResult
from pegboard.sources.foreign_text import cleaned
from pegboard.sources.mcp.http_transport import FAILED
from pegboard.sources.mcp.resource_links import AddressOf
from pegboard.sources.mcp.results import read_blocks
from pegboard.sources.mcp.server_settings import ServerSettings
from pegboard.sources.mcp.servers_behind import ServersBehind
from pegboard.sources.mcp.upstream_resources import Kind, ResourceRequest, UpstreamResources, What

MCP_COMPLETIONS = 100  # completions of one answer
MCP_COMPLETION_BYTES = 1_000  # bytes of one completion
MCP_RESOURCE_ERROR_BYTES = 500  # bytes of an error in place of lists

log = logging.getLogger("pegboard")
Page = Callable[..., Awaitable[Any]]


async def gather_resources(session: ClientSession, settings: ServerSettings, *, own_id: str = "") -> UpstreamResources:
    """Return the lists that the server supports. An invalid list is treated as empty and logged.

    Items that lead back to us, whose id is `own_id`, are left out.

    Raises:
        CallError: the server is unreachable.
    """
    capabilities = session.server_capabilities
    if capabilities is None:
        return UpstreamResources()
    ways: dict[tuple[Kind, str], tuple[str, ...]] = {}

    async def listed(page: Page, key: str, kind: Kind, wire_key: str, named_by: str) -> list[JSON]:
        behind = ServersBehind(own_id, key=wire_key)
        items = await _pages(page, key, settings, behind)
        reachable = [item for item in items if behind.fault_of(item[named_by]) is None]
        ways.update({(kind, item[named_by]): way for item in reachable if (way := behind.of(item[named_by]))})
        return reachable

    resources: list[JSON] = []
    templates: list[JSON] = []
    prompts: list[JSON] = []
    if capabilities.resources:
        resources = await listed(session.list_resources, "resources", "resource", "resources", "uri")
        templates = await listed(
            session.list_resource_templates, "resource_templates", "template", "resourceTemplates", "uriTemplate"
        )
    if capabilities.prompts:
        prompts = await listed(session.list_prompts, "prompts", "prompt", "prompts", "name")
    completes = capabilities.completions is not None
    reads = capabilities.resources is not None
    return UpstreamResources(
        resources=resources, templates=templates, prompts=prompts, completes=completes, ways=ways, reads=reads
    )


async def _pages(page: Page, key: str, settings: ServerSettings, behind: ServersBehind) -> list[JSON]:
    items: list[JSON] = []
    cursors: list[str | None] = [None]
    try:
        while True:
            cursor = cursors[-1]
            params = None if cursor is None else types.PaginatedRequestParams(cursor=cursor)
            answer = await page(params=params)
            behind.take(answer.meta)
            items += [each.model_dump(mode="json", by_alias=True, exclude_none=True) for each in getattr(answer, key)]
            following: str | None = answer.next_cursor
            bounds = settings.bounds
            if following is None or following in cursors:
                break
            if len(items) >= bounds.upstream_tools or len(cursors) >= bounds.upstream_pages:
                break
            cursors.append(following)
    except MCPError as error:
        if error.code in (FAILED, types.CONNECTION_CLOSED):
            raise CallError("upstream_lost", f"{settings.name!r} was lost while it listed its {key}.") from None
        if error.code != types.METHOD_NOT_FOUND:
            text = settings.without_secrets(error.message, max_bytes=MCP_RESOURCE_ERROR_BYTES)
            log.warning("MCP server %r did not list its %s: %s", settings.name, key, text)
    except ValidationError:
        log.warning("MCP server %r sent a list of %s that breaks the protocol.", settings.name, key)
        return []
    return items[: settings.bounds.upstream_tools]


def wire_request(
    request: ResourceRequest, tool: str, server: str, address_of: AddressOf
) -> tuple[Callable[..., Any], TypeAdapter[Any], Callable[[Any], ToolResult]]:
    """Return the request function (given answers to questions), the type of its answer, and its reader."""
    form = _FORMS[request.what]
    return partial(form.write, request), form.answer, lambda answer: form.read(answer, tool, server, address_of)


def _read_request(request: ResourceRequest, **answers: Any) -> types.ReadResourceRequest:
    return types.ReadResourceRequest(params=types.ReadResourceRequestParams(uri=request.named, **answers))


def _prompt_request(request: ResourceRequest, **answers: Any) -> types.GetPromptRequest:
    params = types.GetPromptRequestParams(name=request.named, arguments=dict(request.args), **answers)
    return types.GetPromptRequest(params=params)


def _completion_request(request: ResourceRequest) -> types.CompleteRequest:
    others = {name: value for name, value in request.args.items() if name != "value"}
    params = types.CompleteRequestParams(
        ref=types.PromptReference(name=request.named)
        if request.is_prompt
        else types.ResourceTemplateReference(uri=request.named),
        argument=types.CompletionArgument(name=request.argument, value=request.args["value"]),
        context=types.CompletionContext(arguments=others) if others else None,
    )
    return types.CompleteRequest(params=params)


def _contents(answer: types.ReadResourceResult, tool: str, server: str, address_of: AddressOf) -> ToolResult:
    embedded = [types.EmbeddedResource(type="resource", resource=part) for part in answer.contents]
    blocks = read_blocks(embedded, tool, server, address_of)
    return ToolResult(tuple(block for block in blocks if isinstance(block, ResourceContent)))


def _messages(answer: types.GetPromptResult, tool: str, server: str, address_of: AddressOf) -> ToolResult:
    blocks = read_blocks([message.content for message in answer.messages], tool, server, address_of)
    return ToolResult(blocks, [message.role for message in answer.messages], has_structured=True)


def _words(answer: types.CompleteResult, _tool: str, _server: str, _address_of: AddressOf) -> ToolResult:
    words = [cleaned(word, max_bytes=MCP_COMPLETION_BYTES) for word in answer.completion.values[:MCP_COMPLETIONS]]
    return ToolResult((), words, has_structured=True)


class _Form(NamedTuple):
    """The request, answer type and reader for one kind of offer."""

    write: Callable[..., Any]
    answer: TypeAdapter[Any]
    read: Callable[[Any, str, str, AddressOf], ToolResult]


_FORMS: Mapping[What, _Form] = {
    "read": _Form(_read_request, TypeAdapter(types.ReadResourceResult | types.InputRequiredResult), _contents),
    "prompt": _Form(_prompt_request, TypeAdapter(types.GetPromptResult | types.InputRequiredResult), _messages),
    "complete": _Form(_completion_request, TypeAdapter(types.CompleteResult), _words),
}
