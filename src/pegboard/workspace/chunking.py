"""Chunking: cut a text into passages that are shown and found on their own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from pegboard.workspace.limits import DOCUMENT_TITLE_CHARS

CHUNK_CHARS = 1_200  # of one passage, at most
CHUNK_LEAST_CHARS = 300  # and at least, where the text goes on

# Where a text may be cut, the best place first: before a heading, between paragraphs, lines, sentences, words.
_CUTS = (
    re.compile(r"\n(?=#{1,6} )"),
    re.compile(r"\n\s*\n"),
    re.compile(r"\n"),
    re.compile(r"(?<=[.!?。！？।])\s+|(?<=[。！？])"),
    re.compile(r"\s+"),
)
_HEADING = re.compile(r"^(#{1,6}) (.*)$", re.MULTILINE)


class Heading(NamedTuple):
    """A heading of Markdown: where its line begins, its level from 1, its words."""

    start: int
    level: int
    title: str


class Chunk(NamedTuple):
    """A passage of a text, from code point `start` to `end`, and the headings that it stands under."""

    start: int
    end: int
    headings: tuple[str, ...]


def heading_title(words: str) -> str:
    """Return what stands between the signs of a heading; empty where nothing does.

    Blanks and closing `#` are taken off, and not matched: a line of 20,000 blanks would take minutes.
    """
    bare = words.strip(" ")
    # Every passage below it is found by it, too: of a heading of a megabyte each would have a copy.
    return (bare.rstrip("#").rstrip(" ") or bare[:1])[:DOCUMENT_TITLE_CHARS]


def _headings_in(text: str) -> Iterator[Heading]:
    for match in _HEADING.finditer(text):
        if title := heading_title(match[2]):
            yield Heading(match.start(), len(match[1]), title)


def chunks_of(text: str) -> list[Chunk]:
    """Return the passages of a text, in order, none longer than `CHUNK_CHARS` and none of white space alone."""
    headings = [*_headings_in(text)]
    chunks: list[Chunk] = []
    above: list[Heading] = []
    next_heading = 0
    for start, end in _spans(text):
        while next_heading < len(headings) and headings[next_heading].start < start:
            above = _entered(above, headings[next_heading])
            next_heading += 1
        chunks.append(Chunk(start, end, tuple(heading.title for heading in above)))
    return chunks


def _entered(above: list[Heading], heading: Heading) -> list[Heading]:
    return [*(each for each in above if each.level < heading.level), heading]


def _spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield where each passage begins and ends, without the white space around it."""
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
    """Return the last good place to cut within the length of a passage; any place where there is none."""
    left = len(text) - start
    if left <= CHUNK_CHARS:
        return len(text)
    # What is left for two passages is shared by them: a scrap at the end would be found for its shortness.
    length = min(CHUNK_CHARS, max(left // 2 + CHUNK_LEAST_CHARS // 2, CHUNK_LEAST_CHARS))
    limit, least = start + length, start + CHUNK_LEAST_CHARS
    for cut in _CUTS:
        # One character more: the white space behind a passage that just fits is such a place.
        places = [match.start() for match in cut.finditer(text, least, limit + 1)]
        if places:
            return places[-1]
    return limit
