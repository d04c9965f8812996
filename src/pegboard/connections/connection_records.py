"""Connection records: people's connections to services, and the requests for new ones. None of them shows a token."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from pegboard.model.call_context import AccountUse
from pegboard.model.caller import Caller
from pegboard.model.error import PegboardError
from pegboard.model.secret import Secret


class Person(Struct, frozen=True, kw_only=True):
    """The owner of connections: a user in a space. An API key owns none, so rotating it keeps them."""

    user_id: str
    space_id: str | None = None


def person_of(caller: Caller) -> Person | None:
    """Return the person behind a call; `None` for a caller without a user, who can have no connections."""
    return Person(user_id=caller.user_id, space_id=caller.space_id) if caller.user_id else None


class Challenge(Struct, frozen=True, kw_only=True):
    """The challenge of a service that refused a request: the `WWW-Authenticate` of a 401 or 403.

    `resource_metadata` is the URL of its metadata (RFC 9728), empty without one. `scopes` are those that it asks for.
    """

    resource_metadata: str = ""
    scopes: tuple[str, ...] = ()
    error: str = ""

    @property
    def wants_more(self) -> bool:
        """Whether the token is valid, but lacks a scope."""
        return self.error == "insufficient_scope"


NO_CHALLENGE = Challenge()


class ConnectLink(Struct, frozen=True, kw_only=True):
    """A link for one person to connect to one source, once. `url` is empty without a `public_url`.

    `ticket` identifies it; anybody who knows it can open the link. `expires_at` is in seconds since 1970.
    """

    url: str
    ticket: Secret
    expires_at: float


class AwaitedConnection(Struct, frozen=True, kw_only=True):
    """An open link: a call of this person waits until they connect. It ends when they have, or when it expires.

    `scopes` are those that the service asked for. `expires_at` is in seconds since 1970.
    """

    person: Person
    source: str
    scopes: tuple[str, ...]
    url: str
    expires_at: float


class PendingConnection(Struct, frozen=True, kw_only=True):
    """The question to a person before the browser goes to the issuer: the account, the source and the scopes.

    `issuer` is the authorization server, `login_page` the URL to which it sends people, and `resource` the service that
    the token is for. `expires_at` is in seconds since 1970.
    """

    person: Person
    source: str
    issuer: str
    login_page: str
    resource: str
    scopes: tuple[str, ...]
    expires_at: float


class Connection(Struct, frozen=True, kw_only=True):
    """A stored connection, without its tokens.

    `expires_at` is when the access token expires, `None` if the issuer did not say; a refresh replaces it. `version`
    grows with each refresh; connecting again gives another `id`. `is_live` is false after a refused refresh: the person
    must connect again. `account` is the name of the account at the service, `None` if the issuer did not say. Times are
    in seconds since 1970.

    `refused_scopes` are those that were requested and not granted, except scopes of OpenID Connect. Only the connection
    that `Connections.finish` returns has them; they are not stored.
    """

    id: str
    person: Person
    source: str
    resource: str
    issuer: str
    client_id: str
    scopes: tuple[str, ...]
    created_at: float
    updated_at: float
    expires_at: float | None
    version: int
    is_live: bool
    account: str | None = None
    refused_scopes: tuple[str, ...] = ()


class AccessToken(Struct, frozen=True, kw_only=True):
    """A valid token, for the source that it was made for and no other. `connection_id` is empty for a service's own."""

    connection_id: str
    version: int
    value: Secret
    scopes: tuple[str, ...] = ()
    issuer: str = ""

    def use(self) -> AccountUse:
        """Return the fields that records of calls contain."""
        return AccountUse(self.connection_id, self.issuer, self.scopes)


class Disconnected(Struct, frozen=True, kw_only=True):
    """The outcome of a disconnection. `is_revoked` tells whether the issuer revoked the tokens; else `reason` says why
    not. They are deleted here in any case.
    """

    connection: Connection
    is_revoked: bool
    reason: str = ""


ConnectFailure = Literal[
    "unknown_link", "other_browser", "other_person", "issuer_changed", "redirect_changed", "denied",
    "issuer_unavailable", "issuer_refused", "not_supported", "unknown_source",
]  # fmt: skip


class ConnectFailedError(PegboardError):
    """Connecting failed. The message is for the person: what happened, and what to do next."""

    def __init__(self, failure: ConnectFailure, message: str) -> None:
        super().__init__(message)
        self.failure: ConnectFailure = failure
