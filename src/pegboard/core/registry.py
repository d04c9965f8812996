"""Registry: what is declared, and the immutable snapshots made of it."""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, NamedTuple

from pegboard.core.availability import Availability, compile_availability
from pegboard.core.digests import digest
from pegboard.core.hooks import ToolHooks, hooks_of
from pegboard.core.judge import UP, Selection, static_code
from pegboard.core.names import check_namespace, check_tool_name, fold, nearest, wire_names
from pegboard.core.ports import Source
from pegboard.core.schema import Compiled, compile_schema
from pegboard.model.bounds import DEFAULT_BOUNDS, Bounds
from pegboard.model.context import ToolContext
from pegboard.model.error import DefinitionError, DuplicateToolError, Problem
from pegboard.model.hook import Hook
from pegboard.model.json_types import JSON
from pegboard.model.memo import Question
from pegboard.model.policy import Policy
from pegboard.model.profile import Profile
from pegboard.model.source_state import SourceState
from pegboard.model.tool import ToolEntry

log = logging.getLogger("pegboard")
# Turns what a builder gave into entries; the catalog face knows functions and classes, core does not.
ReadBuilt = Callable[[object, ToolEntry], Sequence[ToolEntry]]


class Plan(NamedTuple):
    """What a call of one tool needs, looked up once: judges of arguments and results, and its hooks."""

    entry: ToolEntry
    arguments: Compiled
    output: Compiled | None
    hooks: ToolHooks


class Snapshot:
    """All tools at one moment. Immutable and hashable: the same content has the same hash, in whatever order it came.

    `cache` is a scratch place for what exporters derive from this snapshot alone.
    """

    def __init__(
        self, entries: Iterable[ToolEntry], *, predicates: Mapping[str, Question], sources: frozenset[str],
        hooks: Sequence[Hook], context_type: type[ToolContext], read_built: ReadBuilt, generation: int, bounds: Bounds,
    ) -> None:  # fmt: skip
        ordered = list(entries)
        names = wire_names([(entry.spec.namespace, entry.spec.name, entry.is_toolset) for entry in ordered])
        self.entries: tuple[ToolEntry, ...] = tuple(
            entry if entry.wire_name == name else replace(entry, wire_name=name)
            for entry, name in zip(ordered, names, strict=True)
        )
        self.generation = generation
        self.cache: dict[object, Any] = {}
        self.hooks = tuple(hooks)
        self._read_built, self._bounds = read_built, bounds
        self._compile = partial(
            compile_availability, predicates=predicates, sources=sources, context_type=context_type,
            limit_s=bounds.predicate_s,
        )  # fmt: skip
        self.bundles = tuple(entry for entry in self.entries if entry.builder is not None and entry.builder.is_bundle)
        self._by_name: dict[str, ToolEntry] = {}
        self._renamed: dict[str, ToolEntry] = {}
        for entry in self.entries:
            # A bundle is no tool itself: only what it builds is called by name.
            if entry.builder is None or not entry.builder.is_bundle:
                self._by_name[entry.wire_name] = self._by_name[entry.qualified_id] = entry
                for old in entry.spec.renamed_from:
                    self._renamed.setdefault(old, entry)
        self._availability: dict[str, Availability] = {}
        self._plans: dict[str, Plan] = {}
        self._questions: dict[int, Question] = {}
        self._selected: dict[tuple[Selection, Policy], tuple[tuple[ToolEntry, ...], tuple[int, ...]]] = {}

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 over ids and definitions, independent of order."""
        return digest(sorted((entry.qualified_id, entry.fingerprint) for entry in self.entries))

    def __hash__(self) -> int:
        return hash(self.content_hash)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Snapshot) and self.content_hash == other.content_hash

    def find(self, name: str) -> ToolEntry | None:
        """Return the tool with this wire name, qualified id or former name, spelled exactly so."""
        return self._by_name.get(name) or self._renamed.get(name)

    def owns(self, entry: ToolEntry) -> bool:
        """Tell whether this very entry is of the snapshot; what a builder made is not."""
        return self._by_name.get(entry.qualified_id) is entry

    def is_former_name(self, name: str) -> bool:
        return name not in self._by_name and name in self._renamed

    def availability(self, entry: ToolEntry) -> Availability:
        """Return the compiled availability of an entry of this snapshot."""
        found = self._availability.get(entry.qualified_id)
        if found is None:
            found = self._availability[entry.qualified_id] = self._compile(entry.spec.available)
        return found

    def plan(self, entry: ToolEntry) -> Plan:
        """Return what a call of this tool needs; kept for the entries of this snapshot."""
        found = self._plans.get(entry.qualified_id)
        if found is not None and found.entry is entry:
            return found
        made = Plan(entry, *judges(entry, self._bounds), hooks_of(entry, self.hooks))
        # What a builder made belongs to one context: keeping it here would grow without end.
        if self.owns(entry):
            self._plans[entry.qualified_id] = made
        return made

    def selected(self, selection: Selection, own: Policy) -> tuple[ToolEntry, ...]:
        """Return the entries that no static code hides."""
        return self.judged(selection, own)[0]

    def judged(self, selection: Selection, own: Policy) -> tuple[tuple[ToolEntry, ...], tuple[int, ...]]:
        """Return them with the places of the conditional ones; kept, as callers of one profile ask the same."""
        key = (selection, own)
        found = self._selected.get(key)
        if found is None:
            if len(self._selected) >= 1_000:
                self._selected.clear()
            shown = tuple(entry for entry in self.entries if static_code(entry, selection, own) is None)
            conditional = tuple(place for place, entry in enumerate(shown) if entry.is_conditional)
            found = self._selected[key] = (shown, conditional)
        return found

    def build_question(self, entry: ToolEntry) -> Question:
        """Return the question whose answer is `{declared or built name: entry}` of the entry's builder."""
        ref = entry.builder
        assert ref is not None
        found = self._questions.get(id(ref))
        if found is None:
            declared = {item.spec.name: item.wire_name for item in self.entries if item.builder is ref}
            found = self._questions[id(ref)] = _build_question(entry, declared, self._read_built, self._bounds)
        return found

    def check(self) -> None:
        """Compile every availability, so that an unknown predicate is found now and not in a call.

        Raises:
            DefinitionError: with all faults.
        """
        problems: list[Problem] = []
        for entry in self.entries:
            if entry.spec.available is None:
                continue
            try:
                self.availability(entry)
            except DefinitionError as error:
                problems.append(Problem(where=entry.spec.origin, path=entry.qualified_id, message=str(error)))
        if problems:
            raise DefinitionError(problems)


