"""Upstream credentials: the token that a source sends with a request, for the caller or for the service itself."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import Protocol

from pegboard.connections.auth_settings import AuthSettings
from pegboard.connections.client_registration import configured_client
from pegboard.connections.connection_records import (
    NO_CHALLENGE,
    AccessToken,
    Challenge,
    ConnectFailedError,
    person_of,
)
from pegboard.connections.connections import Connections, OnChange
from pegboard.connections.grants import GrantRefusedError, client_credentials
from pegboard.connections.issuer_discovery import discover
from pegboard.connections.issuer_requests import IssuerRequests
from pegboard.connections.issuers import TokenAnswer
from pegboard.connections.token_holder import TokenHolder
from pegboard.egress.connections import Resolve, system_resolve
from pegboard.egress.failures import EgressError
from pegboard.model.caller import Caller
from pegboard.model.error import CallError, DefinitionError
from pegboard.model.record import replace
from pegboard.model.secret import Secret
from pegboard.model.tool import Account

log = logging.getLogger("pegboard.connections")


class UpstreamCredentials(Protocol):
    """How a source gets its tokens. The caller's own credential is never among them."""

    @property
    def settings(self) -> AuthSettings: ...

    @property
    def requests(self) -> IssuerRequests:
        """Sends requests to the issuer."""
        ...

    def secrets(self) -> Iterator[Secret]:
        """Yield the credentials of the client at the issuer."""
        ...

    async def token(self, caller: Caller) -> AccessToken:
        """Return a valid token for a request of this caller.

        Raises:
            CallError: `connection_required`, if the caller's person must connect first; `upstream_auth`, if the issuer
                refuses the service; and others if the issuer or the store cannot be reached.
        """
        ...

    async def missing(self, caller: Caller) -> str | None:
        """Return why a caller must connect an account first; `None` if they need not."""
        ...

    def fix(self) -> str:
        """Return the remedy for a missing account, in a few words."""
        ...

    async def required(self, caller: Caller) -> CallError:
        """Return the error of a call whose caller must connect an account first, with a link if there can be one."""
        ...

    async def renewed(self, caller: Caller, refused: AccessToken, challenge: Challenge) -> AccessToken:
        """Return a newer token than the one that the service refused.

        Raises:
            CallError: as for `token`; also if there is no other one.
        """
        ...

    async def refusal(self, caller: Caller, challenge: Challenge) -> CallError:
        """Return the error for a service that refuses a fresh token, or wants more scopes."""
        ...


def account_of(credentials: UpstreamCredentials | None) -> Account | None:
    """Return the account that calls with these credentials use; `None` if it is not one of the caller."""
    return credentials if credentials is not None and credentials.settings.is_personal else None


class PersonCredentials(UpstreamCredentials, Protocol):
    """Credentials that have another token for each person."""

    def owner(self, caller: Caller) -> Caller:
        """Return the part of a caller that decides about the token; other parts differ between calls of one person."""
        ...

    def subscribe(self, on_change: OnChange) -> Callable[[], None]:
        """Call `on_change(person, source, is_connected)` after somebody connected or disconnected.

        Returns a function that ends the subscription.
        """
        ...


