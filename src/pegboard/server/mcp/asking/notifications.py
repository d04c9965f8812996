"""Notifications: progress and log messages of one request, sent before its answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from pegboard.model.json_types import JSON, JSONValue
from pegboard.server.mcp.protocol.jsonrpc import json_bytes

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""The log levels, lowest first."""


class Outlet(Protocol):
    """The destination of one request's notifications."""

    async def notify(self, method: str, params: JSON) -> None:
        """Send a notification, or drop it if the client is gone."""
        ...


class MessageOutlet:
    """An outlet that writes complete messages; the transport sets `write` before the request starts."""

    def __init__(self) -> None:
        self.write: Callable[[bytes], Awaitable[None]] | None = None
        self.end_stream: Callable[[], Awaitable[None]] | None = None

    async def send(self, message: JSON) -> None:
        """Send a message before the answer."""
        if self.write is not None:
            await self.write(json_bytes(message))

    async def notify(self, method: str, params: JSON) -> None:
        await self.send({"jsonrpc": "2.0", "method": method, "params": params})

    async def close(self) -> None:
        """End the stream if the client can fetch the rest later."""
        if self.end_stream is not None:
            await self.end_stream()


class Notifications:
    """The notifying part of a channel, mixed into channels with an outlet.

    `level` is the lowest log level the client wants; `None` for no log messages.
    """

    _outlet: Outlet
    _token: int | str | None = None
    _level: str | None = None
    wants_progress = False

    def tell_through(self, outlet: Outlet, *, token: int | str | None, level: str | None) -> None:
        """Send notifications through `outlet` from now on; progress only if there is a `token`."""
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
