"""Exposure: selects the tools that a profile lists: all of a view, or a few meta tools that find and run them.

Only the profile decides this, and only here: lists and calls of every transport use `exposed`. It changes the list,
never the permissions: a visible tool that is not listed can still be called by name.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from pegboard.core.bounded_cache import BoundedCache
from pegboard.core.hooks import hooks_of
from pegboard.core.judge import Selection, applies
from pegboard.core.names import META_NAMESPACE
from pegboard.core.ports import Embedder
from pegboard.core.registry import Registry
from pegboard.core.schema import compile_schema
from pegboard.core.selections import SharedTools
from pegboard.core.snapshot import Plan, Snapshot
from pegboard.core.view import View
from pegboard.discovery.finder import Finder
from pegboard.discovery.meta_tools.catalog_listing import CatalogListing, custom_agents
from pegboard.discovery.meta_tools.get_tools import get_tools
from pegboard.discovery.meta_tools.loop_guard import LoopGuard
from pegboard.discovery.meta_tools.search_tools import search_tools
from pegboard.discovery.meta_tools.shared import MetaTools
from pegboard.discovery.meta_tools.specs import MetaNames, spec_of
from pegboard.discovery.meta_tools.use_tools import use_tools
from pegboard.discovery.token_count import estimated_tokens
from pegboard.model.bounds import Bounds
from pegboard.model.context import ToolContext
from pegboard.model.decision import Decision
from pegboard.model.error import AsyncPredicateError
from pegboard.model.json_types import JSON, JSONValue
from pegboard.model.profile import Profile
from pegboard.model.result import ToolResult
from pegboard.model.tool import Handler, ToolEntry

if TYPE_CHECKING:
    from pegboard.core.call.record import ExecutorState
    from pegboard.discovery.learning.search_use import SearchUse

EXPOSED_LISTS = 256  # lists with meta tools kept for one snapshot
TWO_TOOL_DIGEST_TOKENS = 2_000  # tokens of the digest of the catalog in exposure `two_tool`
SEARCH_DIGEST_TOKENS = 400  # tokens of the digest of the catalog in exposure `search`

Mode = Literal["direct", "two_tool", "search"]

_Lists = BoundedCache[Any, tuple[Any, tuple[ToolEntry, ...]]]
_DIGEST_TOKENS = {"two_tool": TWO_TOOL_DIGEST_TOKENS, "search": SEARCH_DIGEST_TOKENS}
_ANY_OBJECT: JSON = {"type": "object"}


class Discovery(Struct, kw_only=True):
    """State shared by all callers of one catalog: the search index and the loop guard. State of one Catalog."""

    registry: Registry
    finder: Finder
    loop_guard: LoopGuard

    @classmethod
    def of(cls, registry: Registry, *, embedder: Embedder | None = None) -> Discovery:
        return cls(registry=registry, finder=Finder(registry, embedder=embedder), loop_guard=LoopGuard())

    def learn_from(self, use: SearchUse, executor: ExecutorState) -> None:
        """Rank tools higher in later searches if they were called after earlier ones."""
        self.finder.use = use
        executor.record(use)

    @property
    def bounds(self) -> Bounds:
        return self.registry.bounds


def exposed(view: View, discovery: Discovery) -> View:
    """Return the view as its profile exposes it; the view itself if it lists every tool."""
    profile = view.profile
    return view if profile is None or profile.exposure == "direct" else ExposedView(view, profile, discovery)


def exposed_as(view: View, profile: Profile, discovery: Discovery) -> View:
    """Return the view as a profile with this exposure would expose it."""
    return view if profile.exposure == "direct" else ExposedView(view, profile, discovery)


def is_meta(entry: ToolEntry) -> bool:
    """Tell whether an entry is one of the meta tools."""
    return entry.spec.namespace == META_NAMESPACE


class ExposedView(View):
    """A view with a short list: the meta tools and the pinned tools. Otherwise the same as the view."""

    __slots__ = ("_discovery", "_mode", "_plain", "_profile", "meta_names")

    def __init__(self, view: View, profile: Profile, discovery: Discovery) -> None:
        super().__init__(view._parts, view.ctx, view.selection, profile=profile)
        self._extra, self._extended = view._extra, view._extended
        self._plain, self._profile, self._discovery = view, profile, discovery
        self._mode: Mode | None = None if profile.exposure == "auto" else profile.exposure
        self.meta_names = MetaNames.renamed(profile.rename)

    @property
    def mode(self) -> Mode:
        """The current exposure for this caller."""
        return self._mode or self._chosen_mode(self.snapshot)

    def _chosen_mode(self, snapshot: Snapshot) -> Mode:
        """Return the exposure that fits the size of a snapshot's whole list, and keep it."""
        cost = estimated_tokens(self._parts.exporters["mcp"].size_bytes(self._plain, within=snapshot))
        self._mode = "direct" if cost <= self._profile.token_budget else "search"
        return self._mode

    @property
    def meta_tools(self) -> tuple[str, ...]:
        """The names of the meta tools that this caller has now."""
        names = self.meta_names
        return {"direct": (), "two_tool": (names.get, names.use), "search": tuple(names)}[self.mode]

    def renewed(self, ctx: ToolContext | None = None) -> View:
        """Return the view with its profile's current declaration and exposure."""
        plain = self._plain.renewed(ctx)
        if plain is self._plain:
            return self
        if self._plain.profile is not self._profile:
            return exposed_as(plain, self._profile, self._discovery)
        return exposed(plain, self._discovery)

    def _with(self, selection: Selection, *, ctx: ToolContext, profile: Profile | None) -> View:
        return ExposedView(self._plain._with(selection, ctx=ctx, profile=profile), self._profile, self._discovery)

    # -- the list

    def tools(self, *, within: Snapshot | None = None) -> tuple[ToolEntry, ...]:
        """Return the listed tools: the meta tools, then the pinned ones by name; or every tool in mode `direct`."""
        snapshot = within or self.snapshot
        visible = super().tools(within=snapshot)
        mode = self._mode or self._chosen_mode(snapshot)
        if mode == "direct":
            return visible
        lists: _Lists = snapshot.cache.setdefault("exposed", BoundedCache(max_entries=EXPOSED_LISTS))
        key = (self._profile, mode, id(visible))
        cached = lists.get(key)
        if cached is not None and cached[0] is visible:
            return cached[1]
        digest = CatalogListing.of(visible).digest(budget_tokens=_DIGEST_TOKENS[mode])
        digest += custom_agents(visible, snapshot.declared.agents)
        listed = (*(self._entry(name, digest=digest) for name in self.meta_tools), *self._pinned(visible))
        if type(visible) is SharedTools:
            lists.remember(key, (visible, listed))
        return listed

    def _pinned(self, visible: Sequence[ToolEntry]) -> list[ToolEntry]:
        pinned = (entry for entry in visible if any(applies(glob, entry) for glob in self._profile.pinned))
        # If a declared tool has the same name, the meta tool gets the name, and the tool its qualified id.
        return sorted((e for e in pinned if e.wire_name not in self.meta_names), key=lambda entry: entry.wire_name)

    def names(self, server: str | None = None) -> list[str]:
        if self.mode == "direct":
            return super().names(server)
        listed = (
            name for entry in self.tools() for name in self._full_names(entry.spec.full_names, entry.wire_name, server)
        )
        return list(dict.fromkeys([*listed, *self._mirrored_names()]))

    def _entry(self, name: str, *, digest: str = "", run: Handler | None = None) -> ToolEntry:
        """Return a meta tool: with a digest of the catalog for lists, or with its handler for this caller."""
        spec = spec_of(
            name,
            self.meta_names,
            namespace=META_NAMESPACE,
            digest=digest,
            with_search=self.mode == "search",
            require_context=self._profile.require_context,
            max_calls=self._discovery.bounds.use_tools_calls,
        )
        return ToolEntry(spec=spec, handler=run, wire_name=name, fingerprint=META_NAMESPACE)

    # -- one tool

    def find(self, name: str, *, within: Snapshot | None = None, can_wait: bool = False) -> ToolEntry | None:
        if name in self.meta_names and name in self.meta_tools:
            return self._entry(name, run=self._handler(name))
        return super().find(name, within=within, can_wait=can_wait)

    def plan(self, entry: ToolEntry, snapshot: Snapshot) -> Plan:
        """Return the data for a call; meta tools accept any object, since they validate its parts themselves."""
        if not is_meta(entry):
            return super().plan(entry, snapshot)
        return Plan(entry, compile_schema(_ANY_OBJECT), None, hooks_of(entry, snapshot.declared.hooks))

    def _handler(self, name: str) -> Handler:
        names = self.meta_names
        run = {names.search: search_tools, names.get: get_tools, names.use: use_tools}[name]
        meta = MetaTools(
            view=self._plain,
            names=names,
            finder=self._discovery.finder,
            loop_guard=self._discovery.loop_guard,
            bounds=self._discovery.bounds,
            run=self._run_inner,
            require_context=self._profile.require_context,
            documents=self._discovery.registry.declarations.documents,
        )
        return partial(run, meta)

    def _run_inner(
        self, name: str, args: JSONValue, ctx: ToolContext, call_id: str, observer: object
    ) -> Awaitable[ToolResult]:
        """Run one call of a batch on the view without meta tools, so that batches cannot nest; all guards apply."""
        # A person may have been asked meanwhile, so each call uses the profile's current declaration.
        view = self._plain.renewed(ctx)
        return self._parts.runner.call(view, name, args, callbacks=observer, call_id=call_id)

    def __getitem__(self, name: str) -> ToolEntry:
        """Return a tool as it is listed; `KeyError` for every name that this caller may not use."""
        if name in self.meta_names and name in self.meta_tools:
            return next(entry for entry in self.tools() if entry.wire_name == name)
        return super().__getitem__(name)

    def _decided(self, name: str) -> tuple[Decision, ToolEntry | None]:
        if name in self.meta_names and name in self.meta_tools:
            reason = f"a meta tool of profile {self._profile.name!r}, whose exposure is {self.mode!r}"
            return Decision("visible", reason), self._entry(name)
        return super()._decided(name)

    def hint(self, name: str) -> str:
        hint = super().hint(name)
        with suppress(AsyncPredicateError):
            if hint.startswith(" List") and self.mode != "direct":
                return f" Call {self.meta_names.get} to see what is available."
        return hint

    async def afind(self, name: str) -> ToolEntry | None:
        if name in self.meta_names:
            await self.prepare()
        return await super().afind(name)

    async def awhy(self, name: str) -> Decision:
        if name in self.meta_names:
            await self.prepare()
        return await super().awhy(name)
