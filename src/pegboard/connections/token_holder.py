"""Token holder: one access token in memory, requested again shortly before it expires."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from pegboard.connections.connection_records import AccessToken
from pegboard.connections.issuers import TokenAnswer
from pegboard.connections.limits import FRESH_TOKEN_S, REFUSAL_KEPT_S, RENEW_EARLY_S
from pegboard.core.after_fork import leave_to_parent, renew_after_fork
from pegboard.model.error import CallError


class TokenHolder:
    """Holds one token until shortly before it expires. The first call that needs it requests it; others wait for that.

    After a refusal of the issuer the same error is raised for some seconds, without asking again. Transient errors
    are not kept.

    Args:
        request: gets a token from the issuer; raises `CallError` if it cannot.
        connection_id: the connection of its tokens.
        name: the source, for the name of the task.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        request: Callable[[], Awaitable[TokenAnswer]],
        *,
        connection_id: str = "",
        name: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask, self._connection_id, self._name, self._clock = request, connection_id, name, clock
        self._token: AccessToken | None = None
        self._since, self._renew_at = 0.0, 0.0
        self._refusal: CallError | None = None
        self._request: asyncio.Task[AccessToken] | None = None
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Leave a running request to the parent."""
        leave_to_parent(self._request)
        self._request = None

    async def token(self) -> AccessToken:
        """Return a valid token.

        Raises:
            CallError: the issuer refuses, or cannot be reached.
        """
        if self._token is not None and self._clock() < self._renew_at:
            return self._token
        return await self._requested()

    async def renewed(self, refused: AccessToken) -> AccessToken | None:
        """Return a newer token than the one that the service refused; `None` if that one was just issued.

        Raises:
            CallError: as for `token`.
        """
        if self._token is not None and self._token.version != refused.version:
            return self._token
        now = self._clock()
        # A short-lived token may have expired on the way.
        is_fresh = now - self._since < FRESH_TOKEN_S and now < self._renew_at
        if self._token is not None and is_fresh and refused.version > 1:
            return None
        return await self._requested()

    async def _requested(self) -> AccessToken:
        if self._refusal is not None and self._clock() - self._since < REFUSAL_KEPT_S:
            raise self._refusal
        request = self._request
        if request is None or request.done() or request.get_loop() is not asyncio.get_running_loop():
            request = self._request = asyncio.create_task(self._new_token(), name=f"token-{self._name}")
        return await asyncio.shield(request)

    async def _new_token(self) -> AccessToken:
        try:
            answer = await self._ask()
        except CallError as error:
            if not error.error.retryable:
                self._refusal, self._since = error, self._clock()
            raise
        self._refusal, self._since = None, self._clock()
        lifetime_s = answer.expires_in_s
        self._renew_at = (
            float("inf") if lifetime_s is None else self._since + lifetime_s - min(RENEW_EARLY_S, lifetime_s / 10)
        )
        version = 1 if self._token is None else self._token.version + 1
        self._token = AccessToken(
            connection_id=self._connection_id,
            version=version,
            value=answer.access,
            scopes=answer.scopes or (),
            issuer=answer.issuer,
        )
        return self._token
