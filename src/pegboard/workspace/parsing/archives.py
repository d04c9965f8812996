"""Archives: checks zip files for decompression bombs, and their XML parts for entities, before a library reads them."""

from __future__ import annotations

import io
import zipfile  # noqa: TID251 - of bytes that were read already, in a child that writes no files
from collections.abc import Callable
from typing import Any

from docx.oxml import parse_xml

from pegboard.model.bounds import MIB
from pegboard.workspace.limits import ARCHIVE_BYTES, ARCHIVE_RATIO, ARCHIVE_RATIO_BYTES
from pegboard.workspace.parsing.parsed import UnreadableError

ARCHIVE_ENTRIES = 10_000  # parts of one archive

IsParsed = Callable[[str], bool]
"""Tells whether a library parses a part, by its name, as XML."""

# `<!DOCTYPE` in EBCDIC and in UTF-7.
_EBCDIC_DOCTYPE, _UTF_7_DOCTYPE = "<!DOCTYPE".encode("cp037"), b"+ADw-!DOCTYPE"
_TYPES = "[Content_Types].xml"
_OFFICE_TYPES = ("application/vnd.openxmlformats", "application/vnd.ms-")
# Settings of a printer, which macOS saves as a property list. No library reads them.
_PRINTER = ".printersettings"
_OLD_ARCHIVE = b"\xd0\xcf\x11\xe0"
_OPEN_DOCUMENT_PARTS = frozenset({"content.xml", "meta.xml", "styles.xml", "settings.xml", "manifest.xml"})
_OVERLAP = 64
_PIECE_BYTES = 1 << 20


def check_archive(
    payload: bytes, *, kind: str = "Office", parts: Callable[[zipfile.ZipFile], IsParsed] | None = None
) -> None:
    """Check that a file has an acceptable unpacked size, and that its parsed parts define no entities.

    `kind` is for messages. `parts` returns which parts are parsed; by default those of Microsoft Office.

    Raises:
        UnreadableError: it fails a check.
    """
    if payload.startswith(_OLD_ARCHIVE):
        raise UnreadableError("it has a password, or was written by an Office before 2007. Save it again")
    try:
        with zipfile.ZipFile(io.BytesIO(payload)) as archive:
            entries = archive.infolist()
            if len(entries) > ARCHIVE_ENTRIES:
                raise UnreadableError(f"it has {len(entries):,} parts; at most {ARCHIVE_ENTRIES:,} are taken")
            is_parsed = (parts or _parsed_parts)(archive)
            allowed = min(ARCHIVE_BYTES, max(ARCHIVE_RATIO_BYTES, ARCHIVE_RATIO * len(payload)))
            unpacked = 0
            for entry in entries:
                # Counted while unpacking, since an entry's declared size may be wrong.
                checked = is_parsed(entry.filename)
                with archive.open(entry) as part:
                    before = b""
                    while piece := part.read(_PIECE_BYTES):
                        unpacked += len(piece)
                        if unpacked > allowed:
                            raise UnreadableError(f"it unpacks to more than {allowed / MIB:,.0f} MiB")
                        # Both pieces are searched together, since the declaration may be split between them.
                        if checked and defines_entities(before + piece):
                            raise UnreadableError(
                                f"its part {entry.filename[:100]!r} defines entities, as no {kind} file does"
                            )
                        before = piece[-_OVERLAP:]
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        raise UnreadableError(f"it is not a valid {kind} file: {str(error)[:200]}") from None


def safe_xml(markup: bytes) -> Any:
    """Return the root element of a part that we parse ourselves.

    Raises:
        UnreadableError: it defines entities.
    """
    if defines_entities(markup):
        raise UnreadableError("one of its parts defines entities, as no Office file does")
    return parse_xml(markup)


def defines_entities(markup: bytes) -> bool:
    """Tell whether XML has a document type, in any encoding that a parser supports."""
    # Without the zero bytes of wide encodings.
    letters = markup.replace(b"\0", b"")
    return any(mark in letters for mark in (b"<!DOCTYPE", b"<!ENTITY", _EBCDIC_DOCTYPE, _UTF_7_DOCTYPE))


def _parsed_parts(archive: zipfile.ZipFile) -> Callable[[str], bool]:
    """Return a function that tells whether a part is parsed as XML: by python-docx or calamine.

    Pictures, previews and macOS files are never parsed, and may have a document type. If a file does not declare the
    types of its parts, all count as parsed.
    """
    try:
        types = archive.read(_TYPES)
        root: Any = None if defines_entities(types) else parse_xml(types)
    except (KeyError, SyntaxError):
        root = None
    if root is None:
        return lambda _: True
    by_name = {str(each.get("PartName", "")).lstrip("/").lower(): each.get("ContentType", "") for each in root}
    by_suffix = {str(each.get("Extension", "")).lower(): each.get("ContentType", "") for each in root}

    def is_parsed(name: str) -> bool:
        name = name.lstrip("/").lower()
        kind = str(by_name.get(name) or by_suffix.get(name.rpartition(".")[2], "")).lower()
        is_sheet = name.startswith("xl/") and name.endswith(".xml") and "/media/" not in name
        is_office = kind.startswith(_OFFICE_TYPES) and not kind.endswith(_PRINTER)
        return name == _TYPES.lower() or name.endswith(".rels") or is_office or is_sheet

    return is_parsed


def open_document_parts(_: zipfile.ZipFile) -> IsParsed:
    """Return the function that tells which parts of an OpenDocument file are parsed."""
    return lambda name: name.rpartition("/")[2] in _OPEN_DOCUMENT_PARTS


def package_parts(_: zipfile.ZipFile) -> IsParsed:
    """Return the function that tells which parts of an EPUB are parsed as XML: its lists, and not its pages."""
    return lambda name: name.lower().endswith((".opf", "container.xml"))
