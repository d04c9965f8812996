"""searchTools: find tools by what is needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

from pegboard.core.view import View
from pegboard.discovery.catalog_listing import told_back
from pegboard.discovery.get_tools import brief, full
from pegboard.discovery.meta_tools import MetaTools
from pegboard.discovery.search.finder import Finder, Found
from pegboard.model.bounds import SEARCH_ECHO_CHARS, SEARCH_HITS, SEARCH_QUERIES, SEARCH_USUAL_HITS
from pegboard.model.call_context import CallContext
from pegboard.model.json_types import JSON, JSONValue, is_list

Detail = Literal["name", "brief", "full"]
_EXAMPLE = '{ "queries": ["create an issue", "send an email"] }'


async def search_tools(meta: MetaTools, ctx: CallContext, args: JSON) -> JSON:
    """Answer up to five requests, each with what serves it or with nothing."""
    given: JSONValue = args.get("queries", args.get("query"))
    said = [given] if isinstance(given, str) else given
    if not is_list(said) or not said:
        return {"success": False, "error": f"queries array is required. Example: {_EXAMPLE}."}
    limit, detail = _limit(args.get("limit")), args.get("detail", "brief")
    problems = [] if detail in get_args(Detail) else [f'detail "{told_back(detail)}" is none of name, brief, full']
    if len(said) > SEARCH_QUERIES:
        problems.append(f"{len(said)} queries were given and {SEARCH_QUERIES} answered: ask the others apart")
    asked = [query for query in said[:SEARCH_QUERIES] if isinstance(query, str) and query.strip()]
    if len(asked) < len(said[:SEARCH_QUERIES]):
        problems.append("a query must be a text that says what is needed")
    shown = await answers(
        meta.finder, meta.view, asked, limit=limit, detail=detail if detail in get_args(Detail) else "brief"
    )
    answered: JSON = {"success": True, "data": {"results": shown}}
    if problems:
        answered["error"] = "; ".join(problems)
    return meta.answer(ctx, "search", {"queries": asked, "limit": limit, "detail": detail}, answered)


async def answers(
    finder: Finder, view: View, queries: Sequence[str], *, limit: int = SEARCH_USUAL_HITS, detail: Detail = "brief"
) -> list[JSON]:
    """Return the answer to each request in wire form: `{query, hits, nearest?}`, from the view's tools alone.

    A request that no tool serves has no hits; `nearest` then names the namespaces that come closest.
    """
    return [_shown(found, detail) for found in await finder.search(view, queries, limit=limit)]


def _shown(found: Found, detail: Detail) -> JSON:
    hits: list[JSON] = []
    for one in found.tools:
        if detail == "full":
            drawn = full(one.entry)
        elif detail == "brief":
            drawn = brief(one.entry)
        else:
            drawn = {"agent": one.entry.spec.namespace, "tool": one.entry.spec.name}
        hits.append({"agent": drawn.pop("agent"), "tool": drawn.pop("tool"), "score": one.score, **drawn})
    shown: JSON = {"query": told_back(found.query, chars=SEARCH_ECHO_CHARS), "hits": hits}
    if not hits:
        shown["nearest"] = list(found.near_namespaces)
    return shown


def _limit(said: Any) -> int:
    if isinstance(said, bool) or not isinstance(said, int | float):
        return SEARCH_USUAL_HITS
    return max(1, min(int(said), SEARCH_HITS))
