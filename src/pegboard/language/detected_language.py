"""Detected language: the language of a text, by its stop words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from pegboard.language.stop_words import STOP_WORDS

LEAST_STOP_WORDS = 3  # stop words of a language that a text must have

_LANGUAGES_OF: Final[Mapping[str, tuple[str, ...]]] = {
    word: tuple(language for language, words in STOP_WORDS.items() if word in words)
    for word in frozenset[str]().union(*STOP_WORDS.values())
}


def stop_word_counts(words: Iterable[str]) -> Mapping[str, int]:
    """Return the number of stop words of each language among folded words; languages without any are left out."""
    # Counted without a loop of ours: an ingest asks this of every passage.
    known = Counter(map(_LANGUAGES_OF.get, words))
    counts = Counter[str]()
    for languages, count in known.items():
        for language in languages or ():
            counts[language] += count
    return counts


def detected_language(words: Iterable[str], *, least: int = LEAST_STOP_WORDS) -> str | None:
    """Return the language with the most stop words among folded words; `None` without a clear one.

    Args:
        words: in the order of the text, in lower case.
        least: the stop words that it must have.
    """
    first, second = (*Counter(stop_word_counts(words)).most_common(2), ("", 0), ("", 0))[:2]
    return first[0] if first[1] >= least and first[1] > second[1] else None
