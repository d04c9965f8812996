"""ConnectionRoutes: a person's accounts at other services: list them, get a link to connect, disconnect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegboard.connections.connection_json import connection_json, iso_time
from pegboard.connections.connection_records import ConnectFailedError, Connection
from pegboard.model.json_types import JSON
from pegboard.server.connection_access import ConnectionAccess, access_of
from pegboard.server.http_api.api_app import Api, ApiRequest
from pegboard.server.http_api.problem_details import ProblemError, answered, not_found
from pegboard.server.http_api.responses import Reply, json_reply

if TYPE_CHECKING:
    from pegboard.connections.connections import Connections


class ConnectionRoutes:
    """GET and POST /v1/connections, GET and DELETE /v1/connections/{id}.

    A caller with a user sees and ends their own connections. The role `operator` sees those of everybody, in its own
    space if it has one, and ends them; nobody sees a token. All others get the answer for an unknown path.
    """

    def __init__(self, api: Api) -> None:
        self._api = api

    async def list(self, request: ApiRequest) -> Reply:
        """List the connections of the caller, and the services to connect; for an operator, those of everybody."""
        access, whose = self._access(request), request.query.get("user")
        person = access.person
        if whose is not None and not access.is_operator and (person is None or whose != person.user_id):
            raise not_found("Not found")
        visible = await answered(access.listed())
        if whose is not None:
            visible = [each for each in visible if each.person.user_id == whose]
        live = {each.source for each in visible if each.person == person and each.is_live}
        sources: list[JSON] = [
            {"source": name, "connected": name in live} for name in sorted(access.connections.sources)
        ]
        listed: JSON = {"connections": [connection_json(each) for each in visible]}
        return json_reply(listed if person is None else {**listed, "sources": sources})

    async def begin(self, request: ApiRequest) -> Reply:
        """Answer with a link where the caller connects to a source, once."""
        access = self._access(request)
        body = await self._api.body(request)
        source = body.get("source")
        if set(body) != {"source"} or not isinstance(source, str):
            raise ProblemError(422, "invalid_arguments", 'Name the source to connect: {"source": "NAME"}.')
        if access.person is None:
            raise ProblemError(403, "forbidden", "Only a caller with a user can connect; this credential names none.")
        try:
            link = await answered(access.connections.begin(access.person, source))
        except ConnectFailedError as error:
            status = 404 if error.failure == "unknown_source" else 422
            raise ProblemError(status, "not_found" if status == 404 else "invalid_arguments", str(error)) from None
        shown: JSON = {"source": source, "url": link.url, "expiresAt": iso_time(link.expires_at)}
        return json_reply(shown, status=201)

    async def show(self, request: ApiRequest) -> Reply:
        """Answer with one connection."""
        return json_reply(connection_json((await self._connection(request))[1]))

    async def end(self, request: ApiRequest) -> Reply:
        """Delete a connection, and revoke its tokens at the issuer."""
        connections, connection = await self._connection(request)
        who = request.principal.identity
        ended = await answered(connections.disconnect(connection.id, by=who.user or who.key or who.credential))
        if ended is None:
            raise _unknown(connection.id)
        revoked: JSON = {"revoked": ended.is_revoked, **({"reason": ended.reason} if ended.reason else {})}
        return json_reply({**connection_json(ended.connection), "state": "disconnected", **revoked})

    # -- checks

    def _access(self, request: ApiRequest) -> ConnectionAccess:
        """Return the connections that the caller may see; a refusal if there can be none."""
        access = access_of(self._api.gateway, self._api.context(request), request.principal.identity.space)
        if access is None:
            raise not_found("Not found")
        return access

    async def _connection(self, request: ApiRequest) -> tuple[Connections, Connection]:
        access, connection_id = self._access(request), request.path["id"]
        connection = await answered(access.connection(connection_id))
        if connection is None:
            raise _unknown(connection_id)
        return access.connections, connection


def _unknown(connection_id: str) -> ProblemError:
    return not_found(f"There is no connection {connection_id[:100]!r}.")
