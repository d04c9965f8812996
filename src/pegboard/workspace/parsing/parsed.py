"""Parsed: the result of a parser, as JSON, and the cleaning of its texts."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Required, TypedDict

from pegboard.model.bounds import DEFAULT_BOUNDS
from pegboard.model.json_types import JSONValue
from pegboard.workspace.limits import DOCUMENT_TITLE_CHARS

DOCUMENT_HEADINGS = 100  # headings of one document in its metadata

MAX_CHARS_VARIABLE = "PEGBOARD_DOCUMENT_CHARS"
# A child is told by the reader that starts it; see `Bounds.document_chars`.
MAX_CHARS = int(os.environ.get(MAX_CHARS_VARIABLE, DEFAULT_BOUNDS.document_chars))
_BREAKS = re.compile(r"\r\n?|\u2028|\u2029")
# Characters that are not text: SQLite ends a text at some, and terminals interpret others.
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufeff\ud800-\udfff]")


class ParsedTable(TypedDict):
    """Rows with one value per column."""

    name: str
    columns: list[str]
    rows: list[list[JSONValue]]


class Parsed(TypedDict, total=False):
    """The contents of a file. Only `text` is always present.

    `own` is metadata with keys of the author's choice. `bare_pages` is the number of pages that show something and have
    no text, `ocr_pages` of those whose text was recognized.
    """

    text: Required[str]
    mime: str
    title: str
    author: str
    created: str
    modified: str
    language: str
    encoding: str
    encoding_from: str
    headings: list[str]
    pages: int
    bare_pages: int
    ocr_pages: int
    tables: list[ParsedTable]
    own: dict[str, str]


class UnreadableError(ValueError):
    """The file cannot be read; the message tells its owner why."""


def cleaned(text: str) -> str:
    """Return a text with uniform line breaks, and without characters that are not text.

    Raises:
        UnreadableError: it is longer than a document may be.
    """
    plain = _CONTROLS.sub("", _BREAKS.sub("\n", text))
    check_chars(len(plain))
    return plain


def check_chars(count: int) -> None:
    """Refuse a text longer than a document may be.

    Raises:
        UnreadableError: it has more characters.
    """
    if count > MAX_CHARS:
        text = f"its text has {count:,} characters; at most {MAX_CHARS:,} are taken (`limits.document_chars`). Split it"
        raise UnreadableError(text)


def one_line(text: str) -> str:
    """Return a short text, such as a title, on one line."""
    return " ".join(cleaned(text).split())[:DOCUMENT_TITLE_CHARS]


def headings_of(titles: Sequence[str]) -> list[str]:
    """Return the first headings of a document, each on one line."""
    return [line for title in titles[:DOCUMENT_HEADINGS] if (line := one_line(title))]
