"""Request states: sealed for 2026-07-28 clients, opened on return, each usable once."""

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
CLOCK_SKEW_S = 60.0  # how far another worker's clock may be ahead of ours, in seconds
_KIND = b"request state "
"""The prefix of a sealed state, so that values sealed for other purposes are not accepted."""
_UNKNOWN = "The answer was refused: the store of consents does not respond. Nothing was run; call again without it."


class RequestStates:
    """The states of one server's calls. Each is bound to its caller, method, target and arguments.

    Args:
        sealing: the server's keys.
        used: the used states, shared by all workers. Without it, a state is accepted only by the worker that made
            it, even if other workers have the same keys.
        wall_clock: seconds since 1970, the same for all workers.
    """

    def __init__(
        self, sealing: Sealing, used: UsedAnswers | None = None, *, wall_clock: Callable[[], float] = steady_time
    ) -> None:
        self._audience = sealing.audience if used is not None else f"{sealing.audience}|{sealing.worker}"
        self._sealing, self._used, self._clock = sealing, used, wall_clock

    def seal(self, result: JSON, request: McpRequest) -> JSON:
        """Return a result that asks for input, with the call's state sealed."""
        bound_to = self._binding(request.method, request.params, request.principal)
        sealed = json.dumps([self._clock() + REQUEST_STATE_S, bound_to, result["requestState"]])
        return {**result, "requestState": self._sealing.codec.seal(_KIND + sealed.encode())}

    def open(self, state: object, method: str, params: JSON, principal: Principal) -> str:
        """Return the sealed state of the previous round.

        Raises:
            RpcError: the state is not ours, has expired, or belongs to another request or caller.
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
        """Mark a state as used, in all workers that share the record.

        Raises:
            RpcError: it was used before, or the record cannot be read.
        """
        once = once_of(state)
        is_unused = self._sealing.use_up(once)
        if is_unused and self._used is not None:
            try:
                is_unused = await self._used.use_up(f"{self._sealing.audience}:{once}", keep_s=REQUEST_STATE_S)
            except OSError as error:
                log.warning("An answer was refused, because the store of used answers does not respond (%s).", error)
                raise RpcError(INTERNAL_ERROR, _UNKNOWN) from error
        if not is_unused:
            raise _invalid()

    def _binding(self, method: str, params: Mapping[str, Any], principal: Principal) -> str:
        """Return a digest of everything a state is bound to."""
        target = params.get("uri" if method == "resources/read" else "name")
        arguments: JSONValue = None if method == "resources/read" else params.get("arguments") or {}
        bound_to: list[JSONValue] = ["request state", self._audience, principal.owner, method, target, arguments]
        return sha256(json.dumps(bound_to, sort_keys=True).encode()).hexdigest()


def _refuse(method: str, reason: str) -> NoReturn:
    log.warning("The requestState of a %s was refused: %s.", method, reason)
    raise _invalid()


def _invalid() -> RpcError:
    return RpcError(INVALID_PARAMS, "Invalid or expired requestState", {"reason": "invalid_request_state"})
