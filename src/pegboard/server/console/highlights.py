"""Highlights: the words of a text that a search asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from pegboard.workspace.analyzer import DEFAULT_LANGUAGE, folded_words, language_of, stems_of, words_of_question

_WORD = re.compile(r"\w+")


class Piece(NamedTuple):
    """A part of a text; `is_hit` marks a word that was asked for."""

    text: str
    is_hit: bool


def highlighted(text: str, query: str) -> list[Piece]:
    """Return a text in pieces; words are compared as the search does, so `leave` marks `leaves`."""
    languages = (language_of(text), DEFAULT_LANGUAGE)
    asked = frozenset(term for word in words_of_question(query, languages) for term in word.terms)
    return list(_pieces(text, languages, asked))


def _pieces(text: str, languages: tuple[str, str], asked: frozenset[str]) -> Iterator[Piece]:
    @cache
    def is_asked(word: str) -> bool:
        return any(not asked.isdisjoint(stems_of(part, languages)) for part in folded_words(word))

    at = 0
    for match in _WORD.finditer(text):
        if is_asked(match.group()):
            if match.start() > at:
                yield Piece(text[at : match.start()], is_hit=False)
            yield Piece(match.group(), is_hit=True)
            at = match.end()
    if at < len(text):
        yield Piece(text[at:], is_hit=False)
