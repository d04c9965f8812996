"""NearNames: the tools whose names are near to one that is not there, found without comparing it with all of them."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator, Sequence

from pegboard.core.names import MAX_NAME_CHARS, fold
from pegboard.model.bounds import NAMES_BESIDE
from pegboard.model.tool import ToolEntry

_SHORT = 3  # not a limit: with one letter more or less, such a name is another
_ALIKE = 0.6  # not a limit: the share of their letters that two names have in common, as `difflib` has it


class NearNames:
    """Some tools in the order of their names, and of their names read backwards.

    One slip of the keyboard leaves what stands before it and what stands after it. So it can only be where names of
    both orders go along with what was said, and the few names that it could have been are looked up.
    """

    def __init__(self, entries: Sequence[ToolEntry]) -> None:
        self.entries = entries
        self._by_name = {entry.wire_name: entry for entry in entries}
        self._by_folded_name = {fold(name): entry for name, entry in self._by_name.items()}
        self._forward = sorted(self._by_name)
        self._backward = sorted(name[::-1] for name in self._by_name)
        self.in_order: Sequence[str] = self._forward
        self._letters = sorted({letter for name in self._by_name for letter in name})

    def around(self, name: str) -> Iterator[tuple[ToolEntry, bool]]:
        """Yield a few tools, the likeliest first: in other case, one slip away, and those that begin or end like it.

        Marked are those that were meant, as a rule: nobody need compare the rest of their names.
        """
        if len(name) <= MAX_NAME_CHARS * 2 and (entry := self._by_folded_name.get(fold(name))) is not None:
            yield entry, True
        if not _SHORT < len(name) <= MAX_NAME_CHARS * 2:
            return
        reversed_name = name[::-1]
        backward = [known[::-1] for known in _beside(self._backward, reversed_name)]
        likely = {
            known: (_shared(name, known), _shared(reversed_name, known[::-1]))
            for known in (*_beside(self._forward, name), *backward)
        }
        before, after = (max(alike) for alike in zip(*likely.values(), strict=True))
        for meant in self._one_slip(name, max(0, len(name) - after - 1), before):
            if meant in self._by_name:
                yield self._by_name[meant], True
        for known in sorted(likely, key=lambda known: len(known) - 2 * sum(likely[known])):
            alike = min(sum(likely[known]), len(name), len(known))
            yield self._by_name[known], 2 * alike >= _ALIKE * (len(name) + len(known))

    def _one_slip(self, name: str, first: int, last: int) -> Iterator[str]:
        """Yield what can have been meant if one slip stands between two places."""
        for place in range(first, last + 1):
            start, rest, later = name[:place], name[place:], name[place + 1 :]
            yield start + later
            yield start + rest[1:2] + rest[:1] + rest[2:]
            for letter in self._letters:
                yield start + letter + later
                yield start + letter + rest


def _beside(order: list[str], name: str) -> list[str]:
    place = bisect(order, name)
    return order[max(0, place - NAMES_BESIDE) : place + NAMES_BESIDE]


def _shared(one: str, other: str) -> int:
    """Return how many characters two names have in common at their beginnings."""
    for place, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return place
    return min(len(one), len(other))
