"""Frame: the values that every page of a logged-in person needs: navigation, name, and the caller looked through."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pegboard.core.names import legal
from pegboard.server.console.visit import Visit
from pegboard.version import __version__


class Tab(NamedTuple):
    """A link of the navigation; `about` says what the page is for.

    Pages with `is_own` are about the server or the person who is logged in, whoever's eyes they look through.
    """

    name: str
    label: str
    path: str
    about: str
    is_for_operators: bool = False
    is_own: bool = False


class TabGroup(NamedTuple):
    """Links of the navigation below one title."""

    title: str
    tabs: tuple[Tab, ...]


_GROUPS = (
    TabGroup("Tools", (
        Tab("board", "Board", "", "every tool, and who may use it"),
        Tab("matrix", "Matrix", "/matrix", "tools against profiles", True),
        Tab("agents", "Agents", "/agents", "the agents, their tools, and which agent runs which", True),
    )),
    TabGroup("Now", (
        Tab("consents", "Consents", "/consents", "calls that wait for a decision", is_own=True),
        Tab("tasks", "Tasks", "/tasks", "long calls: stuck, running, done", is_own=True),
        Tab("live", "Live", "/live", "calls as they happen", is_own=True),
    )),
    TabGroup("Record", (
        Tab("usage", "Usage", "/usage", "calls, errors, latency and tokens over time", True),
        Tab("audit", "Audit", "/audit", "what was called, by whom, with what outcome", True, True),
    )),
    TabGroup("Connected", (
        Tab("sources", "Sources", "/sources", "servers, APIs, stores, and what the lock holds back", True, True),
        Tab("documents", "Documents", "/documents", "the files that agents search: read, upload, delete", is_own=True),
        Tab("connections", "Connections", "/connections", "your accounts at other services", is_own=True),
    )),
)  # fmt: skip
_OWN = frozenset(tab.name for group in _GROUPS for tab in group.tabs if tab.is_own)
_COMPARE = Tab("compare", "Two callers", "/compare", "what differs between two callers, and why")


def tabs_of(visit: Visit) -> tuple[Tab, ...]:
    """Return the pages that a person may open, those of the navigation first."""
    return (*(tab for group in _navigation(visit) for tab in group.tabs), _COMPARE)


def _navigation(visit: Visit) -> list[TabGroup]:
    groups = (
        group._replace(tabs=tuple(tab for tab in group.tabs if visit.is_operator or not tab.is_for_operators))
        for group in _GROUPS
    )
    return [group for group in groups if group.tabs]


def frame(visit: Visit, tab: str) -> Mapping[str, Any]:
    """Return the values of the layout for a page of this tab."""
    principal = visit.looks_as
    return {
        "visit": visit, "url": visit.url, "base": visit.base, "tab": tab, "groups": _navigation(visit),
        "is_own_page": tab in _OWN,
        "name": legal(visit.gateway.catalog.name), "version": __version__, "form_token": visit.form_token,
        "profile": principal.profile,
        "whose": visit.lens.whose or ("a caller" if visit.is_operator else "you"),
    }  # fmt: skip
