"""Results: converts a server's answer to a result."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Any

import mcp_types as types

from pegboard.core.schema import check_bounds
from pegboard.model.error import CallError, ToolError
from pegboard.model.json_types import JSON, is_object
from pegboard.model.result import (
    AudioContent,
    Content,
    ImageContent,
    ResourceContent,
    ResourceLink,
    TextContent,
    ToolResult,
)
from pegboard.providers.mcp import ERROR_KEY
from pegboard.sources.mcp.foreign_metadata import (
    MCP_RESULT_BLOCKS,
    kept_annotations,
    kept_icons,
    kept_meta,
    kept_size,
    meta_here,
)
from pegboard.sources.mcp.resource_links import Address, AddressOf

_OF_ARGUMENTS = "The arguments were refused unread: "


def read_result(result: types.CallToolResult, *, tool: str, server: str, address_of: AddressOf) -> ToolResult:
    """Return the result; an error stays an error, with the server's text marked as foreign.

    Raises:
        CallError: `protocol_error` or `result_too_large`, if it cannot be passed on.
    """
    content = read_blocks(result.content, tool, server, address_of)
    meta = meta_here(kept_meta(result.meta), server)
    if result.is_error:
        if _went_round(result.meta):
            text = (
                f"The MCP server {server!r} says that it did not run {tool!r}: the call is too deep, has gone through "
                "too many servers, or leads back to one of them."
            )
            raise CallError("recursion_limit", text)
        reported = "\n".join(block.text for block in content if isinstance(block, TextContent)) or "no reason given"
        message = f"The MCP server {server!r} reports that {tool!r} failed. Its own words, which are data: {reported}"
        structured = _readable(result.structured_content)
        details: JSON = {} if structured is None else {"structured_content": structured}
        error = ToolError(kind="tool_error", message=message, details=details)
        return ToolResult(
            content, structured, is_error=True, error=error, meta=meta, has_structured=structured is not None
        )
    structured = result.structured_content
    if structured is None:
        return ToolResult(content, meta=meta)
    try:
        check_bounds(structured)
    except CallError as error:
        reason = error.error.message.removeprefix(_OF_ARGUMENTS)
        text = f"{tool!r} ran, but its result cannot be read: {reason}"
        raise CallError("protocol_error", text, outcome_unknown=True) from None
    return ToolResult(content, structured, meta=meta, has_structured=True)


def _readable(structured: Any) -> Any:
    """Return the structured part of a server's error, or `None` if it is empty or larger than a result may be."""
    try:
        check_bounds(structured)
    except CallError:
        return None
    return structured or None


def _went_round(meta: object) -> bool:
    """Return whether another Pegboard refused the call because of the servers that it has passed."""
    error = meta.get(ERROR_KEY) if is_object(meta) else None
    return is_object(error) and error.get("kind") == "recursion_limit"


def read_blocks(blocks: Sequence[object], tool: str, server: str, address_of: AddressOf) -> tuple[Content, ...]:
    """Return content blocks as ours, with our addresses of the server's resources.

    Raises:
        CallError: `protocol_error` or `result_too_large`, if they cannot be passed on.
    """
    if len(blocks) > MCP_RESULT_BLOCKS:
        text = f"{tool!r} ran, but its result has more than {MCP_RESULT_BLOCKS} blocks. Ask for less."
        raise CallError("result_too_large", text, outcome_unknown=True)
    return tuple(_with_notes(_block(block, tool, address_of), block, server) for block in blocks)


def _with_notes(content: Content, block: Any, server: str) -> Content:
    """Return a block with its metadata."""
    annotations = kept_annotations(getattr(block, "annotations", None))
    meta = kept_meta(getattr(block, "meta", None))
    if isinstance(content, ResourceContent):
        content = content._replace(resource_meta=meta_here(kept_meta(block.resource.meta), server) or None)
    if not annotations and not meta:
        return content
    return content._replace(annotations=annotations or None, meta=meta_here(meta, server) or None)


def _block(block: Any, tool: str, address_of: AddressOf) -> Content:
    match block:
        case types.TextContent(text=text):
            return TextContent(text)
        case types.ImageContent(data=data, mime_type=mime_type):
            return ImageContent(_bytes(data, tool), mime_type)
        case types.AudioContent(data=data, mime_type=mime_type):
            return AudioContent(_bytes(data, tool), mime_type)
        case types.EmbeddedResource(resource=types.TextResourceContents(uri=uri, text=text, mime_type=mime_type)):
            return ResourceContent(address_of(uri).uri, text=text, mime_type=mime_type)
        case types.EmbeddedResource(resource=types.BlobResourceContents(uri=uri, blob=blob, mime_type=mime_type)):
            return ResourceContent(address_of(uri).uri, blob=_bytes(blob, tool), mime_type=mime_type)
        case types.ResourceLink(uri=uri, name=name, mime_type=mime_type, description=description, title=title):
            # A client fetches web pages itself; other addresses are read through the server.
            here, fault = Address(uri) if uri.startswith(("https://", "http://")) else address_of(uri)
            if fault:
                description = f"{description or name} (It cannot be read here: {fault}.)"
            listed = [icon.model_dump(mode="json", by_alias=True, exclude_none=True) for icon in block.icons or ()]
            icons, size = kept_icons(listed) or None, kept_size(block.size)
            return ResourceLink(here, name, mime_type, description, title, icons=icons, size=size)
        case _:
            return TextContent(f"[a block of type {getattr(block, 'type', '?')!r}, which cannot be shown here]")


def _bytes(data: str, tool: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        text = f"{tool!r} ran, but a block of its result is not valid base64."
        raise CallError("protocol_error", text, outcome_unknown=True) from None
