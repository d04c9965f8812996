"""Responses: a JSON body, or server-sent events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from starlette.types import Send

from pegboard.server.event_hub import wire_json
from pegboard.server.http_api.problem_details import MEDIA_TYPE, ProblemError

EVENT_STREAM = "text/event-stream"
_COMMON = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))


class Reply(NamedTuple):
    """A whole answer."""

    body: bytes
    status: int = 200
    media_type: str = "application/json"
    headers: Mapping[str, str] = {}

    async def send(self, send: Send, *, is_head: bool = False) -> None:
        """Send the response; only the headers for a HEAD request."""
        named = {"content-type": self.media_type, "content-length": str(len(self.body)), **self.headers}
        headers = [(name.encode(), value.encode()) for name, value in named.items()]
        await send({"type": "http.response.start", "status": self.status, "headers": [*headers, *_COMMON]})
        await send({"type": "http.response.body", "body": b"" if is_head else self.body})


def json_reply(value: object, *, status: int = 200) -> Reply:
    """Return a reply with a JSON value."""
    return Reply(wire_json(value), status)


def problem_reply(problem: ProblemError) -> Reply:
    """Return a reply with problem details."""
    return Reply(wire_json(problem.body()), problem.status, MEDIA_TYPE, problem.headers)


class EventStream:
    """Server-sent events on one response."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.is_open = False

    async def write(self, data: bytes) -> None:
        """Send frames, after the headers if these were not sent yet."""
        if not self.is_open:
            self.is_open = True
            headers = [(b"content-type", EVENT_STREAM.encode()), (b"x-accel-buffering", b"no"), *_COMMON]
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def ping(self) -> None:
        await self.write(b": ping\n\n")

    async def close(self) -> None:
        """End the response."""
        await self._send({"type": "http.response.body", "body": b""})


def wants_events(headers: Mapping[bytes, bytes]) -> bool:
    """Tell whether a client accepts server-sent events and not JSON."""
    accepted = headers.get(b"accept", b"").decode("latin-1").lower().split(",")
    kinds = {part.partition(";")[0].strip() for part in accepted}
    return EVENT_STREAM in kinds and "application/json" not in kinds
