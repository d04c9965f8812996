"""Gemini: its schema dialect, and tools as function declarations with a JSON Schema."""

from __future__ import annotations

from pegboard.model.json_types import JSON
from pegboard.model.tool import ToolEntry
from pegboard.providers.dialect import COMBINING, COMMON_KEYWORDS, Dialect

GEMINI = Dialect(
    name="gemini",
    names=r"[A-Za-z_][A-Za-z0-9_-]{0,63}",
    keywords=COMMON_KEYWORDS
    | frozenset("$id $anchor format prefixItems minItems maxItems oneOf propertyOrdering".split()),
    not_at_root=COMBINING,
    scalar_enums=True,
    lone_refs=True,
    recursion="optional",
    source="Google, Gemini API: FunctionDeclaration.parametersJsonSchema and the JSON Schema it supports",
)


def gemini_tool(entry: ToolEntry, name: str, schema: JSON) -> JSON:
    """Return `{name, description, parametersJsonSchema}`."""
    described = {"description": entry.spec.description} if entry.spec.description else {}
    return {"name": name, **described, "parametersJsonSchema": schema}
