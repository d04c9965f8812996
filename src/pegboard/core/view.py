"""View: the tools that one caller may use now."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, Protocol, cast

from msgspec import Struct

from pegboard.core.bounded_cache import BoundedCache
from pegboard.core.declarations import Mirror
from pegboard.core.judge import (
    Selection,
    connection_question,
    decide_entry,
    dynamic_code,
    hides_nothing,
    missing_connection,
    static_code,
    undeclared,
    without_builder,
)
from pegboard.core.lifecycle import after_end, has_ended
from pegboard.core.names import listing, nearest, nearest_one
from pegboard.core.near_names import NearNames
from pegboard.core.ports import CostAccount, ListsForPersons, RunRecorder
from pegboard.core.predicates import Availability, Conditions, States
from pegboard.core.registry import Kind, Registry
from pegboard.core.selections import Selected
from pegboard.core.snapshot import Plan, Snapshot
from pegboard.model.agent import AgentEntry
from pegboard.model.context import ToolContext
from pegboard.model.decision import Blocked, Code, Decision
from pegboard.model.error import AsyncPredicateError, DefinitionError
from pegboard.model.json_types import JSON, JSONValue
from pegboard.model.memo import FirstRunError, Question, SlowPredicateError
from pegboard.model.policy import Policy
from pegboard.model.profile import Profile
from pegboard.model.record import replace
from pegboard.model.result import ToolResult
from pegboard.model.tool import ToolEntry

NAMES_COMPARED_EACH = 32  # tools of a caller that are compared one by one; with more, only near names are
NAME_LISTS = 64  # sorted lists of one snapshot's names that are kept

_NOTHING = Policy(allow=())
_ASKED_ANEW = 3  # attempts: another call of the request may ask a person, which discards all answers


class CallRunner(Protocol):
    """Runs one guarded call on a View; the Executor."""

    async def call(
        self,
        view: View,
        name: str,
        args: object = None,
        *,
        callbacks: object = None,
        raise_errors: bool = False,
        call_id: str | None = None,
        as_task: bool = False,
    ) -> ToolResult: ...

    def blocked(self, view: View, name: str, entry: ToolEntry) -> Blocked | None:
        """Return why a call of this visible tool would be refused now, without awaiting anything."""
        ...

    async def ablocked(self, view: View, name: str, entry: ToolEntry) -> Blocked | None:
        """Return why a call of this visible tool would be refused now."""
        ...

    def account(self, ctx: ToolContext, agent: str) -> CostAccount:
        """Return the budgets of cost that a run of this agent falls under."""
        ...

    def observe_run(self, ctx: ToolContext, agent: str, run_id: str) -> RunRecorder:
        """Record that a run of an agent begins which no call of a tool surrounds."""
        ...

    def off_loop(self, code: Callable[[], Any], ctx: ToolContext) -> Awaitable[Any]:
        """Run code that has blocked the event loop in a thread."""
        ...


class Exporter(Protocol):
    """Converts a view's tools to the form of one target."""

    def __call__(self, view: View) -> list[JSON]: ...

    def to_bytes(self, view: View) -> bytes: ...

    def size_bytes(self, view: View, *, within: Snapshot | None = None) -> int: ...

    def report(self, view: View) -> list[JSON]: ...

    def wire_name(self, view: View, name: str) -> str: ...

    def decode(self, view: View, name: str, args: JSONValue) -> JSONValue: ...


class ViewParts(Struct, frozen=True, kw_only=True):
    """The parts shared by views; `kind` says whether they are for tools or for resources and prompts."""

    registry: Registry
    runner: CallRunner
    exporters: Mapping[str, Exporter]
    kind: Kind = "tools"


class AgentTools:
    """The snapshot shared by all runs of one agent: its private tools and those it takes from the catalog."""

    def __init__(self, registry: Registry, agent: AgentEntry) -> None:
        self.agent = agent
        self._registry = registry
        self._made: Snapshot | None = None

    def snapshot(self, newest: Snapshot) -> Snapshot:
        """Return the agent's snapshot for the newest snapshot of the catalog."""
        if self._made is None or self._made.generation != newest.generation:
            self._made = self._registry.build_for_agent(self.agent)
        return self._made


