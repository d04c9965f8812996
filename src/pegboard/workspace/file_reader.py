"""File reader: parses files in child processes that can be killed."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self, cast

from pegboard.egress.sandbox import SandboxError, SandboxPool
from pegboard.model.bounds import DEFAULT_BOUNDS, MIB
from pegboard.model.document import DocumentTable, NewDocument
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON, JSONValue
from pegboard.model.record import replace
from pegboard.workspace.own_metadata import readable_metadata
from pegboard.workspace.parsers import NO_PARSERS, PARSE_MEMORY_BYTES, PARSE_S, DocumentParser, Parsers, type_of
from pegboard.workspace.parsing.detected import format_in
from pegboard.workspace.parsing.feed import Feed
from pegboard.workspace.parsing.formats import OWN_PARSER, PICTURE_PARSER
from pegboard.workspace.parsing.parsed import MAX_CHARS_VARIABLE

PARSERS = 4  # children that parse files at once, at most one per CPU
PARSE_OUTPUT_BYTES = 64 * MIB  # bytes of one file's parsed contents as JSON

_UNREADABLE = "UnreadableError"
log = logging.getLogger("pegboard")
_FEED = "pegboard.workspace.parsing.feed:parse_feed"
_TOLD = ("title", "author", "created", "language", "headings", "pages", "encoding", "encoding_from")


class FileReader:
    """Parses files to documents; `async with` ends its children. For one event loop."""

    def __init__(self, *, max_chars: int = DEFAULT_BOUNDS.document_chars, parsers: Parsers = NO_PARSERS) -> None:
        """Parse texts of at most `max_chars`; a child gets more memory and time where that is more than usual.

        `parsers` of the host come before ours, each in children with its own limits.
        """
        self._max_chars, self._parsers = max_chars, parsers
        self._scale = max(1.0, max_chars / DEFAULT_BOUNDS.document_chars)
        self._pool = self._children(PARSE_S * self._scale, int(PARSE_MEMORY_BYTES * self._scale))
        self._own_pools: dict[tuple[float, int], SandboxPool] = {}

    def _children(self, timeout_s: float, memory_bytes: int, folders: tuple[str, ...] = ()) -> SandboxPool:
        return SandboxPool(
            env={MAX_CHARS_VARIABLE: str(self._max_chars)},
            children=min(PARSERS, os.cpu_count() or 1),
            timeout_s=timeout_s,
            memory_bytes=memory_bytes,
            output_bytes=int(PARSE_OUTPUT_BYTES * self._scale),
            expected=_UNREADABLE,
            folders=folders,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        async with AsyncExitStack() as pools:
            for pool in (self._pool, *self._own_pools.values()):
                pools.push_async_exit(pool)

    async def read(
        self, path: str, payload: bytes, *, modified_s: float | None = None, encoding: str = "", name: str = ""
    ) -> NewDocument:
        """Return the document in a file; an unreadable one has an `error` with a one-line reason.

        `encoding` is for texts without a byte order mark; empty means detection. `name` tells the format; by default
        that of the path.
        """
        name = name or path.rpartition("/")[2]
        own = self._parsers.for_name(name)
        kind = format_in(name, payload)
        document = NewDocument(
            path=path,
            mime=kind.mime if own is None else type_of(name) or kind.mime,
            size_bytes=len(payload),
            checksum=checksum_of(payload),
            modified_s=modified_s,
        )
        options: JSON = {"name": name, "encoding": encoding}
        if own is not None:
            return await self._read_by(own, document, options, payload)
        ocr = self._parsers.ocr
        if ocr is not None and self._parsers.recognizes(name):
            mime = type_of(name)
            return await self._recognized(ocr, PICTURE_PARSER, replace(document, mime=mime), options, payload)
        try:
            parsed: JSON = await self._pool.call(kind.parser, options, payload)
        except CallError as error:
            return with_error(document, _reason(path, error))
        own = self._parsers.for_type(parsed.get("mime", ""))
        if own is not None:
            # Of a file whose ending says nothing, only its content tells the type.
            return await self._read_by(own, replace(document, mime=parsed["mime"]), options, payload)
        if ocr is not None and parsed.get("bare_pages"):
            found = await self._recognized(ocr, kind.parser, document, options, payload)
            if not (found.error and parsed["text"]):
                return found
            log.warning("Text recognition of %r failed, so only its other pages are found: %s", path, found.error)
        return _filled(document, parsed)

    async def _read_by(self, own: DocumentParser, document: NewDocument, options: JSON, payload: bytes) -> NewDocument:
        """Return the document that a parser of the host reads."""
        options = {**options, "function": own.reference}
        return await self._answered(own, OWN_PARSER, document, options, payload, {"parser": own.reference})

    async def _recognized(
        self, ocr: DocumentParser, parser: str, document: NewDocument, options: JSON, payload: bytes
    ) -> NewDocument:
        """Return the document with recognized text."""
        options = {**options, "ocr": ocr.reference, "mime": document.mime}
        return await self._answered(ocr, parser, document, options, payload, {"ocr": ocr.reference})

    async def _answered(
        self, own: DocumentParser, parser: str, document: NewDocument, options: JSON, payload: bytes, read_by: JSON
    ) -> NewDocument:
        limits = own.timeout_s, own.memory_bytes
        if limits not in self._own_pools:
            self._own_pools[limits] = self._children(*limits, self._parsers.folders)
        try:
            parsed: JSON = await self._own_pools[limits].call(parser, options, payload)
        except CallError as error:
            return with_error(document, _reason(document.path, error, own.reference))
        read = _filled(document, parsed)
        return replace(read, metadata={**read.metadata, **read_by})

    async def feed(self, payload: bytes) -> Feed:
        """Return a feed with its entries.

        Raises:
            CallError: invalid_arguments, if it is not a feed; timeout; result_too_large.
        """
        return cast("Feed", await self.listing(_FEED, payload))

    async def listing(self, parser: str, payload: bytes) -> Any:
        """Return the result of a list parser, `module:function`, for the answer of a server.

        Raises:
            CallError: invalid_arguments, if it is not such a list; timeout; result_too_large.
        """
        try:
            return await self._pool.call(parser, {}, payload)
        except SandboxError as error:
            raise CallError("invalid_arguments", _reason("a list", error)) from None


def _reason(name: str, error: CallError, parser: str = "") -> str:
    """Return why nothing could be read of a file. What an unexpected error says may quote the file, so it is logged."""
    if not isinstance(error, SandboxError):
        return error.error.message
    if error.type_name == _UNREADABLE:
        return error.text
    log.warning("The parser %sof %r failed: %s: %s", f"{parser} " if parser else "", name, error.type_name, error.text)
    return f"its parser {parser!r} failed: {error.type_name}" if parser else f"its parser failed: {error.type_name}"


def checksum_of(payload: bytes) -> str:
    """Return the checksum for comparing contents."""
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
