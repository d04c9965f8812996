"""Registry: the declarations of a catalog, the changes to them, and the newest snapshots of it."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args

from pegboard.core.after_fork import is_held, leave_to_parent, renew_after_fork
from pegboard.core.agent_graph import check_agents
from pegboard.core.declarations import Declarations, Mirror, NamedLater, PrivateSource
from pegboard.core.entry_table import Ordered
from pegboard.core.inventory import Inventory
from pegboard.core.judge import UP
from pegboard.core.lifecycle import called, check_circles, still_called
from pegboard.core.named_entries import NamedEntries
from pegboard.core.names import fold, nearest, private_name_fault
from pegboard.core.ports import LeadsElsewhere, OffersResources, Source
from pegboard.core.snapshot import ReadBuilt, Snapshot, without_place_for_tasks
from pegboard.core.steady_clock import steady_time
from pegboard.core.validated_entry import seal
from pegboard.core.validated_lists import ValidatedLists
from pegboard.model.agent import AgentEntry
from pegboard.model.bounds import Bounds
from pegboard.model.context import ToolContext
from pegboard.model.error import DefinitionError, DuplicateToolError
from pegboard.model.hook import Hook
from pegboard.model.memo import Question
from pegboard.model.profile import Profile
from pegboard.model.record import replace
from pegboard.model.source_state import SourceState
from pegboard.model.tool import ToolEntry

LINK_KEY_BYTES = 32  # bytes of the secret that signs such addresses

log = logging.getLogger("pegboard")
Kind = Literal["tools", "resources"]
"""Tools, or the rest: resources, prompts and completions."""
KINDS: tuple[Kind, ...] = get_args(Kind)


class Registry:
    """All declarations, and the newest snapshots. Each change swaps one value, atomically, from any thread.

    Made by `runtime.assemble`; lives as long as its catalog. Declarations change only through its methods; `swap`
    replaces them as a whole.
    """

    def __init__(self, declared: Declarations, *, read_built: ReadBuilt, context_type: type[ToolContext]) -> None:
        self.declarations = declared
        """All current declarations, as one value; `swap` replaces it."""
        self._read_built, self.context_type = read_built, context_type
        self.has_tasks = False
        """Whether calls can become tasks here."""
        self.is_served = False
        """Whether callers depend on the catalog; then an invalid declaration is left out instead of failing everything.
        """
        self.server_id = os.urandom(16).hex()
        """The id of this server in requests to other servers; see `model.hops`."""
        self.link_key = os.urandom(LINK_KEY_BYTES)
        """The secret that sources use to sign the addresses that they give to one caller; shared by all workers."""
        self.wall_clock: Callable[[], float] = steady_time
        self.absent_namespaces: frozenset[str] = frozenset()
        """Namespaces of declarations that were left out; policies may name them."""
        self._named_later: tuple[tuple[str, ...], ...] = ()
        self._on_defined: tuple[Callable[[ToolEntry], object], ...] = ()
        self._subscribers: tuple[Callable[[], object], ...] = ()
        self._snapshots: dict[Kind, Snapshot] = {}
        self.newest: Mapping[Kind, Snapshot] = {}
        """The snapshots that `snapshot` would return without further work; every call looks here."""
        self._outdated: dict[Kind, Snapshot] = {}
        """The last outdated snapshots; the next ones are derived from them."""
        self._inventories: dict[Kind, Inventory] = {}
        self._outdated_inventories: dict[Kind, Inventory] = {}
        self._sealed = ValidatedLists()
        self._former_names: dict[str, str] | None = None
        """The casefolded former names of declared tools, with the keys of their tools; `None` until needed."""
        self._generation = 0
        self._was_good = False
        """Whether there was a snapshot without faults; later faults appeared while the catalog was running."""
        self._lock = threading.RLock()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Recompute what a thread of the parent was about to change, since that thread does not exist here."""
        for table in (self.declarations.tools, self.declarations.resources):
            table.after_fork()
        if is_held(self._lock):
            self._lock = threading.RLock()
            leave_to_parent(self._snapshots, self._outdated, self._inventories, self._outdated_inventories)
            self._snapshots, self.newest, self._outdated = {}, {}, {}
            self._inventories, self._outdated_inventories = {}, {}
            self._sealed, self._former_names = ValidatedLists(), None

    # -- what is declared

    @property
    def bounds(self) -> Bounds:
        return self.declarations.bounds

    @property
    def predicates(self) -> Mapping[str, Question]:
        return self.declarations.predicates

    @property
    def groups(self) -> Mapping[str, str]:
        return self.declarations.groups

    @property
    def profiles(self) -> Mapping[str, Profile]:
        return self.declarations.profiles

    @property
    def hooks(self) -> Sequence[Hook]:
        return self.declarations.hooks

    @property
    def sources(self) -> Mapping[str, Source]:
        return self.declarations.sources

    @property
    def mirrors(self) -> Mapping[str, Mirror]:
        return self.declarations.all_mirrors()

    # -- changes

    def change(self, **changes: Any) -> None:
        """Change some fields of `Declarations`, in one step."""
        with self._lock:
            self.swap(replace(self.declarations, **changes))

    def swap(self, declared: Declarations) -> None:
        """Replace all declarations, for a reload or a reset. Subscribers stay."""
        with self._lock:
            before = self.declarations
            new = [source for name, source in declared.sources.items() if before.sources.get(name) is not source]
            self.declarations = declared.with_secrets_of(new)
            self._former_names = None
            for source in new:
                source.subscribe(self.changed)
                if isinstance(source, LeadsElsewhere):
                    source.serve_as(self._own_id, lambda: self.link_key)
            self.changed()

    def _own_id(self) -> str:
        return self.server_id

    def way_of(self, entry: ToolEntry) -> tuple[str, ...]:
        """Return the ids of the servers behind a tool, the nearest first; empty for our own tools."""
        source = self.sources.get(entry.source or "")
        return source.way_of(entry) if isinstance(source, LeadsElsewhere) else ()

    def lend_sources(self, sources: Mapping[str, Source]) -> None:
        """Let questions created on this registry use these sources, which another registry owns.

        After a reload this registry is dropped, and a source that continues must not keep it alive.
        """
        with self._lock:
            self.declarations = replace(self.declarations, sources=sources)
            self._outdate()

    def add(self, *entries: ToolEntry, replace_existing: bool = False) -> None:
        """Declare our own tools, or resources, prompts and completions, all or none.

        Raises:
            DuplicateToolError: a qualified id is taken.
            DefinitionError: an invalid name, namespace or schema; tools that replace each other in a circle; a name
                that is the former name of another tool.
        """
        with self._lock:
            if any(entry.spec.renamed_from or entry.spec.replaced_by for entry in entries):
                known = {key: entry.spec for key, entry in self.declarations.tools.items()}
                check_circles(known | {fold(entry.qualified_id): entry.spec for entry in entries})
            former_names = self._checked_former_names(entries)
            sealed = [seal(entry, self.bounds) for entry in entries]
            if self.leaves_faults_out and not self.has_tasks and (problems := without_place_for_tasks(sealed)):
                raise DefinitionError(problems)
            declared = self.declarations.with_entries(sealed, replace_existing=replace_existing)
            if declared.agents:
                check_agents(declared)
            self.swap(declared)
            # Kept, so that 10,000 declarations do not scan all tools 10,000 times.
            self._former_names = former_names
        for notify in self._on_defined:
            for entry in sealed:
                if entry.offer is None:
                    _tell(notify, entry)

    def _checked_former_names(self, entries: Sequence[ToolEntry]) -> dict[str, str]:
        """Return the former names including those of `entries`; refuses names that were another tool's."""
        known = self._former_names
        if known is None:
            known = {
                fold(name): key for key, entry in self.declarations.tools.items() for name in entry.spec.renamed_from
            }
        added = {fold(entry.qualified_id): entry for entry in entries}
        for key, entry in added.items() if known else ():
            for name in called(entry.spec):
                owner_key = known.get(name, key)
                owner = added.get(owner_key) or self.declarations.tools.get(owner_key)
                # The former owner of the name may be gone, or declared again without it.
                former = [] if owner is None else [old for old in owner.spec.renamed_from if fold(old) == name]
                if owner is not None and former and owner_key != key:
                    raise DefinitionError(f"{owner.qualified_id!r}: {still_called(former[0], entry.spec)}")
        new = {fold(name): key for key, entry in added.items() for name in entry.spec.renamed_from}
        return known | new if new else known

    def add_named_later(
        self,
        names: Callable[[], Sequence[str]],
        entries: Callable[[tuple[str, ...]], Sequence[ToolEntry]],
        groups: tuple[str, ...] = (),
    ) -> None:
        """Declare tools whose names are computed again for each snapshot."""
        with self._lock:
            self.change(named_later=(*self.declarations.named_later, NamedLater(names, entries, groups)))

    def remove(self, name: str) -> str:
        """Remove one of our own tools or other entries, by name; return its folded qualified id.

        Raises:
            KeyError: there is none.
        """
        with self._lock:
            for key in (fold(name), fold(f"main.{name}"), fold(name.replace("__", ".", 1))):
                try:
                    self.swap(self.declarations.without(key))
                except KeyError:
                    continue
                return key
        raise KeyError(f"No tool {name!r} is registered here.")

    def add_source(self, source: Source) -> None:
        """Add the tools of a source, and follow its changes.

        Raises:
            DefinitionError: another source has that name.
        """
        with self._lock:
            if source.name in self.sources:
                raise DefinitionError(f"There is a source {source.name!r} already; give this one another name.")
            self.change(sources={**self.sources, source.name: source})

    def add_predicate(self, name: str, question: Question, *, replace_existing: bool = False) -> None:
        """Declare a named predicate.

        Raises:
            DefinitionError: the name is taken.
        """
        with self._lock:
            if name in self.predicates and not replace_existing:
                raise DefinitionError(f"there is a predicate {name!r} already.")
            self.change(predicates={**self.predicates, name: question})

    def add_agent(self, agent: AgentEntry) -> None:
        """Declare an agent.

        Raises:
            DefinitionError: its name is taken; it runs an unknown agent, or directly or indirectly itself.
        """
        with self._lock:
            name = agent.spec.name
            if (known := self.declarations.agents.get(name)) is not None:
                raise DefinitionError(f"There is an agent {name!r} already: {known.spec.origin}. Rename one.")
            for entry in agent.tools:
                fault = private_name_fault(entry.spec.name, namespace=entry.spec.namespace)
                if fault is not None and not entry.is_toolset:
                    raise DefinitionError(f"Agent {name!r}: {fault}.")
                seal(entry, self.bounds)
            declared = replace(self.declarations, agents={**self.declarations.agents, name: agent})
            check_agents(declared)
            self.swap(declared)

    def add_group(self, name: str, description: str = "") -> None:
        with self._lock:
            self.change(groups={**self.groups, name: description})

    def add_profile(self, profile: Profile) -> None:
        with self._lock:
            self.change(profiles={**self.profiles, profile.name: profile})

    def add_hook(self, hook: Hook) -> None:
        with self._lock:
            self.change(hooks=(*self.hooks, hook))

    def mirrored(self) -> list[ToolEntry]:
        """Return the mirrored names as entries for policies."""
        return [mirror.entry(name) for name, mirror in self.mirrors.items()]

    def add_mirror(self, name: str, mirror: Mirror) -> None:
        with self._lock:
            self.change(mirrors={**self.declarations.mirrors, name: mirror})

    def clear(self) -> None:
        """Remove tools, resources, sources, predicates, groups, profiles, hooks and mirrors.

        Settings that protect the process stay: bounds, authentication, and the secrets to redact.
        """
        with self._lock:
            self.swap(self.declarations.without_offers())
            # Removed entries must be collectable.
            self._outdated, self._outdated_inventories = {}, {}

    def changed(self) -> None:
        """Invalidate the snapshots, and notify the subscribers."""
        with self._lock:
            self._outdate()
            self._generation += 1
        for notify in self._subscribers:
            _tell(notify)

    def on_defined(self, notify: Callable[[ToolEntry], object]) -> None:
        """Call `notify` with every tool that is declared from now on."""
        self._on_defined = (*self._on_defined, notify)

    def subscribe(self, notify: Callable[[], object]) -> Callable[[], None]:
        """Call `notify` after each change; returns a function that unsubscribes."""
        self._subscribers = (*self._subscribers, notify)

        def end() -> None:
            self._subscribers = tuple(known for known in self._subscribers if known is not notify)

        return end

    # -- queries

    def states(self) -> LiveStates:
        """Return the states of the sources, without secrets."""
        declared = self.declarations
        return LiveStates(declared.sources, lambda text: self._sealed.text(text, declared.secrets))

    def known_groups(self) -> frozenset[str]:
        """Return the groups of the config, of every declaration, and of sources that are down."""
        own = {group for kind in KINDS for group in self.inventory(kind).groups}
        mirrored = {group for mirror in self.mirrors.values() for group in mirror.groups}
        mirrored.update(group for later in self.declarations.named_later for group in later.groups)
        foreign = {group for source in self.sources.values() for group in source.groups()}
        return frozenset(own | mirrored | foreign | set(self.groups) | {"core"})

    def namespaces(self) -> frozenset[str]:
        private = {agent.spec.namespace or name for name, agent in self.declarations.agents.items()}
        return self.inventory().namespaces | set(self.sources) | {"main"} | private | self.absent_namespaces

    def profile(self, name: str) -> Profile:
        """Return a profile; `DefinitionError` lists the known ones."""
        profiles = self.declarations.profiles
        if name not in profiles:
            raise DefinitionError(f"Unknown profile {name!r}.{nearest(name, profiles, label='Profiles')}")
        return profiles[name]

    def snapshot(self, kind: Kind = "tools") -> Snapshot:
        """Return the newest snapshot, built on first use after a change.

        Raises:
            DefinitionError: unknown predicates or invalid schemas, all at once. While the catalog is served, a fault
                that appeared after the first snapshot only hides its own tool, and is logged.
        """
        newest = self._snapshots.get(kind)
        if newest is not None and not self.declarations.named_later:
            return newest
        with self._lock:
            names = tuple(_names_or_none(each.names) for each in self.declarations.named_later)
            if names != self._named_later:
                self._named_later = names
                self.changed()
            newest = self._snapshots.get(kind)
            if newest is None:
                newest = self.build(kind=kind)
                if not self.leaves_faults_out:
                    newest.check(has_tasks=self.has_tasks)
                    self._was_good = True
                self._snapshots[kind] = newest
                if not self.declarations.named_later:
                    self.newest = {**self._snapshots}
                self._outdated.pop(kind, None)
            return newest

    def build(self, extra: Sequence[ToolEntry] = (), *, kind: Kind = "tools") -> Snapshot:
        """Return a snapshot of the current declarations and of `extra` one-off tools.

        Raises:
            DuplicateToolError: an extra tool's id is taken.
        """
        inventory = self.inventory(kind)
        return Snapshot(
            inventory.with_extra(extra) if extra else inventory,
            self.declarations,
            context_type=self.context_type,
            read_built=self._read_built,
            generation=self._generation,
            before=self._snapshots.get(kind) or self._outdated.get(kind),
            hides_faults=self.leaves_faults_out,
            wall_clock=lambda: self.wall_clock(),  # noqa: PLW0108 - the clock may be exchanged after the snapshot is made
        )

    def build_for_agent(self, agent: AgentEntry) -> Snapshot:
        """Return the snapshot of one agent: its private tools first, then the tools it takes from the catalog."""
        spec, newest = agent.spec, self.snapshot()
        own = [seal(_private(entry, newest), self.bounds) for entry in self.own_tools(agent)]
        inventory = self.inventory().reduced_to(spec.groups, frozenset(spec.shared), own=own)
        return Snapshot(
            inventory,
            self.declarations,
            context_type=self.context_type,
            read_built=self._read_built,
            generation=newest.generation,
            hides_faults=self.leaves_faults_out,
            wall_clock=lambda: self.wall_clock(),  # noqa: PLW0108 - as in `build`
            named=NamedEntries.with_own(inventory, {fold(entry.qualified_id) for entry in own}, newest.named),
        )

    def own_tools(self, agent: AgentEntry) -> list[ToolEntry]:
        """Return the private tools of an agent: declared ones, and those that its private sources list now."""
        listed = [
            entry
            for name in agent.sources
            if isinstance(source := self.sources.get(name), PrivateSource)
            for entry in self._sealed.without_secrets(name, source.private_entries(), self.declarations.secrets)
        ]
        return [*agent.tools, *listed]

    def inventory(self, kind: Kind = "tools") -> Inventory:
        """Return every current entry; foreign entries never displace our own."""
        newest = self._inventories.get(kind)
        if newest is None:
            with self._lock:
                newest = Inventory(self._entries(kind), self._outdated_inventories.get(kind))
                self._inventories[kind] = newest
                self._outdated_inventories.pop(kind, None)
        return newest

    def _outdate(self) -> None:
        self._outdated |= self._snapshots
        self._outdated_inventories |= self._inventories
        self._snapshots, self.newest, self._inventories = {}, {}, {}

    def _entries(self, kind: Kind) -> Ordered:
        """Return every entry in order: our own in order of declaration, then those of sources."""
        declared = self.declarations
        table = declared.tools if kind == "tools" else declared.resources
        beside: dict[str, ToolEntry] = {}
        if kind == "tools":
            for names, later in zip(self._named_later, declared.named_later, strict=False):
                try:
                    beside |= self._named(later, names, {**table, **beside})
                except DefinitionError as error:
                    if not self.leaves_faults_out:
                        raise
                    log.error("A builder declared invalid names, and %s are left out: %s", list(names), error)
        self._sealed.keep_only({(name, each) for name in declared.sources for each in KINDS})
        for name in sorted(declared.sources):
            offered = _listed(declared.sources[name], kind)
            listed = self._sealed.sealed((name, kind), offered, declared.bounds, declared.secrets)
            entries, left_out = listed.entries, listed.doubled
            if not (beside.keys().isdisjoint(entries) and table.has_none_of(entries)):
                taken = {key for key in entries if key in beside or key in table}
                left_out = (*left_out, *(entry for key, entry in entries.items() if key in taken))
                entries = {key: entry for key, entry in entries.items() if key not in taken}
            beside.update(entries)
            for entry in left_out:
                log.warning("Source %r: %r is declared already and was left out.", name, entry.qualified_id)
        own = table.ordered()
        return Ordered([*own.keys, *beside], [*own.entries, *beside.values()])

    def _named(self, later: NamedLater, names: tuple[str, ...], taken: Mapping[str, ToolEntry]) -> dict[str, ToolEntry]:
        """Return the tools for names that a builder has just computed.

        Raises:
            DefinitionError: a name is invalid, or belongs to another tool.
        """
        made: dict[str, ToolEntry] = {}
        for entry in later.entries(names):
            key = fold(entry.qualified_id)
            if (known := made.get(key) or taken.get(key)) is not None:
                raise DuplicateToolError(entry.qualified_id, first=known.spec.origin, second=entry.spec.origin)
            made[key] = seal(entry, self.bounds)
        return made

    @property
    def leaves_faults_out(self) -> bool:
        """Whether faults appeared while callers depend on the catalog; they are then left out and logged."""
        return self.is_served and self._was_good


