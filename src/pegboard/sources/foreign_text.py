"""Foreign text: what others wrote, without what a reader cannot see."""

from __future__ import annotations

import re
import unicodedata
from functools import cache

# CSI and OSC sequences of terminals with what they carry; any other escape loses its first byte below.
_TERMINAL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]P_^X][^\x07\x1b]*(?:\x07|\x1b\\)?|\x9b[0-?]*[ -/]*[@-~]")
_VISIBLE_CONTROLS = frozenset("\n\t")
# Letters and marks by category that still draw nothing.
_BLANKS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0\u2800")
_PLAIN = re.compile(r"[\t\n -~]*")


@cache
def _is_hidden(char: str) -> bool:
    if char in _VISIBLE_CONTROLS:
        return False
    point = ord(char)
    is_selector = 0xFE00 <= point <= 0xFE0F or 0xE0000 <= point <= 0xE0FFF
    return is_selector or char in _BLANKS or unicodedata.category(char) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")


def has_hidden(text: str) -> bool:
    """Tell whether text holds control, ANSI, bidi or invisible characters. A CRLF is none."""
    plain = text.replace("\r\n", "\n")
    return not _PLAIN.fullmatch(plain) and any(map(_is_hidden, plain))


def cleaned(text: str, *, max_bytes: int | None = None) -> str:
    """Return text without such characters, cut to `max_bytes` of UTF-8."""
    plain = text.replace("\r\n", "\n")
    if not _PLAIN.fullmatch(plain):
        plain = "".join(char for char in _TERMINAL.sub("", plain) if not _is_hidden(char))
    if max_bytes is None or len(plain) * 4 <= max_bytes or len(plain.encode()) <= max_bytes:
        return plain
    return plain.encode()[: max_bytes - 3].decode("utf-8", "ignore") + "…"
