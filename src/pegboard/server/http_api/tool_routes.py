"""ToolRoutes: list a caller's tools, show one, search, and explain why a tool is available or not."""

from __future__ import annotations

import re

from pegboard.core.call.resolve import callable_tool
from pegboard.core.digests import digest
from pegboard.core.view import View
from pegboard.discovery.call_needs import needs_of
from pegboard.discovery.limits import SEARCH_USUAL_HITS
from pegboard.model.decision import Decision
from pegboard.model.json_types import JSON
from pegboard.model.tool import ToolEntry
from pegboard.providers.mcp import mcp_tool
from pegboard.server.event_hub import owner_of
from pegboard.server.health import OPERATOR
from pegboard.server.http_api.api_app import Api, ApiRequest
from pegboard.server.http_api.limits import API_FOUND_TOOLS, API_MOST_PAGE_TOOLS, API_PAGE_TOOLS, API_QUERY_CHARS
from pegboard.server.http_api.problem_details import ProblemError, not_found
from pegboard.server.http_api.responses import Reply, json_reply
from pegboard.server.sealing import UnknownCursorError

_LIMIT = re.compile(r"[0-9]{1,4}")


class ToolRoutes:
    """GET /v1/tools, /v1/tools/{name} and /v1/tools/{name}/why."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def list(self, request: ApiRequest) -> Reply:
        """Return one page of the caller's tools."""
        size = _size(request.query.get("limit"))
        view = self._api.gateway.view(request.principal)
        tools = await view.atools()
        owner = [*owner_of(request.principal, view.ctx), request.principal.profile]
        generation = digest([(entry.wire_name, entry.fingerprint) for entry in tools])
        cursor = request.query.get("cursor")
        try:
            page = self._api.sealing.page("http", owner, generation, size=size, length=len(tools), cursor=cursor)
        except UnknownCursorError:
            raise not_found("Unknown cursor, or the list has changed. Start again without a cursor.") from None
        more = {} if page.next_cursor is None else {"nextCursor": page.next_cursor}
        return json_reply({"tools": [_form(entry, view) for entry in tools[page.first : page.end]], **more})

    async def show(self, request: ApiRequest) -> Reply:
        """Return one tool, as it appears in the list."""
        view, name = self._view(request), request.path["name"]
        entry = await callable_tool(view, name)
        if entry is None:
            raise absent(view, name)
        await view.aconnects_first(entry)
        return json_reply(_form(entry, view))

    async def why(self, request: ApiRequest) -> Reply:
        """Return the decision on one name; only operators learn more about a hidden tool than about an unknown name."""
        view, name = self._view(request), request.path["name"]
        if OPERATOR in view.ctx.roles or await callable_tool(view, name) is not None:
            decision = await view.awhy(name)
        else:
            decision = Decision("unknown", absent(view, name).detail)
        return json_reply({
            "name": name, "profile": request.principal.profile, "visible": decision.visible, "code": decision.code,
            "reason": decision.reason, "fix": decision.fix and decision.fix._asdict(), "next": decision.next,
            "nextReason": decision.next_reason, "callable": decision.callable,
            "asks": decision.asks,
            "blocked": decision.blocked and decision.blocked.as_json(),
        })  # fmt: skip

    async def search(self, request: ApiRequest) -> Reply:
        """Return the caller's tools that match a request; also its namespaces if no tool matches."""
        query = request.query.get("q", "")
        if not 0 < len(query) <= API_QUERY_CHARS:
            raise ProblemError(400, "bad_request", f"q: a request of 1 to {API_QUERY_CHARS} characters is needed.")
        catalog, ctx = self._api.gateway.catalog, self._api.gateway.context(request.principal)
        view = await catalog.aview(ctx, profile=request.principal.profile)
        result = await catalog.search(
            view, query, limit=_size(request.query.get("limit"), usual=SEARCH_USUAL_HITS, most=API_FOUND_TOOLS)
        )
        hits = [
            {"score": hit.score, "confidence": hit.confidence, **_brief(_form(hit.entry, view))} for hit in result.tools
        ]
        near = {} if hits and not result.near_namespaces else {"nearest": result.near_namespaces}
        return json_reply({"query": query, "hits": hits, **near})

    def _view(self, request: ApiRequest) -> View:
        return self._api.gateway.view(request.principal)


def absent(view: View, name: str) -> ProblemError:
    """Return the answer for every name that this caller may not use, in the words of a call."""
    return not_found(view.absence(name))


def _form(entry: ToolEntry, view: View) -> JSON:
    """Return a tool in the form of MCP, marked with what it needs before a call."""
    return {**mcp_tool(entry), **needs_of(entry, view)}


def _brief(tool: JSON) -> JSON:
    return {key: tool[key] for key in ("name", "title", "description", "asks", "connect") if key in tool}


def _size(limit: str | None, *, usual: int = API_PAGE_TOOLS, most: int = API_MOST_PAGE_TOOLS) -> int:
    if limit is None:
        return usual
    if not _LIMIT.fullmatch(limit) or not 1 <= int(limit) <= most:
        raise ProblemError(400, "bad_request", f"limit={limit[:20]!r}: a number from 1 to {most} is needed.")
    return int(limit)