def _listed(source: Source, kind: Kind) -> Sequence[ToolEntry]:
    try:
        if kind == "tools":
            return source.entries()
        return source.resource_entries() if isinstance(source, OffersResources) else ()
    except Exception:  # boundary: foreign code
        log.exception("Source %r failed to list its tools; they are left out.", source.name)
        return ()


class LiveStates:
    """The states of sources, each read when it is looked up: a call reads only that of its own tool.

    A server may repeat a secret in the error that is the reason of its state, so `clean` removes secrets from it.
    """

    def __init__(self, sources: Mapping[str, Source], clean: Callable[[str], str]) -> None:
        self._sources, self._clean = sources, clean

    def get(self, name: str, default: SourceState = UP, /) -> SourceState:
        source = self._sources.get(name)
        try:
            state = default if source is None else source.state()
        except Exception as error:
            log.warning("Source %r failed to report its state; its tools are hidden.", name, exc_info=error)
            return SourceState(status="unreachable", is_up=False, reason=type(error).__name__)
        return replace(state, reason=self._clean(state.reason)) if state.reason else state


def _names_or_none(names: Callable[[], Sequence[str]]) -> tuple[str, ...]:
    try:
        return tuple(names())
    except Exception:  # noqa: BLE001 - boundary: foreign code
        return ()


def _tell(notify: Callable[..., object], *told: ToolEntry) -> None:
    """Notify a subscriber of a change; one that fails does not affect the others."""
    try:
        notify(*told)
    except Exception:
        log.warning("A subscriber of the catalog failed.", exc_info=True)


def _private(entry: ToolEntry, catalog: Snapshot) -> ToolEntry:
    """Return a private tool that is also denied wherever the catalog's tool with the same name is denied."""
    hidden = None if entry.is_toolset else catalog.find(entry.spec.name)
    return entry if hidden is None else replace(entry, denied_as=hidden.folded_names)
