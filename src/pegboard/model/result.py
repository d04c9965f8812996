"""Result: the result of a call, as content blocks for the model and as a structured value.

`annotations` of a block are MCP's: audience, priority and last modification. `meta` is sent to the client as `_meta`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias, cast

from pegboard.model.error import CallError, ToolError


class TextContent(NamedTuple):
    """A block of text."""

    text: str
    annotations: Mapping[str, Any] | None = None
    meta: Mapping[str, Any] | None = None


class ImageContent(NamedTuple):
    """An image; `data` is the raw bytes."""

    data: bytes
    mime_type: str = "image/png"
    annotations: Mapping[str, Any] | None = None
    meta: Mapping[str, Any] | None = None


class AudioContent(NamedTuple):
    """A sound; `data` is the raw bytes."""

    data: bytes
    mime_type: str = "audio/wav"
    annotations: Mapping[str, Any] | None = None
    meta: Mapping[str, Any] | None = None


class ResourceContent(NamedTuple):
    """An embedded resource: text or raw bytes. `meta` belongs to the block, `resource_meta` to the resource in it."""

    uri: str
    text: str | None = None
    blob: bytes | None = None
    mime_type: str | None = None
    annotations: Mapping[str, Any] | None = None
    meta: Mapping[str, Any] | None = None
    resource_meta: Mapping[str, Any] | None = None


class ResourceLink(NamedTuple):
    """A link to a resource that the client may read itself."""

    uri: str
    name: str
    mime_type: str | None = None
    description: str | None = None
    title: str | None = None
    annotations: Mapping[str, Any] | None = None
    meta: Mapping[str, Any] | None = None
    icons: tuple[Mapping[str, Any], ...] | None = None
    size: int | None = None


Content: TypeAlias = TextContent | ImageContent | AudioContent | ResourceContent | ResourceLink
# Constructs a named tuple directly; its class takes three times as long.
new_tuple: Any = cast("Any", tuple).__new__
CONTENT_TYPES = (TextContent, ImageContent, AudioContent, ResourceContent, ResourceLink)


class ToolResult(NamedTuple):
    """The result of a call: blocks for the model and an optional structured value.

    `structured` is JSON; `has_structured` distinguishes a structured `None` from no structured value. `task_id` names
    the task that continues a call which has not ended.
    """

    content: tuple[Content, ...] = ()
    structured: Any = None
    is_error: bool = False
    error: ToolError | None = None
    meta: Mapping[str, Any] = {}
    has_structured: bool = False
    task_id: str | None = None

    @property
    def text(self) -> str:
        """The text blocks, joined by line breaks."""
        return "\n".join(block.text for block in self.content if isinstance(block, TextContent))

    def with_structured(self, value: Any) -> ToolResult:
        """Return a copy with another structured value; three times as fast as `_replace`."""
        content, _, is_error, error, meta, has_structured, task_id = self
        return new_tuple(ToolResult, (content, value, is_error, error, meta, has_structured, task_id))

    def unwrap(self) -> Any:
        """Return the structured value, or the text if there is none; raise `CallError` for an error."""
        if self.error is not None:
            raise call_error(self.error)
        return self.structured if self.has_structured else self.text


def call_error(error: ToolError) -> CallError:
    """Return the exception for a stored error."""
    raised = CallError(error.kind, error.message)
    raised.error = error
    return raised
