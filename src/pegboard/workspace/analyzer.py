"""Analyzer: converts text in any script to the terms for searching passages.

Words are folded (case, width, accents of Latin, Greek and Cyrillic letters) and stemmed by the language of their
script; scripts without spaces between words become overlapping pairs of characters. Documents and questions are treated
equally, so a word always becomes the same term.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import cache, lru_cache
from typing import Final, Protocol

import Stemmer

from pegboard.language.stop_words import STOP_WORDS

DOCUMENT_TERM_CHARS = 64  # characters of one word that are indexed
DOCUMENT_WORDS_REMEMBERED = 1 << 17  # words in the cache with their terms

# Combining marks belong to a word, though Python's `\w` excludes them.
_MARKS = r"\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0670\u06d6-\u06ed\u0900-\u0963\u0966-\u109f\u1780-\u17ff"
_WORD = re.compile(rf"[^\W_](?:[^\W_]|[{_MARKS}])*")
_ASCII_WORD = re.compile(r"[a-z0-9]+")
_POSSESSIVE = re.compile(r"(?<=[^\W\d_])['’]s\b")
_UNSPACED = re.compile(  # Thai and Lao, Burmese, Khmer, kana, Han, Hangul
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
    r"\U00020000-\U0003ffff]+"
)


class _Stemmer(Protocol):
    """The part of PyStemmer that we use; PyStemmer has no types."""

    maxCacheSize: int  # noqa: N815 - their name

    def stemWord(self, word: str) -> str: ...  # noqa: N802 - their name


def _stemmer(language: str) -> _Stemmer:
    stemmer: _Stemmer = vars(Stemmer)["Stemmer"](language)
    stemmer.maxCacheSize = 0  # its cache is not thread-safe; `_terms_of_word` has one that is
    return stemmer


_LATIN: Final = _stemmer("english")
_BY_SCRIPT: Final = tuple(
    (re.compile(f"[{letters}]"), _stemmer(language))
    for letters, language in (
        (r"\u0400-\u04ff", "russian"),
        (r"\u0370-\u03ff", "greek"),
        (r"\u0600-\u06ff", "arabic"),
        (r"\u0900-\u097f", "hindi"),
        (r"\u0530-\u058f", "armenian"),
        (r"\u0b80-\u0bff", "tamil"),
    )
)


def terms_of(text: str) -> list[str]:
    """Return the terms of a text, in order and with repetitions. A term has neither spaces nor quotes."""
    folded = _POSSESSIVE.sub("", text.lower())
    if folded.isascii():
        words: Iterable[str] = _ASCII_WORD.findall(folded)
    else:
        words = _WORD.findall(unicodedata.normalize("NFKC", folded).casefold())
    return [term for word in words for term in _terms_of_word(word)]


def telling_terms(text: str) -> list[str]:
    """Return the terms of a question without stop words; with them if it has no others.

    Documents keep their stop words.
    """
    words = {word.casefold() for word in _WORD.findall(text)}
    hits = {language: len(words & silent) for language, silent in STOP_WORDS.items()}
    most = max(hits.values())
    # On a tie, e.g. for "die" or "in", all tied languages count.
    languages = [language for language, count in hits.items() if count == most] if most else []
    terms = terms_of(text)
    return [term for term in terms if not any(term in _silent_terms(each) for each in languages)] or terms


@cache
def _silent_terms(language: str) -> frozenset[str]:
    return frozenset(term for word in STOP_WORDS[language] for term in terms_of(word))


@lru_cache(maxsize=DOCUMENT_WORDS_REMEMBERED)
def _terms_of_word(word: str) -> tuple[str, ...]:
    if word.isascii():
        return (_LATIN.stemWord(word[:DOCUMENT_TERM_CHARS]),)
    parts: list[str] = []
    start = 0
    for run in _UNSPACED.finditer(word):
        parts += _stemmed(word[start : run.start()])
        parts += _pairs(run.group())
        start = run.end()
    return (*parts, *_stemmed(word[start:]))


def _pairs(run: str) -> list[str]:
    return [run] if len(run) == 1 else [run[i : i + 2] for i in range(len(run) - 1)]


def _stemmed(word: str) -> list[str]:
    if not word:
        return []
    stemmer = next((each for letters, each in _BY_SCRIPT if letters.search(word)), _LATIN)
    # People often omit accents in questions. Vowel signs of other scripts are not accents.
    bare = "".join(c for c in unicodedata.normalize("NFD", word[:DOCUMENT_TERM_CHARS]) if not "\u0300" <= c <= "\u036f")
    return [stemmer.stemWord(unicodedata.normalize("NFC", bare))]
