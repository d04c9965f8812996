"""Source line: the line of a config at a problem, in a form that may be shown."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence

from pegboard.core.redaction import Redactor

PROBLEM_LINE_CHARS = 1_000  # characters of a shown line; longer ones take too long to redact

# Of a longer line, only the part around the problem is shown.
_SHOWN_CHARS = 100
_KEPT_BEFORE = 60
# An operator who wrote a secret into the file instead of `${NAME}` must not find it in a log.
_SECRET_WORDS = (
    *("key", "apikey", "token", "secret", "password", "passwd", "pwd", "passphrase", "auth", "authorization"),
    *("bearer", "cookie", "header", "credential", "dsn", "private", "signature"),
)
# `api_kee` and `tokn` count as the words that were meant; in a short word one letter matters.
_LIKENESS = 0.8
_LIKENESS_OF_SHORT = 0.66
_SHORT_CHARS = 3
_WORD = re.compile(r"[A-Za-z]+")
_VALUE = re.compile(r"(?P<key>[\w.-]+)[\"']?\s*(?:[:=,]\s*|\s)(?P<value>\S.*)")
# A password may have a slash or a quote that should have been encoded: a likely reason for the problem.
_LOGIN_IN_URL = re.compile(r"://(?P<value>[^\s/@:]*:\S+|[^\s/@]+)@")
_RANDOM_TEXT = re.compile(r"(?P<value>(?=[^\s]*[0-9][^\s]*[0-9][^\s]*[0-9])(?=[^\s]*[A-Za-z])[A-Za-z0-9+/_=-]{20,})")
_MASKED = re.compile(r"\$\{\w+(?::-[^}]*)?\}|[^\s{}\[\],]")
_KEY = re.compile(r"^\s*(?:-\s+)*[\"']?([\w.-]+)[\"']?\s*:")


def source_line(lines: Sequence[str], line: int, column: int, *, path: str, redactor: Redactor) -> tuple[str, int]:
    """Return the part of a line that may be shown, and the problem's column in it; empty if nothing may be shown.

    Args:
        lines: the lines of a file that is, or resembles, a config.
        line: counted from 1; may be past the end of the file.
        column: counted from 1; 0 if only the line is known.
        path: the keys that lead to the problem.
        redactor: knows the secrets of the environment.
    """
    if not 0 < line <= len(lines):
        return "", 0
    text = lines[line - 1]
    if len(text) > PROBLEM_LINE_CHARS:
        return "", 0
    above = _keys_above(lines, line)
    if redactor.finds(text) or any(map(names_secret, (path, *above))):
        return "", 0
    text = _without_named_secrets(text)
    for pattern in (_LOGIN_IN_URL, _RANDOM_TEXT):
        text = pattern.sub(_masked, text)
    start = max(0, column - _KEPT_BEFORE) if len(text) > _SHOWN_CHARS else 0
    shown = text[start : start + _SHOWN_CHARS]
    shown = f"{'…' if start else ''}{shown}{'…' if start + _SHOWN_CHARS < len(text) else ''}"
    return shown.rstrip(), column and column - start + bool(start)


def names_secret(name: str) -> bool:
    """Tell whether a key, or a path of keys, says that its value is a secret."""
    return any(
        part[0] == word[0] and difflib.SequenceMatcher(None, part, word).ratio() >= _least_likeness(word)
        for part in (each.lower().removesuffix("s") for each in _WORD.findall(name))
        for word in _SECRET_WORDS
        if part
    )


def _least_likeness(word: str) -> float:
    return _LIKENESS_OF_SHORT if len(word) <= _SHORT_CHARS else _LIKENESS


def _without_named_secrets(text: str) -> str:
    start = 0
    while match := _VALUE.search(text, start):
        if names_secret(match["key"]):
            return text[: match.start()] + _masked(match)
        start = match.end("key")
    return text


def _masked(match: re.Match[str]) -> str:
    start, end = match.start("value") - match.start(), match.end("value") - match.start()
    whole, value = match.group(), match["value"]
    # Same length, so that the mark below points to the right column.
    return whole[:start] + _MASKED.sub(_starred, value) + whole[end:]


def _starred(match: re.Match[str]) -> str:
    return match.group() if match.group().startswith("${") else "*"


def _keys_above(lines: Sequence[str], line: int) -> Iterator[str]:
    """Yield the keys above a line, by indentation: lines of a block text have no key."""
    indent = _indent(lines[line - 1]) if lines[line - 1].strip() else len(lines[line - 1])
    for text in reversed(lines[: line - 1]):
        if text.strip() and _indent(text) < indent:
            indent = _indent(text)
            if match := _KEY.match(text):
                yield match[1]
        if indent == 0:
            return


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip())
