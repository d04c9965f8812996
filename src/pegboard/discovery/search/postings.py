"""Postings: the tools that contain each term, with its weight in them, as flat arrays."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray


class TermWeights(Struct, frozen=True, kw_only=True):
    """The distinct terms of one tool and their weights, summed over its fields."""

    terms: tuple[str, ...]
    weights: array[float]


class Postings(Struct, frozen=True, kw_only=True):
    """The inverted index. The postings of term number `t` are `starts[t]:starts[t + 1]` of `tools` and `weights`.

    `trigrams` maps letter trigrams to the numbers of terms with more than three letters; `trigram_counts` has the
    number of trigrams of each term. `letters` and `lengths` have the letters of each term, one bit each, and its
    length.
    """

    terms: tuple[str, ...]
    vocabulary: Mapping[str, int]
    starts: NDArray[np.int32]
    tools: NDArray[np.int32]
    weights: NDArray[np.float32]
    trigrams: Mapping[str, NDArray[np.int32]]
    trigram_counts: NDArray[np.int32]
    letters: NDArray[np.uint32]
    lengths: NDArray[np.int32]

    def span(self, term: str) -> slice:
        """Return the slice of a term's postings; empty if no tool has it."""
        number = self.vocabulary.get(term)
        return slice(0, 0) if number is None else slice(int(self.starts[number]), int(self.starts[number + 1]))

    def terms_of(self, chosen: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return for each term whether one of the chosen tools has it."""
        # Every term occurs in some tool, so no slice is empty.
        return np.logical_or.reduceat(chosen[self.tools], self.starts[:-1]) if len(self.tools) else chosen[:0]


def post(documents: Sequence[TermWeights]) -> Postings:
    """Return the postings of the tools, numbered in the order given."""
    vocabulary: dict[str, int] = {}
    number = vocabulary.setdefault
    numbers = np.fromiter((number(term, len(vocabulary)) for each in documents for term in each.terms), dtype=np.int32)
    weights = np.fromiter((weight for each in documents for weight in each.weights), dtype=np.float32)
    counts = np.fromiter((len(each.terms) for each in documents), dtype=np.int32)
    order = np.argsort(numbers, kind="stable")
    starts = np.zeros(len(vocabulary) + 1, dtype=np.int32)
    np.cumsum(np.bincount(numbers, minlength=len(vocabulary)), out=starts[1:])
    trigrams, trigram_counts = _trigram_table(vocabulary)
    terms = tuple(vocabulary)
    return Postings(
        terms=terms,
        vocabulary=vocabulary,
        starts=starts,
        tools=np.repeat(np.arange(len(documents), dtype=np.int32), counts)[order],
        weights=weights[order],
        trigrams=trigrams,
        trigram_counts=trigram_counts,
        letters=_letters_of(terms),
        lengths=np.fromiter(map(len, terms), dtype=np.int32),
    )


def spellings_near(
    term: str, postings: Postings, *, known: Callable[[str], bool], least: float, count: int
) -> list[tuple[str, float]]:
    """Return up to `count` known terms that share at least `least` of their trigrams (Dice), nearest first."""
    grams = trigrams_of(term)
    runs = [run for gram in grams if (run := postings.trigrams.get(gram)) is not None]
    if not runs:
        return []
    # Counted for all terms at once: a trigram of thousands of terms would take a millisecond one by one.
    hits = np.bincount(np.concatenate(runs), minlength=len(postings.terms))
    shares = 2.0 * hits / (len(grams) + postings.trigram_counts)
    places = np.flatnonzero((hits > 1) & (shares >= least)).tolist()
    near = [(postings.terms[place], float(shares[place])) for place in places]
    near = [(other, share) for other, share in near if _alike_long(term, other) and known(other)]
    return sorted(near, key=lambda pair: (-pair[1], pair[0]))[:count]


def _alike_long(term: str, other: str) -> bool:
    # A run of one character has a single trigram, however long it is.
    return 2 * min(len(term), len(other)) >= max(len(term), len(other))


def terms_alike(word: str, postings: Postings) -> list[str]:
    """Return the terms with nearly the same letters and length, which include all terms one slip away."""
    alike = np.bitwise_count(postings.letters ^ _letters_of((word,))) <= 2
    alike &= np.abs(postings.lengths - len(word)) <= 1
    return [postings.terms[place] for place in np.flatnonzero(alike)]


def _letters_of(terms: Sequence[str]) -> NDArray[np.uint32]:
    """Return the letters of each term, one bit each; letters of other scripts share the 32 bits."""
    if not terms:
        return np.zeros(0, dtype=np.uint32)
    codes = np.frombuffer("".join(terms).encode("utf-32-le", errors="surrogatepass"), dtype=np.uint32)
    starts = np.cumsum([0, *map(len, terms[:-1])])
    return np.bitwise_or.reduceat(np.left_shift(np.uint32(1), codes & np.uint32(31)), starts)


def trigrams_of(term: str) -> set[str]:
    """Return the trigrams of a term, with its beginning and end marked."""
    marked = f"^{term}$"
    return {marked[i : i + 3] for i in range(len(marked) - 2)}


def _trigram_table(vocabulary: Iterable[str]) -> tuple[dict[str, NDArray[np.int32]], NDArray[np.int32]]:
    table: dict[str, list[int]] = {}
    counts: list[int] = []
    for number, term in enumerate(vocabulary):
        grams = trigrams_of(term) if len(term) > 3 else ()
        counts.append(len(grams))
        for gram in grams:
            table.setdefault(gram, []).append(number)
    return {gram: np.array(numbers, dtype=np.int32) for gram, numbers in table.items()}, np.array(
        counts, dtype=np.int32
    )
