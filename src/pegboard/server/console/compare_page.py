"""Compare page: two callers side by side: the tools that only one of them may use, and why."""

from __future__ import annotations

from typing import NamedTuple

from starlette.responses import Response

from pegboard.core.view import View
from pegboard.model.decision import Code
from pegboard.server.console.board import codes_of
from pegboard.server.console.decision_words import explanation_of
from pegboard.server.console.frame import frame
from pegboard.server.console.natural_order import natural_key
from pegboard.server.console.page_error import no_such_profile
from pegboard.server.console.pages import Pages
from pegboard.server.console.visit import Lens, Visit

OTHER = "b_"
"""The prefix of the second caller's fields in the address of the page."""
EXPLAINED_TOOLS = 100  # differing tools with a reason and a fix; the rest has codes alone


class Side(NamedTuple):
    """One of the two callers: the fields of its form, its name, and the number of tools that it may use."""

    prefix: str
    title: str
    lens: Lens
    profile: str | None
    whose: str
    visible: int


class Difference(NamedTuple):
    """A tool that the callers see differently, with both codes and what would change the hidden side."""

    name: str
    codes: tuple[Code, Code]
    reasons: tuple[str, str]
    fixes: tuple[str, str]


class ComparePage:
    """`/console/compare`: an operator compares any two callers, a person two of their own profiles."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages

    async def show(self, visit: Visit) -> Response:
        other = Lens.of(visit.query, OTHER)
        if not visit.is_operator:
            other = Lens(profile=other.profile)
        if other.profile and other.profile not in visit.profiles:
            raise no_such_profile(other.profile, visit.profiles, is_operator=visit.is_operator)
        if not other.query():
            # Nothing is chosen yet: the next profile is a useful start.
            other = Lens(profile=next((one for one in visit.profiles if one != visit.looks_as.profile), ""))
        principals = (visit.looks_as, visit.through(other))
        first, second = (visit.view(principal) for principal in principals)
        codes = await codes_of(visit, first), await codes_of(visit, second)
        names = sorted(
            (name for name in codes[0] | codes[1] if codes[0].get(name) != codes[1].get(name)), key=natural_key
        )
        values = {
            "sides": [
                Side(prefix, title, lens, principal.profile, lens.whose or "you", [*each.values()].count("visible"))
                for prefix, title, lens, principal, each in zip(
                    ("", OTHER), ("First caller", "Second caller"), (visit.lens, other), principals, codes, strict=True
                )
            ],
            "differences": [
                await _difference(name, (first, second), codes, is_explained=place < EXPLAINED_TOOLS)
                for place, name in enumerate(names)
            ],
            "same": len(codes[0] | codes[1]) - len(names),
            "swapped": visit.address("/compare", {**other.query(), **visit.lens.query(OTHER)}),
        }  # fmt: skip
        return self._pages.streamed("compare.html", {**frame(visit, "compare"), **values})


async def _difference(
    name: str, views: tuple[View, View], codes: tuple[dict[str, Code], dict[str, Code]], *, is_explained: bool
) -> Difference:
    shown = (codes[0].get(name, "unknown"), codes[1].get(name, "unknown"))
    reasons, fixes = ["", ""], ["", ""]
    for place, (view, code) in enumerate(zip(views, shown, strict=True)):
        if is_explained and code not in ("visible", "unknown"):
            explained = explanation_of(await view.awhy(name))
            reasons[place], fixes[place] = explained.reason, explained.fix
    return Difference(name, shown, (reasons[0], reasons[1]), (fixes[0], fixes[1]))
