"""Request states: sealed on their way to a client of 2026-07-28, opened on their way back, each good for one use."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping
from typing import Any, cast

from mcp.server.context import ServerRequestContext
from mcp.server.request_state import (
    AESGCMRequestStateCodec,
    InvalidRequestState,
    RequestStateBoundary,
    RequestStateSecurity,
)

from pegboard.core.ports import UsedAnswers
from pegboard.model.error import DefinitionError
from pegboard.model.json_types import JSON
from pegboard.server.gateway import INVALID_PARAMS, RpcError
from pegboard.server.limits import SEALING_KEY_BYTES
from pegboard.server.mcp.asking.input_required import once_of
from pegboard.server.mcp.protocol.capabilities import VERSION
from pegboard.server.principal import Principal
from pegboard.server.sealing import REQUEST_STATE_S, Codec, Sealing

Ctx = ServerRequestContext[Any, Any]
log = logging.getLogger("pegboard.serve")
INTERNAL_ERROR = -32603
_UNKNOWN = "The answer was not taken: the store of consents does not answer. Nothing was run; call again without it."


class StateCodec(AESGCMRequestStateCodec):
    """The SDK's AES-256-GCM, as `Sealing` wants it."""

    def open(self, token: str) -> bytes | None:
        """Return what was sealed; `None` for every token that these keys did not make."""
        try:
            return self.unseal(token)
        except InvalidRequestState:
            return None


class _SdkCodec:
    """The keys of a server, as the SDK wants them."""

    def __init__(self, codec: Codec) -> None:
        self.seal, self._open = codec.seal, codec.open

    def unseal(self, token: str) -> bytes:
        payload = self._open(token)
        if payload is None:
            raise InvalidRequestState("seal")
        return payload


def sealing_with(keys: tuple[bytes, ...] = (), *, audience: str) -> Sealing:
    """Return the sealing of a server.

    `keys` are secrets of 32 bytes or more: the first seals, all open. By default there is one, for this process.

    Raises:
        DefinitionError: a key that is too short.
    """
    for number, key in enumerate(keys, 1):
        if len(key) < SEALING_KEY_BYTES:
            raise DefinitionError(
                f"keys: key {number} has {len(key)} bytes; {SEALING_KEY_BYTES} or more are needed, "
                "such as secrets.token_bytes(32) gives."
            )
    return Sealing(StateCodec(keys or (secrets.token_bytes(32),)), audience=audience)


class RequestStates:
    """The states of one server's calls; `boundary` is the SDK's middleware that seals and opens them.

    Args:
        sealing: the keys.
        principal_of: tells who sent a request.
        request_of: stands for the HTTP request of a principal, for calls that do not come through the SDK.
        used: where the workers of this server remember which states were used. Without it a state is good in the
            worker that made it alone, whoever has the keys.
    """

    def __init__(
        self,
        sealing: Sealing,
        principal_of: Callable[[Ctx], Principal],
        request_of: Callable[[Principal], object],
        used: UsedAnswers | None = None,
    ) -> None:
        security = RequestStateSecurity(
            codec=_SdkCodec(sealing.codec), ttl=REQUEST_STATE_S, bind_principal=lambda ctx: principal_of(ctx).owner
        )
        audience = sealing.audience if used is not None else f"{sealing.audience}|{sealing.worker}"
        self.boundary = RequestStateBoundary(security, default_audience=audience)
        self._sealing, self._request_of, self._used = sealing, request_of, used

    async def seal(self, result: JSON, params: Mapping[str, Any], principal: Principal) -> JSON:
        """Return a result that asks for input with its state sealed, for a call that did not come through the SDK."""
        ctx = ServerRequestContext[Any, Any](
            session=None,  # pyright: ignore[reportArgumentType] - sealing looks at method, params and principal alone
            lifespan_context={},
            protocol_version=VERSION,
            method="tools/call",
            params=params,
            request=self._request_of(principal),
        )

        async def answer(_ctx: Ctx) -> JSON:
            return result

        return cast("JSON", await self.boundary(ctx, answer))

    async def spend(self, state: str) -> None:
        """Use up an opened state, here and in all workers that share it.

        Raises:
            RpcError: it was used before; nobody can tell.
        """
        once = once_of(state)
        is_unused = self._sealing.use_up(once)
        if is_unused and self._used is not None:
            try:
                is_unused = await self._used.use_up(f"{self._sealing.audience}:{once}", keep_s=REQUEST_STATE_S)
            except OSError as error:
                log.warning("An answer was not taken: whether it was used before cannot be told (%s).", error)
                raise RpcError(INTERNAL_ERROR, _UNKNOWN) from error
        if not is_unused:
            raise RpcError(INVALID_PARAMS, "Invalid or expired requestState", {"reason": "invalid_request_state"})
