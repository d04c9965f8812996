"""Result blocks: the parts of a result on a page: text, JSON as a tree, diffs, images, sounds and resources."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from pegboard.model.bounds import MIB
from pegboard.model.json_types import JSONValue, is_list, is_object
from pegboard.model.result import AudioContent, ImageContent, ResourceContent, ResourceLink, TextContent

INLINE_BYTES = 4 * MIB  # of an image or sound that is part of the page; larger ones are described
TREE_NODES = 2_000  # values of a tree; the rest is counted
TREE_LEVELS = 20
TREE_OPEN_LEVELS = 2  # levels that are open at first
DIFF_LINES = 5_000

BlockKind: TypeAlias = Literal["text", "tree", "diff", "image", "audio", "note"]
_IMAGES = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "image/bmp"))
_SOUNDS = frozenset(("audio/wav", "audio/x-wav", "audio/mpeg", "audio/mp3", "audio/ogg", "audio/webm", "audio/flac"))
_MARKS = (("@@", "place"), ("+++", "file"), ("---", "file"), ("+", "added"), ("-", "removed"))


class TreeNode(NamedTuple):
    """A value of a tree: its key, and its JSON if it is simple, or else its values.

    `left_out` counts the values that are not shown.
    """

    key: str
    text: str
    is_list: bool = False
    nodes: Sequence[TreeNode] | None = None
    left_out: int = 0
    is_open: bool = False


class DiffLine(NamedTuple):
    """A line of a diff; `mark` is `added`, `removed`, `file`, `place` or empty."""

    mark: str
    text: str


class Block(NamedTuple):
    """A part of a result. `text` is its text, or describes it; `source` is the `data:` URI of an image or a sound."""

    kind: BlockKind
    text: str
    title: str = ""
    source: str = ""
    lines: Sequence[DiffLine] = ()
    tree: TreeNode | None = None


def block_of(content: object) -> Block:
    """Return a part of a result as a page shows it."""
    match content:
        case TextContent(text=text):
            return _of_text(text, "")
        case ImageContent(data=data, mime_type=kind) | AudioContent(data=data, mime_type=kind):
            return _of_bytes(data, kind, "")
        case ResourceContent(uri=uri, text=str(text)):
            return _of_text(text, uri)
        case ResourceContent(uri=uri, blob=blob, mime_type=kind):
            return _of_bytes(blob or b"", kind or "unknown type", uri)
        case ResourceLink(uri=uri, name=name, description=description):
            return Block("note", description or "A resource that the client may read itself.", f"{name}: {uri}")
        case _:
            return Block("note", type(content).__name__)


def tree_of(value: JSONValue) -> TreeNode:
    """Return JSON as a tree of at most `TREE_NODES` values."""
    return _node("", value, 0, [TREE_NODES])


def _of_text(text: str, title: str) -> Block:
    if text.lstrip()[:1] in ("{", "["):
        try:
            value: Any = json.loads(text)
        except (ValueError, RecursionError):
            return Block("text", text, title)
        return Block("tree", text, title, tree=tree_of(value))
    if "\n@@ -" in text and "+++ " in text:
        return Block("diff", text, title, lines=[_line(line) for line in text.split("\n")[:DIFF_LINES]])
    return Block("text", text, title)


def _line(line: str) -> DiffLine:
    return DiffLine(next((mark for start, mark in _MARKS if line.startswith(start)), ""), line)


def _of_bytes(data: bytes, mime: str, title: str) -> Block:
    kind, text = mime.partition(";")[0].strip().lower(), f"{mime}, {len(data):,} bytes"
    shown: BlockKind = "image" if kind in _IMAGES else "audio" if kind in _SOUNDS else "note"
    if shown == "note" or len(data) > INLINE_BYTES:
        return Block("note", text, title)
    return Block(shown, text, title, source=f"data:{kind};base64,{b64encode(data).decode()}")


def _node(key: str, value: JSONValue, level: int, left: list[int]) -> TreeNode:
    """Return a value; `left` is the number of values that the whole tree may still have."""
    left[0] -= 1
    pairs = _pairs(value)
    if pairs is None:
        return TreeNode(key, json.dumps(value, ensure_ascii=False, default=str))
    if level >= TREE_LEVELS:
        return TreeNode(key, "", is_list(value), (), len(pairs))
    nodes = list[TreeNode]()
    for name, inner in pairs:
        if left[0] <= 0:
            break
        nodes.append(_node(name, inner, level + 1, left))
    return TreeNode(key, "", is_list(value), nodes, len(pairs) - len(nodes), level < TREE_OPEN_LEVELS)


def _pairs(value: JSONValue) -> list[tuple[str, JSONValue]] | None:
    """Return the values inside of a value with their keys; `None` for a simple one."""
    if is_object(value):
        return [(str(name), inner) for name, inner in value.items()]
    return [(str(place), inner) for place, inner in enumerate(value)] if is_list(value) else None
