"""SDK blocks: reads the content blocks and results of the MCP SDK, and the `Image`, `Audio` and `File` of FastMCP.

Classes are known by name and package, because the core imports no SDK.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

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

_PACKAGES: Final = frozenset({"mcp", "mcp_types", "fastmcp"})
_BLOCKS: Final = frozenset({"TextContent", "ImageContent", "AudioContent", "EmbeddedResource", "ResourceLink"})
# The classes that read a file or hold bytes, with the method that returns the block.
_HELPERS: Final = {"Image": "to_image_content", "Audio": "to_audio_content", "File": "to_resource_content"}
_BLOCK_NAMES: Final = _BLOCKS | _HELPERS.keys()
_RESULTS: Final = frozenset({"CallToolResult", "ToolResult"})
_NO_SDK: Final[frozenset[Any]] = frozenset({dict, list, tuple, str, bytes, int, float, bool, type(None), ToolResult})


def is_block_class(kind: Any) -> bool:
    """Tell whether a class is a content block of the MCP SDK, or a helper that becomes one."""
    return not _BLOCK_NAMES.isdisjoint(_sdk_names(kind))


def is_result_class(kind: Any) -> bool:
    """Tell whether a class is a whole result: `CallToolResult` of the MCP SDK or `ToolResult` of FastMCP."""
    return not _RESULTS.isdisjoint(_sdk_names(kind))


def _sdk_names(kind: Any) -> tuple[str, ...]:
    """Return the names of a class and its bases that an SDK defines."""
    return () if not isinstance(kind, type) or kind in _NO_SDK else _names_of_class(kind)


@lru_cache(maxsize=512)
def _names_of_class(kind: type) -> tuple[str, ...]:
    return tuple(base.__name__ for base in kind.__mro__ if base.__module__.partition(".")[0] in _PACKAGES)


def wire_form(block: Any) -> JSON:
    """Return a block or helper as MCP transmits it.

    Raises:
        OSError: the file of a helper cannot be read.
    """
    method = next((_HELPERS[name] for name in _sdk_names(type(block)) if name in _HELPERS), None)
    if method is not None:
        block = getattr(block, method)()
    return block.model_dump(mode="json", by_alias=True, exclude_none=True)


def read_block(block: object) -> Content:
    """Return a block or helper as ours, with its data still as base64 text.

    Raises:
        OSError: the file of a helper cannot be read.
    """
    wire = wire_form(block)
    return _READERS[wire["type"]](wire)._replace(annotations=wire.get("annotations"), meta=wire.get("_meta"))


def read_result(result: Any, blocks: tuple[Content, ...]) -> ToolResult:
    """Return a whole result as ours, with the blocks that were read from its `content`."""
    structured: Any = result.structured_content
    meta: JSON = result.meta or {}
    error = None
    if result.is_error:
        text = "\n".join(block.text for block in blocks if isinstance(block, TextContent))
        error = ToolError(kind="tool_error", message=text or "The tool reported an error without a message.")
    has_structured = structured is not None
    return ToolResult(blocks, structured, error is not None, error, meta, has_structured)


def _resource(wire: JSON) -> Content:
    inner = wire["resource"]
    return ResourceContent(
        inner["uri"], inner.get("text"), inner.get("blob"), inner.get("mimeType"), resource_meta=inner.get("_meta")
    )


def _link(wire: JSON) -> Content:
    return ResourceLink(
        wire["uri"], wire["name"], wire.get("mimeType"), wire.get("description"), wire.get("title"),
        icons=wire.get("icons"), size=wire.get("size"),
    )  # fmt: skip


_READERS: Final[Mapping[str, Callable[[JSON], Content]]] = {
    "text": lambda wire: TextContent(wire["text"]),
    "image": lambda wire: ImageContent(wire["data"], wire["mimeType"]),
    "audio": lambda wire: AudioContent(wire["data"], wire["mimeType"]),
    "resource": _resource,
    "resource_link": _link,
}
