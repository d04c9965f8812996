"""Composable: sources whose tools can be chosen, renamed, grouped and guarded in Python."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pegboard.core.names import check_tool_name, fold, matches
from pegboard.core.ports import LeadsElsewhere, OffersResources, Source
from pegboard.core.source_over import SourceOver
from pegboard.model.error import DefinitionError
from pegboard.model.rate_limit import RateLimit
from pegboard.model.record import replace
from pegboard.model.source_state import SourceState
from pegboard.model.tool import ConsentRule, ToolEntry, ToolSpec

log = logging.getLogger("pegboard")
Change = Callable[[ToolSpec], "ToolSpec | None"]


def _name_taken(source: str, old: str, new: str, owner: str) -> str:
    return (
        f"Source {source!r}: {old!r} cannot be renamed to {new!r}, since {owner!r} has that name. "
        "Choose another name, or rename or skip that tool first."
    )


class Composable:
    """Methods that every source shares. Each returns a new source over this one, which does not change.

    Globs match the names that the tools have at that point: `source.renamed({"a": "b"}).only("b")`.
    """

    def only(self: Source, *globs: str) -> Toolset:
        """Keep the tools that match one of these globs; without globs, none.

        The same as `tools: {only: […]}` of a server in a config.
        """
        kept_globs = _checked(globs, "only")
        return Toolset(self, lambda spec: spec if _is_any(kept_globs, spec) else None)

    def skip(self: Source, *globs: str) -> Toolset:
        """Leave out the tools that match one of these globs."""
        left_out = _checked(globs, "skip")
        return Toolset(self, lambda spec: None if _is_any(left_out, spec) else spec)

    def renamed(self: Source, names: Mapping[str, str]) -> Toolset:
        """Give tools other names: `{"their name": "our name"}`.

        If the source lists a tool with one of these names later, the renamed tool is left out and an error is logged.

        Raises:
            DefinitionError: a new name is not a tool name, or belongs to another tool.
        """
        ours = dict(names)
        listed = [entry.spec.name for entry in self.entries()]
        owners = {fold(name): name for name in listed if name not in ours}
        for old, name in ours.items():
            check_tool_name(name)
            owner = owners.setdefault(fold(name), old)
            if owner != old and (old in listed or owner in ours):
                raise DefinitionError(_name_taken(self.name, old, name, owner))
        return Toolset(self, lambda spec: replace(spec, name=ours.get(spec.name, spec.name)))

    def in_groups(self: Source, *groups: str, tools: str = "*") -> Toolset:
        """Put the tools that match `tools` into these groups, instead of the groups they had.

        Raises:
            DefinitionError: no group is given.
        """
        wanted = _checked(groups, "in_groups")
        if not wanted:
            raise DefinitionError("in_groups() needs at least one group; use skip() for tools that nobody should see.")
        return Toolset(self, lambda spec: replace(spec, groups=wanted) if _is_any((tools,), spec) else spec, wanted)

    def asking(self: Source, rule: ConsentRule = "always", *, tools: str = "*") -> Toolset:
        """Ask a person before each call of the tools that match `tools`; `rule` is the `consent` of a tool."""
        return Toolset(self, lambda spec: replace(spec, consent=rule) if _is_any((tools,), spec) else spec)

    def limited(self: Source, limit: str | Mapping[str, Any] | RateLimit, *, tools: str = "*") -> Toolset:
        """Limit how often each of the tools that match `tools` may be called, e.g. `"10/60s"`.

        Raises:
            DefinitionError: `limit` is not a rate limit.
        """
        parsed = limit if isinstance(limit, RateLimit) else RateLimit.parse(limit)
        return Toolset(self, lambda spec: replace(spec, rate_limit=parsed) if _is_any((tools,), spec) else spec)


class Toolset(Composable, SourceOver):
    """A source that shows another source's tools with a change. Implements the port `Source`.

    `Toolset(source)` makes any object with the methods of `pegboard.core.ports.Source` composable. Connection, state
    and secrets are those of the source. Give the catalog either the source or one toolset over it, not both: they have
    the same name.

    >>> from pegboard.sources.mcp.server_settings import ServerSettings
    >>> from pegboard.sources.mcp.supervised_source import McpSource
    >>> notes = McpSource(ServerSettings(name="notes", transport="http", url="https://notes.example.com/mcp"))
    >>> source = notes.skip("delete_*").in_groups("reading").asking(tools="share_*").limited("30/60s")
    >>> source.name, sorted(source.groups())
    ('notes', ['core', 'reading'])
    """

    def __init__(self, source: Source, change: Change | None = None, groups: Iterable[str] = ()) -> None:
        self.source = source
        self._change, self._groups = change, frozenset(groups)
        self._made: dict[int, tuple[ToolEntry, ToolEntry | None]] = {}
        self._clashes: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """The name of the source, which is the namespace of its tools."""
        return self.source.name

    def __getattr__(self, name: str) -> Any:
        # For example `rejected` and `patience_s`, which only some sources have.
        if name == "source":
            raise AttributeError(name)  # copied or unpickled without __init__
        return getattr(self.source, name)

    def entries(self) -> Sequence[ToolEntry]:
        """Return the changed tools. An unchanged tool of the source stays the same object here, too."""
        listed = self.source.entries()
        known, self._made = self._made, {}
        for entry in listed:
            # The value keeps the source's entry alive, so that its id cannot be reused.
            self._made[id(entry)] = known.get(id(entry)) or (entry, self._changed(entry))
        return self._distinct([(entry, changed) for entry, changed in self._made.values() if changed is not None])

    def _distinct(self, tools: Sequence[tuple[ToolEntry, ToolEntry]]) -> Sequence[ToolEntry]:
        """Return the changed tools without those whose new name belongs to another one; report these once."""
        owners = {fold(changed.spec.name): entry for entry, changed in tools if changed.spec.name == entry.spec.name}
        distinct: list[ToolEntry] = []
        clashes: dict[str, str] = {}
        for entry, changed in tools:
            owner = owners.setdefault(fold(changed.spec.name), entry)
            if owner is entry:
                distinct.append(changed)
            else:
                clashes[entry.spec.name] = _name_taken(self.name, entry.spec.name, changed.spec.name, owner.spec.name)
        for name in clashes.keys() - self._clashes:
            log.error("%s", clashes[name])
        self._clashes = frozenset(clashes)
        return distinct

    def _changed(self, entry: ToolEntry) -> ToolEntry | None:
        spec = entry.spec if self._change is None else self._change(entry.spec)
        if spec is None:
            return None
        return entry if spec is entry.spec else replace(entry, spec=spec, fingerprint="")

    def groups(self) -> frozenset[str]:
        """Return the groups that its tools may have, including those of the source."""
        return self.source.groups() | self._groups

    def state(self) -> SourceState:
        """Return the state of the source, with the ids that its tools have here."""
        state = self.source.state()
        if not (state.quarantined or state.changed):
            return state
        ids = {entry.qualified_id: self._id_of(entry) for entry in self.source.entries()}
        return replace(
            state,
            quarantined=frozenset([ids.get(known, known) for known in state.quarantined]),
            changed=frozenset([ids.get(known, known) for known in state.changed]),
            flagged=frozenset([ids.get(known, known) for known in state.flagged]),
        )

    def _id_of(self, entry: ToolEntry) -> str:
        changed = self._changed(entry)
        return entry.qualified_id if changed is None else changed.qualified_id

    def is_starting(self) -> bool:
        """Tell whether the first list of the source is still expected."""
        asked: Any = getattr(self.source, "is_starting", None)
        if asked is not None:
            return bool(asked())
        return self.source.state().status == "connecting" and not self.source.entries()

    async def listed(self, *, afresh: bool = False) -> None:
        """Wait until the source's tools are known; with `afresh`, ask it for them again."""
        listed: Any = getattr(self.source, "listed", None)
        if listed is not None:
            await listed(afresh=afresh)

    def resource_entries(self) -> Sequence[ToolEntry]:
        """Return the source's resources, prompts and completions, unchanged."""
        return self.source.resource_entries() if isinstance(self.source, OffersResources) else ()

    def serve_as(self, server_id: Callable[[], str], link_key: Callable[[], bytes]) -> None:
        """Pass this server's id and its secret for addresses on to the source."""
        if isinstance(self.source, LeadsElsewhere):
            self.source.serve_as(server_id, link_key)

    def way_of(self, entry: ToolEntry) -> tuple[str, ...]:
        """Return the ids of the servers behind a tool, the nearest first."""
        if not isinstance(self.source, LeadsElsewhere):
            return ()
        theirs = (
            known for known, changed in self._made.values() if changed and changed.qualified_id == entry.qualified_id
        )
        return self.source.way_of(next(theirs, entry))


def _checked(words: Sequence[Any], method: str) -> tuple[str, ...]:
    """Return the words given to a method.

    Raises:
        DefinitionError: one is not a text, e.g. a list.
    """
    for word in words:
        if not isinstance(word, str) or not word:
            raise DefinitionError(f"{method}({word!r}): each argument is one name or glob, e.g. {method}('a', 'b*').")
    return tuple(words)


def _is_any(globs: Iterable[str], spec: ToolSpec) -> bool:
    return any(matches(glob, (spec.name,)) for glob in globs)
