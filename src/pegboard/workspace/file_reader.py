"""File reader: parses files in child processes that can be killed."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self, cast

from pegboard.egress.sandbox import SandboxError
from pegboard.egress.sandbox_pool import SandboxPool
from pegboard.model.bounds import DEFAULT_BOUNDS, MIB
from pegboard.model.document import DocumentTable, NewDocument
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON, JSONValue
from pegboard.model.record import replace
from pegboard.workspace.own_metadata import readable_metadata
from pegboard.workspace.parsing.feed import Feed
from pegboard.workspace.parsing.formats import DETECTED, format_of
from pegboard.workspace.parsing.parsed import MAX_CHARS_VARIABLE

PARSERS = 4  # children that parse files at once, at most one per CPU
PARSE_S = 30.0  # seconds to parse one file
PARSE_MEMORY_BYTES = 512 * MIB  # bytes of memory of a parsing child
PARSE_OUTPUT_BYTES = 64 * MIB  # bytes of one file's parsed contents as JSON

_UNREADABLE = "UnreadableError"
log = logging.getLogger("pegboard")
_FEED = "pegboard.workspace.parsing.feed:parse_feed"
_TOLD = ("title", "author", "created", "language", "headings", "pages", "encoding", "encoding_from")


class FileReader:
    """Parses files to documents; `async with` ends its children. For one event loop."""

    def __init__(self, *, max_chars: int = DEFAULT_BOUNDS.document_chars) -> None:
        """Parse texts of at most `max_chars`; a child gets more memory and time where that is more than usual."""
        scale = max(1.0, max_chars / DEFAULT_BOUNDS.document_chars)
        self._pool = SandboxPool(
            env={MAX_CHARS_VARIABLE: str(max_chars)},
            children=min(PARSERS, os.cpu_count() or 1),
            timeout_s=PARSE_S * scale,
            memory_bytes=int(PARSE_MEMORY_BYTES * scale),
            output_bytes=int(PARSE_OUTPUT_BYTES * scale),
            expected=_UNREADABLE,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._pool.__aexit__(kind, exc, trace)

    async def read(
        self, path: str, payload: bytes, *, modified_s: float | None = None, encoding: str = "", name: str = ""
    ) -> NewDocument:
        """Return the document in a file; an unreadable one has an `error` with a one-line reason.

        `encoding` is for texts without a byte order mark; empty means detection. `name` tells the format; by default
        that of the path.
        """
        name = name or path.rpartition("/")[2]
        kind = format_of(name) or DETECTED
        document = NewDocument(
            path=path,
            mime=kind.mime,
            size_bytes=len(payload),
            checksum=checksum_of(payload),
            modified_s=modified_s,
        )
        try:
            options: JSON = {"name": name, "encoding": encoding}
            parsed: JSON = await self._pool.call(kind.parser, options, payload)
        except SandboxError as error:
            return with_error(document, _reason(path, error))
        except CallError as error:
            return with_error(document, error.error.message)
        return _filled(document, parsed)

    async def feed(self, payload: bytes) -> Feed:
        """Return a feed with its entries.

        Raises:
            CallError: invalid_arguments, if it is not a feed; timeout; result_too_large.
        """
        return cast("Feed", await self.listing(_FEED, payload))

    async def listing(self, parser: str, payload: bytes) -> Any:
        """Return what a parser of lists, `module:function`, finds in the answer of a server.

        Raises:
            CallError: invalid_arguments, if it is not such a list; timeout; result_too_large.
        """
        try:
            return await self._pool.call(parser, {}, payload)
        except SandboxError as error:
            raise CallError("invalid_arguments", _reason("a list", error)) from None


def _reason(name: str, error: SandboxError) -> str:
    """Return why nothing could be read of a file. What an unexpected error says may quote the file, so it is logged."""
    if error.type_name == _UNREADABLE:
        return error.text
    log.warning("The parser of %r failed: %s: %s", name, error.type_name, error.text)
    return f"its parser failed: {error.type_name}"


def checksum_of(payload: bytes) -> str:
    """Return the checksum by which contents are compared."""
    return f"sha256:{hashlib.sha256(payload).hexdigest()}"


def with_error(document: NewDocument, error: str) -> NewDocument:
    """Return the document with an error and without contents."""
    return replace(document, error=" ".join(error.split()))


def _filled(document: NewDocument, parsed: JSON) -> NewDocument:
    tables = cast("Sequence[JSON]", parsed.get("tables") or ())
    own = readable_metadata(parsed.get("own", {}))
    metadata: JSON = {**own, **{name: parsed[name] for name in _TOLD if parsed.get(name)}}
    mime: str = parsed.get("mime", document.mime)
    return replace(document, mime=mime, text=parsed["text"], metadata=metadata, tables=tuple(map(_table, tables)))


def _table(parsed: JSON) -> DocumentTable:
    rows: list[list[JSONValue]] = parsed["rows"]
    columns: list[Any] = parsed["columns"]
    return DocumentTable(name=parsed["name"], columns=tuple(columns), rows=tuple(tuple(row) for row in rows))
