"""What the tests of the doors in share: a catalog for one tool, and a call on it."""

import types
from collections.abc import Callable
from typing import Any

from pegboard import Catalog, Tool, ToolContext, ToolResult, ToolSpec


def make_class(base: type[Tool] = Tool, *, name: str = "A", body: dict[str, Any] | None = None, **said: Any) -> Any:
    """Return a class tool that is on no catalog; `body` are its attributes, `said` its class keywords."""
    inside = {"__module__": __name__, **(body or {})}
    return types.new_class(name, (base,), {"register": False, **said}, lambda namespace: namespace.update(inside))


def problems(result: ToolResult) -> list[Any]:
    """Return the problems that an error tells."""
    assert result.error is not None
    found = result.error.details["problems"]
    assert isinstance(found, list)
    return found


def paths(result: ToolResult) -> list[str]:
    """Return the places of these problems."""
    return [problem["path"] for problem in problems(result)]


def catalog_of(*tools: Any) -> Catalog:
    """Return a catalog with these classes and functions."""
    catalog = Catalog()
    for tool in tools:
        if isinstance(tool, type) and issubclass(tool, Tool):
            catalog.register(tool)
        else:
            catalog.tool(tool)
    return catalog


async def call(tool: Any, args: Any = None, ctx: ToolContext | None = None) -> ToolResult:
    """Call the only tool of a catalog."""
    catalog = tool if isinstance(tool, Catalog) else catalog_of(tool)
    view = catalog.view(ctx or ToolContext())
    return await view.call(view.names()[0], args or {})


def schema(tool: Any) -> Any:
    """Return the input schema of the only tool of a catalog."""
    view = catalog_of(tool).view(ToolContext())
    return view.schema(view.names()[0])


def only_spec(fn: Callable[..., Any], **options: Any) -> ToolSpec:
    """Return the declaration of a function."""
    catalog = Catalog()
    catalog.tool(**options)(fn)
    return catalog.snapshot().entries[0].spec
