"""searchTools: find tools for a need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

from msgspec import to_builtins

from pegboard.core.json_text import json_bytes
from pegboard.core.view import View
from pegboard.discovery.call_needs import ways_to_connect
from pegboard.discovery.finder import Finder, Found
from pegboard.discovery.limits import SEARCH_QUERIES, SEARCH_USUAL_HITS
from pegboard.discovery.meta_tools.catalog_listing import echoed
from pegboard.discovery.meta_tools.get_tools import brief, full, named
from pegboard.discovery.meta_tools.intent import without_intent
from pegboard.discovery.meta_tools.shared import MetaTools
from pegboard.discovery.token_count import estimated_tokens
from pegboard.model.call_context import CallContext
from pegboard.model.json_types import JSON, JSONValue, is_list

SEARCH_ANSWER_TOKENS = 1_500  # a searchTools answer includes schemas up to so many tokens
SEARCH_SCHEMAS = 3  # hits of each query that may include schemas
SEARCH_HITS = 50  # hits of one query
SEARCH_ECHO_CHARS = 4_000  # characters of a query repeated in its answer; as many as the index reads

Detail = Literal["name", "brief", "full"]
_WEAK = (
    "No hit stands out: compare the descriptions and use the tool that does what is needed. If none does, search "
    "again with one need in each query, in the words of the task."
)
_NO_WORD = (
    "No tool here has a word of this request: these are only similar in letters or meaning, or represent their"
    " namespace. Use other words, or look at the tools of the namespaces under `nearest`."
)
_EXAMPLE = '{ "queries": ["create an issue", "send an email"] }'


async def search_tools(meta: MetaTools, ctx: CallContext, args: JSON) -> JSON:
    """Answer up to five requests, each with matching tools and the confidence in them."""
    raw: JSONValue = args.get("queries", args.get("query"))
    queries = [raw] if isinstance(raw, str) else raw
    if not is_list(queries) or not queries:
        return {"success": False, "error": f"queries array is required. Example: {_EXAMPLE}."}
    limit, detail = _limit(args.get("limit")), args.get("detail", "brief")
    problems = [] if detail in get_args(Detail) else [f'detail "{echoed(detail)}" is not one of name, brief, full']
    if len(queries) > SEARCH_QUERIES:
        problems.append(
            f"{len(queries)} queries were given and {SEARCH_QUERIES} answered: send the others in another search"
        )
    asked = [query for query in queries[:SEARCH_QUERIES] if isinstance(query, str) and query.strip()]
    if len(asked) < len(queries[:SEARCH_QUERIES]):
        problems.append("a query must be a string that describes what is needed")
    if not asked:
        return {"success": False, "error": f"{'; '.join(problems)}. Example: {_EXAMPLE}."}
    shown = await answers(
        meta.finder,
        meta.view,
        asked,
        limit=limit,
        detail=detail if detail in get_args(Detail) else "brief",
        taken=meta.names,
        notes=True,
    )
    hits = [hit for one in shown for hit in one["hits"]]
    answered: JSON = {"success": True, "data": {"results": shown, **await ways_to_connect(meta.view, hits)}}
    if problems:
        answered["error"] = "; ".join(problems)
    return meta.answer(ctx, "search", {"queries": asked, "limit": limit, "detail": detail}, answered)


async def answers(
    finder: Finder,
    view: View,
    queries: Sequence[str],
    *,
    limit: int = SEARCH_USUAL_HITS,
    detail: Detail = "brief",
    taken: Sequence[str] = (),
    notes: bool = False,
    explain: bool = False,
) -> list[JSON]:
    """Return the answer to each request in wire form: `{query, hits, note?, nearest?}`, from the view's tools only.

    `call` of a hit is its name in a call: the wire name, unless it is one of the `taken` names. `note` says that all
    hits are weak, or that meanings could not be compared. If no tool has a word of the request, `nearest` lists the
    closest namespaces, and the hits are those with the most similar spelling. With `notes` the search is recorded for
    learning, if the operator enabled it. With `explain` each hit has the `parts` of its score, and the answer the
    weights of its words.
    """
    found = await finder.search(view, queries, limit=limit, explain=explain)
    if notes:
        finder.note(view, found)
    shown = [_shown(answer, view, detail, taken) for answer in found]
    if detail == "brief":
        _add_schemas(shown, found)
    return shown


def _add_schemas(shown: Sequence[JSON], results: Sequence[Found]) -> None:
    """Add schemas to the first hits while there is room: the first hit of each request, then the second, the third."""
    size_bytes = sum(len(json_bytes(answer)) for answer in shown)
    for rank in range(SEARCH_SCHEMAS):
        for answer, one in zip(shown, results, strict=True):
            if rank >= len(one.tools):
                continue
            schema = without_intent(one.tools[rank].entry.spec.input_schema)
            more_bytes = len(json_bytes(schema))
            if estimated_tokens(size_bytes + more_bytes) <= SEARCH_ANSWER_TOKENS:
                size_bytes += more_bytes
                answer["hits"][rank]["inputSchema"] = schema


def _shown(answer: Found, view: View, detail: Detail, taken: Sequence[str]) -> JSON:
    hits: list[JSON] = []
    for one in answer.tools:
        if detail == "full":
            tool = full(one.entry, view)
        elif detail == "brief":
            tool = brief(one.entry, view)
        else:
            tool = named(one.entry, view)
        call = one.entry.qualified_id if one.entry.wire_name in taken else one.entry.wire_name
        head: JSON = {"agent": tool.pop("agent"), "tool": tool.pop("tool"), "call": call}
        hits.append({**head, "score": one.score, "confidence": one.confidence, **tool})
    shown: JSON = {"query": echoed(answer.query, chars=SEARCH_ECHO_CHARS), "hits": hits}
    is_weak = bool(hits) and hits[0]["confidence"] == "weak"
    notes = [_NO_WORD if answer.near_namespaces else _WEAK] if is_weak else []
    if answer.words_alone is not None:
        notes.append(f"Searched by words alone: {answer.words_alone}.")
    if notes:
        shown["note"] = " ".join(notes)
    if (why := answer.explanation) is not None:
        parts: JSON = to_builtins(why)
        for hit, part in zip(hits, parts.pop("hits"), strict=True):
            hit["parts"] = part
        shown["explained"] = parts
    if answer.near_namespaces or not hits:
        shown["nearest"] = list(answer.near_namespaces)
    return shown


def _limit(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return SEARCH_USUAL_HITS
    return max(1, min(int(value), SEARCH_HITS))
