"""Exporter: the tools of a view in one target's form, as values or bytes, and a model's arguments converted back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress, count
from operator import not_
from typing import Any, NamedTuple, TypeVar

from pegboard.core.bounded_cache import BoundedCache
from pegboard.core.entry_change import picked, places_of
from pegboard.core.json_reader import parse_json
from pegboard.core.json_text import json_bytes, json_value
from pegboard.core.selections import SharedTools
from pegboard.core.snapshot import Snapshot
from pegboard.core.view import View
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON, JSONValue
from pegboard.model.tool import ToolEntry
from pegboard.providers.compile import Rewritten, name_pattern, rewritten, target_name
from pegboard.providers.targets import dialect_of

PROVIDER_LISTS = 256  # exported lists kept for one snapshot

# Converts a tool, with the target's name and schema for it, to the target's form.
WireForm = Callable[[ToolEntry, str, JSON], JSON]
T = TypeVar("T")


class _ExportedTool(NamedTuple):
    """One tool for one target."""

    name: str
    as_json: bytes
    schema: Rewritten


class Exporter:
    """Exports tools to one target. Bytes are cached per tool and per visible set, for the life of a snapshot.

    `kept_as` separates the cached bytes of two forms of one target.
    """

    def __init__(self, name: str, wire_form: WireForm, *, kept_as: str = "") -> None:
        self.name, self._wire_form, self._kept_as = name, wire_form, kept_as or name

    def __call__(self, view: View) -> list[JSON]:
        """Return the visible tools as values that the caller may change."""
        return json_value(self.to_bytes(view))

    def to_bytes(self, view: View, *, within: Snapshot | None = None) -> bytes:
        """Return the visible tools as a JSON array. `within`: the snapshot to use, if the caller has one."""
        return self._cached(view, within or view.snapshot, "lists", _as_array)

    def size_bytes(self, view: View, *, within: Snapshot | None = None) -> int:
        """Return the length of `to_bytes` without building it, since it may be megabytes."""
        return self._cached(view, within or view.snapshot, "sizes", _size_of_array)

    def _cached(self, view: View, snapshot: Snapshot, kind: str, make: Callable[[Sequence[bytes]], T]) -> T:
        """Return a value made from the visible tools as JSON; cached for callers with the same tools."""
        tools = view.tools(within=snapshot)
        # Without tools made for this caller, the tuple belongs to the snapshot, so its id is a cache key.
        chosen = tools.chosen if type(tools) is SharedTools else None
        key = (self._kept_as, tuple(map(id, tools)) if chosen is None else id(tools))
        cache: BoundedCache[Any, tuple[tuple[ToolEntry, ...], T]] = snapshot.cache.setdefault(
            kind, BoundedCache(max_entries=PROVIDER_LISTS)
        )
        known = cache.get(key)
        if known is not None:
            return known[1]
        value = make(self._each(tools, snapshot))
        if chosen is not None or all(entry.builder is None and snapshot.owns(entry) for entry in tools):
            # The entries are stored with the value, so that their ids cannot be reused.
            cache.remember(key, (tools, value))
        return value

    def _each(self, tools: Sequence[ToolEntry], snapshot: Snapshot) -> Sequence[bytes]:
        """Return each tool of a view as JSON."""
        if type(tools) is SharedTools:
            return self._chosen_bytes(snapshot, tools.chosen)
        return [self.tool_bytes(entry, snapshot) for entry in tools]

    def _chosen_bytes(self, snapshot: Snapshot, chosen: bytes) -> Sequence[bytes]:
        """Return the chosen tools of a snapshot as JSON, in order; each is rendered on first use."""
        drawn = snapshot.open_column(("drawn", self._kept_as))
        names = self._renamed(snapshot)
        if names and not snapshot.cache.get(("drawn", self._kept_as)):
            # Such a name depends on the other tools, but the column is kept per entry.
            for place in compress(count(), map(not_, self._fitting(snapshot))):
                drawn.known[place] = 0
            snapshot.cache["drawn", self._kept_as] = True
        if unknown := int.from_bytes(chosen) & ~int.from_bytes(drawn.known):
            for place in places_of(1, unknown.to_bytes(len(chosen))):
                entry = snapshot.entries[place]
                # Most were rendered for the previous snapshot; a function call for each would double the cost.
                name = names.get(entry.wire_name, entry.wire_name)
                known: _ExportedTool | None = entry.drawn.get(self._kept_as)
                drawn.fill(place, (known if known and known.name == name else self._drawn(entry, name)).as_json)
        return picked(drawn.values, chosen)

    def tool_bytes(self, entry: ToolEntry, snapshot: Snapshot) -> bytes:
        """Return one tool as JSON."""
        return self._exported(entry, snapshot).as_json

    def report(self, view: View) -> list[JSON]:
        """Return the losses of the visible tools, in their order."""
        return [
            {"tool": entry.wire_name, **loss._asdict()}
            for entry in view.tools()
            for loss in self._exported(entry, view.snapshot).schema.losses
        ]

    def wire_name(self, view: View, name: str) -> str:
        """Return the wire name of a visible tool for its exported name; unknown names unchanged."""
        if name in view:
            return name
        snapshot = view.snapshot
        return next((entry.wire_name for entry in view.tools() if self._name(entry, snapshot) == name), name)

    def decode(self, view: View, name: str, args: JSONValue) -> JSONValue:
        """Convert a model's arguments to the tool's own schema."""
        entry = view[self.wire_name(view, name)]
        if isinstance(args, str | bytes):
            text = args if isinstance(args, bytes) else args.encode("utf-8", "surrogatepass")
            try:
                # Several model servers send empty text for a call without arguments.
                args = parse_json(text) if text.strip() else {}
            except CallError:
                return text
        restore = self._exported(entry, view.snapshot).schema.restore
        return args if restore is None else restore(args)

    def _exported(self, entry: ToolEntry, snapshot: Snapshot) -> _ExportedTool:
        return self._drawn(entry, self._name(entry, snapshot))

    def _drawn(self, entry: ToolEntry, name: str) -> _ExportedTool:
        cached: _ExportedTool | None = entry.drawn.get(self._kept_as)
        if cached is not None and cached.name == name:
            return cached
        schema = rewritten(self.name, entry.spec.input_schema)
        exported = _ExportedTool(name, json_bytes(self._wire_form(entry, name, schema.schema)), schema)
        entry.drawn[self._kept_as] = exported
        return exported

    def _name(self, entry: ToolEntry, snapshot: Snapshot) -> str:
        # Built tools are not part of the snapshot.
        renamed = self._renamed(snapshot).get(entry.wire_name)
        return renamed or target_name(self.name, entry.wire_name, entry.qualified_id)

    def _renamed(self, snapshot: Snapshot) -> dict[str, str]:
        key = ("names", self.name)
        names: dict[str, str] | None = snapshot.cache.get(key)
        if names is None:
            names = snapshot.cache[key] = self._names(snapshot)
        return names

    def _fitting(self, snapshot: Snapshot) -> list[bool]:
        """Tell for each tool whether the target accepts its wire name."""
        fits = name_pattern(self.name).fullmatch
        return snapshot.column(("fitting", self.name), lambda entry: fits(entry.wire_name) is not None)

    def _names(self, snapshot: Snapshot) -> dict[str, str]:
        """Return unique names for the tools whose wire names the target does not accept."""
        renamed = [*compress(snapshot.entries, map(not_, self._fitting(snapshot)))]
        taken = {entry.wire_name for entry in snapshot.entries} if renamed else set[str]()
        names: dict[str, str] = {}
        for entry in sorted(renamed, key=lambda item: item.qualified_id):
            identity = entry.qualified_id
            name = target_name(self.name, entry.wire_name, identity)
            while name in taken:
                identity += "'"
                name = target_name(self.name, entry.wire_name, identity)
            names[entry.wire_name] = name
            taken.add(name)
        return names


def _as_array(each: Sequence[bytes]) -> bytes:
    """Return the elements as one JSON array; copied only once, since ten thousand tools are megabytes."""
    if not each:
        return b"[]"
    parts = [*each]
    parts[0] = b"[" + parts[0]
    parts[-1] += b"]"
    return b",".join(parts)


def _size_of_array(each: Sequence[bytes]) -> int:
    return sum(map(len, each)) + max(len(b"["), len(each)) + len(b"]")


class Exporters(dict[str, Exporter]):
    """The exporters by target; the error for an unknown target lists the known ones."""

    def __init__(self, *exporters: Exporter) -> None:
        super().__init__((exporter.name, exporter) for exporter in exporters)

    def __missing__(self, name: str) -> Exporter:
        dialect_of(name)
        raise KeyError(name)
