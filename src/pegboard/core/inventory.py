"""Inventory: all entries of a catalog at one moment, our own and those of sources, in order and by group."""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from operator import itemgetter, ne
from typing import NamedTuple

from pegboard.core.entry_change import EntryChange, places_of
from pegboard.core.entry_table import Ordered
from pegboard.core.names import fold
from pegboard.model.error import DuplicateToolError
from pegboard.model.tool import ToolEntry


class _Traits(NamedTuple):
    """The traits that an inventory groups entries by. Few combinations occur, so places are stored for each."""

    groups: tuple[str, ...]
    is_renamed: bool
    is_conditional: bool
    is_bundle: bool
    may_be_task: bool

    @classmethod
    def of(cls, entry: ToolEntry) -> _Traits:
        spec, builder = entry.spec, entry.builder
        is_bundle = builder is not None and builder.is_bundle
        return cls(
            spec.groups, bool(spec.renamed_from), spec.available is not None, is_bundle, spec.task != "forbidden"
        )


class Inventory:
    """The entries of one moment, by namespace and then by declaration. Immutable.

    Built from the inventory `before`, it examines only changed entries. Its entries are `ordered`, with their folded
    qualified ids.
    """

    def __init__(self, given: Ordered, before: Inventory | None = None) -> None:
        before, self._given = before or _NOTHING, given
        change = EntryChange.between(before._given, self._given)
        # Stored separately, since reading them from each entry at each change took most of the time.
        self._spaces: list[str] = change.moves.moved(before._spaces, "")
        for one in change.added:
            self._spaces[one.place] = one.entry.spec.namespace
        self.namespaces = frozenset(self._spaces)
        self.ordered = _by_namespace(self._given, self._spaces)
        if self.ordered is not self._given or before.ordered is not before._given:
            change = EntryChange.between(before.ordered, self.ordered)
        self._places: Mapping[_Traits, tuple[int, ...]] = change.followed(before._places, _Traits.of)
        # Weak: the successor is kept, and the predecessor must be collectable.
        self._followed = weakref.ref(before), change

    def since(self, before: Inventory) -> EntryChange:
        """Return the change since an earlier inventory."""
        followed, change = self._followed
        return change if followed() is before else EntryChange.between(before.ordered, self.ordered)

    @cached_property
    def groups(self) -> Mapping[str, tuple[int, ...]]:
        """The places of the entries of each group."""
        by_group: defaultdict[str, list[int]] = defaultdict(list)
        for traits, places in self._places.items():
            for group in dict.fromkeys(traits.groups):
                by_group[group] += places
        return {group: tuple(sorted(places)) for group, places in by_group.items()}

    @cached_property
    def renamed(self) -> tuple[int, ...]:
        """The places of entries with former names."""
        return self._places_with(lambda traits: traits.is_renamed)

    @cached_property
    def conditional(self) -> tuple[int, ...]:
        """The places of entries that may be hidden by a condition."""
        return self._places_with(lambda traits: traits.is_conditional)

    @cached_property
    def bundles(self) -> tuple[int, ...]:
        """The places of builders whose tools are not known in advance."""
        return self._places_with(lambda traits: traits.is_bundle)

    @cached_property
    def tasks(self) -> tuple[int, ...]:
        """The places of tools that may run as tasks."""
        return self._places_with(lambda traits: traits.may_be_task)

    def _places_with(self, holds: Callable[[_Traits], bool]) -> tuple[int, ...]:
        return tuple(sorted([place for traits, places in self._places.items() if holds(traits) for place in places]))

    def reduced_to(self, groups: Iterable[str], ids: frozenset[str], *, own: Iterable[ToolEntry]) -> Inventory:
        """Return the entries in these groups or with these qualified ids, preceded by the `own` entries."""
        wanted = frozenset(groups)
        entries = {
            key: entry
            for key, entry in zip(*self.ordered, strict=True)
            if entry.qualified_id in ids or not wanted.isdisjoint(entry.spec.groups)
        }
        entries |= {fold(entry.qualified_id): entry for entry in own}
        return Inventory(Ordered([*entries], [*entries.values()]))

    def with_extra(self, extra: Iterable[ToolEntry]) -> Inventory:
        """Return the inventory with one-off tools.

        Raises:
            DuplicateToolError: a qualified id is taken.
        """
        entries = dict(zip(*self.ordered, strict=True))
        for entry in extra:
            key = fold(entry.qualified_id)
            if key in entries:
                raise DuplicateToolError(entry.qualified_id, first=entries[key].spec.origin, second=entry.spec.origin)
            entries[key] = entry
        return Inventory(Ordered([*entries], [*entries.values()]), self)


def _by_namespace(given: Ordered, spaces: Sequence[str]) -> Ordered:
    """Return entries grouped by namespace, and otherwise in their order.

    Entries of one namespace are mostly adjacent, so a few slices are sorted instead of ten thousand entries.
    """
    ends = [*[place + 1 for place in places_of(1, bytes(map(ne, spaces[1:], spaces)))], len(spaces)]
    runs = [(spaces[end - 1], start, end) for start, end in pairwise([0, *ends]) if end]
    in_order = sorted(runs, key=itemgetter(0))
    if in_order == runs:
        return given
    keys, entries = list[str](), list[ToolEntry]()
    for _, start, end in in_order:
        keys += given.keys[start:end]
        entries += given.entries[start:end]
    return Ordered(keys, entries)


class _Nothing(Inventory):
    """The empty inventory, which precedes every other."""

    def __init__(self) -> None:
        self.ordered = self._given = Ordered([], [])
        self._spaces, self._places = [], {}
        self.namespaces = frozenset[str]()


_NOTHING: Inventory = _Nothing()
