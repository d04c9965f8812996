"""Target: the list of a view in one target's form, as values or as bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from pegboard.base.model import JSON, ToolEntry
from pegboard.core.registry import Snapshot
from pegboard.core.view import View

_MAX_LISTS = 256


class Target:
    """One target: how it wants a tool. Bytes are kept per tool and per visible set, for the life of a snapshot."""

    def __init__(self, name: str, draw: Callable[[ToolEntry], JSON]) -> None:
        self.name, self._draw = name, draw

    def __call__(self, view: View) -> list[JSON]:
        """Return the visible tools as values; yours to change."""
        return orjson.loads(self.to_bytes(view))

    def to_bytes(self, view: View) -> bytes:
        """Return the visible tools as a JSON array."""
        snapshot, tools = view.snapshot, view.tools()
        # A list that nothing changed for this caller is the snapshot's own: one id stands for all of it.
        is_kept = tools is snapshot.selected(view.selection, view.ctx.policy)
        key = (self.name, id(tools) if is_kept else tuple(map(id, tools)))
        lists: dict[Any, tuple[tuple[ToolEntry, ...], bytes]] = snapshot.cache.setdefault("lists", {})
        found = lists.get(key)
        if found is not None:
            return found[1]
        joined = b"[" + b",".join(self.tool_bytes(entry, snapshot) for entry in tools) + b"]"
        if all(entry.builder is None and snapshot.owns(entry) for entry in tools):
            # The entries are kept beside the bytes, so that their ids cannot come to mean others.
            if len(lists) >= _MAX_LISTS:
                lists.clear()
            lists[key] = (tools, joined)
        return joined

    def tool_bytes(self, entry: ToolEntry, snapshot: Snapshot) -> bytes:
        """Return one tool as JSON."""
        if not snapshot.owns(entry):
            return orjson.dumps(self._draw(entry))
        key = (self.name, entry.qualified_id)
        found = snapshot.cache.get(key)
        if found is None:
            found = snapshot.cache[key] = orjson.dumps(self._draw(entry))
        return found
