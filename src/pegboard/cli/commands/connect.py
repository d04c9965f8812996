"""connect: connect a person's account at the service behind a source."""

from __future__ import annotations

import asyncio
import secrets
import sys
import time
from typing import TYPE_CHECKING, Annotated
from urllib.parse import parse_qs, urlsplit

from cyclopts import Parameter

from pegboard.cli.command_error import CommandError, Exit
from pegboard.cli.loopback_redirect import loopback_redirect
from pegboard.cli.options import Options, SharedOptions
from pegboard.cli.person_connections import opened_connections, person_of_options
from pegboard.connections.connection_json import connection_json
from pegboard.connections.connection_records import ConnectFailedError, Connection, Person
from pegboard.egress.web_browser import open_in_browser
from pegboard.model.error import CallError

if TYPE_CHECKING:
    from pegboard.connections.connections import Connections

_SOURCE = "Name of the source, as the config declares it."
_NO_BROWSER = "Print the link, and open no browser."
_POLL_S = 0.5  # seconds between two checks whether the person is connected


async def connect_command(
    source: Annotated[str, Parameter(help=_SOURCE)],
    /,
    *,
    no_browser: Annotated[bool, Parameter(help=_NO_BROWSER, negative=())] = False,
    options: SharedOptions,
) -> Exit:
    """Connect your own account at a source, in a browser.

    Opens the page of the server if `connections.public_url` names one. Otherwise it goes to the issuer directly, and
    waits on this machine for the browser to come back.
    """
    async with opened_connections(options, source=source) as connections:
        person = person_of_options(options)
        opens = not no_browser and sys.stderr.isatty()
        if connections.public_url is None:
            connection = await _over_loopback(connections, person, source, options, opens=opens)
        else:
            connection = await _over_page(connections, person, source, options, opens=opens)
    if connection is None:
        raise CommandError("Nothing was connected in ten minutes. Run the command again.", code=Exit.REFUSED)
    if options.json:
        options.terminal.json(connection_json(connection))
    else:
        scopes = f" Scopes: {' '.join(connection.scopes)}." if connection.scopes else ""
        if connection.refused_scopes:
            scopes += f" Not granted: {' '.join(connection.refused_scopes)}."
        account = f" as {connection.account!r}" if connection.account else ""
        options.terminal.say(f"Connected: {person.user_id!r} to {source!r}{account}.{scopes}")
    return Exit.DONE


async def _over_loopback(
    connections: Connections, person: Person, source: str, options: Options, *, opens: bool
) -> Connection | None:
    """Connect with a redirect to this machine."""
    finished: list[Connection] = []
    refused: list[ConnectFailedError | CallError] = []
    async with loopback_redirect() as redirect:
        link = await connections.begin(person, source, redirect_uri=redirect.uri)
        ticket, browser = link.ticket.reveal(), secrets.token_urlsafe()
        asked = await connections.opened(ticket)
        url = await connections.agree(ticket, browser=browser)
        options.terminal.note(
            f"Connecting {person.user_id!r} to {source!r} ({asked.resource}) at {asked.issuer}. Scopes: "
            f"{' '.join(asked.scopes) or 'those that the service gives'}."
        )
        _show(url, options, opens=opens)

        async def settle(answer: dict[str, str]) -> str:
            try:
                finished.append(
                    await connections.finish(
                        answer["state"],
                        browser=browser,
                        code=answer.get("code", ""),
                        iss=answer.get("iss"),
                        error=answer.get("error", ""),
                        redirect_uri=redirect.uri,
                    )
                )
            except (ConnectFailedError, CallError) as error:
                refused.append(error)
                return str(error)
            return f"Connected: {source}. You can close this page."

        [state] = parse_qs(urlsplit(url).query)["state"]
        if not await redirect.answered(state, settle, within_s=link.expires_at - time.time()):
            return None
        # The browser must have the page before this process ends.
        await asyncio.sleep(0)
    if refused:
        raise refused[0]
    return finished[0]


async def _over_page(
    connections: Connections, person: Person, source: str, options: Options, *, opens: bool
) -> Connection | None:
    """Show the link to the server's page, and wait until the person has connected there."""
    before = {each.id for each in await connections.listed(person=person, source=source)}
    link = await connections.begin(person, source)
    _show(link.url, options, opens=opens)
    is_open = True
    while is_open:
        is_open = await connections.is_open(link.ticket.reveal())
        await asyncio.sleep(_POLL_S)
        for each in await connections.listed(person=person, source=source):
            if each.is_live and each.id not in before:
                return each
    return None


def _show(url: str, options: Options, *, opens: bool) -> None:
    options.terminal.note(f"Open this page in a browser:\n{url}")
    if opens:
        open_in_browser(url)
