"""Analyzer: converts text in any script to the terms for searching passages.

Words are folded (case, width, accents of Latin, Greek and Cyrillic letters) and stemmed: those in Latin letters by the
language of the text, others by that of their script. Scripts without spaces between words become overlapping pairs of
characters. A name of several parts, such as `WX-1077`, `wx1077`, `tcp_fin_timeout` and `tcpFinTimeout`, is found by its
parts and by the whole.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Final, NamedTuple

from msgspec import Struct

from pegboard.language.detected_language import detected_language, stop_word_counts
from pegboard.language.scripts import LANGUAGE_OF_SCRIPT, MARKS, UNSPACED, stemmer
from pegboard.language.stop_words import STOP_WORDS

DOCUMENT_TERM_CHARS = 64  # characters of one word that are indexed
DOCUMENT_WORDS_REMEMBERED = 1 << 17  # words in the cache with their terms
DOCUMENT_NAME_PARTS = 5  # parts of a name that is also indexed as a whole

DEFAULT_LANGUAGE: Final = "english"

_MARK = re.compile(f"[{MARKS}]")
_WORD = re.compile(rf"[^\W_](?:[^\W_]|[{MARKS}])*")
_ASCII_WORD = re.compile(r"[a-z0-9]+")
# Words with one sign between them, without spaces.
_RUN = re.compile(rf"{_WORD.pattern}(?:[-_.,]{_WORD.pattern})*")
_PLAIN_RUN = re.compile(r"[^\W_]+(?:[-_.,][^\W_]+)*")
_ASCII_RUN = re.compile(r"[A-Za-z0-9]+(?:[-_.,][A-Za-z0-9]+)*")
_SIGN = re.compile(r"[-_.,]")
# Inside of `camelCase`, `HTTPServer` and `wx1077`.
_PART = re.compile(
    r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[^\W\d_])(?=\d)|(?<=\d)(?=[^\W\d_])",
)
_POSSESSIVE = re.compile(r"(?<=[^\W\d_])['’][sS]\b")


class Analysis(NamedTuple):
    """The terms of a text with their counts, and its length in words."""

    counts: Mapping[str, int]
    length: int


class AskedWord(Struct, frozen=True, kw_only=True):
    """A word of a question.

    `terms` are its stems in the possible languages. `parts` are those of a name of several parts. `is_whole` marks a
    name that was written in parts, or two words that may be written together; it counts only where a passage has it.
    """

    word: str
    terms: tuple[str, ...]
    parts: tuple[str, ...] = ()
    is_whole: bool = False


def language_of(text: str, default: str = DEFAULT_LANGUAGE) -> str:
    """Return the language of a text by its stop words; the default if it has too few."""
    # Stop words seldom have a sign next to them, so white space is enough.
    return detected_language(text.lower().split()) or default


def analyzed(texts: Iterable[str], language: str) -> Analysis:
    """Return the terms of texts in one language. A term has neither spaces nor quotes."""
    runs = [_terms_of_run(run, language) for text in texts for run in _runs_of(text)]
    # One list and one count: this is most of the time of an ingest.
    return Analysis(Counter([term for terms, _ in runs for term in terms]), sum([words for _, words in runs]))


def words_of_question(text: str, languages: Collection[str]) -> list[AskedWord]:
    """Return the words of a question, in order and with repetitions.

    Stop words of its language are left out, unless it has no others.

    Args:
        text: the question.
        languages: those of the passages that may answer it. If the question's own language is clear, only that one
            and the default count.
    """
    words = folded_words(text)
    counts = stop_word_counts(words)
    most = max(counts.values(), default=0)
    # On a tie, e.g. for "die" or "in", all tied languages count.
    spoken = [language for language, count in counts.items() if count == most]
    tried = tuple(dict.fromkeys((*(spoken if len(spoken) == 1 else (*spoken, *languages)), DEFAULT_LANGUAGE)))
    silent = frozenset[str]().union(*(STOP_WORDS[language] for language in spoken))
    asked = [*_question_words(text, tried)]
    telling = [each for each in asked if each.word not in silent and not each.is_whole]
    if not telling:
        return [each for each in asked if not each.is_whole]
    return [each for each in asked if each.is_whole or each.word not in silent]


def _question_words(text: str, languages: Sequence[str]) -> Iterator[AskedWord]:
    before = ""
    for run in _runs_of(text):
        pieces = _SIGN.split(run)
        for piece in pieces:
            folded = piece.casefold()
            if UNSPACED.search(piece):
                yield from (AskedWord(word=term, terms=(term,)) for term in _stems(folded, languages[0]))
                before = ""
                continue
            terms = dict.fromkeys(term for language in languages for term in _stems(folded, language))
            parts = [each.casefold() for each in _PART.split(piece)]
            yield AskedWord(
                word=folded,
                terms=tuple(terms),
                parts=tuple(parts) if 1 < len(parts) <= DOCUMENT_NAME_PARTS else (),
            )
            if len(pieces) == 1 and before and before.isalpha() and folded.isalpha():
                yield _whole(before + folded, languages)
            before = folded if len(pieces) == 1 else ""
        if 1 < len(pieces) <= DOCUMENT_NAME_PARTS:
            yield _whole("".join(pieces).casefold(), languages)


def _whole(word: str, languages: Sequence[str]) -> AskedWord:
    terms = dict.fromkeys(term for language in languages for term in _stems(word, language))
    return AskedWord(word=word, terms=tuple(terms), is_whole=True)


def stems_of(word: str, languages: Iterable[str]) -> tuple[str, ...]:
    """Return the stems of a folded word in some languages."""
    return tuple(dict.fromkeys(term for language in languages for term in _stems(word, language)))


def folded_words(text: str) -> list[str]:
    """Return the words of a text in lower case, in order."""
    lower = text.lower()
    if lower.isascii():
        return _ASCII_WORD.findall(lower)
    return _WORD.findall(unicodedata.normalize("NFKC", lower).casefold())


def _runs_of(text: str) -> list[str]:
    plain = _POSSESSIVE.sub("", text) if "'" in text or "’" in text else text
    if plain.isascii():
        return _ASCII_RUN.findall(plain)
    normal = unicodedata.normalize("NFKC", plain)
    # Marks that are not part of a letter are rare, and take twice the time.
    return (_RUN if _MARK.search(normal) else _PLAIN_RUN).findall(normal)


@lru_cache(maxsize=DOCUMENT_WORDS_REMEMBERED)
def _terms_of_run(run: str, language: str) -> tuple[tuple[str, ...], int]:
    """Return the terms of words with signs between them, and the number of words."""
    pieces = _SIGN.split(run)
    terms: list[str] = []
    for piece in pieces:
        terms += _stems(piece.casefold(), language)
        if not UNSPACED.search(piece):
            parts = _PART.split(piece)
            if 1 < len(parts) <= DOCUMENT_NAME_PARTS:
                terms += [term for part in parts for term in _stems(part.casefold(), language)]
    words = len(terms) if UNSPACED.search(run) else len(pieces)
    if 1 < len(pieces) <= DOCUMENT_NAME_PARTS:
        terms += _stems("".join(pieces).casefold(), language)
    return tuple(terms), words


def _stems(word: str, language: str) -> list[str]:
    """Return the terms of a folded word: its stem, or the pairs of a script without spaces."""
    if word.isascii():
        return [stemmer(language).stemWord(word[:DOCUMENT_TERM_CHARS])]
    terms: list[str] = []
    start = 0
    for run in UNSPACED.finditer(word):
        terms += _stem(word[start : run.start()], language)
        terms += _pairs(run.group())
        start = run.end()
    return [*terms, *_stem(word[start:], language)]


def _pairs(run: str) -> list[str]:
    return [run] if len(run) == 1 else [run[i : i + 2] for i in range(len(run) - 1)]


def _stem(word: str, language: str) -> list[str]:
    if not word:
        return []
    language = next((each for letters, each in LANGUAGE_OF_SCRIPT if letters.search(word)), language)
    cut = word[:DOCUMENT_TERM_CHARS]
    if language == "german":
        # Its stemmer knows that `ae` may stand for `ä`.
        return [_bare(stemmer(language).stemWord(unicodedata.normalize("NFC", cut)))]
    return [stemmer(language).stemWord(_bare(cut))]


def _bare(word: str) -> str:
    """Return a word without accents, which people often omit. Vowel signs of other scripts are not accents."""
    bare = "".join(c for c in unicodedata.normalize("NFD", word) if not "\u0300" <= c <= "\u036f")
    return unicodedata.normalize("NFC", bare)


# ---- for an embedder that compares letters ---------------------------------------------------------------------------


def telling_terms(text: str) -> list[str]:
    """Return the English stems of a text without stop words; with them if it has no others."""
    words = {word.casefold() for word in _WORD.findall(text)}
    counts = stop_word_counts(words)
    most = max(counts.values(), default=0)
    languages = [language for language, count in counts.items() if count == most]
    terms = [term for word in folded_words(_POSSESSIVE.sub("", text)) for term in _stems(word, DEFAULT_LANGUAGE)]
    return [term for term in terms if not any(term in _silent_terms(each) for each in languages)] or terms


@cache
def _silent_terms(language: str) -> frozenset[str]:
    words = (word for line in STOP_WORDS[language] for word in folded_words(_POSSESSIVE.sub("", line)))
    return frozenset(term for word in words for term in _stems(word, DEFAULT_LANGUAGE))
