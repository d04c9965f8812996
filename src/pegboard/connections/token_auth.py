"""Token auth: sets the `Authorization` of the requests of one caller, for clients of httpx2."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator

import httpx2  # noqa: TID251 - the interface of its clients; requests go out through egress

from pegboard.connections.connection_records import NO_CHALLENGE, AccessToken
from pegboard.connections.issuer_discovery import challenge_of
from pegboard.connections.upstream_credentials import UpstreamCredentials
from pegboard.model.call_context import AccountUse
from pegboard.model.caller import NOBODY, Caller
from pegboard.model.secret import Secret

_KEPT_TOKENS = 2  # the current token, and the one before it, which answers in flight may repeat


class TokenAuth(httpx2.Auth):
    """Sends the caller's token. On 401 it is renewed once; if that is refused as well, the call fails.

    Two are equal if they get the tokens of the same caller in the same way, so that a reload keeps a connection.
    """

    def __init__(self, credentials: UpstreamCredentials, caller: Caller = NOBODY) -> None:
        self._credentials, self._caller = credentials, caller
        self._used: tuple[Secret, ...] = ()
        self._last: AccessToken | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TokenAuth) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._caller)

    @property
    def _identity(self) -> tuple[object, ...]:
        return self._credentials.settings, self._caller

    def secrets(self) -> Iterator[Secret]:
        """Yield the tokens that the server has received lately, and may repeat."""
        yield from self._used
        yield from self._credentials.secrets()

    def last_use(self) -> AccountUse | None:
        """Return the account whose token was sent last; implements `SendsForAccount`."""
        return None if self._last is None else self._last.use()

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Yield the request with a token, and again with another one after 401.

        Raises:
            CallError: no token is available, or the server refuses a fresh one.
        """
        token = await self._credentials.token(self._caller)
        response = yield self._with(request, token)
        if response.status_code == 401:
            challenge = challenge_of(401, response.headers)
            token = await self._credentials.renewed(self._caller, token, challenge)
            response = yield self._with(request, token)
        challenge = challenge_of(response.status_code, response.headers) if response.status_code in (401, 403) else None
        if response.status_code == 401 or (challenge or NO_CHALLENGE).wants_more:
            raise await self._credentials.refusal(self._caller, challenge or NO_CHALLENGE)

    def _with(self, request: httpx2.Request, token: AccessToken) -> httpx2.Request:
        if token.value not in self._used:
            self._used = (token.value, *self._used)[:_KEPT_TOKENS]
        self._last = token
        request.headers["Authorization"] = f"Bearer {token.value.reveal()}"
        return request
