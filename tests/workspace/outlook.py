"""Emails as Outlook saves them: a compound file with one stream for each property."""

from __future__ import annotations

import struct

SECTOR = 512
_END, _FREE, _FAT, _NOTHING = 0xFFFFFFFE, 0xFFFFFFFF, 0xFFFFFFFD, 0xFFFFFFFF
_TEXT = 0x001F
# Streams of this size are stored in ordinary sectors, so that no mini stream is needed.
_LEAST_BYTES = 4096


def outlook_mail(texts: dict[int, str]) -> bytes:
    """Return a message with these texts by the numbers of their properties."""
    streams: dict[str, bytes] = {}
    entries = struct.pack("<HHIQ", 3, 0x340D, 6, 0x00040000)
    for pid, text in texts.items():
        raw = text.encode("utf-16-le")
        streams[f"__substg1.0_{pid:04X}{_TEXT:04X}"] = raw
        entries += struct.pack("<HHIII", _TEXT, pid, 6, len(raw) + 2, 0)
    streams["__properties_version1.0"] = struct.pack("<8x4I8x", 0, 0, 0, 0) + entries
    return compound(streams)


def compound(streams: dict[str, bytes]) -> bytes:
    """Return a compound file with these streams in its root."""
    padded = {name: content.ljust(max(_LEAST_BYTES, -(-len(content) // SECTOR) * SECTOR), b"\0")
              for name, content in streams.items()}  # fmt: skip
    names = sorted(padded, key=lambda name: (len(name), name.upper()))
    folder_sectors = -(-(len(names) + 1) // 4)
    fat = [_FAT, *_chain(1, folder_sectors)]
    starts: dict[str, int] = {}
    for name in names:
        starts[name] = len(fat)
        fat += _chain(len(fat), len(padded[name]) // SECTOR)
    assert len(fat) <= SECTOR // 4, "one sector of the table is enough for tests"
    fat += [_FREE] * (SECTOR // 4 - len(fat))
    # Each entry is the right neighbour of the one before: a list is a tree, too.
    folder = _entry("Root Entry", 5, child=1 if names else _NOTHING, start=_END, size=0)
    for number, name in enumerate(names, start=1):
        right = number + 1 if number < len(names) else _NOTHING
        folder += _entry(name, 2, right=right, start=starts[name], size=len(padded[name]))
    folder = folder.ljust(folder_sectors * SECTOR, b"\0")
    header = struct.pack(
        "<8s16xHHHHH6xIIIIIIIIII", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", 0x3E, 3, 0xFFFE, 9, 6, 0, 1, 1, 0,
        _LEAST_BYTES, _END, 0, _END, 0, 0,
    )  # fmt: skip
    header += struct.pack("<I", _FREE) * ((SECTOR - len(header)) // 4)
    return header + struct.pack(f"<{len(fat)}I", *fat) + folder + b"".join(padded[name] for name in names)


def _chain(first: int, count: int) -> list[int]:
    return [*range(first + 1, first + count), _END]


def _entry(name: str, kind: int, *, child: int = _NOTHING, right: int = _NOTHING, start: int, size: int) -> bytes:
    raw = name.encode("utf-16-le").ljust(64, b"\0")
    return raw + struct.pack(
        "<HBBIII16xI8x8xIQ", 2 * len(name) + 2, kind, 1, _NOTHING, right, child, 0, start, size
    )  # fmt: skip
