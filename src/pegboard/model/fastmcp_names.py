"""FastMCP names: what methods of FastMCP's server and context are called here, for the error about a missing one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_LOG: Final = "Use `ctx.log(message)`, or `await ctx.client.log(data)` to log to the client."
CONTEXT_NAMES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("debug", "info", "warning", "error"), _LOG),
    "report_progress": "Use `ctx.progress(fraction, message)`, with a fraction from 0 to 1.",
    "elicit": "Use `ctx.ask(question, schema=…)`, or `ctx.client.elicit(…)` for a form.",
    "sample": "Use `ctx.client.sample(prompt)`, if `ctx.client.can('sampling')`.",
    "list_roots": "Use `ctx.client.roots()`, if `ctx.client.can('roots')`.",
    "get_state": "The context has no session state: keep it in your own store, such as `ctx.services[…]`.",
    "set_state": "The context has no session state: keep it in your own store, such as `ctx.services[…]`.",
}
CATALOG_NAMES: Final[Mapping[str, str]] = {
    "run": "Use `run_stdio(catalog)` or `run_http(catalog)`, or the command `pegboard serve`.",
    "http_app": "Use `http_app(catalog)`.",
    "add_tool": "Use `catalog.tool(function)`.",
    "list_tools": "Use `catalog.view(context).names()`.",
    "call_tool": "Use `await catalog.view(context).call(name, arguments)`.",
    "mount": "Use `catalog.add_source(…)`.",
    "add_middleware": "Use hooks: `@catalog.before`, `around` and `after`.",
    "custom_route": "Mount `http_app(catalog)` in your own app.",
}


def missing_attribute(owner: object, name: str, known: Mapping[str, str]) -> AttributeError:
    """Return the error for a missing attribute; it names our form of an attribute that FastMCP has."""
    text = f"{type(owner).__name__!r} object has no attribute {name!r}"
    return AttributeError(f"{text}. {known[name]}" if name in known else text, name=name, obj=owner)
