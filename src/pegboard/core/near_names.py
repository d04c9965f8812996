"""NearNames: the tools whose names are near to one that is not there, found without comparing it with all of them."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain

from pegboard.core.names import MAX_NAME_CHARS, fold
from pegboard.model.bounds import NAMES_BESIDE
from pegboard.model.tool import ToolEntry

_SHORT = 3  # not a limit: with one letter more or less, such a name is another
_WIDTH = MAX_NAME_CHARS * 2  # not a limit: the longest that is looked for
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
        self._letters = sorted({*"".join(self._by_name)})

    def around(self, name: str) -> Iterator[tuple[ToolEntry, bool]]:
        """Yield a few tools, the likeliest first: in other case, one slip away, and those that begin or end like it.

        Marked are those that were meant, as a rule: nobody need compare the rest of their names.
        """
        if len(name) <= _WIDTH and (entry := self._by_folded_name.get(fold(name))) is not None:
            yield entry, True
        if not _SHORT < len(name) <= _WIDTH:
            return
        reversed_name = name[::-1]
        backward = [known[::-1] for known in _beside(self._backward, reversed_name)]
        shared = _Shared(name)
        likely = {known: shared.with_name(known) for known in (*_beside(self._forward, name), *backward)}
        before, after = (max(alike) for alike in zip(*likely.values(), strict=True))
        # One look for all of them: it is the making of so many words in turn that takes its time.
        for meant in filter(self._by_name.__contains__, self._one_slip(name, max(0, len(name) - after - 1), before)):
            yield self._by_name[meant], True
        for known in sorted(likely, key=lambda known: len(known) - 2 * sum(likely[known])):
            alike = min(sum(likely[known]), len(name), len(known))
            yield self._by_name[known], 2 * alike >= _ALIKE * (len(name) + len(known))

    def _one_slip(self, name: str, first: int, last: int) -> Iterator[str]:
        """Return what can have been meant if one slip stands between two places."""
        return chain.from_iterable(map(partial(self._slips_at, name), range(first, last + 1)))

    def _slips_at(self, name: str, place: int) -> list[str]:
        start, rest, later = name[:place], name[place:], name[place + 1 :]
        letters = self._letters
        return [
            start + later,
            start + rest[1:2] + rest[:1] + rest[2:],
            *[start + letter + later for letter in letters],
            *[start + letter + rest for letter in letters],
        ]


def _beside(order: list[str], name: str) -> list[str]:
    place = bisect(order, name)
    return order[max(0, place - NAMES_BESIDE) : place + NAMES_BESIDE]


class _Shared:
    """How many characters other names have in common with one name, at their beginnings and at their ends.

    Names are compared as numbers, a byte for each character: to go through them letter by letter takes three times as
    long.
    """

    def __init__(self, name: str) -> None:
        self._length = len(name)
        self._at_end = _as_number(name)
        self._at_start = self._at_end << 8 * (_WIDTH - len(name))

    def with_name(self, known: str) -> tuple[int, int]:
        """Return the characters that are the same at the beginning, and those at the end."""
        at_end, least = _as_number(known), min(len(known), self._length)
        differs = self._at_start ^ (at_end << 8 * (_WIDTH - len(known)))
        before = _WIDTH - (differs.bit_length() + 7) // 8
        differs = self._at_end ^ at_end
        after = ((differs & -differs).bit_length() - 1) // 8 if differs else least
        return min(before, least), min(after, least)


def _as_number(name: str) -> int:
    # What is not ASCII is in no tool's name, and a question mark neither.
    return int.from_bytes(name.encode("ascii", "replace"))
