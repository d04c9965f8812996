"""Parsed: the result of a parser, as JSON, and the cleaning of its texts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypedDict

from pegboard.model.json_types import JSONValue
from pegboard.workspace.limits import DOCUMENT_CHARS, DOCUMENT_TITLE_CHARS

DOCUMENT_HEADINGS = 100  # headings of one document in its metadata

_BREAKS = re.compile(r"\r\n?|\u2028|\u2029")
# Characters that are not text: SQLite ends a text at some, and terminals interpret others.
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufeff\ud800-\udfff]")


class ParsedTable(TypedDict):
    """Rows with one value per column."""

    name: str
    columns: list[str]
    rows: list[list[JSONValue]]


class Parsed(TypedDict, total=False):
    """The contents of a file. Only `text` is always present."""

    text: str
    title: str
    author: str
    created: str
    modified: str
    language: str
    encoding: str
    encoding_from: str
    headings: list[str]
    pages: int
    tables: list[ParsedTable]


class UnreadableError(ValueError):
    """The file cannot be read; the message tells its owner why."""


def cleaned(text: str) -> str:
    """Return a text with uniform line breaks, and without characters that are not text.

    Raises:
        UnreadableError: it is longer than a document may be.
    """
    plain = _CONTROLS.sub("", _BREAKS.sub("\n", text))
    if len(plain) > DOCUMENT_CHARS:
        raise UnreadableError(f"its text has {len(plain):,} characters; at most {DOCUMENT_CHARS:,} are taken. Split it")
    return plain


def one_line(text: str) -> str:
    """Return a short text, such as a title, on one line."""
    return " ".join(cleaned(text).split())[:DOCUMENT_TITLE_CHARS]


def headings_of(titles: Sequence[str]) -> list[str]:
    """Return the first headings of a document, each on one line."""
    return [line for title in titles[:DOCUMENT_HEADINGS] if (line := one_line(title))]
