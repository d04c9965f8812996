"""Connection check: walk the way of a person's token, from the service to its tools, and say where it ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal, NamedTuple

from pegboard.connections.client_registration import CLIENT_DOCUMENT_PATH, configured_client, document_client
from pegboard.connections.connection_records import ConnectFailedError
from pegboard.connections.connections import Connections
from pegboard.connections.issuer_discovery import discover
from pegboard.connections.issuers import Issuer
from pegboard.connections.upstream_credentials import UpstreamCredentials
from pegboard.egress.failures import EgressError
from pegboard.model.caller import Caller
from pegboard.model.error import CallError

CheckName = Literal["metadata", "issuer", "client", "token", "list"]

_CURES: dict[CheckName, str] = {
    "metadata": "See that the URL of the source is right, or name `issuer` under `auth:`",
    "issuer": "See that the issuer can be reached from here, and that `issuer` under `auth:` is right",
    "client": "Register a client at the issuer, and write its `client_id` under `auth:`",
    "list": "The service refuses what its issuer granted: see `scopes` and `resource` under `auth:`, and its own log",
}


class ConnectionCheck(NamedTuple):
    """One step of the way. The steps after one that fails are not taken. `to_do` is empty if it works."""

    name: CheckName
    ok: bool
    detail: str
    to_do: str = ""


async def check_connection(
    credentials: UpstreamCredentials,
    caller: Caller,
    connections: Connections | None,
    list_tools: Callable[[], Awaitable[str]],
) -> list[ConnectionCheck]:
    """Return the steps for one person, up to the first that fails. No client is registered, and no link made.

    Args:
        credentials: the credentials of the source.
        caller: the person.
        connections: the connections of the config; `None` if nobody connects.
        list_tools: lists the tools over the account of the person, and says how many there are; raises `CallError`.
    """
    settings, steps = credentials.settings, list[ConnectionCheck]()

    def works(name: CheckName, detail: str) -> None:
        steps.append(ConnectionCheck(name, True, detail))

    def fails(name: CheckName, detail: str, to_do: str = "") -> list[ConnectionCheck]:
        where = f" (`auth:` of {settings.source!r})" if not to_do else ""
        steps.append(ConnectionCheck(name, False, detail, to_do or f"{_CURES[name]}{where}."))
        return steps

    requests = credentials.requests
    try:
        found = await discover(settings, requests, tell=lambda detail: works("metadata", detail))
    except (ConnectFailedError, EgressError) as error:
        text = error.error.message if isinstance(error, EgressError) else str(error)
        return fails("issuer" if steps else "metadata", text)
    scopes = " ".join(found.scopes) or "those that the service gives"
    works("issuer", f"{found.issuer.issuer}, tokens at {found.issuer.token_url}; scopes: {scopes}")
    client = _client(credentials, found.issuer, connections)
    if client is None:
        return fails("client", f"The issuer {found.issuer.issuer!r} registers no clients by itself.")
    works("client", client)
    try:
        reason = await credentials.missing(caller)
        if reason is not None:
            user = caller.user_id
            to_do = f"pegboard connect {settings.source} --as user={user}" if user else "Name a person: --as user=NAME."
            return fails("token", f"{reason}.", to_do)
        token = await credentials.token(caller)
    except CallError as error:
        return fails("token", error.error.message, "Connect again, or see what the issuer says.")
    granted = f"with the scopes {' '.join(token.scopes)!r}" if token.scopes else "without named scopes"
    works("token", f"valid, version {token.version}, {granted}")
    try:
        works("list", await list_tools())
    except CallError as error:
        return fails("list", error.error.message)
    return steps


def _client(credentials: UpstreamCredentials, issuer: Issuer, connections: Connections | None) -> str | None:
    """Say as which client Pegboard comes to an issuer; `None` if it can come as none."""
    configured = configured_client(credentials.settings, issuer)
    if configured is not None:
        return f"{configured.client_id}, as configured"
    public_url = None if connections is None else connections.public_url
    document = document_client(issuer, None if public_url is None else f"{public_url}{CLIENT_DOCUMENT_PATH}")
    if document is not None:
        return f"the metadata document {document.client_id}"
    return f"registered at {issuer.registration_url} when somebody connects" if issuer.registration_url else None
