"""MCP: results as `tools/call` gives them, and the wrapping for revisions before 2026-07-28."""

from typing import Any

import jsonschema_rs
import pytest

from pegboard import AudioContent, ImageContent, ResourceContent, ResourceLink, TextContent, ToolError, ToolResult
from pegboard.model.tool import ToolSpec
from pegboard.providers.mcp import mcp_result, mcp_tool, mcp_tool_before_2026

TEXT = {"type": "text", "text": "x"}


def result(value: Any = None, *, has_structured: bool = True, **more: Any) -> ToolResult:
    return ToolResult((TextContent("x"),), value, has_structured=has_structured, **more)


def test_every_kind_of_block_has_its_form():
    blocks = (
        TextContent("a"),
        ImageContent(b"\x01", "image/png"),
        AudioContent(b"\x02", "audio/wav"),
        ResourceContent("x://1", text="words", mime_type="text/plain"),
        ResourceContent("x://2", blob=b"\x03"),
        ResourceContent("x://3"),
        ResourceLink("x://4", "four", mime_type="text/html", description="D", title="T"),
        ResourceLink("x://5", "five"),
    )
    assert mcp_result(ToolResult(blocks)) == {
        "content": [
            {"type": "text", "text": "a"},
            {"type": "image", "data": "AQ==", "mimeType": "image/png"},
            {"type": "audio", "data": "Ag==", "mimeType": "audio/wav"},
            {"type": "resource", "resource": {"uri": "x://1", "mimeType": "text/plain", "text": "words"}},
            {"type": "resource", "resource": {"uri": "x://2", "blob": "Aw=="}},
            {"type": "resource", "resource": {"uri": "x://3", "text": ""}},
            {
                "type": "resource_link",
                "uri": "x://4",
                "name": "four",
                "mimeType": "text/html",
                "description": "D",
                "title": "T",
            },
            {"type": "resource_link", "uri": "x://5", "name": "five"},
        ]
    }


def test_meta_goes_out_and_empty_keys_do_not():
    assert mcp_result(result(has_structured=False)) == {"content": [TEXT]}
    assert mcp_result(result(has_structured=False, meta={"a": 1})) == {"content": [TEXT], "_meta": {"a": 1}}


def test_an_error_carries_its_kind():
    error = ToolError(kind="rate_limited", message="x", retryable=True, retry_after_s=2.5, details={"left": 0})
    assert mcp_result(ToolResult((TextContent("x"),), is_error=True, error=error)) == {
        "content": [TEXT],
        "_meta": {
            "pegboard/error": {
                "kind": "rate_limited",
                "message": "x",
                "retryable": True,
                "retry_after_s": 2.5,
                "details": {"left": 0},
            }
        },
        "isError": True,
    }


def test_an_error_without_a_kind_is_an_error_all_the_same():
    assert mcp_result(result(has_structured=False, is_error=True)) == {"content": [TEXT], "isError": True}


@pytest.mark.parametrize("value", [3, "x", None, [1], {"a": 1}, False])
def test_structured_values_go_out_as_they_are(value: Any):
    assert mcp_result(result(value)) == {"content": [TEXT], "structuredContent": value}


INTEGER = {"type": "integer"}
OBJECT = {"type": "object"}
MAYBE = {"anyOf": [OBJECT, {"type": "null"}]}
TREE = {"$ref": "#/$defs/Node", "$defs": {"Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}}}


@pytest.mark.parametrize(
    ("schema", "value", "sent"),
    [
        (None, {"a": 1}, {"a": 1}),
        (None, 3, {"result": 3}),
        (INTEGER, 3, {"result": 3}),
        (OBJECT, {"a": 1}, {"a": 1}),
        (MAYBE, {"a": 1}, {"result": {"a": 1}}),
        (MAYBE, None, {"result": None}),
        (TREE, {"next": {}}, {"result": {"next": {}}}),
    ],
)
def test_before_2026_a_value_that_is_no_object_is_wrapped_as_its_schema_is(schema: Any, value: Any, sent: Any):
    shown = mcp_result(result(value), output_schema=schema, wrap_structured=True)
    assert shown == {"content": [TEXT], "structuredContent": sent}
    if schema is not None:
        drawn = earlier(schema)
        assert drawn["type"] == "object"
        assert jsonschema_rs.is_valid(drawn, sent)


def earlier(schema: Any) -> Any:
    return mcp_tool_before_2026(ToolSpec(name="t", output_schema=schema).bind(lambda ctx, args: None))["outputSchema"]


def test_an_object_schema_is_the_same_in_every_revision():
    entry = ToolSpec(name="t", output_schema=OBJECT).bind(lambda ctx, args: None)
    assert mcp_tool_before_2026(entry) == mcp_tool(entry)
    bare = ToolSpec(name="t").bind(lambda ctx, args: None)
    assert mcp_tool_before_2026(bare) == mcp_tool(bare)


def test_a_wrapped_schema_keeps_its_definitions_where_references_find_them():
    assert earlier(TREE) == {
        "type": "object",
        "properties": {"result": {"$ref": "#/$defs/Node"}},
        "required": ["result"],
        "$defs": TREE["$defs"],
    }
    nested = {"type": "array", "items": {"anyOf": [INTEGER, {"$ref": "#"}]}, "examples": [{"$ref": "#"}]}
    assert earlier(nested)["properties"]["result"] == {
        "type": "array",
        "items": {"anyOf": [INTEGER, {"$ref": "#/properties/result"}]},
        "examples": [{"$ref": "#"}],
    }
    assert jsonschema_rs.is_valid(earlier(nested), {"result": [1, [2, [3]]]})
    assert not jsonschema_rs.is_valid(earlier(nested), {"result": [1, ["x"]]})


def test_a_schema_with_an_id_stays_the_root_of_its_references():
    named = {"$id": "urn:rows", "type": "array", "items": {"$ref": "#/$defs/row"}, "$defs": {"row": INTEGER}}
    assert jsonschema_rs.is_valid(earlier(named), {"result": [1]})
    assert not jsonschema_rs.is_valid(earlier(named), {"result": ["x"]})
