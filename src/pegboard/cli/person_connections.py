"""Person connections: opens the store of connections for a command, and names the person that it acts as."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from pegboard.cli.command_error import CommandError, Exit, refused
from pegboard.cli.options import Options
from pegboard.cli.project import CLI_STOP_GRACE_S, load
from pegboard.connections.connection_records import ConnectFailedError, Person
from pegboard.core.ports import StartsSlowly
from pegboard.model.error import CallError

if TYPE_CHECKING:
    from pegboard.connections.connections import Connections


@asynccontextmanager
async def opened_connections(options: Options, *, source: str = "") -> AsyncGenerator[Connections]:
    """Load the config without its sources, and yield the connections of people; refusals become command errors.

    `source` is read if only its document says where people connect.

    Raises:
        CommandError: the config connects nobody; connecting failed; the store does not answer.
    """
    project = load(options)
    connections = project.catalog.connections
    if connections is None:
        raise CommandError(
            f"{str(project.config.path)!r} connects nobody. Set `connections: {{key: …}}`, and `auth: {{mode: user}}` "
            "at a source.",
            kind="no_connections",
        )
    try:
        described = project.catalog.registry.sources.get(source)
        if described is not None and source not in connections.sources and isinstance(described, StartsSlowly):
            await described.start()
            await described.first_listed()
        yield connections
    except ConnectFailedError as error:
        raise CommandError(str(error), kind=error.failure, code=Exit.REFUSED) from None
    except CallError as error:
        raise refused(error) from None
    finally:
        await project.catalog.close(grace_s=CLI_STOP_GRACE_S)


def person_of_options(options: Options) -> Person:
    """Return the person of `--as`.

    Raises:
        CommandError: it names no user.
    """
    identity = options.identity
    if identity.user is None:
        raise CommandError("Say whose account it is: --as user=ann, or PEGBOARD_AS=user=ann.", kind="no_user")
    return Person(user_id=identity.user, space_id=identity.space)