class View:
    """The tools one caller may use now. Lazy: each method asks the judge again, about the newest snapshot.

    Made by `Catalog.view`; cheap, and valid for one request, like its context. Synchronous methods raise
    `AsyncPredicateError` if they meet an async predicate or builder that has not been awaited in this context.
    `Catalog.aview` awaits all of them first; `afind` and `awhy` await what they need.

    >>> view = catalog.view(ann, include=["math"])
    >>> len(view.tools())
    2
    """

    __slots__ = ("_extended", "_extra", "_parts", "_selected_of", "ctx", "profile", "selection")

    def __init__(
        self, parts: ViewParts, ctx: ToolContext, selection: Selection, *, profile: Profile | None = None,
        extra: Sequence[ToolEntry] = (), tools_of: AgentTools | None = None,
    ) -> None:  # fmt: skip
        self.ctx, self.selection, self.profile = ctx, selection, profile
        self._parts, self._extra = parts, tools_of or tuple(extra)
        self._extended: Snapshot | None = None
        self._selected_of: tuple[Snapshot, Selected] | None = None
        """The last selection with its snapshot, since a view is often asked several questions."""

    @property
    def snapshot(self) -> Snapshot:
        """The newest snapshot, with this view's extra tools.

        >>> view.snapshot is view.snapshot
        True
        """
        parts = self._parts
        newest = parts.registry.newest.get(parts.kind) or parts.registry.snapshot(parts.kind)
        if not self._extra:
            return newest
        if isinstance(self._extra, AgentTools):
            return self._extra.snapshot(newest)
        if self._extended is None or self._extended.generation != newest.generation:
            self._extended = self._parts.registry.build(self._extra, kind=self._parts.kind)
        return self._extended

    def renewed(self, ctx: ToolContext | None = None) -> View:
        """Return the view with its profile's current declaration, optionally for another context of the caller.

        A view whose profile was removed shows nothing.

        >>> view.renewed().names()
        ['add', 'halve']
        """
        selection, profile = self.selection, self.profile
        if selection.profile is not None:
            profile = self._parts.registry.profiles.get(selection.profile)
            if profile is None:
                selection = replace(selection, include=(), policy=_NOTHING)
            elif profile is not self.profile:
                selection = selection.of_profile(profile)
        if ctx is None and profile is self.profile:
            return self
        return self._with(selection, ctx=ctx or self.ctx, profile=profile)

    def _with(self, selection: Selection, *, ctx: ToolContext, profile: Profile | None) -> View:
        view = View(self._parts, ctx, selection, profile=profile)
        view._extra, view._extended = self._extra, self._extended
        return view

    # -- narrowing

    def only(self, *globs: str) -> View:
        """Return a view of the tools that match one of these globs; without globs, of none.

        Globs match wire names and `namespace.name`, as in a `Policy`. A view can only be narrowed.

        Raises:
            DefinitionError: a glob is not a text.

        >>> view.only("a*").names()
        ['add']
        """
        return self._narrowed(Policy(allow=globs, origin="View.only"))

    def skip(self, *globs: str) -> View:
        """Return a view without the tools that match one of these globs.

        Raises:
            DefinitionError: a glob is not a text.

        >>> view.skip("a*").names()
        ['halve']
        """
        return self._narrowed(Policy(deny=globs, origin="View.skip"))

    def in_groups(self, *groups: str) -> View:
        """Return a view of some of this view's groups.

        Raises:
            DefinitionError: this view does not have one of them.

        >>> catalog.view(ann).in_groups("math").names()
        ['add', 'halve']
        """
        known = self.selection.include
        if known is None:
            known = tuple(sorted(self._parts.registry.known_groups()))
        for group in groups:
            if group not in known:
                label = "Groups of this view"
                raise DefinitionError(f"in_groups({group!r}): no such group.{nearest(group, known, label=label)}")
        return self._with(self.selection.narrowed_to(groups), ctx=self.ctx, profile=self.profile)

    def _narrowed(self, policy: Policy) -> View:
        return self._with(self.selection.narrowed_by(policy), ctx=self.ctx, profile=self.profile)

    # -- the list

    def tools(self, *, within: Snapshot | None = None) -> tuple[ToolEntry, ...]:
        """Return the visible tools as this caller gets them, in a fixed order, with those of builders built.

        `within`: the newest snapshot, if your code has it already.

        >>> [entry.spec.description for entry in view.tools()]
        ['Add two numbers.', 'Halve a number.']
        """
        snapshot = within or self.snapshot
        left = self._selection_without_hidden(snapshot)
        if not left.built:
            return left.entries
        states = self._parts.registry.states()
        made: dict[str, Sequence[ToolEntry]] = {}
        for entry in [snapshot.entries[place] for place in left.built]:
            is_hidden = self._dynamic_code(entry, snapshot, states) is not None
            built = () if is_hidden else self._as_built(entry, snapshot)
            made[entry.qualified_id] = [item for item in built if not item.is_for_apps_alone]
        shown = [one for entry in left.entries for one in (made[entry.qualified_id] if entry.builder else (entry,))]
        if not snapshot.bundles:
            return tuple(shown)
        # If two bundles build the same name, the first wins, as in `find`.
        return tuple({entry.wire_name: entry for entry in reversed(shown)}.values())[::-1]

    def _select(self, snapshot: Snapshot) -> Selected:
        """Return the selection of groups and policies from a snapshot, and keep it for the next question."""
        selected = snapshot.judged(self.selection, self.ctx.caller.policy)
        self._selected_of = snapshot, selected
        return selected

    def _selection_without_hidden(self, snapshot: Snapshot) -> Selected:
        """Return the selection without hidden tools; built tools are not checked.

        Tools with equal conditions are judged together: the cost depends on the conditions, not on the tools.
        """
        known, states = self._selected_of, self._parts.registry.states()
        selected = known[1] if known is not None and known[0] is snapshot else self._select(snapshot)
        hidden: list[int] = []
        places: list[int] = []
        for number, (entry, alike) in enumerate(selected.alike):
            if entry.source is not None:
                state = states.get(entry.source)
                if entry.hangs_on_source_alone and hides_nothing(state):
                    continue
                if state.quarantined:
                    each = [(place, snapshot.entries[place]) for place in alike]
                    places += [at for at, one in each if self._dynamic_code(one, snapshot, states) is not None]
                    continue
            if self._dynamic_code(entry, snapshot, states) is not None:
                hidden.append(number)
        return snapshot.without(selected, hidden, places) if hidden or places else selected

    def app_tools(self, *, within: Snapshot | None = None) -> tuple[ToolEntry, ...]:
        """Return the tools for this caller's user interfaces, which models do not see.

        `within`: the newest snapshot, if your code has it already.

        >>> view.app_tools()
        ()
        """
        snapshot = within or self.snapshot
        visible = (self.find(entry.qualified_id, within=snapshot) for entry in snapshot.for_apps)
        return tuple([entry for entry in visible if entry is not None])

    def names(self, server: str | None = None) -> list[str]:
        """Return wire names; with `server`, the names for an SDK's allow-list: `mcp__<server>__<tool>`.

        No builder runs. Mirrored names are included; `full_names` replaces a tool's own name.

        >>> view.names()
        ['add', 'halve']
        >>> view.names("office")
        ['mcp__office__add', 'mcp__office__halve']
        """
        snapshot = self.snapshot
        left = self._selection_without_hidden(snapshot)
        kept: BoundedCache[int, _Named] = snapshot.cache.setdefault("names", BoundedCache(max_entries=NAME_LISTS))
        # The value keeps the tools alive, so that their id cannot be reused.
        named = kept.get(id(left.entries)) or kept.remember(id(left.entries), _named(left))
        if named.are_all and not self._mirrors():
            return [*named.names] if server is None else [f"mcp__{server}__{name}" for name in named.names]
        built = [snapshot.entries[place] for place in left.built]
        there = {entry.qualified_id for entry in self._unbuilt(built)}
        names: list[str] = []
        for entry in left.entries:
            if entry.builder is None or entry.qualified_id in there:
                names.extend(self._full_names(entry.spec.full_names, entry.wire_name, server))
        return list(dict.fromkeys([*names, *self._mirrored_names()]))

    def _mirrored_names(self) -> Iterator[str]:
        """Yield the mirrored names for this caller: groups, policy and availability apply as for tools."""
        snapshot, states = self.snapshot, self._parts.registry.states()
        for name, mirror in self._mirrors().items():
            entry = mirror.entry(name)
            if static_code(entry, self.selection, self.ctx.caller.policy) is None and (
                mirror.available is None or self._dynamic_code(entry, snapshot, states) is None
            ):
                yield from self._full_names(mirror.full_names, name, None)

    def _mirrors(self) -> Mapping[str, Mirror]:
        return self._parts.registry.mirrors if self._parts.kind == "tools" else {}

    def _unbuilt(self, entries: Iterable[ToolEntry]) -> Iterator[ToolEntry]:
        """Yield the visible tools among those selected, as far as that is known without running builders."""
        snapshot, states = self.snapshot, self._parts.registry.states()
        for entry in entries:
            if self._is_visible_unbuilt(entry, snapshot, states):
                yield entry

    def _is_visible_unbuilt(self, entry: ToolEntry, snapshot: Snapshot, states: States) -> bool:
        """Tell the same for one tool."""
        is_built = entry.builder is not None and self.ctx.memo.has(snapshot.build_question(entry).key)
        asked = entry if is_built else without_builder(entry)
        return self._dynamic_code(asked, snapshot, states) is None

    def _dynamic_code(self, entry: ToolEntry, snapshot: Snapshot, states: States) -> Code | None:
        hides = self.selection.hides_unconnected
        return dynamic_code(entry, snapshot, self.ctx, states, hides_unconnected=hides)

    def _full_names(self, form: object, wire_name: str, server: str | None) -> list[str]:
        given: Any = form(self.ctx) if callable(form) else form
        if given is None:
            return [wire_name if server is None else f"mcp__{server}__{wire_name}"]
        if not isinstance(given, str | list | tuple):
            raise DefinitionError(f"full_names={given!r} of {wire_name!r}: a string, a list or a callable is needed.")
        return [given] if isinstance(given, str) else [str(name) for name in cast("Iterable[object]", given)]

    def _as_built(self, entry: ToolEntry, snapshot: Snapshot) -> Iterable[ToolEntry]:
        """Return the tools that an entry's builder made in this context; several for a bundle."""
        made: dict[str, ToolEntry] = self.ctx.memo.answer(snapshot.build_question(entry), self.ctx)
        if entry.builder is None or not entry.builder.is_bundle:
            return (made[entry.spec.name],)
        # Each tool of a bundle is judged too, and never takes the name of a declared one.
        return (
            item
            for item in made.values()
            if static_code(item, self.selection, self.ctx.caller.policy) is None
            and not has_ended(item.spec, snapshot.today())
            and snapshot.find(item.wire_name) is None
            and snapshot.find(item.qualified_id) is None
        )

    # -- one tool

    def __contains__(self, name: str) -> bool:
        return self.find(name) is not None

    def __getitem__(self, name: str) -> ToolEntry:
        """Return a visible tool; `KeyError` with the same text for every other name."""
        found = self.find(name)
        if found is None:
            raise KeyError(self.absence(name))
        return found

    def find(self, name: str, *, within: Snapshot | None = None, can_wait: bool = False) -> ToolEntry | None:
        """Return the tool if this caller may use it now, else `None`.

        `within`: the newest snapshot, if your code has it already. `can_wait`: your code calls
        `afind` next if a slow predicate must run in a thread.

        >>> view.find("add").qualified_id
        'main.add'
        >>> view.find("restart") is None
        True
        """
        snapshot = within or self.snapshot
        entry = snapshot.by_wire_name.get(name) or snapshot.find(name)
        if entry is None:
            return self._find_in_bundles(name, snapshot)
        if snapshot.static_code(entry, self.selection, self.ctx.caller.policy) is not None:
            return None
        if not entry.is_conditional:
            return entry
        if can_wait:
            return self.ctx.memo.deferring(partial(self.find, name, within=snapshot))
        if self._dynamic_code(entry, snapshot, self._parts.registry.states()) is not None:
            return None
        return self._built(entry, snapshot)

    def _built(self, entry: ToolEntry, snapshot: Snapshot) -> ToolEntry | None:
        """Return a visible tool as this caller gets it; `None` for a bundle."""
        if entry.builder is None:
            return entry
        return next((made for made in self._as_built(entry, snapshot) if made.spec.name == entry.spec.name), None)

    def plan(self, entry: ToolEntry, snapshot: Snapshot) -> Plan:
        """Return the data for calls of a tool of this view: its validators and its hooks.

        >>> view.plan(view["add"], view.snapshot).entry.wire_name
        'add'
        """
        return snapshot.plan(entry)

    def _find_in_bundles(self, name: str, snapshot: Snapshot) -> ToolEntry | None:
        for entry in snapshot.bundles:
            if self._decide(entry, snapshot).visible:
                for made in self._as_built(entry, snapshot):
                    if name in made.names:
                        return made
        return None

    def why(self, name: str) -> Decision:
        """Return whether and why this caller may use `name`, the smallest fix, and the next code.

        `blocked` says why a call of a visible tool would be refused now. Only `awhy` checks limits that are counted in
        another process, and approvals that a person has given already.

        >>> print(view.why("ping"))
        hidden (group): ...
        >>> view.why("add").callable
        True
        """
        decided, entry = self._decided(name)
        if entry is None:
            return decided
        return _with_refusal(decided, entry, self._parts.runner.blocked(self, name, entry))

    def connects_first(self, entry: ToolEntry) -> str | None:
        """Return the name of the account to connect before this tool can be called; `None` if none is missing.

        >>> view.connects_first(view["add"]) is None
        True
        """
        missing = missing_connection(entry, self.ctx)
        return None if missing is None or missing.kind != "connection_required" else entry.connects_to

    async def aconnects_first(self, entry: ToolEntry) -> str | None:
        """Like `connects_first`, asking the store of connections if it has not been asked in this context.

        >>> asyncio.run(view.aconnects_first(view["add"])) is None
        True
        """
        if (question := connection_question(entry)) is not None:
            await self.ctx.memo.answer_async(
                (question,), self.ctx
            )  # pragma: no cover - tests/connections/test_auth_config.py
        return self.connects_first(entry)

    def _decided(self, name: str) -> tuple[Decision, ToolEntry | None]:
        """Return the judge's decision on a name, and the tool as this caller gets it if it is visible."""
        snapshot = self.snapshot
        entry = snapshot.find(name)
        if entry is not None:
            decided = self._decide(entry, snapshot)
            return decided, self._built(entry, snapshot) if decided.visible else None
        if (built := self._find_in_bundles(name, snapshot)) is not None:
            return Decision("visible", "built by a bundle that is in the selection, allowed and available"), built
        return self._decided_of_none(name, snapshot), None

    def _decided_of_none(self, name: str, snapshot: Snapshot) -> Decision:
        """Return the decision for a name that is not a tool: of a bundle, a mirrored one, or an unknown one."""
        bundle = next((item for item in snapshot.bundles if name in item.names), None)
        if bundle is not None:
            decided = self._decide(bundle, snapshot)
            return Decision("unknown", f"{name!r} is a bundle, not a tool.") if decided.visible else decided
        if (mirror := self._mirrors().get(name)) is not None:
            decided = self._decide(mirror.entry(name), snapshot)
            text = f"{name!r} is mirrored: a name for allow-lists, which names() has, and no tool here."
            fix = decided.fix and decided.fix._replace(subject=name)
            return Decision("unknown", text) if decided.visible else decided._replace(fix=fix)
        return undeclared(name, partial(_declared, name, snapshot), self._parts.registry.states())

    def _decide(self, entry: ToolEntry, snapshot: Snapshot) -> Decision:
        return decide_entry(entry, snapshot, self.ctx, self.selection, self._parts.registry.states())

    def schema(self, name: str) -> JSON:
        """Return the input schema of a visible tool; `KeyError` for every other name.

        >>> sorted(view.schema("add")["properties"])
        ['a', 'b']
        """
        return self[name].spec.input_schema

    def absence(self, name: str) -> str:
        """Return the error message for a name that this caller may not use.

        For a tool that is hidden only because its day of `deprecated` has come, the message names the replacement.

        >>> view.absence("ad")
        "No tool named 'ad' is available to this caller. Did you mean 'add'?"
        """
        with suppress(AsyncPredicateError):
            if (ended := self._ended(name)) is not None:
                return after_end(ended.spec, known_as=name[:200], replacement=self._successor(ended))
        return f"No tool named {name[:200]!r} is available to this caller.{self.hint(name)}"

    def _ended(self, name: str) -> ToolEntry | None:
        """Return the tool of that name if only its end date hides it."""
        snapshot = self.snapshot
        entry = snapshot.find(name)
        if entry is None or not has_ended(entry.spec, snapshot.today()):
            return None
        endless = replace(entry, spec=replace(entry.spec, deprecated=None))
        hidden = static_code(endless, self.selection, self.ctx.caller.policy) or self._dynamic_code(
            endless, snapshot, self._parts.registry.states()
        )
        return None if hidden else entry

    def _successor(self, ended: ToolEntry) -> str | None:
        """Return the name of the first visible tool in the chain of its replacements."""
        snapshot, seen, entry = self.snapshot, set[str](), ended
        while (name := entry.spec.replaced_by) is not None and name not in seen:
            seen.add(name)
            if (visible := self.find(name)) is not None:
                return visible.wire_name
            following = snapshot.find(name)
            if following is None:
                break
            entry = following
        return None

    def hint(self, name: str) -> str:
        """Return the end of a not-found message: a similar visible name, or a suggestion.

        >>> view.hint("halv")
        " Did you mean 'halve'?"
        """
        near = None
        with suppress(AsyncPredicateError):
            near = self._near(name)
        return f" Did you mean {near!r}?" if near else " List the tools to see what is available."

    def _near(self, name: str) -> str | None:
        """Return the visible name that was probably meant; with many tools, only near names are compared."""
        snapshot, states = self.snapshot, self._parts.registry.states()
        selected = self._select(snapshot).entries
        if len(selected) <= NAMES_COMPARED_EACH:
            return nearest_one(name, (entry.wire_name for entry in self._unbuilt(selected) if name not in entry.names))
        asked_by = self.selection, self.ctx.caller.policy
        near = _near_names(snapshot, selected, asked_by=asked_by)
        for entry, is_near in near.around(name):
            if name not in entry.names and self._is_visible_unbuilt(entry, snapshot, states):
                return entry.wire_name if is_near else nearest_one(name, (entry.wire_name,))
        return None

    # -- awaiting

    async def atools(self) -> tuple[ToolEntry, ...]:
        """Like `tools`, awaiting predicates and builders; does not include tools declared meanwhile.

        >>> len(asyncio.run(view.atools()))
        2
        """
        return self.tools(within=await self.prepared_snapshot())

    async def afind(self, name: str) -> ToolEntry | None:
        """Like `find`, awaiting predicates and builders.

        >>> asyncio.run(view.afind("add")).wire_name
        'add'
        """
        for _ in range(_ASKED_ANEW):
            with suppress(AsyncPredicateError):
                return self.find(name, can_wait=True)
            await self._answer_for(name)
        return self.find(name)  # pragma: no cover - a predicate that meets new async questions each time

    async def awhy(self, name: str) -> Decision:
        """Like `why`, awaiting predicates, builders and limits.

        >>> asyncio.run(view.awhy("add")).code
        'visible'
        """
        try:
            decided, entry = self.ctx.memo.deferring(partial(self._decided, name))
        except AsyncPredicateError:
            await self._answer_for(name)
            decided, entry = self._decided(name)
        if entry is None:
            return await self.awhy(name) if await self.list_first(name) else decided
        return _with_refusal(decided, entry, await self._parts.runner.ablocked(self, name, entry))

    async def list_first(self, name: str) -> bool:
        """Let the source that an unknown name belongs to list the tools of this caller's account, once.

        Returns whether it did.

        >>> asyncio.run(view.list_first("mail__read"))
        False
        """
        source = self._parts.registry.sources.get(name.partition("__")[0].partition(".")[0])
        if not (isinstance(source, ListsForPersons) and await source.list_first(self.ctx.caller)):
            return False
        # Somebody else's list may have had the name, so that a condition has said no already.
        await self.ctx.memo.renew(self.ctx)
        return True

    async def acodes(self) -> dict[str, Code]:
        """Return the code of the judge's decision on every declared tool, by wire name, in the order of the snapshot.

        A cheap form of `awhy` for a whole catalog: without reasons, and without limits and approvals.

        >>> asyncio.run(view.acodes())["ping"]
        'group'
        """
        snapshot = await self.prepared_snapshot()
        # Tools for interfaces only are in no selection, so their conditions have not been awaited.
        await self._answer(snapshot.conditions(snapshot.for_apps), snapshot.for_apps, snapshot)
        own, states = self.ctx.caller.policy, self._parts.registry.states()
        return {
            entry.wire_name: static_code(entry, self.selection, own)
            or self._dynamic_code(entry, snapshot, states)
            or "visible"
            for entry in snapshot.entries
        }

    async def prepare(self) -> View:
        """Await every async predicate and builder of the selected tools, together. Returns the view.

        >>> asyncio.run(view.prepare()).names()
        ['add', 'halve']
        """
        await self.prepared_snapshot()
        return self

    async def prepared_snapshot(self) -> Snapshot:
        """Like `prepare`, but returns the snapshot whose tools are prepared; a newer one may not be.

        >>> asyncio.run(view.prepared_snapshot()) is view.snapshot
        True
        """
        snapshot = self.snapshot
        if await self._list_first(snapshot):
            # What a source brings belongs in the list that asked.
            snapshot = self.snapshot
        selected = self._select(snapshot)
        conditions = snapshot.conditions_of(selected)
        built = [snapshot.entries[place] for place in selected.built]
        mirrored = [mirror.entry(name) for name, mirror in self._mirrors().items() if mirror.available is not None]
        if built or mirrored:
            others = snapshot.conditions((*built, *mirrored))
            conditions = conditions.and_others(others)
        await self._answer(conditions, built, snapshot)
        return snapshot

    async def list_all_first(self) -> bool:
        """Let every source list what this caller's account offers, once; tell whether one did.

        >>> asyncio.run(view.list_all_first())
        False
        """
        return await self._list_first(self.snapshot)

    async def _list_first(self, snapshot: Snapshot) -> bool:
        are_tools, have_listed = self._parts.kind == "tools", False
        for source in self._listing_for_persons(snapshot):
            have_listed |= await (source.list_first if are_tools else source.list_resources_first)(self.ctx.caller)
        if have_listed:
            await self.ctx.memo.renew(self.ctx)
        return have_listed

    def _listing_for_persons(self, snapshot: Snapshot) -> tuple[ListsForPersons, ...]:
        """Return the sources that list the tools of each person's account."""
        known: tuple[ListsForPersons, ...] | None = snapshot.cache.get("for_persons")
        if known is None:
            sources = self._parts.registry.sources.values()
            known = snapshot.cache["for_persons"] = tuple(
                [each for each in sources if isinstance(each, ListsForPersons)]
            )
        return known

    async def _answer_for(self, name: str) -> None:
        """Await the predicates and builders of one name."""
        snapshot = self.snapshot
        entry = snapshot.find(name)
        entries = snapshot.bundles if entry is None else (entry,)
        await self._answer(snapshot.conditions(entries), entries, snapshot)

    async def _answer(self, conditions: Conditions, entries: Sequence[ToolEntry], snapshot: Snapshot) -> None:
        """Await the open predicates of these conditions, then the async builders of the available tools."""
        memo = self.ctx.memo
        if conditions.awaited:
            await memo.answer_async(conditions.awaited, self.ctx)
        for condition in conditions.each:
            if any(question.is_slow for question in condition.questions):
                await self._answer_slowly(condition, self._parts.registry.states())
        built = [entry for entry in entries if entry.builder is not None]
        for entry in built:
            states = self._parts.registry.states()
            if self._dynamic_code(without_builder(entry), snapshot, states) is None:
                question = snapshot.build_question(entry)
                if question.waits:
                    await memo.answer_async((question,), self.ctx)

    async def _answer_slowly(self, condition: Availability, states: States) -> None:
        """Evaluate the predicates of a condition in order; slow and untried ones in a thread."""
        memo, ctx = self.ctx.memo, self.ctx
        while True:
            try:
                memo.deferring(partial(condition.answer, ctx, states))
            except SlowPredicateError as met:
                beside = partial(self._ask_off_loop, met.question)
                await memo.answer_async((met.question._replace(ask=beside),), ctx)
            else:
                return

    async def _ask_off_loop(self, question: Question, ctx: ToolContext) -> Any:
        is_first = question.pace is not None and not question.pace.is_tried
        ask = question.try_out if is_first and question.try_out is not None else question.ask

        def run() -> Any:
            ctx.memo.is_answered_here(question)
            return ask(ctx)

        try:
            return await self._parts.runner.off_loop(run, ctx)
        except FirstRunError:
            # Some code works on the thread of the loop only; if it fails there too, the failure is its own.
            return question.ask(ctx)

    # -- calls and exports

    def call(
        self,
        name: str,
        args: object = None,
        *,
        callbacks: object = None,
        raise_errors: bool = False,
        as_task: bool = False,
    ) -> Coroutine[Any, Any, ToolResult]:
        """Run one guarded call; await it. `args` is a dict, or JSON text as bytes.

        Errors of the model, the tool or a guard do not raise: they are in the result. With `raise_errors`, an error
        result is raised as `CallError`, chained to the tool's exception. With `as_task`, a tool that supports tasks
        runs as one: the result names it (`task_id`), and `Catalog.tasks` has its state.

        >>> asyncio.run(view.call("add", {"a": 1, "b": 2})).text
        '3'
        >>> asyncio.run(view.call("add", {"a": 1})).error.kind
        'invalid_arguments'
        """
        return self._parts.runner.call(
            self, name, args, callbacks=callbacks, raise_errors=raise_errors, call_id=None, as_task=as_task
        )

    def export(self, target: str) -> list[JSON]:
        """Return the tools in the form of one target: `openai`, `openai_responses`, `anthropic`, `mcp`, …

        All: `openai`, `openai_strict`, `openai_responses`, `anthropic`, `anthropic_strict`, `gemini`, `mcp`.

        Schema features that the target does not support are rewritten, or left out and listed in `export_report`.

        Raises:
            DefinitionError: an unknown target.

        >>> [tool["function"]["name"] for tool in view.export("openai")]
        ['add', 'halve']
        """
        return self._parts.exporters[target](self)

    def export_bytes(self, target: str) -> bytes:
        """Return `export` as a JSON array; cached for callers with the same tools.

        >>> view.export_bytes("anthropic").startswith(b'[{"name":"add"')
        True
        """
        return self._parts.exporters[target].to_bytes(self)

    def export_report(self, target: str) -> list[JSON]:
        """Return the losses of an export: `{tool, path, rule, effect, text}`; see `pegboard.providers.dialect.Loss`.

        >>> view.export_report("openai")
        []
        """
        return self._parts.exporters[target].report(self)

    def wire_name(self, target: str, name: str) -> str:
        """Return the wire name for an exported name; they differ only if the target does not support the wire name.

        >>> view.wire_name("gemini", "add")
        'add'
        """
        return self._parts.exporters[target].wire_name(self, name)

    def decode(self, target: str, name: str, args: JSONValue) -> JSONValue:
        """Convert a model's arguments for an exported tool, JSON or its text, to the tool's own schema.

        They are not validated: `call` does that. Invalid JSON text is returned as bytes, for `call` to refuse.

        Raises:
            KeyError: no such tool is available to this caller.

        >>> view.decode("openai", "add", '{"a": 1, "b": 2}')
        {'a': 1, 'b': 2}
        """
        return self._parts.exporters[target].decode(self, name, args)