class PersonalCredentials:
    """The tokens of `mode: user`: each person's own. Implements `PersonCredentials`."""

    def __init__(self, connections: Connections, settings: AuthSettings) -> None:
        self.connections, self.settings = connections, settings
        self.requests = connections.issuer_requests(settings)
        connections.add(settings)

    def secrets(self) -> Iterator[Secret]:
        return self.settings.secrets()

    def owner(self, caller: Caller) -> Caller:
        return Caller(user_id=caller.user_id, space_id=caller.space_id)

    def subscribe(self, on_change: OnChange) -> Callable[[], None]:
        return self.connections.subscribe(on_change)

    async def token(self, caller: Caller) -> AccessToken:
        person = person_of(caller)
        if person is None:
            raise await self.connections.required(None, self.settings.source)
        return await self.connections.token(person, self.settings.source)

    async def missing(self, caller: Caller) -> str | None:
        """Return why a caller's person must connect first; `None` if they are connected. Nothing is sent.

        Raises:
            CallError: the store does not answer.
        """
        person, source = person_of(caller), self.settings.source
        if person is None:
            return f"{source!r} needs an account of the caller, and this caller has no user"
        if source in await self.connections.connected(person):
            return None
        user = person.user_id
        text = f"no account of {user!r} is connected at {source!r}, and only {user!r} can connect one"
        return f"{text}: `pegboard connect {source}`, or the link in the answer to a call"

    def fix(self) -> str:
        return f"connect {self.settings.source}"

    async def required(self, caller: Caller) -> CallError:
        return await self.connections.required(person_of(caller), self.settings.source)

    async def renewed(self, caller: Caller, refused: AccessToken, challenge: Challenge) -> AccessToken:
        person = person_of(caller)
        if person is None:
            raise await self.connections.required(None, self.settings.source)
        return await self.connections.renewed(person, self.settings.source, refused, challenge)

    async def refusal(self, caller: Caller, challenge: Challenge) -> CallError:
        if not challenge.wants_more:
            log.warning("The service refuses a fresh token of user %r for %r.", caller.user_id, self.settings.source)
        return await self.connections.required(person_of(caller), self.settings.source, challenge)


class ServiceCredentials:
    """The token of `mode: client_credentials`: one for all callers.

    Args:
        settings: the source.
        resolve: looks up the host names of issuers.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        settings: AuthSettings,
        *,
        resolve: Resolve = system_resolve,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if settings.mode != "client_credentials":
            raise DefinitionError(f"mode: {settings.mode!r} is not a mode for a service; use `client_credentials`")
        self.settings = settings
        self.requests = IssuerRequests(settings, resolve=resolve)
        self._held = TokenHolder(self._issued, name=settings.source, clock=clock)

    def secrets(self) -> Iterator[Secret]:
        return self.settings.secrets()

    async def token(self, caller: Caller) -> AccessToken:
        del caller
        return await self._held.token()

    async def missing(self, caller: Caller) -> str | None:
        del caller
        return None

    def fix(self) -> str:
        return f"correct the credentials of {self.settings.source}"

    async def required(self, caller: Caller) -> CallError:
        return await self.refusal(caller, NO_CHALLENGE)

    async def renewed(self, caller: Caller, refused: AccessToken, challenge: Challenge) -> AccessToken:
        renewed = await self._held.renewed(refused)
        if renewed is None:
            raise await self.refusal(caller, challenge)
        return renewed

    async def refusal(self, caller: Caller, challenge: Challenge) -> CallError:
        del caller
        return refused_by_service(self.settings, challenge)

    async def _issued(self) -> TokenAnswer:
        settings = self.settings
        try:
            found = await discover(settings, self.requests)
            client = configured_client(settings, found.issuer)
            assert client is not None  # the settings have a client
            answer = await client_credentials(
                self.requests, found.issuer, client, scopes=settings.scopes, resource=found.resource
            )
        except (GrantRefusedError, ConnectFailedError, DefinitionError) as error:
            text = f"{settings.source!r} got no token: {error} The operator must correct it."
            raise EgressError("upstream_auth", text) from None
        scopes = settings.scopes if answer.scopes is None else answer.scopes
        return replace(answer, scopes=scopes, issuer=found.issuer.issuer)


def refused_by_service(settings: AuthSettings, challenge: Challenge) -> EgressError:
    """Return the error for a service that refuses a fresh token of its issuer, or wants more scopes."""
    source = settings.source
    if challenge.wants_more:
        wanted = " ".join(challenge.scopes)
        text = f"The service behind {source!r} wants the scopes {wanted!r}; the operator must add them to `scopes`."
        return EgressError("upstream_error", text)
    text = f"The service behind {source!r} refuses the token that its issuer gave us; the operator must correct it."
    return EgressError("upstream_auth", text)
