"""Callers: an app that knows its callers by a header of its own, and clients that are such callers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextvars import ContextVar
from typing import Any, NamedTuple

import httpx2

from pegboard import ToolContext
from pegboard.server.principal import Principal

USER: ContextVar[str | None] = ContextVar("user", default=None)


def known_callers(app: Any) -> Any:
    """Return the app behind something that knows who calls: the header `x-user`."""

    async def behind(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            USER.set(dict(scope["headers"]).get(b"x-user", b"").decode() or None)
        await app(scope, receive, send)

    behind.state = app.state  # type: ignore[attr-defined] - as an app has it
    return behind


def context_of_user(_principal: Principal) -> ToolContext:
    """Make the context of whoever calls; `operator` is one."""
    user = USER.get()
    return ToolContext(user_id=user, roles=["operator"] if user == "operator" else [])


class Heard(NamedTuple):
    """One server-sent event."""

    name: str
    data: Any


async def heard(response: httpx2.Response) -> AsyncIterator[Heard]:
    """Yield the events of a stream, comments left out."""
    name = ""
    async for line in response.aiter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield Heard(name, json.loads(line.removeprefix("data: ")))


async def heard_until(response: httpx2.Response, name: str) -> list[Heard]:
    """Return the events up to the first of that name."""
    events: list[Heard] = []
    async for event in heard(response):
        events.append(event)
        if event.name == name:
            return events
    raise AssertionError(f"the stream ended before {name!r}: {events}")
