"""Chunking: splits a text into passages that are found and shown separately."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from pegboard.workspace.limits import DOCUMENT_TITLE_CHARS

CHUNK_CHARS = 1_200  # characters of the longest passage
CHUNK_LEAST_CHARS = 300  # characters of the shortest passage, except at the end of a text

# Where a text may be split, best first: before headings, between paragraphs, lines, sentences, words.
_CUTS = (
    re.compile(r"\n(?=#{1,6} )"),
    re.compile(r"\n\s*\n"),
    re.compile(r"\n"),
    re.compile(r"(?<=[.!?。！？।])\s+|(?<=[。！？])"),
    re.compile(r"\s+"),
)
_HEADING = re.compile(r"^(#{1,6}) (.*)$", re.MULTILINE)
# Lines with cells, as Markdown and our parsers write the rows of a table.
_ROWS = re.compile(r"(?:^[^\n]*\|[^\n]*(?:\n|\Z))+", re.MULTILINE)
TABLE_HEAD_CHARS = 300  # characters of the header row of a table that each of its passages has


class Heading(NamedTuple):
    """A Markdown heading: the start of its line, its level from 1, its text."""

    start: int
    level: int
    title: str


class Chunk(NamedTuple):
    """A passage of a text, from code point `start` to `end`, with the headings above it.

    `table_head` is the header row of the table where it begins, unless it has that row itself.
    """

    start: int
    end: int
    headings: tuple[str, ...]
    table_head: str = ""


def heading_title(words: str) -> str:
    """Return the text of a heading without its marks; empty if there is none.

    Blanks and closing `#` are stripped instead of matched: a line of 20,000 blanks would take minutes.
    """
    bare = words.strip(" ")
    # Every passage below it repeats it, so a heading of a megabyte would be copied many times.
    return (bare.rstrip("#").rstrip(" ") or bare[:1])[:DOCUMENT_TITLE_CHARS]


def _headings_in(text: str) -> Iterator[Heading]:
    for match in _HEADING.finditer(text):
        if title := heading_title(match[2]):
            yield Heading(match.start(), len(match[1]), title)


def chunks_of(text: str, *, is_table: bool = False) -> list[Chunk]:
    """Return the passages of a text, in order, none longer than `CHUNK_CHARS` and none of only white space.

    Args:
        text: the whole text of a document.
        is_table: whether the text is one table, such as a CSV file.
    """
    headings = [*_headings_in(text)]
    tables = (
        [(len(text) - len(text.lstrip()), len(text))] if is_table else [each.span() for each in _ROWS.finditer(text)]
    )
    chunks: list[Chunk] = []
    above: list[Heading] = []
    next_heading = next_table = 0
    for start, end in _spans(text):
        while next_heading < len(headings) and headings[next_heading].start < start:
            above = _entered(above, headings[next_heading])
            next_heading += 1
        while next_table < len(tables) and tables[next_table][1] <= start:
            next_table += 1
        head = ""
        if next_table < len(tables) and tables[next_table][0] < start:
            head = text[tables[next_table][0] : start].partition("\n")[0].strip()[:TABLE_HEAD_CHARS]
        chunks.append(Chunk(start, end, tuple(heading.title for heading in above), head))
    return chunks


def _entered(above: list[Heading], heading: Heading) -> list[Heading]:
    return [*(each for each in above if each.level < heading.level), heading]


def _spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each passage, without surrounding white space."""
    start, length = 0, len(text)
    while start < length:
        while start < length and text[start].isspace():
            start += 1
        if start == length:
            return
        end = _end(text, start)
        stop = end
        while stop > start and text[stop - 1].isspace():
            stop -= 1
        yield start, stop
        start = end


def _end(text: str, start: int) -> int:
    """Return the last good place to split within the length of a passage; any place if there is none."""
    left = len(text) - start
    if left <= CHUNK_CHARS:
        return len(text)
    # Two last passages share the rest equally: a tiny one would rank high because it is short.
    length = min(CHUNK_CHARS, max(left // 2 + CHUNK_LEAST_CHARS // 2, CHUNK_LEAST_CHARS))
    limit, least = start + length, start + CHUNK_LEAST_CHARS
    for cut in _CUTS:
        # One more character, since the white space after a passage that just fits is a place to split.
        places = [match.start() for match in cut.finditer(text, least, limit + 1)]
        if places:
            return places[-1]
    return limit
