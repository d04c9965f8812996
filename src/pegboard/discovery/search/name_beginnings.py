"""Name beginnings: searches for the beginning of a tool name ("git", "git_", "create_is")."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence

import numpy as np

from pegboard.discovery.search.ranking import Vector
from pegboard.discovery.search.terms import split_identifier, words_of
from pegboard.discovery.search.tool_text import ToolText

# One word without spaces, like a name.
_BARE = re.compile(r"[\w.:/-]+")
_LEAST_LETTERS = 2
_OF_NAME, _OF_NAMESPACE, _OF_PART = 1.0, 0.9, 0.6
# If some tool has the word, tools whose names merely begin so rank after it.
_BESIDE_WORDS = 0.3
_CHANCE = 0.5  # half a name shows only that a name was meant


class NameBeginnings:
    """The names of tools in alphabetical order, for prefix search that ignores case and separators."""

    def __init__(self, texts: Iterable[ToolText]) -> None:
        places: dict[str, dict[int, float]] = {}
        for place, text in enumerate(texts):
            words = words_of(text.name)
            parts = [part for word in words for part in split_identifier(word)]
            for form, worth in (
                *((part, _OF_PART) for part in parts),
                (_joined(text.namespace), _OF_NAMESPACE),
                (_joined(text.name), _OF_NAME),
                (_joined(text.namespace + text.name), _OF_NAME),
            ):
                held = places.setdefault(form, {})
                held[place] = max(held.get(place, 0.0), worth)
        self._forms: Sequence[str] = sorted(places)
        self._places = places

    def found(self, query: str, count: int) -> Vector | None:
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
    return "".join(letter for letter in name.lower() if letter.isalnum())
