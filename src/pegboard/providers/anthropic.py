"""Anthropic: its schema dialect, and tools in the form of the messages API, plain or strict."""

from __future__ import annotations

from pegboard.model.json_types import JSON
from pegboard.model.tool import ToolEntry
from pegboard.providers.dialect import COMBINING, COMMON_KEYWORDS, PLAIN_NAMES, Dialect

ANTHROPIC = Dialect(
    name="anthropic",
    names=PLAIN_NAMES,
    keys=r"[A-Za-z0-9_.-]{1,64}",
    not_at_root=COMBINING,
    source="Anthropic, tool use: input_schema",
)
ANTHROPIC_STRICT = Dialect(
    name="anthropic_strict",
    names=PLAIN_NAMES,
    keys=r"[A-Za-z0-9_.-]{1,64}",
    keywords=(COMMON_KEYWORDS | frozenset("const default format minItems".split())) - {"minimum", "maximum"},
    formats=frozenset("date-time time date duration email hostname uri ipv4 ipv6 uuid".split()),
    not_at_root=COMBINING,
    is_strict=True,
    keeps_optional=True,
    lone_refs=True,
    most_min_items=1,
    recursion="never",
    source="Anthropic, strict tool use: JSON Schema limitations of structured outputs",
)


def anthropic_tool(entry: ToolEntry, name: str, schema: JSON) -> JSON:
    """Return `{name, description, input_schema}`."""
    described = {"description": entry.spec.description} if entry.spec.description else {}
    return {"name": name, **described, "input_schema": schema}


def anthropic_strict_tool(entry: ToolEntry, name: str, schema: JSON) -> JSON:
    """Return the same with `strict`: the model's arguments then always match the schema."""
    return {**anthropic_tool(entry, name, schema), "strict": True}
