"""Result parts: convert a result to texts and images for a model, and an error to one text."""

from __future__ import annotations

import base64

from pegboard.core.json_text import json_bytes
from pegboard.model.error import ToolError
from pegboard.model.result import AudioContent, Content, ImageContent, ResourceContent, ResourceLink, ToolResult

SHOWN_IMAGES = frozenset({"image/gif", "image/jpeg", "image/png", "image/webp"})
"""The image types that every provider accepts."""


def error_text(error: ToolError) -> str:
    """Return the text of an error: what happened, and what to do next."""
    return f"{error.message} {error.hint}".strip()


def parts_of(result: ToolResult) -> list[str | ImageContent]:
    """Return a result as texts and images, in order; other content is named. Never empty."""
    if result.error is not None:
        return [error_text(result.error)]
    parts = [_part(block) for block in result.content]
    if not any(isinstance(part, str) and part for part in parts) and result.has_structured:
        parts.insert(0, json_bytes(result.structured).decode())
    return parts or [""]


def text_of(result: ToolResult) -> str:
    """Return a result as one text, for protocols that accept nothing else."""
    shown = [part if isinstance(part, str) else _named(part.mime_type, part.data) for part in parts_of(result)]
    return "\n".join(shown)


def data_url(image: ImageContent) -> str:
    """Return an image as a data URL."""
    return f"data:{image.mime_type};base64,{base64.b64encode(image.data).decode()}"


def _part(block: Content) -> str | ImageContent:
    match block:
        case ImageContent(data, mime_type):
            return block if mime_type in SHOWN_IMAGES else _named(mime_type, data)
        case AudioContent(data, mime_type):
            return _named(mime_type, data)
        case ResourceContent(uri, text, blob, mime_type):
            return text if text is not None else f"{uri}: {_named(mime_type or 'bytes', blob or b'')}"
        case ResourceLink(uri, name):
            return f"{name}: {uri}"
        case _:
            return block.text


def _named(mime_type: str, data: bytes) -> str:
    return f"[{mime_type}, {len(data)} bytes]"
