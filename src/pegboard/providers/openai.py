"""OpenAI: its schema dialect, and tools as functions of the chat completions or responses API."""

from __future__ import annotations

from pegboard.model.json_types import JSON
from pegboard.model.record import replace
from pegboard.model.tool import ToolEntry
from pegboard.providers.dialect import COMBINING, COMMON_KEYWORDS, PLAIN_NAMES, Dialect, SchemaSize

OPENAI = Dialect(
    name="openai",
    names=PLAIN_NAMES,
    not_at_root=COMBINING | {"enum", "not"},
    root_needs_properties=True,
    needs_items=True,
    source="OpenAI, function calling: what the API answers with invalid_function_parameters",
)
OPENAI_STRICT = Dialect(
    name="openai_strict",
    names=PLAIN_NAMES,
    keywords=COMMON_KEYWORDS
    | frozenset("$schema const pattern format multipleOf exclusiveMinimum exclusiveMaximum minItems maxItems".split()),
    formats=frozenset("date-time time date duration email hostname ipv4 ipv6 uuid".split()),
    not_at_root=COMBINING | {"enum", "not"},
    root_needs_properties=True,
    needs_items=True,
    is_strict=True,
    lone_refs=True,
    linear_patterns=True,
    max_depth=10,
    max_size=SchemaSize(properties=5_000, enum_values=1_000, chars=120_000, long_enum=250, long_enum_chars=15_000),
    source="OpenAI, Structured Outputs: supported schemas",
)
# Functions of the responses API are strict by default.
OPENAI_RESPONSES = replace(OPENAI_STRICT, name="openai_responses", source="OpenAI, Responses: tools of type function")


def openai_tool(entry: ToolEntry, name: str, schema: JSON) -> JSON:
    """Return `{"type": "function", "function": {name, description, parameters}}`."""
    described = {"description": entry.spec.description} if entry.spec.description else {}
    return {"type": "function", "function": {"name": name, **described, "parameters": schema}}


def openai_strict_tool(entry: ToolEntry, name: str, schema: JSON) -> JSON:
    """Return the same with `strict`: the model's arguments then always match the schema."""
    described = {"description": entry.spec.description} if entry.spec.description else {}
    return {"type": "function", "function": {"name": name, **described, "strict": True, "parameters": schema}}


def openai_responses_tool(entry: ToolEntry, name: str, schema: JSON) -> JSON:
    """Return `{"type": "function", name, description, "strict": true, parameters}`, without `function` around it."""
    return {"type": "function", **openai_strict_tool(entry, name, schema)["function"]}
