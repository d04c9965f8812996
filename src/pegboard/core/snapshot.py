"""Snapshot: all tools at one moment, immutable, with the data derived from them."""

from __future__ import annotations

import inspect
import logging
import re
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from datetime import date
from functools import cached_property, partial
from itertools import compress
from operator import attrgetter
from typing import Any, TypeVar

from msgspec import Struct

from pegboard.core.bounded_cache import BoundedCache
from pegboard.core.declarations import Declarations
from pegboard.core.digests import digest
from pegboard.core.entry_change import Column, Columns, EntryChange
from pegboard.core.hooks import ToolHooks, hooks_of
from pegboard.core.inventory import Inventory
from pegboard.core.judge import Selection, applies, connection_question, static_code
from pegboard.core.named_entries import NamedEntries, name_parts
from pegboard.core.names import MAX_NAME_CHARS, fold
from pegboard.core.near_names import NameOrder, NearNames
from pegboard.core.predicates import Availability, Conditions, compile_availability, unanswerable
from pegboard.core.schema import Compiled
from pegboard.core.selections import SELECTIONS_REMEMBERED, Selected, Selections
from pegboard.core.validated_entry import judges, seal
from pegboard.core.wire_names import WireNames
from pegboard.model.bounds import Bounds
from pegboard.model.context import ToolContext
from pegboard.model.decision import Code
from pegboard.model.error import DefinitionError, Problem
from pegboard.model.memo import Question
from pegboard.model.policy import OPEN_POLICY, Policy
from pegboard.model.record import replace
from pegboard.model.tool import ToolEntry

NAME_ORDERS = 8  # lists of one snapshot that are kept sorted by name
VERDICTS_REMEMBERED = 4_096  # policy decisions on single called tools in the cache

T = TypeVar("T")
log = logging.getLogger("pegboard")
# The separator of namespace and name. A namespace may end with an underscore, so each place is tried.
_MARKS = re.compile(r"(?=(__|\.))")
_WILDCARD = re.compile(r"[*?[]")
# Converts a builder's result to entries; injected, since core does not know functions and classes.
ReadBuilt = Callable[[object, ToolEntry], Sequence[ToolEntry]]


class Plan(Struct, frozen=True):
    """The data for calls of one tool, computed once: validators of arguments and results, and its hooks.

    `exact_output` only adds warnings to results that `output` accepts.
    """

    entry: ToolEntry
    arguments: Compiled
    output: Compiled | None
    hooks: ToolHooks
    exact_output: Compiled | None = None


