"""read_file: read a part of a text file below the folders that the config names."""

from __future__ import annotations

from pegboard.egress.file_text import READ_TEXT_CHARS, read_text
from pegboard.egress.files import locate
from pegboard.model.call_context import CallContext
from pegboard.model.json_types import JSON
from pegboard.model.tool import Annotations, Handler
from pegboard.sources.builtin.file_roots import HardLinks, Roots, roots_of
from pegboard.sources.builtin.kind import BuiltinConfig, BuiltinKind, Services, tool_spec


class ReadConfig(BuiltinConfig):
    """The files that may be read."""

    roots: Roots
    hard_links: HardLinks = False


SPEC = tool_spec(
    "read_file",
    "Read a text file, or a part of it. Long files come in parts: continue from next_start.",
    arguments={
        "path": {"type": "string", "minLength": 1, "description": "The file, relative to the root folder."},
        "encoding": {"type": "string", "default": "utf-8", "description": "How the text is encoded."},
        "start": {"type": "integer", "minimum": 0, "default": 0, "description": "The first character to read."},
        "max_chars": {
            "type": "integer",
            "minimum": 1,
            "maximum": 200_000,
            "default": READ_TEXT_CHARS,
            "description": "The maximum number of characters.",
        },
    },
    required=("path",),
    result={
        "content": {"type": "string"},
        "path": {"type": "string"},
        "size": {"type": "integer", "description": "Bytes of the whole file."},
        "truncated": {"type": "boolean", "description": "Whether more follows."},
        "next_start": {"type": ["integer", "null"], "description": "Where to continue; null at the end."},
    },
    always=("content", "path", "size", "truncated", "next_start"),
    annotations=Annotations(read_only=True, destructive=False, idempotent=True, open_world=False),
    examples=({"path": "notes/plan.md"}, {"path": "log.txt", "start": 50_000}),
)


def make(config: ReadConfig, services: Services) -> Handler:
    """Return the handler; it runs in a thread."""
    roots = roots_of(config.roots, services.folder, hard_links=config.hard_links)

    def read(ctx: CallContext, args: JSON) -> JSON:
        root, path = locate(args["path"], roots)
        part = read_text(
            root,
            path,
            encoding=args.get("encoding", "utf-8"),
            start=args.get("start", 0),
            max_chars=args.get("max_chars", READ_TEXT_CHARS),
        )
        return {
            "content": part.content,
            "path": path,
            "size": part.size_bytes,
            "truncated": part.next_start is not None,
            "next_start": part.next_start,
        }

    return read


KIND = BuiltinKind(spec=SPEC, config=ReadConfig, make=make, runs="thread", needs_context=False)
