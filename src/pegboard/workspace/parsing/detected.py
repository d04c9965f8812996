"""Detected: parses files by their contents if the ending says nothing or is wrong, and files compressed with gzip."""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Callable
from typing import Final

from pegboard.model.bounds import MIB
from pegboard.model.json_types import JSON
from pegboard.workspace.limits import ARCHIVE_BYTES, ARCHIVE_RATIO, ARCHIVE_RATIO_BYTES
from pegboard.workspace.parsing.formats import DETECTED, FORMATS, Format, format_of
from pegboard.workspace.parsing.parsed import Parsed, UnreadableError
from pegboard.workspace.parsing.signatures import NO_PARSER, SIGNATURE_BYTES, unreadable_kind

_GZIP: Final = 16 + zlib.MAX_WBITS
_PIECE_BYTES: Final = 1 << 20
_TEXT: Final = FORMATS[".txt"]._replace(parser="pegboard.workspace.parsing.prose:parse_source")
_ROFF: Final = Format("text/troff", "pegboard.workspace.parsing.roff:parse_roff")
_ROFF_STARTS: Final = (b'.\\"', b"'\\\"", b".TH ", b".Dd ", b'.\\ "', b"'\\ \"")
_PAGE_STARTS: Final = (b"<!doctype html", b"<html")
_OFFICE_PARTS: Final = ((b"word/", ".docx"), (b"xl/", ".xlsx"), (b"ppt/", ".pptx"))
_MIME_PARTS: Final = (
    (b"mimetypeapplication/epub+zip", ".epub"),
    (b"mimetypeapplication/vnd.oasis.opendocument.text", ".odt"),
    (b"mimetypeapplication/vnd.oasis.opendocument.spreadsheet", ".ods"),
    (b"mimetypeapplication/vnd.oasis.opendocument.presentation", ".odp"),
)


_OLD_OFFICE: Final = b"\xd0\xcf\x11\xe0"
# How files of binary formats begin, also when they are locked with a password.
_STARTS: Final = {
    ".pdf": (b"%PDF",), ".rtf": (b"{\\rtf",), ".msg": (_OLD_OFFICE,), ".xls": (_OLD_OFFICE,),
    **dict.fromkeys((".docx", ".xlsx", ".xlsm", ".pptx", ".odt", ".ods", ".odp", ".epub"), (b"PK", _OLD_OFFICE)),
}  # fmt: skip
_SHEETS: Final = frozenset((".xls", ".xlsx"))


def format_in(name: str, payload: bytes) -> Format:
    """Return the format of a file by its name, or by its contents if the name is clearly wrong.

    Programs export web pages and CSV as `.xls`, and servers send an error page instead of a PDF.
    """
    named = format_of(name)
    if named is None:
        return DETECTED
    start = payload[:SIGNATURE_BYTES]
    _, dot, suffix = name.lower().rpartition(".")
    expected = _STARTS.get(dot + suffix)
    if not start or (expected is not None and any(each in start[:1_024] for each in expected)):
        return named
    is_packed = start.startswith(b"PK\x03\x04") or (start.startswith(b"%PDF-") and b"%%EOF" in payload[-1_024:])
    if (expected is None and not is_packed) or unreadable_kind(start) is not None:
        return named
    try:
        content = _format_of_content(payload)
    except UnreadableError:
        return named
    if content is _TEXT or content is _ROFF:
        return FORMATS[".csv"] if dot + suffix in _SHEETS else named
    return content


def parse_detected(options: JSON, payload: bytes) -> Parsed:
    """Parse a file by its contents; its media type is in the result."""
    kind = unreadable_kind(payload[:SIGNATURE_BYTES])
    if kind is not None:
        raise UnreadableError(f"it is {kind}{NO_PARSER}")
    detected = _format_of_content(payload)
    parsed = _parser(detected)(options, payload)
    parsed["mime"] = detected.mime
    return parsed


def _format_of_content(payload: bytes) -> Format:
    start = payload[:SIGNATURE_BYTES]
    bare = start.removeprefix(b"\xef\xbb\xbf").lstrip()
    if start.startswith(b"%PDF"):
        return FORMATS[".pdf"]
    if start.startswith(b"PK\x03\x04"):
        named = next((ending for mark, ending in _MIME_PARTS if mark in start), None)
        # The names of an archive's parts are at its end.
        ending = named or next((ending for part, ending in _OFFICE_PARTS if part in payload[-65_536:]), None)
        if ending is None:
            raise UnreadableError(f"it is an archive{NO_PARSER}")
        return FORMATS[ending]
    if bare.startswith(b"{\\rtf"):
        return FORMATS[".rtf"]
    if bare.lower().startswith(_PAGE_STARTS):
        return FORMATS[".html"]
    if start.startswith(_ROFF_STARTS):
        return _ROFF
    return _TEXT


def parse_gzip(options: JSON, payload: bytes) -> Parsed:
    """Parse a compressed file as the file that is in it, such as `changelog.gz`."""
    name: str = options["name"]
    inner = name[: -len(".gz")]
    content = unpacked(payload)
    known = format_in(inner, content)
    if known is DETECTED or known.parser.endswith(":parse_gzip"):
        return parse_detected(options, content)
    parsed = _parser(known)({**options, "name": inner}, content)
    parsed["mime"] = known.mime
    return parsed


def unpacked(payload: bytes) -> bytes:
    """Return the contents of a gzip file.

    Raises:
        UnreadableError: it is damaged, or unpacks to too much.
    """
    allowed = min(ARCHIVE_BYTES, max(ARCHIVE_RATIO_BYTES, ARCHIVE_RATIO * len(payload)))
    pieces: list[bytes] = []
    size = 0
    rest = payload
    try:
        while rest:
            # A file may have several parts, one after the other.
            stream = zlib.decompressobj(wbits=_GZIP)
            while not stream.eof:
                piece = stream.decompress(rest, _PIECE_BYTES)
                rest = stream.unconsumed_tail or (stream.unused_data if stream.eof else b"")
                size += len(piece)
                if size > allowed:
                    raise UnreadableError(f"it unpacks to more than {allowed / MIB:,.0f} MiB")
                pieces.append(piece)
                if not piece and not rest and not stream.eof:
                    raise UnreadableError("it is damaged: it ends too early")
            rest = rest.lstrip(b"\0")
    except zlib.error as error:
        raise UnreadableError(f"it is not a gzip file: {error}") from None
    return b"".join(pieces)


def _parser(kind: Format) -> Callable[[object, bytes], Parsed]:
    module, _, name = kind.parser.partition(":")
    parser: Callable[[object, bytes], Parsed] = getattr(importlib.import_module(module), name)
    return parser
