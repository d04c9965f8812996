"""Notifications: progress and log lines of one request, which go out before its answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from pegboard.model.json_types import JSON, JSONValue
from pegboard.server.mcp.protocol.jsonrpc import json_bytes

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""The levels of log lines, lowest first."""


class Outlet(Protocol):
    """Where the notifications of one request go."""

    async def notify(self, method: str, params: JSON) -> None:
        """Send one, or drop it where nobody listens any more."""
        ...


class MessageOutlet:
    """Writes whole messages to wherever the transport says; it says so before the work of the request begins."""

    def __init__(self) -> None:
        self.write: Callable[[bytes], Awaitable[None]] | None = None
        self.end_stream: Callable[[], Awaitable[None]] | None = None

    async def send(self, message: JSON) -> None:
        """Send a message that goes before the answer."""
        if self.write is not None:
            await self.write(json_bytes(message))

    async def notify(self, method: str, params: JSON) -> None:
        await self.send({"jsonrpc": "2.0", "method": method, "params": params})

    async def close(self) -> None:
        """End the stream, where the client can come back for the rest."""
        if self.end_stream is not None:
            await self.end_stream()


class Notifications:
    """The part of a channel that tells the client something; mixed into those that have an outlet.

    `level` is the lowest level of log lines that the client wants; `None` when it wants none.
    """

    _outlet: Outlet
    _token: int | str | None = None
    _level: str | None = None
    wants_progress = False

    def tell_through(self, outlet: Outlet, *, token: int | str | None, level: str | None) -> None:
        """Send what is told from now on through `outlet`; progress only where there is a `token` for it."""
        self._outlet, self._token, self._level = outlet, token, level
        self.wants_progress = token is not None

    async def progress(self, done: float, total: float | None, message: str) -> None:
        if self._token is None:
            return
        params: JSON = {"progressToken": self._token, "progress": done}
        if total is not None:
            params["total"] = total
        if message:
            params["message"] = message
        await self._outlet.notify("notifications/progress", params)

    async def log(self, data: JSONValue, *, level: str = "info", logger: str = "pegboard") -> None:
        if self._level is not None and LEVELS.index(level) >= LEVELS.index(self._level):
            await self._outlet.notify("notifications/message", {"level": level, "data": data, "logger": logger})
