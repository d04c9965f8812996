"""Name beginnings: searches for the beginning of a tool name ("git", "git_", "create_is")."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from pegboard.discovery.search.ranking import Vector
from pegboard.discovery.search.terms import split_identifier, words_of

# One word without spaces, like a name.
_BARE = re.compile(r"[\w.:/-]+")
_SEPARATORS = re.compile(r"[\W_]+")
_LEAST_LETTERS = 2
_OF_NAME, _OF_NAMESPACE, _OF_PART = 1.0, 0.9, 0.6
# If some tool has the word, tools whose names merely begin so rank after it.
_BESIDE_WORDS = 0.3
_CHANCE = 0.5  # half a name shows only that a name was meant


def beginnings_of(name: str, namespace: str) -> dict[str, float]:
    """Return the forms of a tool's name that a request may begin, each with its worth."""
    forms = {part: _OF_PART for word in words_of(name) for part in split_identifier(word)}
    whole = ((_joined(namespace), _OF_NAMESPACE), (_joined(name), _OF_NAME), (_joined(namespace + name), _OF_NAME))
    for form, worth in whole:
        forms[form] = max(forms.get(form, 0.0), worth)
    return forms


class NameBeginnings:
    """The names of tools in alphabetical order, for prefix search that ignores case and separators."""

    def __init__(self, tools: Iterable[Mapping[str, float]]) -> None:
        """`tools` are the `beginnings_of` each tool, in the order of the index."""
        places: dict[str, dict[int, float]] = {}
        for place, forms in enumerate(tools):
            for form, worth in forms.items():
                places.setdefault(form, {})[place] = worth
        self._forms: Sequence[str] = sorted(places)
        self._places = places

    def scores(self, query: str, count: int) -> Vector | None:
        """Return how well the names of `count` tools begin with the request; `None` if none does."""
        bare = query.strip()
        if not _BARE.fullmatch(bare) or len(begin := _joined(bare)) < _LEAST_LETTERS:
            return None
        found: Vector | None = None
        for number in range(bisect_left(self._forms, begin), len(self._forms)):
            form = self._forms[number]
            if not form.startswith(begin):
                break
            found = np.zeros(count, dtype=np.float32) if found is None else found
            for place, worth in self._places[form].items():
                found[place] = max(found[place], worth)
        return found


def completed(scores: Vector, chance: float, begun: Vector, *, is_word: bool) -> tuple[Vector, float]:
    """Return combined score and probability of words and name beginnings, the best score 1.0.

    Args:
        scores: by words, the best 1.0, or all 0.
        chance: the probability that they found a right tool.
        begun: how well each name begins with the request, 0 … 1, at least one of them above 0.
        is_word: whether a visible tool has the request as a word.
    """
    both = scores + _BESIDE_WORDS * begun if is_word else _BESIDE_WORDS * scores + begun
    return both / both.max(), max(chance, _CHANCE * float(begun.max()))


def _joined(name: str) -> str:
    return _SEPARATORS.sub("", name.lower())
