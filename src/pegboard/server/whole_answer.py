"""WholeAnswer: send an answer that is ready in one go where the server can, by ASGI's two messages elsewhere."""

from __future__ import annotations

from typing import NamedTuple

from starlette.types import Send


class AnswerHeaders(NamedTuple):
    """Our own headers that many answers share: as ASGI wants them, and as the bytes sent."""

    pairs: tuple[tuple[bytes, bytes], ...]
    lines: bytes


def answer_headers(*pairs: tuple[bytes, bytes]) -> AnswerHeaders:
    """Return headers ready to be sent."""
    return AnswerHeaders(pairs, b"".join([b"%b: %b\r\n" % pair for pair in pairs]))


JSON_HEADERS = answer_headers((b"content-type", b"application/json"))


async def send_whole(send: Send, status: int, body: bytes, headers: AnswerHeaders = JSON_HEADERS) -> None:
    """Send a whole answer: in one go, where the server can."""
    whole = getattr(send, "whole", None)
    if whole is not None and whole(status, headers, body):
        return
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [length, *headers.pairs]})
    await send({"type": "http.response.body", "body": body})
