"""write_file: write a text file below the folders that the config names."""

from __future__ import annotations

from pydantic import Field

from pegboard.egress.file_text import encode_text
from pegboard.egress.files import locate
from pegboard.model.bounds import MIB
from pegboard.model.call_context import CallContext
from pegboard.model.json_types import JSON
from pegboard.model.tool import Annotations, Handler
from pegboard.sources.builtin.file_roots import HardLinks, Roots, roots_of
from pegboard.sources.builtin.kind import BuiltinConfig, BuiltinKind, Services, tool_spec


class WriteConfig(BuiltinConfig):
    """The files that may be written, and their size limit."""

    roots: Roots
    hard_links: HardLinks = False
    max_bytes: int = Field(10 * MIB, gt=0, description="The size limit of a file, in bytes.")
    write_hidden: bool = Field(False, description="Whether names with a leading dot may be written.")


SPEC = tool_spec(
    "write_file",
    "Write a text file: replace it, append to it, or create it if it does not exist. Its folder must exist.",
    arguments={
        "path": {"type": "string", "minLength": 1, "description": "The file, relative to the root folder."},
        "content": {"type": "string", "description": "The text to write."},
        "encoding": {"type": "string", "default": "utf-8", "description": "How the text is encoded."},
        "mode": {
            "type": "string",
            "enum": ["overwrite", "append", "create"],
            "default": "overwrite",
            "description": "`create` refuses a file that exists.",
        },
    },
    required=("path", "content"),
    result={
        "path": {"type": "string"},
        "bytes_written": {"type": "integer", "description": "Bytes of this content."},
        "size": {"type": "integer", "description": "Bytes of the whole file now."},
    },
    always=("path", "bytes_written", "size"),
    annotations=Annotations(read_only=False, destructive=True, idempotent=False, open_world=False),
    examples=({"path": "notes/plan.md", "content": "# Plan\n"},),
)


def make(config: WriteConfig, services: Services) -> Handler:
    """Return the handler; it runs in a thread."""
    roots = roots_of(
        config.roots, services.folder, hard_links=config.hard_links, write_hidden=config.write_hidden,
        decides=services.decides,
    )  # fmt: skip

    def write(ctx: CallContext, args: JSON) -> JSON:
        root, path = locate(args["path"], roots)
        content = encode_text(args["content"], args.get("encoding", "utf-8"))
        size = root.write(path, content, mode=args.get("mode", "overwrite"), max_bytes=config.max_bytes)
        return {"path": path, "bytes_written": len(content), "size": size}

    return write


KIND = BuiltinKind(spec=SPEC, config=WriteConfig, make=make, runs="thread", needs_context=False)
