"""Named entries: the entries of an inventory with their wire names, rebuilt only where something changed."""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Collection
from typing import Any

from msgspec import Struct

from pegboard.core.entry_change import EntryChange
from pegboard.core.entry_table import Ordered
from pegboard.core.inventory import Inventory
from pegboard.core.names import fold, is_tool_name, shortened
from pegboard.core.wire_names import Named, WireNames
from pegboard.model.record import replace
from pegboard.model.tool import ToolEntry

_MARK = re.compile("(?=__)")


class NamedEntries(Struct, frozen=True):
    """The entries of an inventory in its order, each with its wire name.

    In a large catalog single tools change now and then; the unchanged ones are taken over from `before`.
    """

    inventory: Inventory
    names: WireNames
    ordered: tuple[ToolEntry, ...]
    by_key: dict[str, ToolEntry]
    """The same entries by folded qualified id."""
    _kept_names: Callable[[], WireNames | None] | None = None
    """Returns the former names if no unchanged entry was renamed, as long as those names are alive."""

    @classmethod
    def of(cls, inventory: Inventory, before: NamedEntries | None = None) -> NamedEntries:
        keys, now = inventory.ordered
        if before is None:
            names = WireNames.of(map(name_parts, now))
            named = tuple([_with_name(entry, names) for entry in now])
            return cls(inventory, names, named, dict(zip(keys, named, strict=True)))
        change = inventory.since(before.inventory)
        names = before.names.after(
            removed=[name_parts(one.entry) for one in change.removed],
            added=[name_parts(one.entry) for one in change.added],
        )
        ordered: list[Any] = change.moves.moved(before.ordered, None)
        if names is None:
            # Any entry may have another name now.
            names = WireNames.of(map(name_parts, now))
            for place in range(len(now)):
                ordered[place] = _with_name(ordered[place] or now[place], names)
            return cls(inventory, names, tuple(ordered), dict(zip(keys, ordered, strict=True)))
        by_key = before.by_key.copy()
        for key in {one.key for one in change.removed}.difference([one.key for one in change.added]):
            del by_key[key]
        for one in change.added:
            ordered[one.place] = by_key[one.key] = _with_name(one.entry, names)
        return cls(inventory, names, tuple(ordered), by_key, weakref.ref(before.names))

    def may_have(self, folded_name: str) -> bool:
        """Tell whether an entry may have this name, in any form; `False` is certain."""
        if len(self.names.by_tool) != len(self.ordered) or self.names.may_have(folded_name):
            return True
        # The places where `namespace__name` may be split; both halves may have underscores there.
        ends = [mark.start() for mark in _MARK.finditer(folded_name)]
        spelled = (f"{folded_name[:end]}.{folded_name[end + 2 :]}" for end in ends)
        return folded_name in self.by_key or not self.by_key.keys().isdisjoint(spelled)

    def since(self, before: NamedEntries) -> EntryChange:
        """Return the change since earlier entries."""
        if self._kept_names is None or self._kept_names() is not before.names:
            then, now = (Ordered(each.inventory.ordered.keys, each.ordered) for each in (before, self))
            return EntryChange.between(then, now)
        change = self.inventory.since(before.inventory)
        return change.of_others(before.ordered, self.ordered)

    @classmethod
    def with_own(cls, inventory: Inventory, own: Collection[str], named: NamedEntries) -> NamedEntries:
        """Return the entries of an inventory where the `own` ones take bare names first.

        The others keep their names from `named`, unless those are taken.
        """
        bare = {key: entry for key, entry in zip(*inventory.ordered, strict=True) if key in own}
        names = WireNames.of(map(name_parts, bare.values()))
        by_key = {key: _with_name(entry, names) for key, entry in bare.items()}
        taken = {fold(entry.wire_name) for entry in by_key.values()}
        for key, entry in zip(*inventory.ordered, strict=True):
            if key in by_key:
                continue
            known = named.by_key[key]
            if fold(known.wire_name) in taken:
                whole = f"{entry.spec.namespace}__{entry.spec.name}"
                is_free = is_tool_name(whole) and fold(whole) not in taken
                known = replace(known, wire_name=whole if is_free else shortened(whole, entry.qualified_id))
            taken.add(fold(known.wire_name))
            by_key[key] = known
        ordered = tuple([by_key[key] for key in inventory.ordered.keys])
        return cls(inventory, names, ordered, by_key)


def name_parts(entry: ToolEntry) -> Named:
    """Return the parts of an entry's wire name."""
    return Named(entry.spec.namespace, entry.spec.name, entry.is_toolset)


def _with_name(entry: ToolEntry, names: WireNames) -> ToolEntry:
    return entry.called(names.by_tool[name_parts(entry)])
