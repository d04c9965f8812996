"""Parsed: what a parser gives back, as JSON, and what all of them do to text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypedDict

from pegboard.model.json_types import JSONValue
from pegboard.workspace.limits import DOCUMENT_CHARS, DOCUMENT_TITLE_CHARS

DOCUMENT_HEADINGS = 100  # of one document, that are told of it

_BREAKS = re.compile(r"\r\n?|\u2028|\u2029")
# What no text holds, but many a file: characters that SQLite ends a text at, or that steer a terminal.
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufeff\ud800-\udfff]")


class ParsedTable(TypedDict):
    """Rows with one value for each column."""

    name: str
    columns: list[str]
    rows: list[list[JSONValue]]


class Parsed(TypedDict, total=False):
    """What a file says. Only `text` is always there."""

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
    """The file cannot be read; the message says why, to the person who has it."""


def cleaned(text: str) -> str:
    """Return a text with one kind of line break, and without characters that are not text.

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
