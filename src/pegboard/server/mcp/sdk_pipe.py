"""SdkPipe: the SDK's server on one pair of streams, fed line by line. Loaded when a request needs it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

import anyio
import mcp_types as types
from mcp.shared.message import SessionMessage

from pegboard.model.json_types import JSON
from pegboard.server.gateway import Gateway
from pegboard.server.mcp.asking.request_states import sealing_with
from pegboard.server.mcp.handlers.lists import Lists
from pegboard.server.mcp.protocol.capabilities import VERSION
from pegboard.server.mcp.sdk_server import SdkServer
from pegboard.server.mcp.sessions.sessions import Session, Sessions
from pegboard.server.principal import Principal

SDK_MESSAGES_IN_HAND = 16  # between a transport of ours and the SDK

_ERA_ID = "pegboard-era"
_ERA: JSON = {
    "_meta": {
        "io.modelcontextprotocol/protocolVersion": VERSION,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
}


class Pipe:
    """One connection of the SDK.

    Args:
        gateway: the catalog's answers.
        principal: whom this process serves.
        sessions: what is told of changes; no other than the next.
        session: its session, where the client is of an earlier revision.
        write: takes each message of the SDK, as bytes with a line end.
    """

    def __init__(
        self, gateway: Gateway, principal: Principal, sessions: Sessions, session: Session,
        write: Callable[[bytes], Awaitable[None]],
    ) -> None:  # fmt: skip
        sealing = sealing_with(audience=gateway.catalog.name)
        self._sdk = SdkServer(gateway, Lists(gateway), sealing, sessions, only=principal, only_session=session)
        self._write = write
        self._to_sdk, self._sdk_in = anyio.create_memory_object_stream[SessionMessage | Exception](SDK_MESSAGES_IN_HAND)
        self._sdk_out, self._from_sdk = anyio.create_memory_object_stream[SessionMessage](SDK_MESSAGES_IN_HAND)
        self._tasks: list[asyncio.Task[None]] = []
        self._unsaid: set[object] = set()
        self.due: set[object] = set()
        self.answered = asyncio.Event()

    async def start(self, *, is_modern: bool, missed: Sequence[bytes] = ()) -> None:
        """Begin. `is_modern` when the era has been decided by requests that the SDK has not seen; `missed` are
        the messages of an earlier session that others have answered.
        """
        server = self._sdk.server
        self._sdk.start()
        self._tasks = [
            asyncio.create_task(server.run(self._sdk_in, self._sdk_out, server.create_initialization_options())),
            asyncio.create_task(self._copy_out()),
        ]
        if is_modern:
            request = types.JSONRPCRequest(jsonrpc="2.0", id=_ERA_ID, method="server/discover", params=dict(_ERA))
            self._unsaid.add(_ERA_ID)
            await self._to_sdk.send(SessionMessage(request))
        for line in missed:
            message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
            if isinstance(message, types.JSONRPCRequest):
                self._unsaid.add(message.id)
            await self._to_sdk.send(SessionMessage(message))

    async def feed(self, line: bytes) -> bool:
        """Give the SDK one message; `False` when it is none."""
        try:
            message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError:
            return False
        if isinstance(message, types.JSONRPCRequest):
            self.due.add(message.id)
        await self._to_sdk.send(SessionMessage(message))
        return True

    async def seal(self, result: JSON, params: Mapping[str, object], principal: Principal) -> JSON:
        """Seal the state of a result that asks for input."""
        return await self._sdk.seal(result, params, principal)

    async def _copy_out(self) -> None:
        async for item in self._from_sdk:
            message = item.message
            if isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
                self.due.discard(message.id)
                self.answered.set()
                if message.id in self._unsaid:
                    self._unsaid.discard(message.id)
                    continue
            await self._write(message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")

    async def close(self) -> None:
        """End the connection; the SDK stops what is still in flight."""
        self._sdk.stop()
        await self._to_sdk.aclose()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for stream in (self._sdk_in, self._sdk_out, self._from_sdk):
            stream.close()
