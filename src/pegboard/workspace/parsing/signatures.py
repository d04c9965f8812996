"""Signatures: recognizes by its first bytes what a file without a known ending is."""

from __future__ import annotations

import re
from typing import Final

SIGNATURE_BYTES = 4_096  # bytes of a file that are looked at

NO_PARSER = ", which no parser reads"
_PICTURE, _SOUND, _PROGRAM, _ARCHIVE, _FONT = "a picture", "a sound or a film", "a program", "an archive", "a font"
_AT_START: Final = (
    (b"\x89PNG", _PICTURE), (b"\xff\xd8\xff", _PICTURE), (b"GIF8", _PICTURE), (b"II*\0", _PICTURE),
    (b"MM\0*", _PICTURE), (b"\0\0\1\0", _PICTURE), (b"8BPS", _PICTURE),
    (b"\x7fELF", _PROGRAM), (b"\0asm", _PROGRAM), (b"\xca\xfe\xba\xbe", _PROGRAM), (b"\xcf\xfa\xed\xfe", _PROGRAM),
    (b"\xfd7zXZ", _ARCHIVE), (b"\x28\xb5\x2f\xfd", _ARCHIVE), (b"BZh", _ARCHIVE), (b"7z\xbc\xaf", _ARCHIVE),
    (b"Rar!", _ARCHIVE), (b"\x1f\x8b", _ARCHIVE), (b"!<arch>\n", _ARCHIVE), (b"\x1f\x9d", _ARCHIVE),
    (b"wOFF", _FONT), (b"wOF2", _FONT), (b"OTTO", _FONT), (b"\0\1\0\0\0", _FONT), (b"ttcf", _FONT),
    (b"OggS", _SOUND), (b"ID3", _SOUND), (b"fLaC", _SOUND),
    (b"SQLite format 3\0", "a database"), (b"\xd0\xcf\x11\xe0", "a file of an Office before 2007"),
    (b"\xde\x12\x04\x95", "a compiled translation"), (b"\x95\x04\x12\xde", "a compiled translation"),
)  # fmt: skip
_IN_RIFF: Final = {b"WEBP": _PICTURE, b"WAVE": _SOUND, b"AVI ": _SOUND}
# An Office file, OpenDocument file or EPUB begins with one of these parts.
_KNOWN_ARCHIVES: Final = (b"[Content_Types].xml", b"mimetypeapplication/")
_WIDE_PAIRS: Final = 8
_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")
# Without the separator of pages in GNU Info files.
_CONTROL: Final = re.compile(rb"[\x00-\x06\x0e-\x1a\x1c-\x1e]")
_PRIVATE_KEY: Final = re.compile(rb"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY( BLOCK)?-----|PuTTY-User-Key-File-")


def unreadable_kind(start: bytes) -> str | None:
    """Return the kind of a file with these first bytes that no parser reads: a picture, an archive, a private key, ….

    Returns `None` for texts, and for the documents that `detected` reads.
    """
    for signature, kind in _AT_START:
        if start.startswith(signature):
            return kind
    if start.startswith(b"RIFF"):
        return _IN_RIFF.get(start[8:12], "a binary file")
    if start[4:8] == b"ftyp":
        return _SOUND
    if start[257:262] == b"ustar":
        return _ARCHIVE
    if start.startswith(b"PK\x03\x04"):
        return None if any(part in start for part in _KNOWN_ARCHIVES) else _ARCHIVE
    if start.startswith((b"%PDF", *_MARKS)) or _is_wide(start):
        return None
    if _CONTROL.search(start):
        return "a binary file"
    # A search of documents must not find private keys that were left next to them.
    return "a private key" if _PRIVATE_KEY.search(start) else None


def _is_wide(start: bytes) -> bool:
    """Tell whether every other byte is zero, as in UTF-16 of most languages."""
    pairs = len(start) // 2
    even, odd = start[: 2 * pairs : 2].count(0), start[1 : 2 * pairs : 2].count(0)
    return pairs >= _WIDE_PAIRS and ((odd > pairs * 0.4 and not even) or (even > pairs * 0.4 and not odd))
