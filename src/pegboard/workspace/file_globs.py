"""File globs: glob patterns for names and paths of documents, matched in linear time."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from typing import Any

from pegboard.workspace.linear_patterns import linear

_EITHER = re.compile(r"\{([^{}]*,[^{}]*)\}")


def name_matcher(pattern: str, *, ignore_case: bool) -> Callable[[str], Any]:
    """Return a function that tells whether a name matches a glob, or equals it literally.

    Names are normalised, since macOS stores accents as separate characters.
    """
    pattern = unicodedata.normalize("NFC", pattern)
    named = re.escape(pattern.removeprefix("/"))
    matches = linear(f"{_glob_expression(pattern)}|{named}", ignore_case=ignore_case).fullmatch
    return lambda name: matches(name if name.isascii() else unicodedata.normalize("NFC", name))


def _glob_expression(pattern: str) -> str:
    """Return a glob as a regular expression with linear time; a word without wildcards matches anywhere in a name.

    `*` and `?` stop at a slash, `**` does not; `{a,b}` matches either.
    """
    ways = _EITHER.split(pattern.removeprefix("/"))
    if len(ways) == 1 and not set(pattern) & set("*?[/"):
        return _glob_part(f"*{pattern}*")
    # Every second part was in braces.
    either = ["|".join(map(_glob_part, each.split(","))) for each in ways[1::2]]
    return _glob_part(ways[0]) + "".join(
        f"(?:{one}){_glob_part(rest)}" for one, rest in zip(either, ways[2::2], strict=True)
    )


def _glob_part(pattern: str) -> str:
    parts: list[str] = []
    place = 0
    while place < len(pattern):
        if pattern.startswith("**", place):
            is_folders = pattern.startswith("**/", place)
            parts.append("(?:.*/)?" if is_folders else ".*")
            place += 3 if is_folders else 2
            continue
        character = pattern[place]
        closing = pattern.find("]", place + 2) if character == "[" else -1
        if closing > 0:
            parts.append(_set_of(pattern[place + 1 : closing]))
            place = closing
        else:
            parts.append({"*": "[^/]*", "?": "[^/]"}.get(character, re.escape(character)))
        place += 1
    # Several stars in a row mean one; unmerged, each would double the work.
    return re.sub(r"(?:\[\^/\]\*)+", "[^/]*", "".join(parts))


def _set_of(inner: str) -> str:
    is_negated = inner[0] in "!^"
    members = inner[1:] if is_negated else inner
    escaped = re.sub(r"([\\\[\]^&~|])", r"\\\1", members)
    return f"[{'^' if is_negated else ''}{escaped}]"
