"""getTools: the schemas of named tools, as this caller may use them."""

from __future__ import annotations

import logging
from typing import Any

from pegboard.core.view import View
from pegboard.discovery.call_needs import needs_of, ways_to_connect
from pegboard.discovery.meta_tools.catalog_listing import CatalogListing, find, one_line
from pegboard.discovery.meta_tools.intent import without_intent, workspaces_of
from pegboard.discovery.meta_tools.shared import MetaTools
from pegboard.model.call_context import CallContext
from pegboard.model.error import CallError, PegboardError
from pegboard.model.json_types import JSON, JSONValue, is_list, is_object
from pegboard.model.tool import ToolEntry

DIGEST_FOLDERS = 5  # folders listed in addition to the tools

log = logging.getLogger("pegboard")
_ALL = ["*"]


async def get_tools(meta: MetaTools, ctx: CallContext, args: JSON) -> JSON:
    """Answer one request; unknown names are reported next to the tools found."""
    request: JSONValue = args.get("request")
    if not is_list(request) or not request:
        return {"success": False, "error": _request_required(meta)}
    try:
        answered = await _answered(meta, request)
    except CallError:
        raise
    except Exception as error:  # boundary: foreign code; the host's builders and predicates run in here
        log.warning("%s failed in call %s.", meta.names.get, ctx.call_id, exc_info=error)
        return {"success": False, "error": f"Error getting tools: {_safe_message(error, ctx)}"}
    return meta.answer(ctx, "get", {"request": request}, answered)


async def _answered(meta: MetaTools, request: list[JSONValue]) -> JSON:
    listing = CatalogListing.of(await meta.view.atools())
    shown: list[JSON] = []
    problems: list[str] = []
    for item in request:
        await _answer_item(item, meta, listing, shown, problems)
    payload: JSON = {"tools": shown, **await ways_to_connect(meta.view, shown)}
    if meta.require_context or meta.documents is not None:
        payload["workspaces"] = await workspaces_of(meta.view.ctx, meta.documents)
    if meta.documents is not None:
        scope = await meta.documents.scope(meta.view.ctx)
        payload["folders"] = await meta.documents.root_folders(scope, limit=DIGEST_FOLDERS)
    answered: JSON = {"success": True, "data": payload}
    return {**answered, "error": f"Some items not found: {', '.join(problems)}"} if problems else answered


async def _answer_item(
    item: JSONValue, meta: MetaTools, listing: CatalogListing, shown: list[JSON], problems: list[str]
) -> None:
    wanted: JSON = item if is_object(item) else {}
    agent: Any = wanted.get("agent", wanted.get("namespace"))
    if not isinstance(agent, str) or not agent.strip():
        problems.append('Missing or invalid "agent" field in request item')
        return
    if agent not in listing.agents:
        problems.append(listing.no_agent(agent))
        return
    # A request with the key `tool` asked for one tool; listing all tools would hide the wrong key.
    tools = wanted.get("tools", None if "tool" in wanted else _ALL)
    if not is_list(tools) or not tools:
        problems.append(f'Agent "{agent}" requires "tools" array with at least one tool name')
        return
    if tools == _ALL:
        shown.extend(brief(entry, meta.view) for entry in listing.agents[agent].values())
        return
    for tool in tools:
        match = await find(meta.view, tool, agent) if isinstance(tool, str) else None
        if match is None:
            problems.append(listing.no_tool(str(tool), agent))
        else:
            shown.append(full(match[1], meta.view))


def named(entry: ToolEntry, view: View) -> JSON:
    """Return the name of a tool, marked with what it needs before a call."""
    return {"agent": entry.spec.namespace, "tool": entry.spec.name, **needs_of(entry, view)}


def brief(entry: ToolEntry, view: View) -> JSON:
    """Return a tool in one line, without its schema."""
    return {**named(entry, view), "description": one_line(entry.spec.description)}


def full(entry: ToolEntry, view: View) -> JSON:
    """Return a tool in the form for calls through `useTools`."""
    spec = entry.spec
    schema = without_intent(spec.input_schema)
    return {**named(entry, view), "description": spec.description, "inputSchema": schema}


def _request_required(meta: MetaTools) -> str:
    example = '{ "request": [{ "agent": "files", "tools": ["list"] }] }'
    return f"Request array is required. Example: {example}. See tool description for available agents and tools."


def _safe_message(error: Exception, ctx: CallContext) -> str:
    """Return a safe error message: the redacted text of our own errors, a fixed text for others."""
    if not isinstance(error, PegboardError):
        return f"An unexpected error occurred (call {ctx.call_id})."
    return str(error) if ctx.redactor is None else ctx.redactor.text(str(error))
