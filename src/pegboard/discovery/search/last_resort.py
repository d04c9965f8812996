"""Last resort: what is given where no visible tool has a word of a request, nor one that means or is spelled as much.

Whoever asks then asks in other words or in another language, or for what no tool does, and words cannot tell which. The
tools whose words have runs of letters in common with the request come first; after them one tool of each namespace in
turn, so that among few tools all are shown and among many what there is. Where an embedder finds some more alike than
others, though none stands out, its best and these take turns. Nothing of that is more than weak.
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

SEARCH_RESEMBLED_WORDS = 16  # of a request that nothing matches, compared by their runs of letters
SEARCH_RESEMBLING_TERMS = 8  # and words of tools that each resembles

# The chance that a right tool is among the first five, were half of all requests served by none: weak.
RESEMBLING_CHANCE = 0.1
_LEAST_RESEMBLING = 0.25
_ONE_SIGN_SHARE = 0.3
_IN_TURN_SHARE = 0.1  # of the score of the tool that resembles the request most


def resembling(text: str, vocabulary: Vocabulary) -> ParsedQuery:
    """Return the terms of visible tools that resemble the words of a request: its first sixteen, as one clause."""
    words = words_of(text[:SEARCH_QUERY_CHARS])
    spoken = languages_of(words, among=vocabulary.languages)
    # A request of words alone that say nothing elsewhere ("who am I") has nothing else to be read by.
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
    if term.isascii() or len(term) > 3:  # shorter words of letters have no spelling near them
        count = SEARCH_RESEMBLING_TERMS
        return tuple(spellings_near(term, postings, known=known, least=_LEAST_RESEMBLING, count=count))
    # Of scripts without spaces a term is two signs, and one says something.
    alike = sorted(other for other in terms_alike(term, postings) if known(other) and not set(term).isdisjoint(other))
    return tuple((other, _ONE_SIGN_SHARE) for other in alike[:SEARCH_RESEMBLING_TERMS])


def with_others(scores: Vector, starts: NDArray[np.int64], order: Sequence[int]) -> Vector:
    """Return a score above 0 for every tool: what resembles a request first, then one of each namespace in turn.

    Args:
        scores: of what resembles the request, the best 1.0, or all 0.
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
    """Return scores by which the best tools of two orders come in turn: nobody knows which of the two knows better."""
    turns = np.minimum(2 * _places(one), 2 * _places(other) + 1)
    return (1 - _places(-turns) / (2 * len(one))).astype(np.float32)


def _places(scores: NDArray[np.float32] | NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the place of each tool, 0 that of the best."""
    places = np.empty(len(scores), dtype=np.int64)
    places[np.argsort(-scores, kind="stable")] = np.arange(len(scores))
    return places
