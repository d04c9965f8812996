"""WholeAnswer: send an answer that is ready in one go where the server can, by ASGI's two messages elsewhere."""

from __future__ import annotations

from starlette.types import Send


async def send_whole(send: Send, status: int, body: bytes, *headers: tuple[bytes, bytes]) -> None:
    """Send a whole answer, with headers of our own making: in one go, where the server can."""
    whole = getattr(send, "whole", None)
    if whole is not None and whole(status, headers, body):
        return
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [length, *headers]})
    await send({"type": "http.response.body", "body": body})
