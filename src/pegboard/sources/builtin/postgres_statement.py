"""Postgres statement: converts placeholders to the server's form, and extracts names as the server parses them.

`%s` and `%(name)s` become `$1`, `$2` … first, so that the checked statement is the one that is sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from psycopg.types.json import Jsonb

from pegboard.model.error import CallError
from pegboard.model.json_types import JSONValue, is_object

# ---- placeholders

_PLACEHOLDER: Final = re.compile(r"%(?:(?P<percent>%)|(?P<next>s)|\((?P<name>\w{1,63})\)s)?")

Params = Sequence[JSONValue] | Mapping[str, JSONValue] | None


def numbered(text: str, params: Params) -> tuple[str, list[Any] | None]:
    """Return the statement with `$1`, `$2` …, and their values in this order.

    Without params the text is unchanged, so that `%` needs no doubling.

    Raises:
        CallError: invalid_arguments if placeholders and params do not match.
    """
    if not params:
        return text, None
    # A dict, because a linear search for each of many placeholders would exceed the deadline.
    numbers: dict[str | int, int] = {}

    def number(match: re.Match[str]) -> str:
        if match["percent"]:
            return "%"
        if not (match["next"] or match["name"]):
            raise _misfit("a '%' is neither %s nor %(name)s; with params, write '%%' for the sign")
        if isinstance(params, Mapping) is not bool(match["name"]):
            raise _misfit("%s takes a list of params, and %(name)s a mapping")
        key = match["name"] or len(numbers)
        return f"${numbers.setdefault(key, len(numbers) + 1)}"

    numbered_text = _PLACEHOLDER.sub(number, text)
    return numbered_text, [_adapted(value) for value in _values(params, list(numbers))]


def _values(params: Sequence[JSONValue] | Mapping[str, JSONValue], keys: Sequence[str | int]) -> list[JSONValue]:
    if not isinstance(params, Mapping):
        if len(keys) != len(params):
            raise _misfit(f"it has {len(keys)} placeholders and {len(params)} params")
        return list(params)
    missing = [str(name) for name in keys if name not in params]
    if missing:
        raise _misfit(f"the param {missing[0]!r} is missing")
    return [params[str(name)] for name in keys]


def _adapted(value: JSONValue) -> Any:
    return Jsonb(value) if is_object(value) else value


def _misfit(what: str) -> CallError:
    return CallError("invalid_arguments", f"The statement and its params do not fit together: {what}. Correct them.")


# ---- names

# The server treats every non-ASCII character as a letter; so must we, or a name could hide what follows it.
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
# A string continues on another line, after blanks and comments, with the same escapes.
_GAP: Final = r"(?:[ \t\f\v]|--[^\n\r]*+)*+[\n\r](?:[ \t\n\r\f\v]|--[^\n\r]*+[\n\r])*+"
_INSIDE: Final = r"(?:[^'\\]++|\\.|'')*+(?:'|\\?\Z)"
_ESCAPED: Final = re.compile(rf"{_INSIDE}(?:{_GAP}'{_INSIDE})*+", re.DOTALL)
_BLOCK: Final = re.compile(r"/\*|\*/")
_NAME_BYTES: Final = 63
_ASCII_UPPER: Final = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


class Name(NamedTuple):
    """A name as the server compares it: in lower case unless it was quoted.

    `is_hidden` marks a name with escapes (`U&"…"`), whose text is unknown here. It also marks one with a `$`, which
    some server versions treat as the beginning of a string (`1e5$$`).
    """

    text: str
    is_quoted: bool = False
    is_hidden: bool = False

    def spellings(self) -> frozenset[str]:
        """Return the forms of this name that the server may use.

        It truncates long names, in bytes of the database's encoding, and lower-cases non-ASCII letters in some
        encodings only.
        """
        whole = (self.text,) if self.is_quoted else (self.text, self.text.lower())
        cut = (name.encode("utf-8", "replace")[:_NAME_BYTES].decode("utf-8", "ignore") for name in whole)
        return frozenset((*whole, *cut, *(name[:_NAME_BYTES] for name in whole)))


def names_of(statement: str) -> Iterator[Name]:
    """Yield the names of a statement in order, without strings and comments."""
    at = 0
    while at < len(statement):
        token = _TOKEN.match(statement, at)
        assert token is not None, "the last alternative takes any character"
        at = token.end()
        match token.lastgroup:
            case "block":
                at = _after_block(statement, at)
            case "string":
                at = _end(_STRING, statement, at)
            case "escaped":
                at = _end(_ESCAPED, statement, at)
            case "dollar":
                closing = statement.find(token.group(), at)
                at = len(statement) if closing < 0 else closing + len(token.group())
            case "quoted":
                yield Name(token.group()[1:-1].replace('""', '"'), is_quoted=True)
            case "hidden":
                yield Name(token.group(), is_hidden=True)
                at = _end(re.compile('[^"]*(?:"|$)'), statement, at)
            case "word":
                yield Name(token.group().translate(_ASCII_UPPER), is_hidden="$" in token.group())
            case _:
                pass


def _end(pattern: re.Pattern[str], statement: str, at: int) -> int:
    match = pattern.match(statement, at)
    return len(statement) if match is None else match.end()


def _after_block(statement: str, at: int) -> int:
    """Return the end of a comment; comments may be nested."""
    depth = 1
    while depth:
        mark = _BLOCK.search(statement, at)
        if mark is None:
            return len(statement)
        depth += 1 if mark.group() == "/*" else -1
        at = mark.end()
    return at
