"""Access log: a line for each HTTP request, refused ones too, for the operator. Queries may hold secrets: not they."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Awaitable, Callable, Iterable
from time import perf_counter
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pegboard.core.identifiers import new_id
from pegboard.server.whole_answer import AnswerHeaders
from pegboard.telemetry.served_request import REQUEST_ID

LOGGED_PATH_CHARS = 200  # of a request, in the access log

_TRACEPARENT = re.compile(rb"\s*[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")

log = logging.getLogger("pegboard.access")
Whole = Callable[[int, AnswerHeaders, bytes], bool]


class AccessLog:
    """An ASGI app that logs the requests to another at level info, each when its answer is over."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, noting, request_id = perf_counter(), _Noting(send), new_id()
        # The app removes credentials from its headers, so they are read first.
        trace_id = _trace_id(scope["headers"])
        token = REQUEST_ID.set(request_id)
        try:
            await self._app(scope, receive, noting)
        finally:
            REQUEST_ID.reset(token)
            took_s = perf_counter() - started
            log_request(
                scope.get("client"), scope["method"], scope["path"], noting.status, took_s,
                request_id=request_id, trace_id=trace_id,
            )  # fmt: skip


class _Noting:
    """The `send` of an app, which records the status of the answer; a complete answer is still sent at once.

    A stream keeps the task of its request: its line is written when it is over.
    """

    __slots__ = ("_send", "status")

    def __init__(self, send: Send) -> None:
        self._send, self.status = send, 0

    def __call__(self, message: Message) -> Awaitable[None]:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        return self._send(message)

    def whole(self, status: int, headers: AnswerHeaders, body: bytes) -> bool:
        whole: Whole | None = getattr(self._send, "whole", None)
        if whole is None or not whole(status, headers, body):
            return False
        self.status = status
        return True


def _trace_id(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Return the trace id of a `traceparent` header; empty if there is none, or if it is malformed."""
    match = next((_TRACEPARENT.match(value) for name, value in headers if name == b"traceparent"), None)
    return "" if match is None else match[1].decode()


def log_request(
    client: Any, method: str, path: str, status: int, took_s: float, *, request_id: str = "", trace_id: str = ""
) -> None:
    """Log one request; a status of 0 is one that got no answer, as its client left."""
    address, path = client[0] if client else "-", path[:LOGGED_PATH_CHARS]
    took_ms = round(took_s * 1e3, 3)
    known = {name: value for name, value in (("request_id", request_id), ("trace_id", trace_id)) if value}
    fields = {
        "address": address, "method": method, "path": path, "status": status, "ms": took_ms, "worker": os.getpid(),
        **known,
    }  # fmt: skip
    log.info("%s %s %s %d in %.1f ms", address, method, path, status, took_ms, extra={"fields": fields})
