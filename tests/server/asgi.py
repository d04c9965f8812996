"""ASGI: one request straight to an app, without a socket or an HTTP client; for tests that make thousands."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

from tests.server.doors import JSON_HEADERS, META, VERSION

Headers = Sequence[tuple[bytes, bytes]]


async def send_raw(
    app: Any,
    body: bytes,
    headers: Headers,
    *,
    path: str = "/mcp",
    method: str = "POST",
    query: bytes = b"",
    told: dict[str, str] | None = None,
    heard: Callable[[bytes], None] | None = None,
    address: str = "127.0.0.1",
) -> tuple[int, str, bytes]:
    """Return (status, content type, body) of the answer; `told` takes its headers, `heard` each part as it comes."""
    scope = {
        "type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": query,
        "root_path": "", "headers": list(headers), "server": ("127.0.0.1", 8420), "client": (address, 1),
        "scheme": "http", "http_version": "1.1", "asgi": {"version": "3.0", "spec_version": "2.3"}, "state": {},
    }  # fmt: skip
    waiting = [{"type": "http.request", "body": body, "more_body": False}]
    answer: dict[str, Any] = {"status": 0, "headers": []}
    parts: list[bytes] = []

    async def receive() -> Any:  # noqa: RET503 - what waits for ever returns nothing
        if waiting:
            return waiting.pop()
        await asyncio.Event().wait()

    async def send(message: Any) -> None:
        answer.update({key: message[key] for key in ("status", "headers") if key in message})
        parts.append(message.get("body", b""))
        if heard is not None:
            heard(parts[-1])

    await app(scope, receive, send)
    heads = {name.decode(): value.decode("latin-1") for name, value in answer["headers"]}
    if told is not None:
        told.update(heads)
    return answer["status"], heads.get("content-type", ""), b"".join(parts)


async def ask(app: Any, method: str, params: dict[str, Any], *, path: str = "/mcp", meta: Any = None) -> dict[str, Any]:
    """Return the JSON-RPC answer to a request of 2026-07-28."""
    sent = {**params, "_meta": {**META, **(meta or {})}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": sent}).encode()
    heads = {**JSON_HEADERS, "host": "127.0.0.1:8420", "mcp-protocol-version": VERSION, "mcp-method": method}
    if "name" in params:
        heads["mcp-name"] = params["name"]
    _, kind, answer = await send_raw(app, body, [(k.encode(), v.encode()) for k, v in heads.items()], path=path)
    text = answer.decode()
    return json.loads(text.rpartition("data: ")[2] if "event-stream" in kind else text)
