"""File text: decodes a part of a file, and encodes text for writing."""

from __future__ import annotations

import codecs
import re

from msgspec import Struct

from pegboard.egress.files import Root
from pegboard.model.bounds import DEFAULT_BOUNDS
from pegboard.model.error import CallError

READ_TEXT_CHARS = 50_000  # characters read from one file by default

_CHUNK_BYTES = 64 * 1024
# Not used for files, and slow on malicious input.
_NO_ENCODINGS = frozenset({"idna", "punycode", "unicode_escape", "raw_unicode_escape", "undefined"})
# UTF-8, and encodings in units of two or four bytes, which cannot be mistaken for ASCII.
_TAKEN = re.compile(r"utf_?8|utf_?(16|32)(_?[lb]e)?")
_MARKED = "utf_8_sig"
_PLAIN = bytes(range(128))


class TextPart(Struct, frozen=True, kw_only=True):
    """Characters of a file from `start` on. `next_start` is where the rest begins, None at the end."""

    content: str
    size_bytes: int
    next_start: int | None


def read_text(
    root: Root,
    path: str,
    *,
    encoding: str = "utf-8",
    start: int = 0,
    max_chars: int = READ_TEXT_CHARS,
    max_scanned_bytes: int = DEFAULT_BOUNDS.upload_bytes,
) -> TextPart:
    """Read at most `max_chars` characters from character `start` on, with no more than that in memory.

    Raises:
        CallError: invalid_arguments for a path that is not an ordinary file below the root, an unknown encoding, bytes
            that are invalid in it, and a start beyond the first `max_scanned_bytes`.
    """
    decoder = _codec(encoding).incrementaldecoder("strict")
    wanted, skipped, scanned_bytes, is_last = "", 0, 0, False
    with root.open_read(path) as file:
        size_bytes = file.seek(0, 2)
        file.seek(0)
        # One more character than requested shows whether anything follows.
        while not is_last and len(wanted) <= max_chars:
            if scanned_bytes > max_scanned_bytes:
                raise _refusal(f"Only the first {max_scanned_bytes} bytes of {path!r} can be read. Use a lower start.")
            chunk = file.read(_CHUNK_BYTES)
            scanned_bytes += len(chunk)
            is_last = not chunk
            try:
                text = decoder.decode(chunk, is_last)
            except UnicodeError as exc:
                near = scanned_bytes - len(chunk) + getattr(exc, "start", 0)
                text = f"{path!r} is not valid {encoding!r} near byte {near}. Name its encoding."
                raise _refusal(text) from None
            drop = min(len(text), start - skipped)
            skipped += drop
            wanted += text[drop:]
    next_start = start + max_chars if len(wanted) > max_chars else None
    return TextPart(content=wanted[:max_chars], size_bytes=size_bytes, next_start=next_start)


def encode_text(content: str, encoding: str = "utf-8") -> bytes:
    """Encode text.

    Raises:
        CallError: invalid_arguments for an unknown encoding, and for characters that it does not have.
    """
    try:
        return _codec(encoding).encode(content, "strict")[0]
    except UnicodeEncodeError as exc:
        text = f"{encoding!r} cannot hold {content[exc.start]!r} (character {exc.start}). Use 'utf-8'."
        raise _refusal(text) from None


def _codec(encoding: str) -> codecs.CodecInfo:
    try:
        codec = codecs.lookup(encoding)
    except (LookupError, ValueError):
        codec = None
    # Codecs without this flag are transformations such as 'zip', which could unpack a bomb.
    is_text = codec is not None and getattr(codec, "_is_text_encoding", False)
    name = "" if codec is None else codec.name.casefold().replace("-", "_")
    if codec is None or not is_text or name in _NO_ENCODINGS or not (_TAKEN.fullmatch(name) or _is_plain(codec, name)):
        raise _refusal(f"The encoding {encoding[:40]!r} is unknown. Use 'utf-8'.")
    return codec


def _is_plain(codec: codecs.CodecInfo, name: str) -> bool:
    """Tell whether each ASCII byte means its own character, and vice versa.

    In other encodings, such as UTF-7, ISO 2022 or EBCDIC, a text that passes a check of its bytes may decode to
    something harmful.
    """
    try:
        # One byte at a time, since a lone shift byte decodes to nothing.
        read = [codec.decode(_PLAIN[place : place + 1], "strict")[0] for place in _PLAIN]
        written = codec.encode("".join(read), "strict")[0]
    except UnicodeError:
        return False
    mark = codecs.BOM_UTF8 if name == _MARKED else b""
    return "".join(read).encode() == _PLAIN and written == mark + _PLAIN


def _refusal(text: str) -> CallError:
    return CallError("invalid_arguments", text)