def _build_question(entry: ToolEntry, declared: Mapping[str, str], read_built: ReadBuilt, bounds: Bounds) -> Question:
    ref = entry.builder
    assert ref is not None

    def accept(built: object) -> dict[str, ToolEntry]:
        made = {item.spec.name: seal(item, bounds) for item in read_built(built, entry)}
        if not ref.is_bundle and set(made) != set(ref.names):
            raise DefinitionError(f"the builder declares {sorted(ref.names)} but built {sorted(made)}")
        names = wire_names([(item.spec.namespace, item.spec.name, item.is_toolset) for item in made.values()])
        wire = dict(zip(made, names, strict=True)) if ref.is_bundle else declared
        return {name: replace(item, wire_name=wire[name]) for name, item in made.items()}

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


class Registry:
    """Everything declared, and the newest snapshot of it. Each change makes a new snapshot, atomically."""

    def __init__(
        self, *, read_built: ReadBuilt, context_type: type[ToolContext], bounds: Bounds = DEFAULT_BOUNDS
    ) -> None:
        self.bounds = bounds
        self.predicates: dict[str, Question] = {}
        self.groups: dict[str, str] = {}
        self.profiles: dict[str, Profile] = {}
        self.hooks: list[Hook] = []
        self.sources: dict[str, Source] = {}
        self.mirrors: dict[str, tuple[tuple[str, ...], object]] = {}
        self._read_built, self.context_type = read_built, context_type
        self._entries: dict[str, ToolEntry] = {}
        self._dynamic: list[tuple[Callable[[], Sequence[str]], Callable[[tuple[str, ...]], Sequence[ToolEntry]]]] = []
        self._dynamic_names: list[tuple[str, ...]] = []
        self._defined: list[Callable[[ToolEntry], object]] = []
        self._subscribers: list[Callable[[], object]] = []
        self._snapshot: Snapshot | None = None
        self._generation = 0
        self._lock = threading.RLock()

    # -- changes

    def add(self, *entries: ToolEntry, replace_existing: bool = False) -> None:
        """Declare tools of our own, all or none.

        Raises:
            DuplicateToolError: a qualified id is taken.
            DefinitionError: a name, namespace or schema cannot be used.
        """
        sealed = [seal(entry, self.bounds) for entry in entries]
        with self._lock:
            for entry in sealed:
                known = self._entries.get(fold(entry.qualified_id))
                if known is not None and not replace_existing:
                    raise DuplicateToolError(entry.qualified_id, first=known.spec.origin, second=entry.spec.origin)
            self._entries.update((fold(entry.qualified_id), entry) for entry in sealed)
            self.changed()
        for notify in self._defined:
            for entry in sealed:
                notify(entry)

    def add_dynamic(
        self, names: Callable[[], Sequence[str]], entries: Callable[[tuple[str, ...]], Sequence[ToolEntry]]
    ) -> None:
        """Declare tools whose names are asked anew with every question."""
        self._dynamic.append((names, entries))
        self.changed()

    def remove(self, name: str) -> None:
        """Take back a tool of our own, by name or qualified id.

        Raises:
            KeyError: there is none.
        """
        with self._lock:
            for key in (fold(name), fold(f"main.{name}")):
                if key in self._entries:
                    del self._entries[key]
                    self.changed()
                    return
        raise KeyError(f"No tool {name!r} is registered here.")

    def add_source(self, source: Source) -> None:
        """Take the tools of a source, now and after each of its changes.

        Raises:
            DefinitionError: another source has that name.
        """
        if source.name in self.sources:
            raise DefinitionError(f"There is a source {source.name!r} already; give this one another name.")
        self.sources[source.name] = source
        source.subscribe(self.changed)
        self.changed()

    def clear(self) -> None:
        """Forget all declarations; subscribers stay."""
        self.take(Registry(read_built=self._read_built, context_type=self.context_type, bounds=self.bounds))

    def take(self, other: Registry) -> None:
        """Replace all declarations by those of `other`, in one step; a reload. Subscribers stay ours."""
        with self._lock:
            for name in _OWN:
                setattr(self, name, getattr(other, name))
            for source in self.sources.values():
                source.subscribe(self.changed)
            self.changed()

    def changed(self) -> None:
        """Let the next question see a new snapshot, and tell the subscribers."""
        with self._lock:
            self._snapshot = None
            self._generation += 1
        for notify in tuple(self._subscribers):
            try:
                notify()
            except Exception:
                log.warning("A subscriber of the catalog failed.", exc_info=True)

    def on_defined(self, notify: Callable[[ToolEntry], object]) -> None:
        self._defined.append(notify)

    def subscribe(self, notify: Callable[[], object]) -> Callable[[], None]:
        """Call `notify` after each change; returns the function that ends it."""
        self._subscribers.append(notify)
        return lambda: self._subscribers.remove(notify)

    # -- questions

    def states(self) -> LiveStates:
        """Return how each source is now."""
        return LiveStates(self.sources)

    def known_groups(self) -> frozenset[str]:
        """Return the groups of the config, of every declaration, and of sources that are down."""
        own = {group for entry in self._all_entries() for group in entry.spec.groups}
        mirrored = {group for groups, _ in self.mirrors.values() for group in groups}
        foreign = {group for source in self.sources.values() for group in source.groups()}
        return frozenset(own | mirrored | foreign | set(self.groups) | {"core"})

    def namespaces(self) -> frozenset[str]:
        return frozenset({entry.spec.namespace for entry in self._all_entries()} | set(self.sources) | {"main"})

    def profile(self, name: str) -> Profile:
        """Return a profile; `DefinitionError` lists the known ones."""
        if name not in self.profiles:
            raise DefinitionError(f"Unknown profile {name!r}.{nearest(name, self.profiles, label='Profiles')}")
        return self.profiles[name]

    def snapshot(self) -> Snapshot:
        """Return the newest snapshot, made when first asked for after a change.

        Raises:
            DefinitionError: an unknown predicate, a schema that is none, with all faults at once.
        """
        found = self._snapshot
        if found is not None and not self._dynamic:
            return found
        with self._lock:
            names = [_asked(ask) for ask, _ in self._dynamic]
            if names != self._dynamic_names:
                self._dynamic_names = names
                self.changed()
            if self._snapshot is None:
                made = self.build()
                made.check()
                self._snapshot = made
            return self._snapshot

    def build(self, extra: Sequence[ToolEntry] = ()) -> Snapshot:
        """Return a snapshot of what is declared now and of `extra` one-off tools.

        Raises:
            DuplicateToolError: an extra tool's id is taken.
        """
        entries = self._all_entries()
        taken = {fold(entry.qualified_id): entry for entry in entries}
        for entry in extra:
            known = taken.get(fold(entry.qualified_id))
            if known is not None:
                raise DuplicateToolError(entry.qualified_id, first=known.spec.origin, second=entry.spec.origin)
            taken[fold(entry.qualified_id)] = entry
        return Snapshot(
            [*entries, *extra],
            predicates=self.predicates,
            sources=frozenset(self.sources),
            hooks=tuple(self.hooks),
            context_type=self.context_type,
            read_built=self._read_built,
            generation=self._generation,
            bounds=self.bounds,
        )

    def _all_entries(self) -> list[ToolEntry]:
        """Return every entry, by namespace and then by declaration; what comes from outside never displaces our own."""
        merged = dict(self._entries)
        for names, (_, declare) in zip(self._dynamic_names, self._dynamic, strict=False):
            for entry in declare(names):
                known = merged.get(fold(entry.qualified_id))
                if known is not None:
                    raise DuplicateToolError(entry.qualified_id, first=known.spec.origin, second=entry.spec.origin)
                merged[fold(entry.qualified_id)] = seal(entry, self.bounds)
        for name in sorted(self.sources):
            for entry in self.sources[name].entries():
                if fold(entry.qualified_id) in merged:
                    log.warning("Source %r: tool %r is declared already and was left out.", name, entry.qualified_id)
                    continue
                merged[fold(entry.qualified_id)] = seal(entry, self.bounds)
        return sorted(merged.values(), key=lambda entry: entry.spec.namespace)


