"""Anthropic: what it takes, and a tool as the messages API wants it."""

from __future__ import annotations

from pegboard.model.json_types import JSON
from pegboard.model.tool import ToolEntry
from pegboard.providers.dialect import COMBINING, PLAIN_NAMES, Dialect

ANTHROPIC = Dialect(
    name="anthropic",
    names=PLAIN_NAMES,
    keys=r"[A-Za-z0-9_.-]{1,64}",
    not_at_root=COMBINING,
    source="Anthropic, tool use: input_schema",
)


def anthropic_tool(entry: ToolEntry, name: str, schema: JSON) -> JSON:
    """Return `{name, description, input_schema}`."""
    described = {"description": entry.spec.description} if entry.spec.description else {}
    return {"name": name, **described, "input_schema": schema}
