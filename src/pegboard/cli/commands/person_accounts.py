"""connections: list, show and end the connections of people to services."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from pegboard.cli.command_error import CommandError, Exit
from pegboard.cli.options import SharedOptions
from pegboard.cli.person_connections import opened_connections
from pegboard.cli.recorded_change import person
from pegboard.cli.terminal import Column
from pegboard.connections.connection_json import connection_json
from pegboard.connections.connection_records import Connection

if TYPE_CHECKING:
    from pegboard.connections.connections import Connections

_USER = "Only connections of this user."
_NAME = "Id of the connection, as `pegboard connections ls` shows it, or the name of a source with --user."
OfUser = Annotated[str | None, Parameter(name="--user", help=_USER)]
Name = Annotated[str, Parameter(help=_NAME)]
_COLUMNS = (
    Column(head="Id", style="bold", is_id=True),
    Column(head="User"),
    Column(head="Source"),
    Column(head="State"),
    Column(head="Scopes"),
    Column(head="Issuer"),
    Column(head="Since"),
)


async def ls_command(*, user: OfUser = None, options: SharedOptions) -> None:
    """List the connections of people, without their tokens."""
    async with opened_connections(options) as connections:
        listed = await _listed(connections, user)
    if options.json:
        options.terminal.json({"connections": [connection_json(each) for each in listed]})
        return
    if listed:
        options.terminal.table(_COLUMNS, [_cells(each) for each in listed])
        options.terminal.say("")
    options.terminal.say(f"{len(listed)} connection{'' if len(listed) == 1 else 's'}.")


async def show_command(name: Name, /, *, user: OfUser = None, options: SharedOptions) -> None:
    """Print a connection, without its tokens."""
    async with opened_connections(options) as connections:
        shown = connection_json(await _connection_named(connections, name, user))
    if options.json:
        options.terminal.json(shown)
    else:
        options.terminal.pairs([(key, _text(value)) for key, value in shown.items()])


async def disconnect_command(name: Name, /, *, user: OfUser = None, options: SharedOptions) -> None:
    """Delete a connection, and revoke its tokens at the issuer."""
    async with opened_connections(options) as connections:
        found = await _connection_named(connections, name, user)
        ended = await connections.disconnect(found.id, by=person())
    if ended is None:
        raise _unknown(name)
    if options.json:
        shown = {**connection_json(ended.connection), "state": "disconnected", "revoked": ended.is_revoked}
        options.terminal.json({**shown, "reason": ended.reason} if ended.reason else shown)
        return
    end = f"Its tokens were deleted, not revoked: {ended.reason}"
    if ended.is_revoked:
        end = "The issuer revoked its tokens"
    options.terminal.say(f"Disconnected {found.person.user_id!r} from {found.source!r}. {end.rstrip('.')}.")


async def _listed(connections: Connections, user: str | None) -> Sequence[Connection]:
    found = await connections.listed()
    return [each for each in found if user is None or each.person.user_id == user]


async def _connection_named(connections: Connections, name: str, user: str | None) -> Connection:
    """Return the connection with an id, or the one of a user to a source."""
    by_id = await connections.shown(name)
    if by_id is not None and user in (None, by_id.person.user_id):
        return by_id
    found = [] if user is None else [each for each in await _listed(connections, user) if each.source == name]
    if len(found) > 1:
        ids = ", ".join(each.id for each in found)
        raise CommandError(f"{user!r} has several connections to {name!r}: {ids}. Name one by its id.")
    if not found:
        raise _unknown(name)
    return found[0]


def _unknown(name: str) -> CommandError:
    text = f"There is no connection {name[:100]!r}. See `pegboard connections ls`; the name of a source needs --user."
    return CommandError(text, kind="connection_unknown", code=Exit.REFUSED)


def _cells(connection: Connection) -> tuple[str, ...]:
    person = connection.person
    who = person.user_id if person.space_id is None else f"{person.user_id}, {person.space_id}"
    state = "connected" if connection.is_live else "ended"
    since = datetime.fromtimestamp(connection.created_at, tz=UTC).isoformat(" ", "minutes")
    source = f"{connection.source} as {connection.account}" if connection.account else connection.source
    return connection.id, who, source, state, " ".join(connection.scopes), connection.issuer, since


def _text(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else "" if value is None else str(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType] - JSON
