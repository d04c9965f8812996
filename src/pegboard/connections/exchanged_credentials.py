"""Exchanged credentials: tokens that an issuer gives in exchange for the caller's token."""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import blake2b
from typing import NamedTuple

import orjson

from pegboard.connections.auth_settings import AuthSettings
from pegboard.connections.client_registration import configured_client
from pegboard.connections.connection_records import (
    AccessToken,
    Challenge,
    ConnectFailedError,
    Person,
    person_of,
)
from pegboard.connections.connection_required import ConnectionRequiredError
from pegboard.connections.connections import OnChange
from pegboard.connections.grants import (
    CLIENT_FAULTS,
    GrantRefusedError,
    assert_identity,
    client_credentials,
    exchange_token,
    identity_assertion,
)
from pegboard.connections.issuer_discovery import discover, named_issuer
from pegboard.connections.issuer_requests import IssuerRequests
from pegboard.connections.issuers import Discovered, Issuer, OAuthClient, TokenAnswer
from pegboard.connections.limits import ISSUER_KEPT_S, KEPT_TOKENS
from pegboard.connections.token_holder import TokenHolder
from pegboard.connections.upstream_credentials import refused_by_service
from pegboard.core.bounded_cache import BoundedCache
from pegboard.core.json_reader import read_answer
from pegboard.core.steady_clock import steady_time
from pegboard.egress.connections import Resolve, system_resolve
from pegboard.egress.failures import EgressError
from pegboard.model.caller import Caller
from pegboard.model.error import CallError, DefinitionError
from pegboard.model.json_types import is_object
from pegboard.model.record import replace
from pegboard.model.secret import Secret

_NAME_BYTES = 16


class _Parties(NamedTuple):
    """The issuer of the service's tokens, the company's for `id_jag`, and Pegboard as a client of each."""

    found: Discovered
    client: OAuthClient
    login: Issuer | None
    login_client: OAuthClient | None
    until: float


