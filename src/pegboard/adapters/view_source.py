"""View source: a View, or a function that makes one for the current caller of the agent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, cast

from pegboard.core.view import View
from pegboard.model.json_types import is_awaitable

ViewFactory: TypeAlias = "Callable[[Any], View | Awaitable[View]]"
"""Makes the View of one run from the framework's context; may be async."""


async def view_of(source: View | ViewFactory, run: object) -> View:
    """Return the View for one run, after answering the async predicates of its tools."""
    view = source(run) if callable(source) else source
    if is_awaitable(view):
        view = await view
    return await cast("View", view).prepare()
