"""Request states: sealed on their way to a client of 2026-07-28, opened on their way back, each good for one use."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any, Final, NoReturn

from pegboard.core.ports import UsedAnswers
from pegboard.core.steady_clock import steady_time
from pegboard.model.json_types import JSON, JSONValue
from pegboard.server.mcp.asking.input_required import once_of
from pegboard.server.mcp.protocol.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, RpcError
from pegboard.server.mcp.protocol.requests import McpRequest
from pegboard.server.principal import Principal
from pegboard.server.sealing import REQUEST_STATE_S, Sealing

log = logging.getLogger("pegboard.serve")
ASKING_METHODS: Final = frozenset(("tools/call", "prompts/get", "resources/read"))
"""The methods whose results may ask for input. Source: MCP 2026-07-28, multi round-trip requests."""
CLOCK_SKEW_S = 60.0  # by which another worker's clock may be ahead of ours
_KIND = b"request state "
"""How a sealed state begins, so that nothing that was sealed for another use is taken for one."""
_UNKNOWN = "The answer was not taken: the store of consents does not answer. Nothing was run; call again without it."


class RequestStates:
    """The states of one server's calls. Each is bound to its caller, method, target and arguments.

    Args:
        sealing: the keys.
        used: where the workers of this server remember which states were used. Without it a state is good only in the
            worker that made it, even where other workers have the keys.
        wall_clock: seconds since 1970, the same for all workers.
    """

    def __init__(
        self, sealing: Sealing, used: UsedAnswers | None = None, *, wall_clock: Callable[[], float] = steady_time
    ) -> None:
        self._audience = sealing.audience if used is not None else f"{sealing.audience}|{sealing.worker}"
        self._sealing, self._used, self._clock = sealing, used, wall_clock

    def seal(self, result: JSON, request: McpRequest) -> JSON:
        """Return a result that asks for input with its state sealed."""
        bound_to = self._binding(request.method, request.params, request.principal)
        sealed = json.dumps([self._clock() + REQUEST_STATE_S, bound_to, result["requestState"]])
        return {**result, "requestState": self._sealing.codec.seal(_KIND + sealed.encode())}

    def open(self, state: object, method: str, params: JSON, principal: Principal) -> str:
        """Return what was sealed in the round before.

        Raises:
            RpcError: this state is not one of ours, is too old, or belongs to another request or caller.
        """
        payload = self._sealing.codec.open(state) if isinstance(state, str) else None
        if payload is None or not payload.startswith(_KIND):
            _refuse(method, "this server did not seal it")
        ends_at, bound_to, opened = json.loads(payload.removeprefix(_KIND))
        now = self._clock()
        if not now < ends_at < now + REQUEST_STATE_S + CLOCK_SKEW_S:
            _refuse(method, "it is too old, or from the future")
        if bound_to != self._binding(method, params, principal):
            _refuse(method, "it belongs to another request or caller")
        return opened

    async def spend(self, state: str) -> None:
        """Use up an opened state, here and in all workers that share it.

        Raises:
            RpcError: it was used before, or nobody can tell.
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
            raise _invalid()

    def _binding(self, method: str, params: Mapping[str, Any], principal: Principal) -> str:
        """Return a digest of what a state is bound to."""
        target = params.get("uri" if method == "resources/read" else "name")
        arguments: JSONValue = None if method == "resources/read" else params.get("arguments") or {}
        bound_to: list[JSONValue] = ["request state", self._audience, principal.owner, method, target, arguments]
        return sha256(json.dumps(bound_to, sort_keys=True).encode()).hexdigest()


def _refuse(method: str, reason: str) -> NoReturn:
    log.warning("The requestState of a %s was refused: %s.", method, reason)
    raise _invalid()


def _invalid() -> RpcError:
    return RpcError(INVALID_PARAMS, "Invalid or expired requestState", {"reason": "invalid_request_state"})
