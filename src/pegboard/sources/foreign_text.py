"""Foreign text: removes invisible characters from texts of other servers."""

from __future__ import annotations

import re
import unicodedata
from functools import cache

# CSI and OSC terminal sequences with their parameters; any other escape character is removed below.
_TERMINAL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]P_^X][^\x07\x1b]*(?:\x07|\x1b\\)?|\x9b[0-?]*[ -/]*[@-~]")
_VISIBLE_CONTROLS = frozenset("\n\t")
# Letters and marks by category that are nevertheless invisible.
_BLANKS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0\u2800")
# Letters of other alphabets that look like Latin ones.
_DRAWN_ALIKE = str.maketrans(
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0458\u0455\u0501\u04bb\u04cf\u0475\u051b\u051d"
    "\u03b1\u03bf\u03c1\u03bd\u03b9\u03ba\u03c5\u03c7\u03b3\u03c4"
    "\u0410\u0412\u0415\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0425\u0406\u0408\u0405",
    "aeopcyxijsdhlvqwaopvikuxytABEKMHOPCTXIJS",
)
_PLAIN = re.compile(r"[\t\n -~]*")


@cache
def _is_hidden(char: str) -> bool:
    if char in _VISIBLE_CONTROLS:
        return False
    point = ord(char)
    is_selector = 0xFE00 <= point <= 0xFE0F or 0xE0000 <= point <= 0xE0FFF
    return is_selector or char in _BLANKS or unicodedata.category(char) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")


def has_hidden(text: str) -> bool:
    """Tell whether text has control, ANSI, bidi or invisible characters. CRLF does not count."""
    plain = text.replace("\r\n", "\n")
    return not _PLAIN.fullmatch(plain) and any(map(_is_hidden, plain))


def as_drawn(text: str) -> str:
    """Return text with lookalikes replaced by Latin letters: full-width ones and those of other alphabets."""
    return text if text.isascii() else unicodedata.normalize("NFKC", text).translate(_DRAWN_ALIKE)


def cleaned(text: str, *, max_bytes: int | None = None) -> str:
    """Return text without invisible characters, cut to `max_bytes` of UTF-8."""
    plain = text.replace("\r\n", "\n")
    if not _PLAIN.fullmatch(plain):
        plain = "".join(char for char in _TERMINAL.sub("", plain) if not _is_hidden(char))
    if max_bytes is None or len(plain) * 4 <= max_bytes or len(plain.encode()) <= max_bytes:
        return plain
    return plain.encode()[: max_bytes - 3].decode("utf-8", "ignore") + "…"
