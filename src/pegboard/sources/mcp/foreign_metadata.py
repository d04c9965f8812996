"""Foreign metadata: filters a server's `_meta`, icons, hints and audiences for our clients.

Values that are not JSON of a moderate size are dropped, texts are cleaned, and keys that the protocol or Pegboard uses
are removed, so that a server cannot speak in their name. Addresses of resources are converted to our own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import orjson

from pegboard.model.bounds import KIB
from pegboard.model.json_types import JSON, JSONValue, is_list, is_object
from pegboard.sources.foreign_text import cleaned, has_hidden

MCP_RESULT_BLOCKS = 1_000  # content blocks of one result
MCP_TITLE_BYTES = 256  # bytes of a foreign tool's title
MCP_META_BYTES = 16 * KIB  # bytes of one `_meta`, or of an icon embedded as a data URI; larger ones are dropped
MCP_META_LEVELS = 16  # nesting levels of one `_meta`
MCP_ICONS = 8  # icons of one tool or resource
MCP_URI_CHARS = 2_000  # characters of a foreign resource's URI

# The specification reserves prefixes whose second label is one of these; the first key has no prefix.
_RESERVED_LABELS: Final = frozenset({"modelcontextprotocol", "mcp"})
_RESERVED_KEYS: Final = frozenset({"progressToken", "pegboard", "pegboard.consent"})
_OWN_PREFIX: Final = "pegboard"
_KEY = re.compile(r"[A-Za-z0-9._/-]{1,200}")
_MIME = re.compile(r"[\w.+/-]{1,100}")
_SIZES = re.compile(r"any|\d{1,5}x\d{1,5}")
# Beyond it readers of JSON differ.
_LARGEST_SIZE: Final = 2**53 - 1  # the largest integer that every JSON parser reads exactly
# The lists in an answer, and the keys of their items' metadata.
_LISTS: Final = ("content", "contents", "messages", "resources", "resourceTemplates", "prompts")
_INNER: Final = ("content", "resource")
_BLOCK_TYPES: Final = frozenset({"text", "image", "audio", "resource", "resource_link"})
_HINTS: Final = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")


def uri_here(server: str, uri: str) -> str:
    """Return our form of a server's URI or template: two servers may use the same one.

    The URI of a user interface keeps its scheme, so that hosts recognise it.
    """
    if uri.startswith("ui://"):
        return f"ui://{server}/{uri.removeprefix('ui://')}"
    return f"pegboard://{server}/{uri}"


def kept_meta(meta: object) -> JSON:
    """Return the part of a `_meta` that is passed on; empty if it is not an object, or too large."""
    if not is_object(meta):
        return {}
    cleaned_meta: JSON = {key: _clean(value) for key, value in meta.items() if _is_free(key)}
    try:
        size = len(orjson.dumps(cleaned_meta))
    except (TypeError, ValueError, RecursionError):
        return {}
    return cleaned_meta if size <= MCP_META_BYTES else {}


def _is_free(key: str) -> bool:
    """Tell whether neither the protocol nor Pegboard uses a key."""
    if _KEY.fullmatch(key) is None or key in _RESERVED_KEYS:
        return False
    prefix, slash, _ = key.partition("/")
    labels = prefix.lower().split(".")[:2]
    return not slash or (labels[0] != _OWN_PREFIX and _RESERVED_LABELS.isdisjoint(labels))


def _clean(value: JSONValue, levels: int = 1) -> JSONValue:
    if levels > MCP_META_LEVELS:
        return None
    if isinstance(value, str):
        return cleaned(value)
    if is_object(value):
        return {key: _clean(inner, levels + 1) for key, inner in value.items() if not has_hidden(key)}
    return [_clean(inner, levels + 1) for inner in value] if is_list(value) else value


def with_readable_notes(answer: JSON) -> JSON:
    """Return an answer with metadata that the SDK can parse, so that invalid metadata does not lose a result.

    Invalid metadata is dropped; a block of an unknown type becomes text.
    """
    readable = _with_notes(answer)
    if is_list(blocks := readable.get("content")) and len(blocks) > MCP_RESULT_BLOCKS:
        # One block too many makes it refused; the SDK would create an object for each.
        readable["content"] = blocks[: MCP_RESULT_BLOCKS + 1]
    for key in _LISTS:
        parts = readable.get(key)
        if is_list(parts):
            readable = {**readable, key: [_with_notes(part) if is_object(part) else part for part in parts]}
    return readable


def _with_notes(part: JSON) -> JSON:
    noted = dict(part)
    if "_meta" in part and not is_object(part["_meta"]):
        del noted["_meta"]
    if "annotations" in part:
        noted["annotations"] = kept_annotations(part["annotations"] if is_object(part["annotations"]) else None)
    if "icons" in part:
        noted["icons"] = list(kept_icons(part["icons"]))
    if "size" in part:
        noted["size"] = kept_size(part["size"])
    for key in _INNER:
        inner = part.get(key)
        if is_object(inner):
            noted[key] = _with_notes(inner)
    named = part.get("type")
    if isinstance(named, str) and named not in _BLOCK_TYPES:
        shown = cleaned(named, max_bytes=MCP_TITLE_BYTES)
        return {"type": "text", "text": f"[a block of type {shown!r}, which cannot be shown here]"}
    return noted


def meta_here(meta: JSON, server: str) -> JSON:
    """Return a kept `_meta` with our addresses of user interfaces, in both spellings of the key."""
    ui = meta.get("ui")
    if is_object(ui) and isinstance(ui.get("resourceUri"), str):
        meta = {**meta, "ui": {**ui, "resourceUri": uri_here(server, ui["resourceUri"])}}
    if isinstance(meta.get("ui/resourceUri"), str):
        meta = {**meta, "ui/resourceUri": uri_here(server, meta["ui/resourceUri"])}
    return meta


def kept_icons(icons: object) -> tuple[JSON, ...]:
    """Return the icons that a client may show: from https or data URIs, of a moderate size."""
    listed = icons if is_list(icons) else ()
    shown = [icon for each in listed[:MCP_ICONS] if (icon := _icon(each)) is not None]
    return tuple(shown)


def _icon(icon: object) -> JSON | None:
    source = icon.get("src") if is_object(icon) else None
    if not is_object(icon) or not isinstance(source, str) or has_hidden(source):
        return None
    is_data = source.startswith("data:image/") and len(source) <= MCP_META_BYTES
    is_link = source.startswith("https://") and len(source) <= MCP_URI_CHARS and _has_host(source)
    if not is_data and not is_link:
        return None
    cleaned_icon: JSON = {"src": source}
    if isinstance(icon.get("mimeType"), str) and _MIME.fullmatch(icon["mimeType"]):
        cleaned_icon["mimeType"] = icon["mimeType"]
    if is_list(icon.get("sizes")):
        cleaned_icon["sizes"] = [size for size in icon["sizes"] if isinstance(size, str) and _SIZES.fullmatch(size)][
            :MCP_ICONS
        ]
    if icon.get("theme") in ("light", "dark"):
        cleaned_icon["theme"] = icon["theme"]
    return cleaned_icon


def _has_host(url: str) -> bool:
    try:
        return bool(urlsplit(url).hostname)
    except ValueError:
        return False


def shown_hints(annotations: Mapping[str, Any]) -> JSON:
    """Return a tool's hints for clients. No guard uses them."""
    return {key: annotations[key] for key in _HINTS if isinstance(annotations.get(key), bool)}


def kept_size(size: object) -> int | None:
    """Return the declared size of a resource in bytes."""
    return size if isinstance(size, int) and not isinstance(size, bool) and 0 <= size <= _LARGEST_SIZE else None


def kept_annotations(annotations: object) -> JSON:
    """Return the audience, priority and modification time of a block, without other keys."""
    declared: Any = annotations
    if declared is not None and not is_object(declared):
        declared = declared.model_dump(mode="json", by_alias=True, exclude_none=True)
    known_keys: JSON = {}
    if not is_object(declared):
        return known_keys
    if is_list(declared.get("audience")):
        known_keys["audience"] = [role for role in declared["audience"] if role in ("user", "assistant")][:2]
    priority = declared.get("priority")
    if isinstance(priority, int | float) and not isinstance(priority, bool) and 0 <= priority <= 1:
        known_keys["priority"] = priority
    if isinstance(declared.get("lastModified"), str):
        known_keys["lastModified"] = cleaned(declared["lastModified"], max_bytes=MCP_TITLE_BYTES)
    return known_keys