class Snapshot:
    """All tools at one moment. Immutable and hashable: equal content has an equal hash, in any order.

    `cache` holds data that exporters derive from this snapshot.
    """

    def __init__(
        self,
        inventory: Inventory,
        declared: Declarations,
        *,
        context_type: type[ToolContext],
        read_built: ReadBuilt,
        generation: int,
        wall_clock: Callable[[], float],
        before: Snapshot | None = None,
        named: NamedEntries | None = None,
        hides_faults: bool = False,
    ) -> None:
        self._hides_faults = hides_faults
        self.declared, self._inventory = declared, inventory
        self._named = named or NamedEntries.of(inventory, before and before._named)
        self.entries: tuple[ToolEntry, ...] = self._named.ordered
        change = None if before is None else self._named.since(before._named)
        self._columns = Columns(self.entries, before and before._columns, change and change.moves)
        self.generation = generation
        self.cache: dict[object, Any] = {}
        self.name_orders = before.name_orders if before else BoundedCache[Hashable, NameOrder](max_entries=NAME_ORDERS)
        """The sorted names that each caller saw last; successive snapshots share them."""
        self.near_names = BoundedCache[int, NearNames](max_entries=NAME_ORDERS)
        """Tools of this snapshot sorted by name, by the id of their tuple."""
        self._wall_clock = wall_clock
        self._read_built = read_built
        self._compile = partial(
            compile_availability,
            predicates=declared.predicates,
            sources=frozenset(declared.sources),
            context_type=context_type,
            limit_s=declared.bounds.predicate_s,
        )
        # A bundle is not a tool; only the tools that it builds are called by name.
        self.bundles = self._at(inventory.bundles)
        self.by_wire_name = self._by_wire_name(before, change)
        """The tools by wire name; for other names use `find`."""
        for entry in self.bundles:
            self.by_wire_name.pop(entry.wire_name, None)
        self._renamed: dict[str, ToolEntry] = {}
        for entry in self._at(inventory.renamed):
            for old in entry.spec.renamed_from:
                self._renamed.setdefault(old, entry)
        self._availability = {} if before is None or change is None else self._compiled_before(before, change)
        self._availability_besides: dict[str, Availability] = {}
        self.plans: dict[str, Plan] = {}
        """The plans computed so far, by wire name; each is valid for its exact entry only."""
        self._questions: dict[int, Question] = {}
        self._selections = Selections(self.entries, before and before._selections, change)
        self._conditions = BoundedCache[int, tuple[Selected, Conditions]](max_entries=SELECTIONS_REMEMBERED)
        self._verdicts = BoundedCache[tuple[int, int, str], tuple[Selection, Policy, Code | None]](
            max_entries=VERDICTS_REMEMBERED
        )

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 over ids and definitions, independent of order."""
        return digest(sorted((entry.qualified_id, entry.fingerprint) for entry in self.entries))

    def __hash__(self) -> int:
        return hash(self.content_hash)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Snapshot) and self.content_hash == other.content_hash

    def today(self) -> date:
        """Return the current date where the catalog runs."""
        return date(*time.localtime(self._wall_clock())[:3])

    @property
    def named(self) -> NamedEntries:
        """The entries with their names."""
        return self._named

    def find(self, name: str) -> ToolEntry | None:
        """Return the tool with exactly this wire name, `namespace.name`, `namespace__name` or former name."""
        return self.by_wire_name.get(name) or self._with_id(name) or self._renamed.get(name) or self._spelled_out(name)

    def _spelled_out(self, name: str) -> ToolEntry | None:
        """Return the tool with this namespace and name, or former name, if no wire name matches.

        Tried last, since a wire name may contain the separators, too.
        """
        if len(name) > 2 * MAX_NAME_CHARS:
            return None
        for mark in _MARKS.finditer(name):
            namespace, tool = name[: mark.start()], name[mark.start() + len(mark[1]) :]
            entry = self._with_id(f"{namespace}.{tool}")
            if entry is not None:
                return entry
            former = self._renamed.get(tool)
            if former is not None and former.spec.namespace == namespace:
                return former
        return None

    def owns(self, entry: ToolEntry) -> bool:
        """Tell whether this entry belongs to the snapshot; built tools do not."""
        return self._named.by_key.get(fold(entry.qualified_id)) is entry

    def is_meant_by(self, glob: str) -> bool:
        """Tell whether a policy glob matches an entry; a glob without wildcards is looked up directly."""
        if not _WILDCARD.search(glob):
            folded, entry = fold(glob), self.find(glob)
            if entry is not None and folded in entry.folded_names:
                return True
            if folded not in map(fold, self._inventory.namespaces) and not self._named.may_have(folded):
                return False
        return any(applies(glob, entry) for entry in self.entries)

    def former_name(self, name: str) -> str | None:
        """Return the former name of a tool that `name` matches, or `None`."""
        entry = self.find(name)
        if entry is None or name in entry.names:
            return None
        return next((old for old in entry.spec.renamed_from if name.endswith(old)), None)

    def _with_id(self, name: str) -> ToolEntry | None:
        entry = self._named.by_key.get(fold(name))
        is_meant = entry is not None and entry.qualified_id == name and not _is_bundle(entry)
        return entry if is_meant else None

    def _at(self, places: Iterable[int]) -> tuple[ToolEntry, ...]:
        return tuple([self.entries[place] for place in places])

    def availability(self, entry: ToolEntry) -> Availability:
        """Return the compiled availability of an entry.

        Raises:
            DefinitionError: it uses an unknown predicate or source. A snapshot that hides faults hides the tool
                instead.
        """
        name = entry.qualified_id
        compiled = self._availability.get(name) or self._availability_besides.get(name)
        if compiled is None:
            # An entry that is not in this snapshot, such as a mirrored name, may change in the next one.
            kept = self._availability if self.owns(entry) else self._availability_besides
            try:
                compiled = self._compile(entry.spec.available)
            except DefinitionError as error:
                if not self._hides_faults:
                    raise
                words = "%s: %s: %s The tool is hidden until that is mended."
                log.error(words, entry.spec.origin, entry.qualified_id, error)
                kept, compiled = self._availability_besides, unanswerable(str(error))
            kept[name] = compiled
        return compiled

    def conditions(self, entries: Iterable[ToolEntry]) -> Conditions:
        """Return the conditions of some entries, and the questions whether their accounts are connected."""
        every = tuple(entries)
        accounts = [question for entry in every if (question := connection_question(entry)) is not None]
        return Conditions.of(
            [self.availability(entry) for entry in every if entry.spec.available is not None], accounts
        )

    def conditions_of(self, selected: Selected) -> Conditions:
        """Return the conditions of the selected entries; computed once for all callers with the same selection."""
        # The selection is stored with the value, so that its id cannot be reused.
        known = self._conditions.get(id(selected))
        if known is None:
            known = self._conditions.remember(id(selected), (selected, self.conditions(selected.conditional)))
        return known[1]

    def plan(self, entry: ToolEntry) -> Plan:
        """Return the data for calls of this tool; cached in `plans` for entries of this snapshot."""
        arguments, output, exact = judges(entry, self.declared.bounds)
        plan = Plan(entry, arguments, output, hooks_of(entry, self.declared.hooks), exact)
        # Built tools belong to one context; caching them here would grow without end.
        if self.owns(entry):
            self.plans[entry.wire_name] = plan
        return plan

    def static_code(self, entry: ToolEntry, selection: Selection, own: Policy) -> Code | None:
        """Return `judge.static_code` for an entry that `find` returned; cached if globs are matched."""
        if selection.policy is OPEN_POLICY and own is OPEN_POLICY:
            return static_code(entry, selection, own)
        # Keyed by identity, since comparing the values would take as long. They are stored with the value, so that
        # their ids cannot be reused.
        key = (id(selection), id(own), entry.wire_name)
        known = self._verdicts.get(key)
        if known is None or known[0] is not selection or known[1] is not own:
            known = self._verdicts.remember(key, (selection, own, static_code(entry, selection, own)))
        return known[2]

    def selected(self, selection: Selection, own: Policy) -> tuple[ToolEntry, ...]:
        """Return the entries that no static code hides, without those for interfaces only."""
        return self.judged(selection, own).entries

    def without(self, selected: Selected, hidden: Sequence[int], places: Sequence[int]) -> Selected:
        """Return the selection without some groups, by number, and some single places."""
        return self._selections.without(selected, hidden, places)

    @cached_property
    def for_apps(self) -> tuple[ToolEntry, ...]:
        """The entries for interfaces only, for all callers."""
        return tuple(compress(self.entries, self.column("for apps", attrgetter("is_for_apps_alone"))))

    @cached_property
    def with_accounts(self) -> tuple[ToolEntry, ...]:
        """The entries whose calls use an account of the caller."""
        return tuple(compress(self.entries, self.column("accounts", lambda entry: entry.account is not None)))

    def column(self, key: Hashable, of: Callable[[ToolEntry], T]) -> list[T]:
        """Return `of` of each entry, by place; computed only for entries that the previous snapshot did not have."""
        return self._columns.whole(key, of)

    def open_column(self, key: Hashable) -> Column:
        """Return the column of values computed from single entries, for the caller to fill."""
        return self._columns.column(key)

    def judged(self, selection: Selection, own: Policy) -> Selected:
        """Return the selected entries and their conditions; cached, since callers of one profile ask the same."""
        key = (selection, own)
        known = self._selections.get(key)
        if known is not None:
            return known
        chosen, unjudged = self._selections.before(key)
        entries = self.entries
        for place in self._candidates(selection) if unjudged is None else unjudged:
            entry = entries[place]
            if static_code(entry, selection, own) is None and not entry.is_for_apps_alone:
                chosen[place] = 1
        return self._selections.remember(key, bytes(chosen))

    def _candidates(self, selection: Selection) -> Iterable[int]:
        """Return the places of entries in the selected groups, which excludes most of a large catalog.

        The judge then decides on each of them.
        """
        if selection.include is None:
            return range(len(self.entries))
        places = {place for group in selection.include for place in self._inventory.groups.get(group, ())}
        if selection.extra:
            places |= {place for place, entry in enumerate(self.entries) if entry.qualified_id in selection.extra}
        return places

    def _by_wire_name(self, before: Snapshot | None, change: EntryChange | None) -> dict[str, ToolEntry]:
        if before is None or change is None:
            return {entry.wire_name: entry for entry in self.entries}
        added = {one.entry.wire_name: one.entry for one in change.added}
        named = before.by_wire_name.copy()
        named.update(added)
        for name in {one.entry.wire_name for one in change.removed}.difference(added):
            named.pop(name, None)
        return named

    def _compiled_before(self, before: Snapshot, change: EntryChange) -> dict[str, Availability]:
        """Return the compiled availabilities of unchanged entries, if the same predicates are declared."""
        now, then = self.declared, before.declared
        if (now.predicates, now.bounds, set(now.sources)) != (then.predicates, then.bounds, set(then.sources)):
            return {}
        kept = before._availability.copy()
        for one in change.removed:
            kept.pop(one.entry.qualified_id, None)
        return kept

    def build_question(self, entry: ToolEntry) -> Question:
        """Return the question whose answer is `{declared or built name: entry}` of the entry's builder."""
        ref = entry.builder
        assert ref is not None
        question = self._questions.get(id(ref))
        if question is None:
            declared = {item.spec.name: item.wire_name for item in self.entries if item.builder is ref}
            question = self._questions[id(ref)] = _build_question(
                entry, declared, self._read_built, self.declared.bounds
            )
        return question

    def check(self, *, has_tasks: bool = True) -> None:
        """Compile every availability, so that an unknown predicate is found now and not in a call.

        `has_tasks` tells whether calls can become tasks here; otherwise a tool that requires a task is a fault.

        Raises:
            DefinitionError: with all faults.
        """
        problems = [] if has_tasks else without_place_for_tasks(self._at(self._inventory.tasks))
        mirrored = (mirror.entry(name) for name, mirror in self.declared.all_mirrors().items())
        for entry in (*self._at(self._inventory.conditional), *mirrored):
            if entry.qualified_id in self._availability:
                continue
            try:
                self.availability(entry)
            except DefinitionError as error:
                problems.append(_problem(entry, str(error)))
        if problems:
            raise DefinitionError(problems)


