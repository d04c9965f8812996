"""Board: every tool as a peg, filled where the caller may use it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from starlette.responses import Response

from pegboard.core.view import View
from pegboard.discovery.exposure import ExposedView
from pegboard.discovery.finder import Found
from pegboard.model.decision import Code
from pegboard.model.tool import ToolEntry
from pegboard.server.console.decision_words import legend_of
from pegboard.server.console.frame import frame
from pegboard.server.console.natural_order import natural_key
from pegboard.server.console.pages import Pages
from pegboard.server.console.visit import Visit

PEG_NAME_CHARS = 80  # of a tool's name on its peg
BOARD_QUERY_CHARS = 200  # of a search
BOARD_HITS = 5  # tools that the agents' search would find, above the pegs


class Peg(NamedTuple):
    """A tool on the board; `asks` marks a visible tool that asks a person before every call.

    `connect` is the source that this person must connect to before a call; `None` if there is none.
    """

    name: str
    label: str
    code: Code
    asks: bool
    connect: str | None


class Rail(NamedTuple):
    """The pegs of one namespace."""

    namespace: str
    pegs: Sequence[Peg]
    visible: int


class BoardPage:
    """`/console`: the pegs by namespace, and a search in them."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages

    async def show(self, visit: Visit) -> Response:
        view, query = visit.view(), visit.query.get("q", "").strip()[:BOARD_QUERY_CHARS]
        found = await _search_result(visit, view, query) if query else None
        shown = [pair for pair in await pegs_of(visit, view) if not query or _matches(pair[0], query)]
        pegs = [peg for _, peg in shown]
        rails = list(_rails(pegs, [entry.spec.namespace for entry, _ in shown]))
        hidden = sum(peg.code != "visible" for peg in pegs)
        exposed = visit.gateway.catalog.exposed(view)
        values = {
            "rails": rails,
            "q": query, "found": found, "legend": legend_of(peg.code for peg in pegs),
            "visible": len(pegs) - hidden, "hidden": hidden,
            "asking": sum(peg.asks for peg in pegs),
            "mode": exposed.mode if isinstance(exposed, ExposedView) else "direct",
            "is_catalog_empty": not view.snapshot.entries,
        }  # fmt: skip
        return self._pages.streamed("board.html", {**frame(visit, "board"), **values})


async def pegs_of(visit: Visit, view: View) -> list[tuple[ToolEntry, Peg]]:
    """Return the tools that this person may know of, each with its peg, by namespace and name."""
    shown, codes = await _shown(visit, view)
    pegs = [(entry, _peg(entry, codes.get(name, "visible"), view)) for name, entry in shown.items()]
    return sorted(pegs, key=lambda pair: (natural_key(pair[0].spec.namespace), natural_key(pair[1].name)))


async def codes_of(visit: Visit, view: View) -> dict[str, Code]:
    """Return the code of each tool that this person may know of, in no order."""
    shown, codes = await _shown(visit, view)
    return {name: codes.get(name, "visible") for name in shown}


async def _shown(visit: Visit, view: View) -> tuple[dict[str, ToolEntry], dict[str, Code]]:
    """Return the tools that this person may know of, and the codes; a tool without a code is visible."""
    if visit.is_operator:
        codes = await view.acodes()
        return {entry.wire_name: entry for entry in (*view.snapshot.entries, *view.tools())}, codes
    return {entry.wire_name: entry for entry in await view.atools()}, {}


def _peg(entry: ToolEntry, code: Code, view: View) -> Peg:
    name = entry.wire_name
    is_asking = code == "visible" and asks_first(entry)
    label = name if len(name) <= PEG_NAME_CHARS else f"{name[:PEG_NAME_CHARS]}…"
    return Peg(name, label, code, is_asking, view.connects_first(entry) if code == "visible" else None)


def asks_first(entry: ToolEntry) -> bool:
    """Tell whether a person may be asked before a call of this tool."""
    return entry.asks_because is not None or callable(entry.spec.consent)


def _rails(pegs: Sequence[Peg], namespaces: Sequence[str]) -> Iterator[Rail]:
    """Yield the rails in order; `namespaces` has the namespace of each peg."""
    for namespace, pairs in groupby(zip(namespaces, pegs, strict=True), key=lambda pair: pair[0]):
        those = [peg for _, peg in pairs]
        yield Rail(namespace, those, sum(peg.code == "visible" for peg in those))


async def _search_result(visit: Visit, view: View, query: str) -> Found:
    """Return the result of an agent's search; the search index does not learn from people who look."""
    [found] = await visit.gateway.catalog.discovery.finder.search(view, [query], limit=BOARD_HITS)
    return found


def _matches(entry: ToolEntry, query: str) -> bool:
    """Tell whether all words of the query are in the name, the title or the description."""
    spec = entry.spec
    text = f"{entry.qualified_id} {entry.wire_name} {spec.title or ''} {spec.description}".casefold()
    return all(word in text for word in query.casefold().split())
