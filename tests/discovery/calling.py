"""Calling: a profile's meta tools, asked as a model does."""

from __future__ import annotations

from typing import Any

from pegboard import Catalog, ToolContext, View


def view_of(catalog: Catalog, ctx: ToolContext | None = None, *, profile: str = "all") -> View:
    return catalog.exposed(catalog.view(ctx or ToolContext(), profile=profile))


async def say(catalog: Catalog, tool: str, *, ctx: ToolContext | None = None, **arguments: Any) -> dict[str, Any]:
    """Call a meta tool; return the object that it answers."""
    result = await view_of(catalog, ctx).call(tool, arguments)
    assert result.error is None, result
    assert isinstance(result.structured, dict)
    return result.structured


async def use(catalog: Catalog, *calls: Any, ctx: ToolContext | None = None, **more: Any) -> dict[str, Any]:
    return await say(catalog, "useTools", ctx=ctx, calls=list(calls), **more)
