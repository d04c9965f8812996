"""Access log: a line for each HTTP request, refused ones too, for the operator. Queries may hold secrets: not they."""

from __future__ import annotations

import logging
from time import perf_counter
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pegboard.model.bounds import LOGGED_PATH_CHARS

log = logging.getLogger("pegboard.access")


class AccessLog:
    """An ASGI app that logs the requests to another at level info, each when its answer is over."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = perf_counter(), 0

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noting)
        finally:
            log_request(scope.get("client"), scope["method"], scope["path"], status, perf_counter() - started)


def log_request(client: Any, method: str, path: str, status: int, took_s: float) -> None:
    """Log one request; a status of 0 is one that got no answer, as its client left."""
    address, path = client[0] if client else "-", path[:LOGGED_PATH_CHARS]
    took_ms = round(took_s * 1e3, 3)
    fields = {"address": address, "method": method, "path": path, "status": status, "ms": took_ms}
    log.info("%s %s %s %d in %.1f ms", address, method, path, status, took_ms, extra={"fields": fields})
