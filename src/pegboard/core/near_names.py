"""NearNames: the tools whose names are near to one that is not there, found without comparing it with all of them."""

from __future__ import annotations

from bisect import bisect, bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from pegboard.core.names import MAX_NAME_CHARS, fold
from pegboard.model.bounds import NAMES_BESIDE
from pegboard.model.tool import ToolEntry

_SHORT = 3  # not a limit: with one letter more or less, such a name is another
_WIDTH = MAX_NAME_CHARS * 2  # not a limit: the longest that is looked for
_LETTERS = 32  # not a limit: to look at so many names is faster than to try each letter
_AFTER_LETTERS = "\x7f"
_ALIKE = 0.6  # not a limit: the share of their letters that two names have in common, as `difflib` has it


class NameOrder(NamedTuple):
    """Names in their order, and read backwards in the order of that; by their folded forms, too."""

    names: frozenset[str]
    forward: list[str]
    backward: list[str]
    by_folded_form: dict[str, str]
    letters: list[str]

    @classmethod
    def of(cls, names: Iterable[str], before: NameOrder | None = None) -> NameOrder:
        """Return the order of some names; of nearly the same as those `before` without sorting them all again."""
        before = before or _NO_ORDER
        # As they come, and not as a set has them: the tools of one source are mostly in order.
        come = [name for name in names if name not in before.names]
        names = frozenset(names)
        gone = before.names - names
        if not gone and not come:
            return before
        forward = [name for name in before.forward if name not in gone] if gone else before.forward
        gone_backward = {name[::-1] for name in gone}
        backward = [name for name in before.backward if name not in gone_backward] if gone else before.backward
        by_folded_form = before.by_folded_form.copy()
        for name in gone:
            del by_folded_form[fold(name)]
        by_folded_form |= {fold(name): name for name in come}
        # Sorting what is sorted but for its end is going through it once.
        return cls(
            names,
            sorted([*forward, *sorted(come)]),
            sorted([*backward, *sorted(name[::-1] for name in come)]),
            by_folded_form,
            sorted({*before.letters, *"".join(come)}),
        )


_NO_ORDER = NameOrder(frozenset(), [], [], {}, [])


class NearNames:
    """Some tools in the order of their names, and of their names read backwards.

    One slip of the keyboard leaves what stands before it and what stands after it. So it can only be where names of
    both orders go along with what was said, and the few names that it could have been are looked up.
    """

    def __init__(self, entries: Sequence[ToolEntry], before: NameOrder | None = None) -> None:
        self.entries = entries
        self._by_name = {entry.wire_name: entry for entry in entries}
        self.order = NameOrder.of(self._by_name, before)

    def around(self, name: str) -> Iterator[tuple[ToolEntry, bool]]:
        """Yield a few tools, the likeliest first: in other case, one slip away, and those that begin or end like it.

        Marked are those that were meant, as a rule: nobody need compare the rest of their names.
        """
        if len(name) <= _WIDTH and (known := self.order.by_folded_form.get(fold(name))) is not None:
            yield self._by_name[known], True
        if not _SHORT < len(name) <= _WIDTH:
            return
        shared = _Shared(name)
        forward, backward = self.order.forward, self.order.backward
        place, place_backward = bisect(forward, name), bisect(backward, name[::-1])
        nearest = _around(forward, place, 1) + [known[::-1] for known in _around(backward, place_backward, 1)]
        ends = {known: shared.ends(known) for known in nearest}
        # No name has more in common with another than one of the two between which it stands.
        before, after = max([start for start, _ in ends.values()]), max([end for _, end in ends.values()])
        for slip in range(max(0, len(name) - after - 1), before + 1):
            for meant in self._slips_at(name, slip):
                yield self._by_name[meant], True
        ends_alike = [known[::-1] for known in _around(backward, place_backward, NAMES_BESIDE)]
        beside = _around(forward, place, NAMES_BESIDE) + ends_alike
        likely = {known: sum(ends.get(known) or shared.ends(known)) for known in beside}
        for known in sorted(likely, key=lambda known: len(known) - 2 * likely[known]):
            letters = min(likely[known], len(name), len(known))
            yield self._by_name[known], 2 * letters >= _ALIKE * (len(name) + len(known))

    def _slips_at(self, name: str, place: int) -> Iterator[str]:
        """Yield what can have been meant if a letter is too much, missing, another, or has changed places with one."""
        start, rest, later = name[:place], name[place:], name[place + 1 :]
        yield from filter(self._by_name.__contains__, (start + later, start + rest[1:2] + rest[:1] + rest[2:]))
        known = _starting_with(self.order.forward, start)
        if known is None and (reversed_names := _starting_with(self.order.backward, later[::-1])) is not None:
            known = [each[::-1] for each in reversed_names]
        if known is None:
            # Very many go along with it on both sides: fewer are the letters that can stand here.
            letters = self.order.letters
            others = [start + letter + later for letter in letters] + [start + letter + rest for letter in letters]
            yield from filter(self._by_name.__contains__, others)
            return
        for end, length in ((later, len(name)), (rest, len(name) + 1)):
            for each in known:
                if len(each) == length and each.endswith(end) and each.startswith(start):
                    yield each


def _starting_with(order: list[str], start: str) -> list[str] | None:
    """Return the names that start so, in order; `None` where they are more than letters are tried."""
    first = bisect_left(order, start)
    too_many = min(first + _LETTERS, len(order))
    if too_many < len(order) and order[too_many].startswith(start):
        return None
    return order[first : bisect_left(order, start + _AFTER_LETTERS, first, too_many)]


def _around(order: list[str], place: int, count: int) -> list[str]:
    """Return so many names before a place, and as many from it on."""
    return order[max(0, place - count) : place + count]


class _Shared:
    """How many characters other names have in common with one name, at their beginnings and at their ends.

    Names are compared as numbers, a byte for each character: to go through them letter by letter takes three times as
    long.
    """

    def __init__(self, name: str) -> None:
        # What is not ASCII is in no tool's name, and a question mark neither.
        self._length, self._number = len(name), int.from_bytes(name.encode("ascii", "replace"))

    def ends(self, known: str) -> tuple[int, int]:
        """Return how many are the same at the beginning, and how many at the end."""
        longer, number = len(known) - self._length, int.from_bytes(known.encode())
        # What differs, with the first letters of both in one place, and with the last ones.
        first = self._number ^ (number >> 8 * longer if longer > 0 else number << 8 * -longer)
        last = self._number ^ number
        at_start = self._length - (first.bit_length() + 7) // 8
        at_end = ((last & -last).bit_length() - 1) // 8 if last else self._length
        # A NUL, which no tool has, is alike to where a shorter name has nothing.
        return min(at_start, len(known)), min(at_end, len(known))