def without_place_for_tasks(entries: Iterable[ToolEntry]) -> list[Problem]:
    """Return the faults of tools that need tasks, if the catalog has no task store."""
    return [
        _problem(
            entry,
            f"task={entry.spec.task!r} needs a place for tasks, and none is configured: `tasks:` in the config, "
            "`Catalog(tasks=Tasks())` in Python.",
        )
        for entry in entries
        if entry.spec.task != "forbidden"
    ]


def _problem(entry: ToolEntry, message: str) -> Problem:
    return Problem(where=entry.spec.origin, path=entry.qualified_id, message=message)


def _is_bundle(entry: ToolEntry) -> bool:
    return entry.builder is not None and entry.builder.is_bundle


def _build_question(entry: ToolEntry, declared: Mapping[str, str], read_built: ReadBuilt, bounds: Bounds) -> Question:
    ref = entry.builder
    assert ref is not None

    def accept(built: object) -> dict[str, ToolEntry]:
        made = {item.spec.name: seal(item, bounds) for item in read_built(built, entry)}
        if not ref.is_bundle and set(made) != set(ref.names):
            raise DefinitionError(
                f"the builder declares {sorted(ref.names)} but built {sorted(made)}. Declare the names that it builds, "
                "as a list or as a function that returns them; `full_names` are names for allow-lists only"
            )
        if ref.is_bundle:
            names = WireNames.of(map(name_parts, made.values())).by_tool
            return {name: replace(item, wire_name=names[name_parts(item)]) for name, item in made.items()}
        return {name: replace(item, wire_name=declared[name]) for name, item in made.items()}

    def ask(ctx: ToolContext) -> dict[str, ToolEntry]:
        try:
            return accept(ref.build(ctx))
        except BaseException as error:
            log.warning("Builder of %s failed: its tools are hidden.", list(ref.names), exc_info=error)
            raise

    async def ask_async(ctx: ToolContext) -> dict[str, ToolEntry]:
        built: Any = ref.build(ctx)
        return accept(await built)

    is_async = inspect.iscoroutinefunction(ref.build)
    return Question(
        limit_s=bounds.tool_timeout_s,
        key=ref.build,
        name=f"builder of {ref.names[0]}",
        ask=ask_async if is_async else ask,
        is_async=is_async,
    )
