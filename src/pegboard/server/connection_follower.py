"""Connection follower: reports changes of people's accounts, also after a reload has replaced their store."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pegboard.catalog import Catalog
    from pegboard.connections.connections import Connections, OnChange


class ConnectionFollower:
    """Calls `on_change` after somebody of a catalog connected or disconnected, until it is closed.

    Args:
        catalog: has the connections, if it connects anybody; a reload of the config may bring others.
        on_change: see `Connections.subscribe`.
    """

    def __init__(self, catalog: Catalog, on_change: OnChange) -> None:
        self._catalog, self._on_change = catalog, on_change
        self._followed: Connections | None = None
        self._end: Callable[[], None] | None = None
        self._end_catalog = catalog.subscribe(self._follow)
        self._follow()

    def _follow(self) -> None:
        self._switch(self._catalog.connections)

    def _switch(self, connections: Connections | None) -> None:
        if connections is self._followed:
            return
        if self._end is not None:
            self._end()
        self._followed = connections
        self._end = None if connections is None else connections.subscribe(self._on_change)

    def close(self) -> None:
        """Stop following."""
        self._end_catalog()
        self._switch(None)
