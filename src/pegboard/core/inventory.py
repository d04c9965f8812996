"""Inventory: all entries of a catalog at one moment, our own and those of sources, in their order and by group."""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import NamedTuple

from pegboard.core.entry_change import EntryChange
from pegboard.core.names import fold
from pegboard.model.error import DuplicateToolError
from pegboard.model.tool import ToolEntry


class _Traits(NamedTuple):
    """What an inventory tells apart of an entry. Few combinations are in use, so places are kept for each."""

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

    `entries` are by folded qualified id. Made with the one `before`, it looks only at what is not as it was there.
    """

    def __init__(self, entries: Mapping[str, ToolEntry], before: Inventory | None = None) -> None:
        before = before or _NOTHING
        self._given: Mapping[str, ToolEntry] = entries
        change = EntryChange.between(before._given, entries)
        spaces = {one.key: one.entry.spec.namespace for one in change.added}
        were = before._namespace_of
        if change.moves.came_from is None and all(were[key] == space for key, space in spaces.items()):
            self._namespace_of: Mapping[str, str] = were
            self.namespaces: frozenset[str] = before.namespaces
            if before.entries is not before._given:
                entries = {**before.entries, **{one.key: one.entry for one in change.added}}
        else:
            namespace_of = {**were}
            for one in change.removed:
                del namespace_of[one.key]
            namespace_of.update(spaces)
            self._namespace_of, self.namespaces = namespace_of, frozenset(namespace_of.values())
            order = sorted(entries, key=namespace_of.__getitem__)
            if order != [*entries]:
                entries = dict(zip(order, map(entries.__getitem__, order), strict=True))
        self.entries: Mapping[str, ToolEntry] = entries
        if self.entries is not self._given or before.entries is not before._given:
            change = EntryChange.between(before.entries, self.entries)
        self._places: Mapping[_Traits, tuple[int, ...]] = change.followed(before._places, _Traits.of)
        # Weak: what follows is kept, and what was before must be free to go.
        self._followed = weakref.ref(before), change

    def since(self, before: Inventory) -> EntryChange:
        """Return what changed since an inventory of before."""
        followed, change = self._followed
        return change if followed() is before else EntryChange.between(before.entries, self.entries)

    @cached_property
    def groups(self) -> Mapping[str, tuple[int, ...]]:
        """The places among the entries of those of each group."""
        by_group: defaultdict[str, list[int]] = defaultdict(list)
        for traits, places in self._places.items():
            for group in dict.fromkeys(traits.groups):
                by_group[group] += places
        return {group: tuple(sorted(places)) for group, places in by_group.items()}

    @cached_property
    def renamed(self) -> tuple[int, ...]:
        """The places of those with former names."""
        return self._where(lambda traits: traits.is_renamed)

    @cached_property
    def conditional(self) -> tuple[int, ...]:
        """The places of those with availability."""
        return self._where(lambda traits: traits.is_conditional)

    @cached_property
    def bundles(self) -> tuple[int, ...]:
        """The places of builders of any tools."""
        return self._where(lambda traits: traits.is_bundle)

    @cached_property
    def tasks(self) -> tuple[int, ...]:
        """The places of those that may be tasks."""
        return self._where(lambda traits: traits.may_be_task)

    def _where(self, holds: Callable[[_Traits], bool]) -> tuple[int, ...]:
        return tuple(sorted([place for traits, places in self._places.items() if holds(traits) for place in places]))

    def reduced_to(self, groups: Iterable[str], ids: frozenset[str], *, own: Iterable[ToolEntry]) -> Inventory:
        """Return what is in these groups or has these qualified ids, and `own` entries, which come first."""
        wanted = frozenset(groups)
        kept = {
            key: entry
            for key, entry in self.entries.items()
            if entry.qualified_id in ids or not wanted.isdisjoint(entry.spec.groups)
        }
        return Inventory({**kept, **{fold(entry.qualified_id): entry for entry in own}})

    def with_extra(self, extra: Iterable[ToolEntry]) -> Inventory:
        """Return the inventory with one-off tools.

        Raises:
            DuplicateToolError: a qualified id is taken.
        """
        entries = dict(self.entries)
        for entry in extra:
            key = fold(entry.qualified_id)
            if key in entries:
                raise DuplicateToolError(entry.qualified_id, first=entries[key].spec.origin, second=entry.spec.origin)
            entries[key] = entry
        return Inventory(entries, self)


class _Nothing(Inventory):
    """The inventory of nothing, which comes before every other."""

    def __init__(self) -> None:
        self.entries, self._given, self._namespace_of, self._places = {}, {}, {}, {}
        self.namespaces = frozenset()


_NOTHING: Inventory = _Nothing()
