"""Tools: list what a caller may use, show one tool, and tell why one can or cannot be used."""

from __future__ import annotations

import re

from pegboard.core.call import stages
from pegboard.core.digests import digest
from pegboard.core.judge import VISIBLE
from pegboard.core.view import View
from pegboard.model.decision import Decision
from pegboard.model.json_types import JSON
from pegboard.providers.mcp import mcp_tool
from pegboard.server.event_hub import owner_of
from pegboard.server.health import OPERATOR
from pegboard.server.http_api.api_app import Api, Asked
from pegboard.server.http_api.problem_details import ProblemError, not_found
from pegboard.server.http_api.responses import Reply, json_reply

PAGE_TOOLS = 100
MAX_PAGE_TOOLS = 1_000
MAX_FOUND = 50
MAX_QUERY_CHARS = 1_000
_LIMIT = re.compile(r"[0-9]{1,4}")


class Tools:
    """GET /v1/tools, /v1/tools/{name} and /v1/tools/{name}/why."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def list(self, asked: Asked) -> Reply:
        """Answer with one page of the caller's tools."""
        size = _size(asked.query.get("limit"))
        view = await self._api.desk.view(asked.visit)
        tools = view.tools()
        owner = [*owner_of(asked.visit, view.ctx), asked.visit.profile]
        generation = digest([(entry.wire_name, entry.fingerprint) for entry in tools])
        cursor = asked.query.get("cursor")
        first = 0 if cursor is None else self._api.cursors.open(cursor, owner, generation)
        page: JSON = {"tools": [mcp_tool(entry) for entry in tools[first : first + size]]}
        if first + size < len(tools):
            page["nextCursor"] = self._api.cursors.make(owner, generation, first + size)
        return json_reply(page)

    async def show(self, asked: Asked) -> Reply:
        """Answer with one tool, as the list has it."""
        view, name = self._view(asked), asked.path["name"]
        entry = await view.afind(name)
        if entry is None:
            raise absent(view, name)
        return json_reply(mcp_tool(entry))

    async def why(self, asked: Asked) -> Reply:
        """Answer with the decision on one name; for a hidden tool only operators get more than for an unknown name."""
        view, name = self._view(asked), asked.path["name"]
        if OPERATOR in view.ctx.roles:
            decision = await view.awhy(name)
        else:
            decision = VISIBLE if await view.afind(name) is not None else Decision("unknown", absent(view, name).detail)
        return json_reply({
            "name": name, "profile": asked.visit.profile, "visible": decision.visible, "code": decision.code,
            "reason": decision.reason, "fix": decision.fix and decision.fix._asdict(), "next": decision.next,
            "nextReason": decision.next_reason,
        })  # fmt: skip

    async def search(self, asked: Asked) -> Reply:
        """Answer with the caller's tools that serve a request; with the nearest namespaces when none does."""
        query = asked.query.get("q", "")
        if not 0 < len(query) <= MAX_QUERY_CHARS:
            raise ProblemError(400, "bad_request", f"q: a request of 1 to {MAX_QUERY_CHARS} characters is needed.")
        catalog, ctx = self._api.desk.catalog, self._api.desk.context(asked.visit)
        view = await catalog.aview(ctx, profile=asked.visit.profile)
        found = await catalog.search(view, query, limit=_size(asked.query.get("limit"), usual=8, most=MAX_FOUND))
        hits = [{"score": one.score, **_brief(mcp_tool(one.entry))} for one in found.tools]
        return json_reply({"query": query, "hits": hits, **({} if hits else {"nearest": found.near_namespaces})})

    def _view(self, asked: Asked) -> View:
        return self._api.desk.exposed(asked.visit, self._api.desk.context(asked.visit))


def absent(view: View, name: str) -> ProblemError:
    """Return the answer for every name that this caller may not use, in the words of a call."""
    return not_found(str(stages.not_found(name, view.hint(name))))


def _brief(tool: JSON) -> JSON:
    return {key: tool[key] for key in ("name", "title", "description") if key in tool}


def _size(said: str | None, *, usual: int = PAGE_TOOLS, most: int = MAX_PAGE_TOOLS) -> int:
    if said is None:
        return usual
    if not _LIMIT.fullmatch(said) or not 1 <= int(said) <= most:
        raise ProblemError(400, "bad_request", f"limit={said[:20]!r}: a number from 1 to {most} is needed.")
    return int(said)