def _with_refusal(decided: Decision, entry: ToolEntry, blocked: Blocked | None) -> Decision:
    """Return the decision on a visible tool with why a call would be refused, and what would change that."""
    fix = decided.fix if blocked is None else blocked.fix
    return decided._replace(blocked=blocked, fix=fix, asks=entry.asks_because is not None)


class _Named(NamedTuple):
    """Tools and their names; `are_all` if none of them has `full_names`."""

    tools: Sequence[ToolEntry]
    names: Sequence[str]
    are_all: bool


def _named(left: Selected) -> _Named:
    names = tuple(dict.fromkeys([entry.wire_name for entry in left.entries]))
    return _Named(left.entries, names, not left.built and all(entry.spec.full_names is None for entry in left.entries))


def _near_names(snapshot: Snapshot, entries: Sequence[ToolEntry], *, asked_by: Hashable) -> NearNames:
    """Return some tools of a snapshot sorted by name, computed once, starting from the caller's previous list."""
    # The value keeps the tools alive, so that their id cannot be reused.
    known = snapshot.near_names.get(id(entries))
    if known is None:
        known = snapshot.near_names.remember(id(entries), NearNames(entries, snapshot.name_orders.get(asked_by)))
        snapshot.name_orders.remember(asked_by, known.order)
    return known


def _declared(name: str, snapshot: Snapshot) -> str:
    """Return the end of the message for an undeclared name: the most similar one."""
    entries = snapshot.entries
    if len(entries) <= NAMES_COMPARED_EACH:
        return nearest(name, [entry.wire_name for entry in entries], label="Declared")
    known = _near_names(snapshot, entries, asked_by="all")
    likeliest, is_slip = next(known.around(name), (None, False))
    if likeliest is not None and (is_slip or nearest_one(name, (likeliest.wire_name,))):
        return f" Did you mean {likeliest.wire_name!r}?"
    return listing(known.order.forward, label="Declared")
