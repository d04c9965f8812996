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
# Visible signs of Arabic, Syriac and Kaithi that are written before numbers: format characters by category.
_VISIBLE_FORMATS = frozenset("\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd")
_EMOJI = (
    "\u00a9\u00ae\u203c\u2049\u2122\u2139\u2194-\u21aa\u231a-\u23ff\u24c2\u25aa-\u25fe\u2600-\u27bf\u2934\u2935"
    "\u2b05-\u2b55\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
)
# Arabic, Syriac, the scripts of India and Sri Lanka, Khmer, Mongolian.
_JOINED = (
    "\u0620-\u065f\u066e-\u06d3\u06d5\u06ee-\u06ff\u0710-\u077f\u08a0-\u08c9"
    "\u0900-\u0dff\u1780-\u17b3\u17b6-\u17d3\u1820-\u18aa"
)
_VIRAMA = "\u094d\u09cd\u0a4d\u0acd\u0b4d\u0bcd\u0c4d\u0ccd\u0d4d\u0dca"
_FLAGS = "|".join("".join(chr(0xE0000 + ord(letter)) for letter in name) for name in ("gbeng", "gbsct", "gbwls"))
# Invisible, but part of how words and emoji are written: one at a time, between characters that it joins or changes.
_NATURAL = re.compile(
    f"(?<=[{_EMOJI}])[\ufe0e\ufe0f](?![\ufe00-\ufe0f])|(?<=[0-9#*])\ufe0f(?=\u20e3)"
    f"|(?<=[{_EMOJI}\ufe0f])\u200d(?=[{_EMOJI}])"
    f"|(?<=[{_JOINED}])[\u200c\u200d](?=[{_JOINED}])|(?<=[{_VIRAMA}])[\u200c\u200d](?![\u200c\u200d])"
    f"|(?<=\U0001f3f4)(?:{_FLAGS})\U000e007f"
)
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
    point = ord(char)
    # Emoji that are newer than Python's table of characters have no category yet.
    if char in _VISIBLE_CONTROLS or char in _VISIBLE_FORMATS or 0x1F000 <= point <= 0x1FAFF:
        return False
    is_selector = 0xFE00 <= point <= 0xFE0F or 0xE0000 <= point <= 0xE0FFF
    return is_selector or char in _BLANKS or unicodedata.category(char) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")


def has_hidden(text: str) -> bool:
    """Tell whether text has control, ANSI, bidi or invisible characters.

    CRLF does not count, nor do joiners and selectors where words and emoji are written with them.
    """
    plain = text.replace("\r\n", "\n")
    return not _PLAIN.fullmatch(plain) and any(map(_is_hidden, _NATURAL.sub("", plain)))


def without_visible_formats(text: str) -> str:
    """Return text without the characters that Python calls unprintable although they show as, or in, a sign."""
    signs = (char for char in _NATURAL.sub("", text) if char not in _VISIBLE_FORMATS)
    return "".join(char for char in signs if not 0x1F000 <= ord(char) <= 0x1FAFF)


def as_drawn(text: str) -> str:
    """Return text with lookalikes replaced by Latin letters: full-width ones and those of other alphabets."""
    return text if text.isascii() else unicodedata.normalize("NFKC", text).translate(_DRAWN_ALIKE)


def cleaned(text: str, *, max_bytes: int | None = None) -> str:
    """Return text without the characters that `has_hidden` finds, cut to `max_bytes` of UTF-8."""
    plain = text.replace("\r\n", "\n")
    if not _PLAIN.fullmatch(plain):
        plain = _TERMINAL.sub("", plain)
        visible, at = list[str](), 0
        for match in _NATURAL.finditer(plain):
            visible += [char for char in plain[at : match.start()] if not _is_hidden(char)]
            visible.append(match.group())
            at = match.end()
        visible += [char for char in plain[at:] if not _is_hidden(char)]
        plain = "".join(visible)
    if max_bytes is None or len(plain) * 4 <= max_bytes or len(plain.encode()) <= max_bytes:
        return plain
    return plain.encode()[: max_bytes - 3].decode("utf-8", "ignore") + "…"
