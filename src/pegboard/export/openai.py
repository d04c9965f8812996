"""OpenAI: a tool as a function definition of the chat completions API."""

from __future__ import annotations

from pegboard.base.model import JSON, ToolEntry


def openai_tool(entry: ToolEntry) -> JSON:
    """Return `{"type": "function", "function": {name, description, parameters}}`, the schema as it was declared."""
    function: JSON = {"name": entry.wire_name}
    if entry.spec.description:
        function["description"] = entry.spec.description
    function["parameters"] = entry.spec.input_schema
    return {"type": "function", "function": function}
