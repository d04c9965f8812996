"""Connection access: the connections that one caller may see and end, for every door over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from pegboard.connections.connection_records import Connection, Person, person_of
from pegboard.model.context import ToolContext
from pegboard.server.gateway import Gateway
from pegboard.server.health import OPERATOR

if TYPE_CHECKING:
    from pegboard.connections.connections import Connections


class ConnectionAccess(Struct, frozen=True, kw_only=True):
    """The connections of a person; for an operator those of everybody, in the operator's own space if it has one.

    `person` is `None` for a caller without a user, who has no connections.
    """

    connections: Connections
    person: Person | None
    is_operator: bool
    space: str | None

    async def listed(self) -> list[Connection]:
        """Return the connections that this caller may see, the newest first.

        Raises:
            CallError: the store does not answer.
        """
        return [one for one in await self.connections.listed() if self._may_see(one)]

    async def connection(self, connection_id: str) -> Connection | None:
        """Return one connection; `None` for one that this caller may not see, as for an unknown one.

        Raises:
            CallError: the store does not answer.
        """
        found = await self.connections.shown(connection_id)
        return found if found is not None and self._may_see(found) else None

    def _may_see(self, connection: Connection) -> bool:
        is_within = self.is_operator and self.space in (None, connection.person.space_id)
        return is_within or connection.person == self.person


def access_of(gateway: Gateway, ctx: ToolContext, space: str | None) -> ConnectionAccess | None:
    """Return the connections a caller may see; `None` if none exist, or the caller has neither a user nor the role.

    `space` is the space of the caller's credential.
    """
    connections, person = gateway.catalog.connections, person_of(ctx.caller)
    is_operator = OPERATOR in ctx.roles
    if connections is None or (person is None and not is_operator):
        return None
    return ConnectionAccess(connections=connections, person=person, is_operator=is_operator, space=space)
