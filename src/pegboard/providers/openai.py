"""OpenAI: a tool as a function definition of the chat completions API, plain or strict."""

from __future__ import annotations

from pegboard.model.json_types import JSON
from pegboard.model.tool import ToolEntry


def openai_tool(entry: ToolEntry, name: str, schema: JSON) -> JSON:
    """Return `{"type": "function", "function": {name, description, parameters}}`."""
    described = {"description": entry.spec.description} if entry.spec.description else {}
    return {"type": "function", "function": {"name": name, **described, "parameters": schema}}


def openai_strict_tool(entry: ToolEntry, name: str, schema: JSON) -> JSON:
    """Return the same with `strict`: the model's arguments then always fit the schema."""
    described = {"description": entry.spec.description} if entry.spec.description else {}
    return {"type": "function", "function": {"name": name, **described, "strict": True, "parameters": schema}}
