"""Rich text: parses RTF."""

from __future__ import annotations

import re
from typing import Any

from striprtf import striprtf

from pegboard.workspace.parsing.parsed import Parsed, UnreadableError, cleaned, one_line

# Of the file's information group: `{\title …}`, with escapes that the library resolves.
_FIELD = re.compile(r"\{\\(title|author) ([^{}]{1,500})\}")


def parse_rtf(_: object, payload: bytes) -> Parsed:
    """Parse a file of RTF, without pictures."""
    source = payload.decode("latin-1")
    if not source.lstrip().startswith("{\\rtf"):
        raise UnreadableError("it is not RTF: it does not begin with {\\rtf")
    text = cleaned(_plain(source)).strip()
    parsed = Parsed(text=text)
    for name, value in _FIELD.findall(source):
        plain = one_line(_plain(f"{{\\rtf1 {value}}}"))
        if plain and name == "title":
            parsed["title"] = plain
        elif plain:
            parsed["author"] = plain
    return parsed


def _plain(source: str) -> str:
    untyped: Any = striprtf
    return str(untyped.rtf_to_text(source, errors="replace"))
