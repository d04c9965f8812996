"""Upstream tool: the entry of a tool that an MCP server behind us runs, whoever holds the connection."""

from __future__ import annotations

from pegboard.model.tool import Handler, ToolEntry, ToolSpec
from pegboard.sources.mcp.text_structure import structure_in_text


def upstream_tool(spec: ToolSpec, handler: Handler, *, source: str, reaches: str) -> ToolEntry:
    """Return the entry of a declared tool: foreign, one of a set, and read as structure where it came as text.

    `reaches` says which tool of which server a call reaches, see `ToolEntry`.
    """
    return ToolEntry(
        spec=spec,
        handler=handler,
        runs="async",
        source=source,
        reaches=reaches,
        is_foreign=True,
        is_toolset=True,
        reread=structure_in_text,
    )
