"""NearNames: finds the tools with names similar to an unknown one, without comparing it with all of them."""

from __future__ import annotations

from bisect import bisect, bisect_left
from collections.abc import Iterable, Iterator, Sequence
from operator import add, itemgetter
from typing import NamedTuple

from pegboard.core.names import MAX_NAME_CHARS, fold
from pegboard.model.tool import ToolEntry

NAMES_BESIDE = 2  # names taken before and after the unknown one, by beginning and by ending

_SHORT = 3  # characters of a name that is too short for suggestions: one letter makes it another name
_WIDTH = MAX_NAME_CHARS * 2
_LETTERS = 32  # names above which each letter is tried instead of looking at the names
_AFTER_LETTERS = "\x7f"
_ALIKE = 0.6  # the share of letters that two similar names have in common, as `difflib` computes it


class NameOrder(NamedTuple):
    """Names in alphabetical order, forwards and backwards, and their casefolded forms."""

    names: frozenset[str]
    forward: list[str]
    backward: list[str]
    by_folded_form: dict[str, str]
    letters: list[str]

    @classmethod
    def of(cls, names: Iterable[str], before: NameOrder | None = None) -> NameOrder:
        """Return the order of some names; derived from `before` without a full sort if it is almost the same."""
        before = before or _NO_ORDER
        # In the given order, not that of a set: the tools of one source are mostly sorted.
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
        # Sorting a list that is sorted except for its end takes one pass.
        return cls(
            names,
            sorted([*forward, *sorted(come)]),
            sorted([*backward, *sorted(name[::-1] for name in come)]),
            by_folded_form,
            sorted({*before.letters, *"".join(come)}),
        )


_NO_ORDER = NameOrder(frozenset(), [], [], {}, [])


class NearNames:
    """Some tools in the order of their names, and of their names reversed.

    A typing slip leaves the text before and after it intact. So it is only looked for where the name shares its
    beginning with one neighbour and its ending with another, and the few possible corrections are looked up.
    """

    def __init__(self, entries: Sequence[ToolEntry], before: NameOrder | None = None) -> None:
        self.entries = entries
        self._by_name = {entry.wire_name: entry for entry in entries}
        self.order = NameOrder.of(self._by_name, before)

    def around(self, name: str) -> Iterator[tuple[ToolEntry, bool]]:
        """Yield a few tools, the likeliest first: other case, one slip away, same beginning or ending.

        The flag marks near-certain matches; the remaining names need no comparison then.
        """
        if len(name) <= _WIDTH and (known := self.order.by_folded_form.get(fold(name))) is not None:
            yield self._by_name[known], True
        if not _SHORT < len(name) <= _WIDTH:
            return
        ends_alike = [known[::-1] for known in _neighbours(self.order.backward, name[::-1])]
        beside = dict.fromkeys(_neighbours(self.order.forward, name) + ends_alike)
        starts, ends = _in_common(name, beside)
        # No name shares a longer beginning with `name` than one of its two neighbours in the order.
        for slip in range(max(0, len(name) - max(ends) - 1), max(starts) + 1):
            for meant in self._slips_at(name, slip):
                yield self._by_name[meant], True
        shared = map(add, starts, ends)
        likely = [(len(known) - 2 * letters, letters, known) for known, letters in zip(beside, shared, strict=True)]
        for _, letters, known in sorted(likely, key=itemgetter(0)):
            alike = min(letters, len(name), len(known))
            yield self._by_name[known], 2 * alike >= _ALIKE * (len(name) + len(known))

    def _slips_at(self, name: str, place: int) -> Iterator[str]:
        """Yield corrections at one place: a letter removed, inserted, replaced, or swapped with its neighbour."""
        start, rest, later = name[:place], name[place:], name[place + 1 :]
        yield from filter(self._by_name.__contains__, (start + later, start + rest[1:2] + rest[:1] + rest[2:]))
        known = _starting_with(self.order.forward, start)
        if known is None and (reversed_names := _starting_with(self.order.backward, later[::-1])) is not None:
            known = [each[::-1] for each in reversed_names]
        if known is None:
            # Very many names match on both sides; there are fewer letters to try than names.
            letters = self.order.letters
            others = [start + letter + later for letter in letters] + [start + letter + rest for letter in letters]
            yield from filter(self._by_name.__contains__, others)
            return
        for end, length in ((later, len(name)), (rest, len(name) + 1)):
            for each in known:
                if len(each) == length and each.endswith(end) and each.startswith(start):
                    yield each


def _starting_with(order: list[str], start: str) -> list[str] | None:
    """Return the sorted names that begin so; `None` if there are more than letters to try."""
    first = bisect_left(order, start)
    too_many = min(first + _LETTERS, len(order))
    if too_many < len(order) and order[too_many].startswith(start):
        return None
    return order[first : bisect_left(order, start + _AFTER_LETTERS, first, too_many)]


def _neighbours(order: list[str], name: str) -> list[str]:
    """Return some names before and after the place of a name in the order."""
    place = bisect(order, name)
    return order[max(0, place - NAMES_BESIDE) : place + NAMES_BESIDE]


def _in_common(name: str, others: Iterable[str]) -> tuple[list[int], list[int]]:
    """Return how many characters each of the others shares with a name: at the beginning, and at the end.

    Names are compared as numbers with one byte per character; a loop over letters takes three times as long.
    """
    # No tool name contains other characters than ASCII, or a question mark. A NUL byte would match padding.
    length, number = len(name), int.from_bytes(name.replace("\0", "?").encode("ascii", "replace"))
    starts: list[int] = []
    ends: list[int] = []
    for known in others:
        longer, other = len(known) - length, int.from_bytes(known.encode())
        # The difference, with the names aligned at the first letter, and at the last.
        first = number ^ (other >> 8 * longer if longer > 0 else other << 8 * -longer)
        last = number ^ other
        starts.append(length - (first.bit_length() + 7) // 8)
        ends.append(((last & -last).bit_length() - 1) // 8 if last else length)
    return starts, ends
