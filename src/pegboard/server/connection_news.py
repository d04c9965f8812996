"""Connection news: tells the other workers at once when a person connects an account, or ends a connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegboard.connections.connection_records import Person
from pegboard.model.json_types import JSON
from pegboard.server.bus import Bus
from pegboard.server.connection_follower import ConnectionFollower

if TYPE_CHECKING:
    from pegboard.catalog import Catalog

_KIND = "connections.changed"


class ConnectionNews:
    """Reports changes of this worker to the others, and theirs to the connections of this one.

    Without it, or if news are lost, a worker learns of a disconnection when it reads the store again, after
    `TOKEN_KEPT_S`.
    """

    def __init__(self, catalog: Catalog, bus: Bus) -> None:
        self._catalog, self._bus = catalog, bus
        self._is_hearing = False
        bus.on(_KIND, self._hear)
        ConnectionFollower(catalog, self._tell)  # held by the catalog

    def _tell(self, person: Person, source: str, is_connected: bool) -> None:
        if not self._is_hearing:
            said = {"user": person.user_id, "space": person.space_id, "source": source, "is_connected": is_connected}
            self._bus.tell_soon(_KIND, said)

    def _hear(self, _worker: str, said: JSON) -> None:
        person, self._is_hearing = Person(user_id=said["user"], space_id=said["space"]), True
        try:
            if (connections := self._catalog.connections) is not None:
                connections.changed_elsewhere(person, said["source"], is_connected=said["is_connected"])
        finally:
            self._is_hearing = False
