"""Anthropic: a tool as the messages API wants it."""

from __future__ import annotations

from pegboard.model.json_types import JSON
from pegboard.model.tool import ToolEntry


def anthropic_tool(entry: ToolEntry, name: str, schema: JSON) -> JSON:
    """Return `{name, description, input_schema}`."""
    described = {"description": entry.spec.description} if entry.spec.description else {}
    return {"name": name, **described, "input_schema": schema}
