"""Terms: converts any text, in any script, to index terms.

An identifier is split on case, `_`, `-` and digits, and also kept whole (`createIssue` → creat, issu, createissu).
Scripts without spaces between words become overlapping pairs of characters; other words are stemmed by language.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from itertools import pairwise

from pegboard.language.scripts import LANGUAGE_OF_SCRIPT, MARKS, UNSPACED, stemmer
from pegboard.language.stop_words import STOP_WORDS

SEARCH_WORDS_REMEMBERED = 1 << 16  # words in the cache with their terms
SEARCH_LANGUAGES_REMEMBERED = 1 << 8  # language sets in the cache with their stop words

ENGLISH = "english"
Languages = tuple[str, ...]

_WORD = re.compile(rf"[^\W_](?:[^\W_]|[{MARKS}])*(?:['’][^\W\d_]+)*")
_ELISION = re.compile(r"^[^\W\d_]{1,2}['’]|['’][^\W\d_]{1,2}$")  # l'été → été, it's → it
LANGUAGES: Languages = tuple(dict.fromkeys((*STOP_WORDS, *(language for _, language in LANGUAGE_OF_SCRIPT))))


_STEMMERS = {language: stemmer(language) for language in LANGUAGES}


def words_of(text: str) -> list[str]:
    """Return the words of a text as written, after Unicode normalisation (full-width letters become plain ones)."""
    return _WORD.findall(text if text.isascii() else unicodedata.normalize("NFKC", text))


def languages_of(words: Iterable[str], *, among: Collection[str] | None = None) -> Languages:
    """Return the languages whose stop words (or script) are most frequent, several on a tie; English when in doubt.

    Args:
        words: of sentences, not of identifiers.
        among: the only languages to consider in addition to English; all when omitted.
    """
    lowered = {word.lower() for word in words}
    foreign = "".join(word for word in lowered if not word.isascii())
    for letters, language in LANGUAGE_OF_SCRIPT:
        if foreign and letters.search(foreign):
            return (language,)
    hits = {
        language: len(lowered & stop_words)
        for language, stop_words in STOP_WORDS.items()
        if among is None or language in among or language == ENGLISH
    }
    most = max(hits.values())
    return (ENGLISH,) if hits[ENGLISH] == most else tuple(language for language, count in hits.items() if count == most)


def terms_of(words: Iterable[str], languages: Languages = (ENGLISH,)) -> list[str]:
    """Return the index terms of words, in order and with repetitions, each word in English and in `languages`."""
    return [term for word in words for term in _word_terms(word, languages)]


@lru_cache(maxsize=SEARCH_WORDS_REMEMBERED)
def _word_terms(word: str, languages: Languages) -> tuple[str, ...]:
    spoken = (ENGLISH, *languages)
    return tuple(stem for part in word_parts(word, languages) for stem in stems(part, spoken))


def word_parts(word: str, languages: Languages = (ENGLISH,)) -> tuple[str, ...]:
    """Return the parts of a word, in lower case and without stop words, then the whole if it has several parts."""
    bare = word if word.isalnum() else _ELISION.sub("", word)
    if not bare.isascii() and UNSPACED.search(bare):
        return tuple(_unspaced_parts(bare, languages))
    parts = split_identifier(bare)
    silent = _stop_words(languages)
    spoken = tuple(part for part in parts if part not in silent)
    return spoken if len(parts) == 1 else (*spoken, bare.lower())


def stems(word: str, languages: Iterable[str]) -> tuple[str, ...]:
    """Return the distinct stems of a lower-case word in `languages`, without accents, which people often omit."""
    return tuple({_stem(word, language): None for language in languages})


def stem(word: str) -> str:
    """Return the English stem of a lower-case word."""
    return _stem(word, ENGLISH)


def split_identifier(word: str) -> list[str]:
    """Return the lower-case parts of a word, cut between digits and letters and at changes of case.

    >>> split_identifier("createHTTPIssue2")
    ['create', 'http', 'issue', '2']
    """
    if word.isalpha() and (word[1:].islower() or word.islower() or word.isupper()):
        return [word.lower()]
    cuts = [0]
    for i, (before, after) in enumerate(pairwise(word), start=1):
        starts_word = after.isupper() and (before.islower() or (before.isupper() and word[i + 1 : i + 2].islower()))
        if starts_word or before.isdigit() != after.isdigit():
            cuts.append(i)
    return [word[start:end].lower() for start, end in pairwise([*cuts, len(word)])]


@lru_cache(maxsize=SEARCH_LANGUAGES_REMEMBERED)
def _stop_words(languages: Languages) -> frozenset[str]:
    return frozenset(word for language in (ENGLISH, *languages) for word in STOP_WORDS.get(language, ()))


@lru_cache(maxsize=SEARCH_WORDS_REMEMBERED)
def _stem(word: str, language: str) -> str:
    cut = _STEMMERS[language].stemWord(word)
    if cut.isascii():
        return cut
    plain = "".join(c for c in unicodedata.normalize("NFD", cut) if not "\u0300" <= c <= "\u036f")
    return unicodedata.normalize("NFC", plain)


def _unspaced_parts(word: str, languages: Languages) -> Iterator[str]:
    start = 0
    for run in UNSPACED.finditer(word):
        if run.start() > start:
            yield from word_parts(word[start : run.start()], languages)
        text = run.group()
        yield from [text] if len(text) == 1 else (text[i : i + 2] for i in range(len(text) - 1))
        start = run.end()
    if start < len(word):
        yield from word_parts(word[start:], languages)
