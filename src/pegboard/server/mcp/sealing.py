"""Sealing: what a client carries for us and cannot read, change, lend or use twice: cursors and request states."""

from __future__ import annotations

import json
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, cast

from mcp.server.context import ServerRequestContext
from mcp.server.request_state import (
    AESGCMRequestStateCodec,
    InvalidRequestState,
    RequestStateBoundary,
    RequestStateSecurity,
)

from pegboard.model.bounds import REQUEST_STATE_S, USED_STATES
from pegboard.model.json_types import JSON
from pegboard.server.gateway import INVALID_PARAMS, RpcError
from pegboard.server.mcp.input_required import once_of
from pegboard.server.principal import Principal

Ctx = ServerRequestContext[Any, Any]


class Sealing:
    """The keys of one server, and what was sealed with them.

    Args:
        principal_of: tells who sent a request.
        audience: the server's name; another server's sealing are no good here.
        keys: secrets of 32 bytes or more, the first sealing, all open; by default one for this process.
    """

    def __init__(
        self,
        principal_of: Callable[[Ctx], Principal],
        *,
        audience: str,
        keys: tuple[bytes, ...] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        codec = AESGCMRequestStateCodec(keys or (secrets.token_bytes(32),))
        security = RequestStateSecurity(
            codec=codec, ttl=REQUEST_STATE_S, bind_principal=lambda ctx: principal_of(ctx).owner
        )
        self.boundary = RequestStateBoundary(security, default_audience=audience)
        self._codec, self._audience, self._clock = codec, audience, clock
        self._used: OrderedDict[str, float] = OrderedDict()

    # -- request states

    async def seal(self, result: JSON, params: Mapping[str, Any], *, ctx: Ctx) -> JSON:
        """Return a result that asks for input with its state sealed, for a call that is not the SDK's."""

        async def made(_ctx: Ctx) -> JSON:
            return result

        return cast("JSON", await self.boundary(ctx, made))

    def spend(self, state: str) -> None:
        """Use up an opened state.

        Raises:
            RpcError: it was used before.
        """
        once, now = once_of(state), self._clock()
        while self._used and (
            len(self._used) >= USED_STATES or next(iter(self._used.values())) < now - REQUEST_STATE_S
        ):
            self._used.popitem(last=False)
        if once in self._used:
            raise RpcError(INVALID_PARAMS, "Invalid or expired requestState", {"reason": "invalid_request_state"})
        self._used[once] = now

    # -- cursors

    def page(
        self, owner: str, kind: str, generation: str, *, size: int, length: int, cursor: str | None
    ) -> tuple[int, int, str | None]:
        """Return (first, end, next cursor) of one page of a list of `length` items.

        Raises:
            RpcError: the cursor is not this caller's, or the list has changed since.
        """
        first = 0
        if cursor is not None:
            first = self._opened(cursor, [self._audience, owner, kind, generation])
        end = first + size
        if end >= length:
            return first, length, None
        return first, end, self._codec.seal(json.dumps([self._audience, owner, kind, generation, end]).encode())

    def _opened(self, cursor: str, expected: list[str]) -> int:
        try:
            *told, first = json.loads(self._codec.unseal(cursor))
        except (InvalidRequestState, ValueError, TypeError):
            told, first = [], 0
        if told != expected:
            raise RpcError(INVALID_PARAMS, "Unknown cursor, or the list has changed: start again without a cursor.")
        return int(first)