class ExchangedCredentials:
    """The tokens of `mode: exchange` and `mode: id_jag`: each person's own. Implements `PersonCredentials`.

    The token that the caller presented is sent to the issuer that the operator named, and nowhere else. An exchanged
    token is kept in memory for the person and that very token, until shortly before one of the two expires. Nothing is
    stored: after a restart, or with another token of the caller, there is another exchange. A caller that the server
    no longer admits gets none.

    Args:
        settings: the source.
        resolve: looks up the host names of issuers.
        clock: seconds, monotonic.
        wall_clock: seconds since 1970.

    Raises:
        DefinitionError: the settings exchange nothing.
    """

    def __init__(
        self,
        settings: AuthSettings,
        *,
        resolve: Resolve = system_resolve,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = steady_time,
    ) -> None:
        if not settings.is_exchanged:
            raise DefinitionError(f"mode: {settings.mode!r} exchanges no tokens; use `exchange` or `id_jag`")
        self.settings = settings
        self._clock, self._wall_clock = clock, wall_clock
        self.requests = IssuerRequests(settings, resolve=resolve)
        self._login_requests = IssuerRequests(settings.login or settings, resolve=resolve)
        self._held = BoundedCache[tuple[Person, str], TokenHolder](max_entries=KEPT_TOKENS)
        self._actor = TokenHolder(self._actor_issued, name=settings.source, clock=clock)
        self._parties: _Parties | None = None

    def secrets(self) -> Iterator[Secret]:
        return self.settings.secrets()

    def owner(self, caller: Caller) -> Caller:
        return Caller(user_id=caller.user_id, space_id=caller.space_id, subject_token=caller.subject_token)

    def subscribe(self, on_change: OnChange) -> Callable[[], None]:
        """Return at once: nobody connects, and nobody disconnects."""
        del on_change
        return lambda: None

    async def token(self, caller: Caller) -> AccessToken:
        return await self._holder(caller).token()

    async def missing(self, caller: Caller) -> str | None:
        return self._reason(caller)

    def fix(self) -> str:
        return "call with a token of your login"

    async def required(self, caller: Caller) -> CallError:
        return self._required(caller)

    def _required(self, caller: Caller) -> ConnectionRequiredError:
        details = {"source": self.settings.source}
        return ConnectionRequiredError("connection_required", f"{self._reason(caller)}.", details=details)

    def _reason(self, caller: Caller) -> str | None:
        source = self.settings.source
        if person_of(caller) is None:
            return f"{source!r} needs an account of the caller, and this caller has no user"
        if caller.subject_token is None:
            return (
                f"{source!r} exchanges the caller's token, but the caller sent none. Call with a token (JWT) of "
                "your company's login; an API key cannot be exchanged"
            )
        return None

    async def renewed(self, caller: Caller, refused: AccessToken, challenge: Challenge) -> AccessToken:
        renewed = await self._holder(caller).renewed(refused)
        if renewed is None:
            raise await self.refusal(caller, challenge)
        return renewed

    async def refusal(self, caller: Caller, challenge: Challenge) -> CallError:
        del caller
        return refused_by_service(self.settings, challenge)

    def _holder(self, caller: Caller) -> TokenHolder:
        """Return the holder of the token for a person and the very token they presented.

        Raises:
            ConnectionRequiredError: the caller has no user, or came without a token.
        """
        person, subject, source = person_of(caller), caller.subject_token, self.settings.source
        if person is None or subject is None:
            raise self._required(caller)
        name = blake2b(subject.reveal().encode(), digest_size=_NAME_BYTES).hexdigest()
        held = self._held.get((person, name))
        if held is None:
            request = partial(self._exchanged, person, subject)
            connection_id = f"{self.settings.mode}-{name}"
            held = TokenHolder(request, connection_id=connection_id, name=source, clock=self._clock)
            self._held.remember((person, name), held)
        return held

    async def _exchanged(self, person: Person, subject: Secret) -> TokenAnswer:
        """Return a token of the service's issuer for a person.

        Raises:
            EgressError: an issuer refuses or cannot be reached.
        """
        source = self.settings.source
        try:
            parties = await self._known_parties()
            exchange = self._issued if parties.login is None else self._by_login
            answer = await exchange(parties, subject)
        except GrantRefusedError as error:
            self._parties = None
            fault = "The operator must correct it."
            if error.code not in CLIENT_FAULTS:
                fault = "Log in again; if that does not help, the operator must allow the exchange there."
            text = f"{person.user_id!r} got no token for {source!r}: {error} {fault}"
            raise EgressError("upstream_auth", text) from None
        except (ConnectFailedError, DefinitionError) as error:
            raise EgressError(
                "upstream_auth", f"{source!r} got no token: {error} The operator must correct it."
            ) from None
        if answer.access == subject:
            text = f"The issuer of {source!r} answered with the caller's own token, which is not sent to services."
            raise EgressError("upstream_auth", f"{text} The operator must correct it.")
        scopes = self.settings.scopes if answer.scopes is None else answer.scopes
        lifetime_s = self._lifetime_s(answer.expires_in_s, subject)
        return replace(answer, scopes=scopes, expires_in_s=lifetime_s, issuer=parties.found.issuer.issuer)

    async def _issued(self, parties: _Parties, subject: Secret) -> TokenAnswer:
        """Return a token of the issuer that knows the caller's token, for `mode: exchange`."""
        settings, found = self.settings, parties.found
        if settings.grant == "on_behalf_of":
            return await assert_identity(
                self.requests, found.issuer, parties.client, assertion=subject, resource="", scopes=settings.scopes,
                is_on_behalf_of=True,
            )  # fmt: skip
        actor = (await self._actor.token()).value if settings.sends_actor else None
        return await exchange_token(
            self.requests,
            found.issuer,
            parties.client,
            subject=subject,
            subject_type=settings.subject_token_type or "access_token",
            audience=settings.audience,
            resource=found.resource,
            scopes=settings.scopes,
            actor=actor,
        )

    async def _by_login(self, parties: _Parties, subject: Secret) -> TokenAnswer:
        """Return a token of the service's issuer for an identity assertion of the company's, for `mode: id_jag`."""
        settings, found = self.settings, parties.found
        assert parties.login is not None
        assert parties.login_client is not None
        assertion = await identity_assertion(
            self._login_requests,
            parties.login,
            parties.login_client,
            subject=subject,
            subject_type=settings.subject_token_type or "id_token",
            audience=settings.audience or found.issuer.issuer,
            resource=found.resource,
            scopes=settings.scopes,
        )
        return await assert_identity(
            self.requests, found.issuer, parties.client, assertion=assertion, resource=found.resource,
            scopes=settings.scopes,
        )  # fmt: skip

    async def _actor_issued(self) -> TokenAnswer:
        parties = await self._known_parties()
        return await client_credentials(
            self.requests, parties.found.issuer, parties.client, scopes=(), resource=parties.found.resource
        )

    async def _known_parties(self) -> _Parties:
        """Return the issuers and clients; their metadata are read again after some minutes."""
        parties, settings = self._parties, self.settings
        if parties is not None and self._clock() < parties.until:
            return parties
        found = await discover(settings, self.requests)
        client = configured_client(settings, found.issuer)
        assert client is not None  # the settings have a client
        login, login_client = None, None
        if settings.login is not None:
            login = await named_issuer(settings.login, self._login_requests)
            login_client = configured_client(settings.login, login)
        self._parties = _Parties(found, client, login, login_client, self._clock() + ISSUER_KEPT_S)
        return self._parties

    def _lifetime_s(self, expires_in_s: float | None, subject: Secret) -> float | None:
        """Return for how long an exchanged token is used: not longer than the caller's own token is valid."""
        ends_at = end_of(subject.reveal())
        left_s = None if ends_at is None else max(ends_at - self._wall_clock(), 0.0)
        known = [each for each in (expires_in_s, left_s) if each is not None]
        return min(known) if known else None


def end_of(token: str) -> float | None:
    """Return the end of a JWT in seconds since 1970, without verifying it; `None` for other texts."""
    parts = token.split(".")
    try:
        claims = read_answer(base64.urlsafe_b64decode(parts[1] + "==")) if len(parts) == 3 else None
    except (ValueError, binascii.Error, orjson.JSONDecodeError):
        return None
    ends_at = claims.get("exp") if is_object(claims) else None
    return float(ends_at) if isinstance(ends_at, int | float) and not isinstance(ends_at, bool) else None
