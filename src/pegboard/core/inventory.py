"""Inventory: all entries of a catalog at one moment, our own and those of sources, in their order and by group."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from pegboard.core.names import fold
from pegboard.model.error import DuplicateToolError
from pegboard.model.tool import ToolEntry


class Inventory:
    """The entries of one moment, by namespace and then by declaration. Immutable.

    `entries` are by folded qualified id. `groups` are the places among them of the entries of each group; `renamed`,
    `conditional`, `tasks` and `bundles` the places of those with former names, with availability, that may be tasks,
    and of builders of any tools.
    """

    def __init__(self, entries: Mapping[str, ToolEntry]) -> None:
        keys = list(entries)
        renamed: list[int] = []
        conditional: list[int] = []
        bundles: list[int] = []
        tasks: list[int] = []
        namespaces: defaultdict[str, list[int]] = defaultdict(list)
        # Few combinations of groups are in use: each is taken apart once and not for every entry.
        combined: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
        # One loop: in a large catalog memory is what takes the time, and so each entry is fetched once for all.
        for number, entry in enumerate(entries.values()):
            spec = entry.spec
            namespaces[spec.namespace].append(number)
            combined[spec.groups].append(number)
            if spec.renamed_from:
                renamed.append(number)
            if spec.available is not None:
                conditional.append(number)
            if spec.task != "forbidden":
                tasks.append(number)
            if entry.builder is not None and entry.builder.is_bundle:
                bundles.append(number)
        order = [number for namespace in sorted(namespaces) for number in namespaces[namespace]]
        is_in_order = order == list(range(len(order)))
        place_of = {} if is_in_order else dict(zip(order, range(len(order)), strict=True))

        def in_order(numbers: Iterable[int]) -> tuple[int, ...]:
            return tuple(sorted(numbers if is_in_order else map(place_of.__getitem__, numbers)))

        self.entries = entries if is_in_order else {keys[number]: entries[keys[number]] for number in order}
        self.namespaces = frozenset(namespaces)
        self.renamed, self.conditional, self.bundles = in_order(renamed), in_order(conditional), in_order(bundles)
        self.tasks = in_order(tasks)
        by_group: defaultdict[str, list[int]] = defaultdict(list)
        for groups, numbers in combined.items():
            for group in dict.fromkeys(groups):
                by_group[group] += numbers
        self.groups = {group: in_order(numbers) for group, numbers in by_group.items()}

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
        return Inventory(entries)
