"""Safe text: spell out the characters of foreign text that a terminal or a browser interprets or hides."""

from __future__ import annotations

import re

# Control characters (ESC and CSI among them), invisible characters, and those that change the direction of text. The
# two joiners U+200C and U+200D stay: scripts and emoji need them, and no terminal interprets them.
UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff"
    "\ufff9-\ufffb\U000e0000-\U000e0fff]"
)
_LINES = re.compile("[\t\n]")


def safe(text: object, *, lines: bool = False) -> str:
    r"""Return `text` with characters that a terminal interprets or hides escaped, such as `\x1b`.

    With `lines`, line breaks and tabs stay; without, the result is one line, so that it cannot look like two.
    Colour markup such as `[red]` needs no escaping: our console does not interpret it.
    """
    clean = UNSAFE.sub(_spelled, str(text))
    return clean if lines else _LINES.sub(_spelled, clean)


def _spelled(match: re.Match[str]) -> str:
    character = match.group()
    short = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(character)
    if short is not None:
        return short
    number = ord(character)
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
