"""ConnectionRoutes: a person's accounts at other services: list them, get a link to connect, disconnect."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, TypeVar

from pegboard.connections.connection_json import connection_json, iso_time
from pegboard.connections.connection_records import ConnectFailedError, Connection, Person, person_of
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON
from pegboard.server.health import OPERATOR
from pegboard.server.http_api.api_app import Api, ApiRequest
from pegboard.server.http_api.problem_details import STATUS_OF_KIND, ProblemError, not_found
from pegboard.server.http_api.responses import Reply, json_reply

if TYPE_CHECKING:
    from pegboard.connections.connections import Connections

T = TypeVar("T")


class ConnectionRoutes:
    """GET and POST /v1/connections, GET and DELETE /v1/connections/{id}.

    A caller with a user sees and ends their own connections. The role `operator` sees those of everybody, in its own
    space if it has one, and ends them; nobody sees a token. All others get the answer for an unknown path.
    """

    def __init__(self, api: Api) -> None:
        self._api = api

    async def list(self, request: ApiRequest) -> Reply:
        """List the connections of the caller, and the services to connect; for an operator, those of everybody."""
        connections, person = self._open(request)
        whose = request.query.get("user")
        if whose is not None and not self._is_operator(request) and (person is None or whose != person.user_id):
            raise not_found("Not found")
        found = [one for one in await _answered(connections.listed()) if self._may_see(request, person, one)]
        if whose is not None:
            found = [one for one in found if one.person.user_id == whose]
        live = {one.source for one in found if one.person == person and one.is_live}
        sources: list[JSON] = [{"source": name, "connected": name in live} for name in sorted(connections.sources)]
        listed: JSON = {"connections": [connection_json(one) for one in found]}
        return json_reply(listed if person is None else {**listed, "sources": sources})

    async def begin(self, request: ApiRequest) -> Reply:
        """Answer with a link at which the caller connects to a source, once."""
        connections, person = self._open(request)
        body = await self._api.body(request)
        source = body.get("source")
        if set(body) != {"source"} or not isinstance(source, str):
            raise ProblemError(422, "invalid_arguments", 'Name the source to connect: {"source": "NAME"}.')
        if person is None:
            raise ProblemError(403, "forbidden", "Only a caller with a user can connect; this credential names none.")
        try:
            link = await _answered(connections.begin(person, source))
        except ConnectFailedError as error:
            status = 404 if error.failure == "unknown_source" else 422
            raise ProblemError(status, "not_found" if status == 404 else "invalid_arguments", str(error)) from None
        shown: JSON = {"source": source, "url": link.url, "expiresAt": iso_time(link.expires_at)}
        return json_reply(shown, status=201)

    async def show(self, request: ApiRequest) -> Reply:
        """Answer with one connection."""
        return json_reply(connection_json((await self._found(request))[1]))

    async def end(self, request: ApiRequest) -> Reply:
        """Delete a connection, and revoke its tokens at the issuer."""
        connections, found = await self._found(request)
        ended = await _answered(connections.disconnect(found.id))
        if ended is None:
            raise _unknown(found.id)
        revoked: JSON = {"revoked": ended.is_revoked, **({"reason": ended.reason} if ended.reason else {})}
        return json_reply({**connection_json(ended.connection), "state": "disconnected", **revoked})

    # -- checks

    def _open(self, request: ApiRequest) -> tuple[Connections, Person | None]:
        """Return the connections and the caller's person, if the caller may see any."""
        connections = self._api.gateway.catalog.connections
        person = person_of(self._api.context(request).caller) if connections is not None else None
        if connections is None or (person is None and not self._is_operator(request)):
            raise not_found("Not found")
        return connections, person

    async def _found(self, request: ApiRequest) -> tuple[Connections, Connection]:
        connections, person = self._open(request)
        connection_id = request.path["id"]
        found = await _answered(connections.shown(connection_id))
        if found is None or not self._may_see(request, person, found):
            raise _unknown(connection_id)
        return connections, found

    def _may_see(self, request: ApiRequest, person: Person | None, connection: Connection) -> bool:
        space = request.principal.identity.space
        is_within = self._is_operator(request) and space in (None, connection.person.space_id)
        return is_within or connection.person == person

    def _is_operator(self, request: ApiRequest) -> bool:
        return OPERATOR in self._api.context(request).roles


def _unknown(connection_id: str) -> ProblemError:
    return not_found(f"There is no connection {connection_id[:100]!r}.")


async def _answered(asked: Awaitable[T]) -> T:
    try:
        return await asked
    except CallError as error:
        kind = error.error.kind
        headers = {"retry-after": "1"} if STATUS_OF_KIND[kind] in (429, 503) else None
        raise ProblemError(STATUS_OF_KIND[kind], kind, error.error.message, headers=headers) from None
