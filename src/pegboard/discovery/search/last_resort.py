"""Last resort: the answer if no visible tool has a word of a request, a synonym or a similar spelling.

The caller used other words or another language, or needs something that no tool does; words cannot tell which. First
come the tools whose words share letter sequences with the request, then one tool of each namespace in turn. So all of a
few tools are shown, and a sample of many. If an embedder finds some tools more similar than others, though none stands
out, its best tools and these alternate. All such hits are weak.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pegboard.discovery.limits import SEARCH_QUERY_CHARS
from pegboard.discovery.search.postings import spellings_near, terms_alike
from pegboard.discovery.search.query import ParsedQuery, TermGroup, Vocabulary
from pegboard.discovery.search.ranking import Vector
from pegboard.discovery.search.terms import languages_of, stem, word_parts, words_of

SEARCH_RESEMBLED_WORDS = 16  # words of an unmatched request that are compared by letter sequences
SEARCH_RESEMBLING_TERMS = 8  # tool words that may resemble one request word

# The probability that a right tool is among the first five, assuming that half of all requests have one: weak.
RESEMBLING_CHANCE = 0.1
_LEAST_RESEMBLING = 0.25
_ONE_SIGN_SHARE = 0.3
_IN_TURN_SHARE = 0.1  # share of the score of the most similar tool


def resembling(text: str, vocabulary: Vocabulary) -> ParsedQuery:
    """Return the terms of visible tools that resemble the first sixteen words of a request, as one clause."""
    words = words_of(text[:SEARCH_QUERY_CHARS])
    spoken = languages_of(words, among=vocabulary.languages)
    # A request of only stop words ("who am I") has nothing else to search for.
    parts = dict.fromkeys(part for word in words for part in word_parts(word, spoken)) or dict.fromkeys(
        word.lower() for word in words
    )
    groups: list[TermGroup] = []
    for part in list(parts)[:SEARCH_RESEMBLED_WORDS]:
        terms = _resembling_terms(stem(part), vocabulary)
        groups += [TermGroup(exact=terms, similar=(), is_known=False, is_argument=False)] if terms else []
    return ParsedQuery(groups=tuple(groups), clauses=(tuple(range(len(groups))),) if groups else ())


def _resembling_terms(term: str, vocabulary: Vocabulary) -> tuple[tuple[str, float], ...]:
    known, postings = vocabulary.known, vocabulary.postings
    if term.isascii() or len(term) > 3:  # shorter alphabetic words have no similar spellings
        count = SEARCH_RESEMBLING_TERMS
        return tuple(spellings_near(term, postings, known=known, least=_LEAST_RESEMBLING, count=count))
    # In scripts without spaces a term is two characters, and a single one has a meaning.
    alike = sorted(other for other in terms_alike(term, postings) if known(other) and not set(term).isdisjoint(other))
    return tuple((other, _ONE_SIGN_SHARE) for other in alike[:SEARCH_RESEMBLING_TERMS])


def with_others(scores: Vector, starts: NDArray[np.int64], order: Sequence[int]) -> Vector:
    """Return a score above 0 for every tool: similar tools first, then one of each namespace in turn.

    Args:
        scores: of similar tools, the best 1.0, or all 0.
        starts: the places where the namespaces begin.
        order: the namespaces, the nearest first.
    """
    count = len(scores)
    sizes = np.diff(np.append(starts, count))
    turns = np.empty(len(starts), dtype=np.int64)
    turns[list(order)] = np.arange(len(starts))
    of_namespace = np.repeat(np.arange(len(starts)), sizes)
    rounds = np.arange(count) - starts[of_namespace]
    places = np.empty(count, dtype=np.float32)
    places[np.lexsort((turns[of_namespace], rounds))] = np.arange(count)
    in_turn = np.float32(_IN_TURN_SHARE) * (1 - places / np.float32(2 * count))
    return np.where(scores > 0, _IN_TURN_SHARE + (1 - _IN_TURN_SHARE) * scores, in_turn).astype(np.float32)


def taking_turns(one: Vector, other: Vector) -> Vector:
    """Return scores that alternate the best tools of two rankings, since neither is known to be better."""
    turns = np.minimum(2 * _places(one), 2 * _places(other) + 1)
    return (1 - _places(-turns) / (2 * len(one))).astype(np.float32)


def _places(scores: NDArray[np.float32] | NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the rank of each tool, 0 for the best."""
    places = np.empty(len(scores), dtype=np.int64)
    places[np.argsort(-scores, kind="stable")] = np.arange(len(scores))
    return places
