"""Words: find every name in a PostgreSQL statement, as the server's own scanner would."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

# For the server every character beyond ASCII is a letter; here too, or a name could hide what follows it.
_LETTER: Final = "A-Za-z_\\x80-\\U0010ffff"
_TOKEN: Final = re.compile(
    rf"""
      (?P<line>--[^\n\r]*) | (?P<block>/\*) | (?P<escaped>[eE]') | (?P<string>(?:[uU]&)?')
    | (?P<dollar>\$(?:[{_LETTER}][{_LETTER}0-9]*)?\$) | (?P<hidden>[uU]&") | (?P<quoted>"(?:[^"]|"")*")
    | (?P<word>[{_LETTER}][{_LETTER}0-9$]*) | (?P<blank>\s+) | (?P<other>.)
    """,
    re.DOTALL | re.VERBOSE,
)
_STRING: Final = re.compile(r"[^']*(?:'|$)")
# What follows such a string on another line, behind blanks and comments, is a part of it: escapes hold there too.
_GAP: Final = r"(?:[ \t\f\v]|--[^\n\r]*+)*+[\n\r](?:[ \t\n\r\f\v]|--[^\n\r]*+[\n\r])*+"
_INSIDE: Final = r"(?:[^'\\]++|\\.|'')*+(?:'|\\?\Z)"
_ESCAPED: Final = re.compile(rf"{_INSIDE}(?:{_GAP}'{_INSIDE})*+", re.DOTALL)
_BLOCK: Final = re.compile(r"/\*|\*/")


class Word(NamedTuple):
    """A name as the server compares it: in lower case unless it was quoted.

    `is_hidden` marks a name written with escapes (`U&"…"`), whose text is not known here, and one with a `$`, of which
    versions of the server differ in whether it is a name or begins a string (`1e5$$`).
    """

    text: str
    is_quoted: bool = False
    is_hidden: bool = False


def words_of(statement: str) -> Iterator[Word]:
    """Yield the names of a statement in their order, not what stands in its strings and comments."""
    at = 0
    while at < len(statement):
        found = _TOKEN.match(statement, at)
        assert found is not None, "the last alternative takes any character"
        at = found.end()
        match found.lastgroup:
            case "block":
                at = _after_block(statement, at)
            case "string":
                at = _end(_STRING, statement, at)
            case "escaped":
                at = _end(_ESCAPED, statement, at)
            case "dollar":
                closing = statement.find(found.group(), at)
                at = len(statement) if closing < 0 else closing + len(found.group())
            case "quoted":
                yield Word(found.group()[1:-1].replace('""', '"'), is_quoted=True)
            case "hidden":
                yield Word(found.group(), is_hidden=True)
                at = _end(re.compile('[^"]*(?:"|$)'), statement, at)
            case "word":
                yield Word(found.group().lower(), is_hidden="$" in found.group())
            case _:
                pass


def _end(pattern: re.Pattern[str], statement: str, at: int) -> int:
    found = pattern.match(statement, at)
    return len(statement) if found is None else found.end()


def _after_block(statement: str, at: int) -> int:
    """Return where a comment ends; comments may stand in comments."""
    depth = 1
    while depth:
        found = _BLOCK.search(statement, at)
        if found is None:
            return len(statement)
        depth += 1 if found.group() == "/*" else -1
        at = found.end()
    return at
