"""Connections page: a person's accounts at other services; for operators, that connections exist, and never a token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from starlette.responses import RedirectResponse, Response

from pegboard.connections.connection_records import ConnectFailedError, Connection
from pegboard.server.connect_login import ConnectLogin
from pegboard.server.connection_access import ConnectionAccess, access_of
from pegboard.server.console.frame import frame
from pegboard.server.console.natural_order import natural_key
from pegboard.server.console.page_error import PageError
from pegboard.server.console.pages import SECURITY_HEADERS, Pages
from pegboard.server.console.shown_time import ago, until
from pegboard.server.console.table_file import Cell, iso_time, links_of, table_file
from pegboard.server.console.visit import Visit

TOOLS_SHOWN = 12  # names of tools of one service
NO_TOOLS: Mapping[str, Sequence[str]] = {}

_CONNECT_TOOL = "connect"
_COLUMNS = ("id", "person", "space", "service", "account", "issuer", "rights", "state", "since", "token_expires")


class Service(NamedTuple):
    """A service that people connect to, this person's connection, if there is one, and the tools that it gives."""

    source: str
    connection: ConnectionRow | None
    tools: Sequence[str]


class ConnectionRow(NamedTuple):
    """A connection with its times in words."""

    connection: Connection
    connected: str
    renewed: str
    expires: str


class ConnectionsPage:
    """`/console/connections` and below; it shows what `/v1/connections` does."""

    def __init__(self, pages: Pages, login: ConnectLogin) -> None:
        self._pages, self._login = pages, login

    async def list(self, visit: Visit) -> Response:
        """Show the services with the person's own connections, and to operators those of others."""
        access = _access(visit)
        listed = [] if access is None or "format" not in visit.query else await access.listed()
        file = table_file(visit, "connections", _COLUMNS, lambda: [_cells(one) for one in listed])
        return file or await self._list(visit)

    async def connect(self, visit: Visit) -> Response:
        """Begin to connect: go on to the page that asks."""
        access = _access(visit)
        if access is None or access.person is None:
            raise PageError(403, "Not possible", "Only a person with a user can connect; your credential names none.")
        try:
            link = await access.connections.begin_awaited(access.person, visit.form.get("source", ""))
        except ConnectFailedError as error:
            raise PageError(404 if error.failure == "unknown_source" else 422, "Not connected", str(error)) from None
        if _origin(link.url) == _origin(visit.origin):
            response = RedirectResponse(link.url, status_code=303, headers=SECURITY_HEADERS)
            self._login.remember(
                response,
                ticket=link.ticket.reveal(),
                person=access.person,
                public_url=access.connections.public_url or "",
            )
            return response
        # Browsers do not follow the redirect of a form to another origin.
        return await self._list(visit, link=link.url)

    async def disconnect(self, visit: Visit) -> Response:
        """Delete a connection, and revoke its tokens at the issuer."""
        access = _access(visit)
        found = None if access is None else await access.connection(visit.path["id"])
        ended = None if access is None or found is None else await access.connections.disconnect(found.id)
        if ended is None:
            raise PageError(404, "Not found", f"There is no connection {visit.path['id']!r}.")
        done = "revoked" if ended.is_revoked else "kept"
        url = visit.url("/connections", done=done, of=ended.connection.source)
        return RedirectResponse(url, status_code=303, headers=SECURITY_HEADERS)

    async def _list(self, visit: Visit, *, link: str = "") -> Response:
        access, now = _access(visit), visit.now()
        connections = visit.gateway.catalog.connections
        services, others = list[Service](), list[ConnectionRow]()
        if access is not None:
            rows = [_row(one, now) for one in await access.listed()]
            own = {row.connection.source: row for row in reversed(rows) if row.connection.person == access.person}
            others = [row for row in rows if row.connection.person != access.person]
            if access.person is not None:
                tools = await _tools(visit) if any(row.connection.is_live for row in own.values()) else NO_TOOLS
                services = [
                    Service(name, own.get(name), tools.get(name, ()))
                    for name in sorted({*access.connections.sources, *own}, key=natural_key)
                ]
        values = {
            "has_store": connections is not None and bool(connections.sources), "services": services,
            "others": others, "has_user": access is not None and access.person is not None, "link": link,
            "files": links_of(visit, "/connections"), "tools_shown": TOOLS_SHOWN,
            "done": visit.query.get("done", ""), "of": visit.query.get("of", ""),
        }  # fmt: skip
        return self._pages.page("connections.html", {**frame(visit, "connections"), **values})


async def _tools(visit: Visit) -> Mapping[str, Sequence[str]]:
    """Return the names of the tools that the person may call, by source, in natural order.

    The first list after connecting still has the tool that connects; the second one, as all later ones, does not.
    """
    found = dict[str, list[str]]()
    if visit.acts_as is not None:
        view = visit.view(visit.acts_as)
        entries = await view.atools()
        if any(
            entry.spec.name == _CONNECT_TOOL and entry.account and not view.connects_first(entry) for entry in entries
        ):
            entries = await visit.view(visit.acts_as).atools()
        for entry in entries:
            found.setdefault(entry.source or "", []).append(entry.wire_name)
    return {source: sorted(names, key=natural_key) for source, names in found.items()}


def _access(visit: Visit) -> ConnectionAccess | None:
    """Return the connections of the logged-in person, also when they look through another caller."""
    ctx = visit.gateway.context(visit.session_of)
    return access_of(visit.gateway, ctx, visit.person.space)


def _cells(one: Connection) -> Sequence[Cell]:
    expires = None if one.expires_at is None else iso_time(one.expires_at)
    return (
        one.id, one.person.user_id, one.person.space_id, one.source, one.account, one.issuer, " ".join(one.scopes),
        "connected" if one.is_live else "ended", iso_time(one.created_at), expires,
    )  # fmt: skip


def _row(connection: Connection, now: float) -> ConnectionRow:
    expires = "" if connection.expires_at is None else until(connection.expires_at, now)
    return ConnectionRow(connection, ago(connection.created_at, now), ago(connection.updated_at, now), expires)


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
