"""Scripts: letters of the world's scripts, and the stemmers of the languages that are written in them."""

from __future__ import annotations

import re
from functools import cache
from typing import Final, Protocol

import Stemmer

# Combining marks belong to a word, though Python's `\w` excludes them: vowel signs, Hebrew points.
MARKS: Final = r"\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0670\u06d6-\u06ed\u0900-\u0963\u0966-\u109f\u1780-\u17ff"
UNSPACED: Final = re.compile(  # Thai and Lao, Burmese, Khmer, kana, Han, Hangul
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
    r"\U00020000-\U0003ffff]+"
)
"""Matches text in scripts without spaces between words."""
LANGUAGE_OF_SCRIPT: Final[tuple[tuple[re.Pattern[str], str], ...]] = tuple(
    (re.compile(f"[{letters}]"), language)
    for letters, language in (
        (r"\u0400-\u04ff", "russian"),
        (r"\u0370-\u03ff", "greek"),
        (r"\u0600-\u06ff", "arabic"),
        (r"\u0900-\u097f", "hindi"),
        (r"\u0530-\u058f", "armenian"),
        (r"\u0b80-\u0bff", "tamil"),
    )
)
"""The language whose stemmer is used for words with these letters."""


class WordStemmer(Protocol):
    """The part of PyStemmer that we use; PyStemmer has no types."""

    maxCacheSize: int  # noqa: N815 - their name

    def stemWord(self, word: str) -> str: ...  # noqa: N802 - their name


@cache
def stemmer(language: str) -> WordStemmer:
    """Return the stemmer of a language, by its English name in lower case."""
    word_stemmer: WordStemmer = vars(Stemmer)["Stemmer"](language)
    word_stemmer.maxCacheSize = 0  # its cache is not thread-safe; the callers have one that is
    return word_stemmer
