"""Servers behind: the servers that the items of a Pegboard's list come through."""

from __future__ import annotations

from pegboard.model.hops import HOPS, HOPS_KEY, path_of
from pegboard.model.json_types import JSON, is_object


class ServersBehind:
    """Collects the paths to the items of one list, from its pages; empty for a server that is not a Pegboard.

    `own_id` is our server's id. A server can use this only to make us leave out its own items.
    """

    def __init__(self, own_id: str = "", *, key: str = "tools") -> None:
        self._own_id, self._key, self.server_id = own_id, key, ""
        self._ways: JSON = {}

    def take(self, meta: object) -> None:
        """Read the `_meta` of one page."""
        hops = meta.get(HOPS_KEY) if is_object(meta) else None
        if not is_object(hops) or (server := path_of([hops.get("server")])) is None:
            return
        self.server_id = server[0]
        ways = hops.get(self._key)
        if is_object(ways):
            self._ways.update(ways)

    def of(self, name: str) -> tuple[str, ...]:
        """Return the path to an item, the nearest server first; empty if unknown or unreadable."""
        if not self.server_id:
            return ()
        further = path_of(self._ways[name]) if name in self._ways else ()
        return () if further is None else (self.server_id, *further)

    def fault_of(self, name: str) -> str | None:
        """Return why an item is left out: it leads back to us, or through too many servers."""
        if not self.server_id:
            return None
        way = self.of(name)
        if not way:
            return "the servers behind it are not named in a way that can be read"
        if self._own_id in way:
            return "it leads back to this server"
        return f"more than {HOPS} servers are behind it" if len(way) > HOPS else None
