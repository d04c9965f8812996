"""Anthropic: a tool as the messages API wants it."""

from __future__ import annotations

from pegboard.base.model import JSON, ToolEntry


def anthropic_tool(entry: ToolEntry) -> JSON:
    """Return `{name, description, input_schema}`, the schema as it was declared."""
    described = {"description": entry.spec.description} if entry.spec.description else {}
    return {"name": entry.wire_name, **described, "input_schema": entry.spec.input_schema}
