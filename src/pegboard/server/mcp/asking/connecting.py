"""Connecting: send the user of a client to the page where they connect an account, and wait until they have."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pegboard.connections.connection_records import Person, person_of
from pegboard.connections.limits import FLOW_S
from pegboard.core.digests import digest
from pegboard.model.caller import Caller
from pegboard.model.error import CallError, ToolError
from pegboard.server.mcp.asking.client_channel import ClientChannel, url_question
from pegboard.server.mcp.asking.input_required import InputRequiredChannel
from pegboard.server.mcp.asking.unanswered_requests import SessionChannel
from pegboard.server.mcp.protocol.jsonrpc import URL_ELICITATION_REQUIRED, RpcError

if TYPE_CHECKING:
    from pegboard.connections.connections import Connections

CONNECT_WAIT_S = 45.0  # how long a repeated call waits for its person, in seconds; many clients give up after 60
CONNECT_POLL_S = 0.25  # seconds between two checks whether a link was used


def ask_to_connect(channel: ClientChannel, error: ToolError, caller: Caller, connections: Connections | None) -> None:
    """Ask the user to connect, if the client can open a URL; otherwise do nothing, and the refusal has the link.

    A client of 2025-11-25 is told when they have connected, if that happens in this process or is reported to it.

    Raises:
        RpcError: the question, for a client of 2025-11-25. Source: MCP 2025-11-25, elicitation, URL mode.
    """
    source, url = error.details.get("source"), error.details.get("url")
    if not isinstance(source, str) or not isinstance(url, str) or not channel.can_open_urls:
        return
    message = f"{source!r} needs an account of yours. Open this page to connect it."
    if isinstance(channel, InputRequiredChannel):
        channel.ask_to_connect(source, message, url)
    elif isinstance(channel, SessionChannel):
        elicitation_id, person = digest({"url": url})[:32], person_of(caller)
        if person is not None and connections is not None:
            _tell_when_connected(channel, elicitation_id, connections, person, source)
        question = {**url_question(message, url)["params"], "elicitationId": elicitation_id}
        raise RpcError(URL_ELICITATION_REQUIRED, error.message, {"elicitations": [question]})


def _tell_when_connected(
    channel: SessionChannel, elicitation_id: str, connections: Connections, person: Person, source: str
) -> None:
    """Tell the client that its user has connected, for as long as the link is valid."""
    if elicitation_id in channel.awaited:
        return

    def on_change(changed: Person, changed_source: str, is_connected: bool) -> None:
        if is_connected and (changed, changed_source) == (person, source):
            end()
            channel.completed(elicitation_id)

    def end() -> None:
        timer.cancel()
        unsubscribe()
        channel.awaited.discard(elicitation_id)

    channel.awaited.add(elicitation_id)
    unsubscribe = connections.subscribe(on_change)
    timer = asyncio.get_running_loop().call_later(FLOW_S, end)


async def until_used(connections: Connections | None, urls: Sequence[str]) -> None:
    """Wait until a person has used links, for at most `CONNECT_WAIT_S`.

    A client repeats a call once its user has agreed to open the page, which is before they have logged in there.
    """
    if connections is None:
        return
    tickets = [url.rpartition("/")[2] for url in urls]
    try:
        async with asyncio.timeout(CONNECT_WAIT_S):
            is_open = True
            while is_open:
                is_open = any([await connections.is_open(ticket) for ticket in tickets])
                # Once more after the last look: a link is used just before its connection is stored.
                await asyncio.sleep(CONNECT_POLL_S)
    except (TimeoutError, CallError):
        # The call itself says what is missing.
        return
