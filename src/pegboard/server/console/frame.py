"""Frame: the values that every page of a logged-in person needs: navigation, name, and the caller looked through."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pegboard.core.names import legal
from pegboard.server.console.visit import Visit
from pegboard.version import __version__


class Tab(NamedTuple):
    """A link of the navigation."""

    name: str
    label: str
    path: str


_TABS = (
    Tab("board", "Board", ""),
    Tab("consents", "Consents", "/consents"),
    Tab("tasks", "Tasks", "/tasks"),
    Tab("live", "Live", "/live"),
)
_OPERATOR_TABS = (
    Tab("matrix", "Matrix", "/matrix"),
    Tab("sources", "Sources", "/sources"),
    Tab("audit", "Audit", "/audit"),
)


def frame(visit: Visit, tab: str) -> Mapping[str, Any]:
    """Return the values of the layout for a page of this tab."""
    principal = visit.looks_as
    tabs = (*_TABS, *_OPERATOR_TABS) if visit.is_operator else _TABS
    return {
        "visit": visit, "url": visit.url, "base": visit.base, "tab": tab, "tabs": tabs, "version": __version__,
        "name": legal(visit.gateway.catalog.name), "form_token": visit.form_token, "profile": principal.profile,
        "whose": _whose(visit),
    }  # fmt: skip


def _whose(visit: Visit) -> str:
    """Return the caller whose tools a page shows, in words."""
    lens = visit.lens
    if not lens.is_of_another:
        return "a caller" if visit.is_operator else "you"
    parts = [lens.user or "somebody", f"in space {lens.space}" if lens.space else ""]
    return " ".join(filter(None, [*parts, f"with role {', '.join(lens.roles)}" if lens.roles else ""]))
