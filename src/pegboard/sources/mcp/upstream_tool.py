"""Upstream tool: the entry of a tool that an upstream MCP server runs."""

from __future__ import annotations

from pegboard.model.tool import Handler, OfferedTitles, ToolEntry, ToolSpec
from pegboard.sources.mcp.text_structure import structure_in_text


def upstream_tool(spec: ToolSpec, handler: Handler, *, source: str, reaches: str, offered: OfferedTitles) -> ToolEntry:
    """Return the entry of a declared tool: foreign, and part of a toolset.

    Structured output that a server sends as text only is parsed. `reaches` identifies the server and its tool, see
    `ToolEntry`. `offered` are the titles that the server wrote.
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
        offered=offered,
    )
