"""Gemini: a tool as a function declaration with a JSON Schema."""

from __future__ import annotations

from pegboard.base.model import JSON, ToolEntry


def gemini_tool(entry: ToolEntry) -> JSON:
    """Return `{name, description, parametersJsonSchema}`, the schema as it was declared."""
    described = {"description": entry.spec.description} if entry.spec.description else {}
    return {"name": entry.wire_name, **described, "parametersJsonSchema": entry.spec.input_schema}