_OWN = ("_entries", "_dynamic", "_dynamic_names", "predicates", "groups", "profiles", "hooks", "sources", "mirrors")


class LiveStates:
    """The states of sources, each asked when it is looked up: a call asks only for its own tool's."""

    def __init__(self, sources: Mapping[str, Source]) -> None:
        self._sources = sources

    def get(self, name: str, default: SourceState = UP, /) -> SourceState:
        source = self._sources.get(name)
        try:
            return default if source is None else source.state()
        except Exception as error:
            log.warning("Source %r cannot say how it is: its tools are hidden.", name, exc_info=error)
            return SourceState(status="unreachable", is_up=False, reason=type(error).__name__)


def _asked(names: Callable[[], Sequence[str]]) -> tuple[str, ...]:
    try:
        return tuple(names())
    except Exception:  # noqa: BLE001 - boundary: foreign code
        return ()


def seal(entry: ToolEntry, bounds: Bounds = DEFAULT_BOUNDS) -> ToolEntry:
    """Return the entry with its fingerprint, after checking names and schemas. Sealed entries are taken as they are.

    Raises:
        DefinitionError: a name that cannot be, a schema that is none.
        CallError: `schema_too_complex`.
    """
    if entry.fingerprint:
        return entry
    spec = entry.spec
    if not spec.groups:
        spec = replace(spec, groups=("core",))
        entry = replace(entry, spec=spec)
    try:
        check_tool_name(spec.name)
        check_namespace(spec.namespace)
        judges(entry, bounds)
    except DefinitionError as error:
        raise DefinitionError(
            [Problem(where=spec.origin, path=spec.qualified_id, message=str(problem)) for problem in error.problems]
        ) from error
    shown = [spec.definition(), spec.groups, spec.internal_only, str(spec.available), spec.factory]
    return replace(entry, fingerprint=digest(shown))


def enforced_schema(entry: ToolEntry) -> JSON:
    """Return the schema that arguments are judged by: our own tools refuse unknown arguments, whatever is published."""
    schema = entry.spec.input_schema
    if entry.is_foreign or entry.spec.allow_unknown:
        return schema
    if "additionalProperties" in schema or "unevaluatedProperties" in schema:
        return schema
    # Beside these keywords `additionalProperties` would not see the properties that they declare.
    composed = {"allOf", "anyOf", "oneOf", "$ref", "if", "dependentSchemas"} & set(schema)
    return {**schema, "unevaluatedProperties" if composed else "additionalProperties": False}


def judges(entry: ToolEntry, bounds: Bounds) -> tuple[Compiled, Compiled | None]:
    """Return what judges the arguments, and the results where the tool promises any."""
    promised = entry.spec.output_schema
    output = None if promised is None else compile_schema(promised, bounds=bounds)
    return compile_schema(enforced_schema(entry), bounds=bounds), output
