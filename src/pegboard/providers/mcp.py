"""MCP: tools in the form of `tools/list`, and results in that of `tools/call`. MCP accepts any JSON Schema."""

from __future__ import annotations

import base64
from typing import Any, cast

from pegboard.model.error import ToolError
from pegboard.model.json_types import JSON
from pegboard.model.result import (
    AudioContent,
    Content,
    ImageContent,
    ResourceContent,
    ResourceLink,
    TextContent,
    ToolResult,
)
from pegboard.model.tool import OfferedTitles, ToolEntry
from pegboard.providers.dialect import ANY_TEXT, Dialect

ERROR_KEY = "pegboard/error"  # the key in `_meta` of the record of an error

MCP = Dialect(name="mcp", names=ANY_TEXT, source="MCP: any JSON Schema 2020-12")


def mcp_tool(entry: ToolEntry) -> JSON:
    """Return the MCP definition of a tool under its wire name; empty keys are left out."""
    shown = {**entry.spec.definition(), "name": entry.wire_name}
    return shown if entry.offered is None else _as_offered(shown, entry, entry.offered)


def _as_offered(shown: JSON, entry: ToolEntry, offered: OfferedTitles) -> JSON:
    """Return the definition of a tool of an MCP server with the titles and the output schema that the server wrote."""
    if entry.exact_output is not None and entry.spec.output_check != "relax":
        shown["outputSchema"] = entry.exact_output
    hints = {key: value for key, value in shown.pop("annotations", {}).items() if key != "title"}
    if offered.of_annotations:
        hints = {"title": offered.of_annotations, **hints}
    if not offered.title:
        shown.pop("title", None)
    return {**shown, "annotations": hints} if hints else shown


def mcp_tool_before_2026(entry: ToolEntry) -> JSON:
    """Return the definition for revisions before 2026-07-28, which require object results: others are wrapped."""
    definition = mcp_tool(entry)
    if "outputSchema" in definition and not _is_object(definition["outputSchema"]):
        definition["outputSchema"] = _wrapped_schema(definition["outputSchema"])
    if entry.spec.task != "forbidden":
        definition["execution"] = {"taskSupport": entry.spec.task}
    return definition


def _is_object(schema: JSON) -> bool:
    return schema.get("type") == "object"


def _wrapped_schema(schema: JSON) -> JSON:
    """Return the schema of `{"result": value}`, with its references moved one level down."""
    inner = {key: value for key, value in schema.items() if key not in ("$defs", "$schema")}
    wrapped: JSON = {"type": "object", "properties": {"result": inner}, "required": ["result"]}
    of_root = {key: schema[key] for key in ("$schema", "$defs") if key in schema}
    # A schema with its own `$id` is the root for its references, so these stay unchanged.
    return {**wrapped, "properties": {"result": schema}} if "$id" in schema else _moved({**wrapped, **of_root})


def _moved(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_moved(item) for item in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    return {key: _moved_value(key, value) for key, value in cast("JSON", schema).items()}


def _moved_value(key: str, value: Any) -> Any:
    if key == "$ref" and isinstance(value, str):
        return _moved_reference(value)
    # These keywords hold values, where `$ref` is an ordinary key.
    return value if key in ("default", "const", "enum", "examples") else _moved(value)


def _moved_reference(reference: str) -> str:
    is_inside = reference == "#" or (reference.startswith("#/") and not reference.startswith("#/$defs/"))
    return f"#/properties/result{reference[1:]}" if is_inside else reference


def mcp_result(result: ToolResult, *, output_schema: JSON | None = None, wrap_structured: bool = False) -> JSON:
    """Return a call's result in MCP's form; the record of an error is `_meta["pegboard/error"]`.

    It is never `structuredContent`: clients hold that to the tool's output schema, for errors as well, and throw before
    the model can read the text. An error of an upstream keeps the `structuredContent` that the upstream gave it.

    `wrap_structured` serves revisions before 2026-07-28: a value that is not an object goes out as `{"result": …}`.
    """
    content = result.content
    if len(content) == 1 and type(block := content[0]) is TextContent and block[1:] == (None, None):
        # The form of most results, built in one step.
        shown: JSON = {"content": [{"type": "text", "text": block[0]}]}
    else:
        shown = {"content": [mcp_content(block) for block in content]}
    if result.has_structured:
        value: Any = result.structured
        is_object = isinstance(value, dict) and (output_schema is None or _is_object(output_schema))
        shown["structuredContent"] = {"result": value} if wrap_structured and not is_object else value
    if result.is_error:
        shown["isError"] = True
    if result.error is not None:
        shown["_meta"] = {**result.meta, ERROR_KEY: mcp_error(result.error)}
    elif result.meta:
        shown["_meta"] = dict(result.meta)
    return shown


def mcp_error(error: ToolError) -> JSON:
    """Return the error as models and clients read it; empty fields are left out."""
    fields: dict[str, Any] = {
        "kind": error.kind,
        "message": error.message,
        "hint": error.hint or None,
        "retryable": error.retryable,
        "retry_after_s": error.retry_after_s,
        "outcome_unknown": error.outcome_unknown or None,
        "details": dict(error.details) or None,
    }
    return {key: value for key, value in fields.items() if value is not None}


def mcp_content(block: Content) -> JSON:
    """Return one content block in MCP's form."""
    shown = _content(block)
    if block.annotations:
        shown["annotations"] = dict(block.annotations)
    if block.meta:
        shown["_meta"] = dict(block.meta)
    return shown


def _content(block: Content) -> JSON:
    match block:
        case TextContent(text):
            return {"type": "text", "text": text}
        case ImageContent(data, mime_type):
            return {"type": "image", "data": base64.b64encode(data).decode(), "mimeType": mime_type}
        case AudioContent(data, mime_type):
            return {"type": "audio", "data": base64.b64encode(data).decode(), "mimeType": mime_type}
        case ResourceContent(uri, text, blob, mime_type, resource_meta=resource_meta):
            # A resource has text or a blob; the text may be empty.
            inner: JSON = {"uri": uri, "mimeType": mime_type, "text": "" if text is None and blob is None else text}
            if blob is not None:
                inner["blob"] = base64.b64encode(blob).decode()
            if resource_meta:
                inner["_meta"] = dict(resource_meta)
            return {"type": "resource", "resource": {key: value for key, value in inner.items() if value is not None}}
        case ResourceLink(uri, name, mime_type, description, title, icons=icons, size=size):
            link = {"uri": uri, "name": name, "mimeType": mime_type, "description": description, "title": title}
            link |= {"icons": [dict(icon) for icon in icons or ()] or None, "size": size}
            return {"type": "resource_link", **{key: value for key, value in link.items() if value is not None}}
