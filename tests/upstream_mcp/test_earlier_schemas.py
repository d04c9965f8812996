"""Schemas with keywords of earlier drafts, or without a type."""

from typing import Any

import pytest

from pegboard.model.bounds import DEFAULT_BOUNDS
from pegboard.sources.mcp.definitions import checked_definition, declared_spec
from pegboard.sources.mcp.server_settings import ServerSettings

NUMBER = {"type": "number"}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"items": [NUMBER, NUMBER], "maxItems": 2}, {"maxItems": 2, "prefixItems": [NUMBER, NUMBER]}),
        ({"items": [NUMBER], "additionalItems": False}, {"prefixItems": [NUMBER], "items": False}),
        ({"items": []}, {}),
        ({"type": "object", "properties": None, "required": None}, {"type": "object"}),
        ({"type": "string", "required": True, "default": None}, {"type": "string", "default": None}),
    ],
)
def test_a_tool_of_an_mcp_server_with_an_earlier_schema_is_taken(schema: Any, expected: Any) -> None:
    tool = {"name": "move", "inputSchema": {"type": "object", "properties": {"to": schema}, "required": None}}
    definition = checked_definition(tool, bounds=DEFAULT_BOUNDS)
    assert definition["inputSchema"] == tool["inputSchema"]
    spec = declared_spec(definition, "move", ServerSettings(name="robot", transport="stdio", command="x"))
    assert spec.input_schema == {"type": "object", "properties": {"to": expected}}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({}, {"type": "object"}),
        ({"anyOf": [{"required": ["to"]}]}, {"anyOf": [{"required": ["to"]}], "type": "object"}),
    ],
)
def test_a_schema_of_arguments_without_a_type_is_of_an_object(schema: Any, expected: Any) -> None:
    definition = checked_definition({"name": "move", "inputSchema": schema}, bounds=DEFAULT_BOUNDS)
    assert definition["inputSchema"] == schema
    spec = declared_spec(definition, "move", ServerSettings(name="robot", transport="stdio", command="x"))
    assert spec.input_schema == expected
