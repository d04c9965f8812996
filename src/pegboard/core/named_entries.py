"""Named entries: the entries of an inventory with their wire names, made anew only where something changed."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from pegboard.core.entry_change import EntryChange
from pegboard.core.inventory import Inventory
from pegboard.core.names import fold, is_tool_name, shortened
from pegboard.core.wire_names import Named, WireNames
from pegboard.model.tool import ToolEntry


@dataclass(frozen=True, slots=True)
class NamedEntries:
    """The entries of an inventory by folded qualified id, in its order, each with its wire name.

    Of a large catalog one tool changes now and then: with the ones `before`, the others are not named and made again.
    """

    inventory: Inventory
    names: WireNames
    by_key: Mapping[str, ToolEntry]
    _kept_names: Callable[[], WireNames | None] | None = None
    """Gives the names of before, where all that stayed kept them, as long as those live."""

    @classmethod
    def of(cls, inventory: Inventory, before: NamedEntries | None = None) -> NamedEntries:
        now = inventory.entries
        if before is None:
            names = WireNames.of(map(name_parts, now.values()))
            return cls(inventory, names, {key: _with_name(entry, names) for key, entry in now.items()})
        change = inventory.since(before.inventory)
        kept_names = weakref.ref(before.names)
        names = before.names.after(
            removed=[name_parts(one.entry) for one in change.removed],
            added=[name_parts(one.entry) for one in change.added],
        )
        kept = {**before.by_key}
        is_in_place = change.moves.came_from is None
        for one in () if is_in_place else change.removed:
            del kept[one.key]
        if names is None:
            kept_names, names = None, WireNames.of(map(name_parts, now.values()))
            kept = {key: _with_name(entry, names) for key, entry in kept.items()}
        kept.update({one.key: _with_name(one.entry, names) for one in change.added})
        by_key = kept if is_in_place else dict(zip(now, map(kept.__getitem__, now), strict=True))
        return cls(inventory, names, by_key, kept_names)

    def since(self, before: NamedEntries) -> EntryChange:
        """Return what changed since those of before."""
        if self._kept_names is None or self._kept_names() is not before.names:
            return EntryChange.between(before.by_key, self.by_key)
        change = self.inventory.since(before.inventory)
        return change.of_others(tuple(before.by_key.values()), tuple(self.by_key.values()))

    @classmethod
    def with_own(cls, inventory: Inventory, own: Collection[str], named: NamedEntries) -> NamedEntries:
        """Return the entries of an inventory in which those of the keys `own` have their bare names before all others.

        The others are called as they are in `named`, unless that name is taken.
        """
        bare = {key: entry for key, entry in inventory.entries.items() if key in own}
        names = WireNames.of(map(name_parts, bare.values()))
        by_key = {key: _with_name(entry, names) for key, entry in bare.items()}
        taken = {fold(entry.wire_name) for entry in by_key.values()}
        for key, entry in inventory.entries.items():
            if key in by_key:
                continue
            known = named.by_key[key]
            if fold(known.wire_name) in taken:
                whole = f"{entry.spec.namespace}__{entry.spec.name}"
                is_free = is_tool_name(whole) and fold(whole) not in taken
                known = replace(known, wire_name=whole if is_free else shortened(whole, entry.qualified_id))
            taken.add(fold(known.wire_name))
            by_key[key] = known
        return cls(inventory, names, {key: by_key[key] for key in inventory.entries})


def name_parts(entry: ToolEntry) -> Named:
    """Return what the wire name of an entry is made of."""
    return Named(entry.spec.namespace, entry.spec.name, entry.is_toolset)


def _with_name(entry: ToolEntry, names: WireNames) -> ToolEntry:
    name = names.by_tool[name_parts(entry)]
    return entry if entry.wire_name == name else replace(entry, wire_name=name)
