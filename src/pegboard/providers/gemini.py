"""Gemini: a tool as a function declaration with a JSON Schema."""

from __future__ import annotations

from pegboard.model.json_types import JSON
from pegboard.model.tool import ToolEntry


def gemini_tool(entry: ToolEntry, name: str, schema: JSON) -> JSON:
    """Return `{name, description, parametersJsonSchema}`."""
    described = {"description": entry.spec.description} if entry.spec.description else {}
    return {"name": name, **described, "parametersJsonSchema": schema}
