"""Loopback redirect: waits on this machine for the browser that an issuer sends back to a command."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from html import escape
from urllib.parse import parse_qsl, urlsplit

_HEAD_BYTES = 16_384  # bytes of the browser's request
_HEAD_S = 10.0  # seconds for them to arrive
_FIELDS = 20  # fields of the query
_PATH = "/callback"

Settle = Callable[[dict[str, str]], Awaitable[str]]
"""Takes the answer of the issuer, and returns the sentence that the browser shows."""


class LoopbackRedirect:
    """A redirect URI at a free port of 127.0.0.1, for one answer; see `loopback_redirect`."""

    def __init__(self) -> None:
        self.uri = ""
        self._state, self._settle = "", None
        self._is_settled = asyncio.Event()

    async def answered(self, state: str, settle: Settle, *, within_s: float) -> bool:
        """Wait for the answer with this `state`, and pass it to `settle`. Return False if none came in time.

        Requests with another state do not count: any page can send the browser here.
        """
        self._state, self._settle = state, settle
        try:
            async with asyncio.timeout(within_s):
                await self._is_settled.wait()
        except TimeoutError:
            return False
        return True

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_HEAD_S):
                head = await reader.readuntil(b"\r\n\r\n")
            status, text = await self._reply(head.partition(b"\r\n")[0].decode("latin-1"))
            writer.write(_page(status, text))
            await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()

    async def _reply(self, request_line: str) -> tuple[str, str]:
        method, _, rest = request_line.partition(" ")
        address = urlsplit(rest.partition(" ")[0])
        if method != "GET" or address.path != _PATH:
            return "404 Not Found", "There is nothing here."
        try:
            pairs = parse_qsl(address.query, keep_blank_values=True, max_num_fields=_FIELDS)
        except ValueError:
            pairs = []
        words = dict(pairs)
        settle = self._settle
        if settle is None or not self._state or words.get("state") != self._state or len(words) != len(pairs):
            return "400 Bad Request", "This is not the answer that the command waits for. Nothing was connected."
        self._settle = None
        try:
            return "200 OK", await settle(words)
        finally:
            self._is_settled.set()


@asynccontextmanager
async def loopback_redirect() -> AsyncGenerator[LoopbackRedirect]:
    """Listen for the time of the block."""
    redirect = LoopbackRedirect()
    server = await asyncio.start_server(redirect._serve, "127.0.0.1", 0, limit=_HEAD_BYTES)  # pyright: ignore[reportPrivateUsage] - made here
    redirect.uri = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{_PATH}"
    async with server:
        yield redirect


def _page(status: str, text: str) -> bytes:
    body = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Pegboard</title><p>{escape(text)}</p></html>\n'
    raw = body.encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {len(raw)}\r\n"
        "Content-Security-Policy: default-src 'none'; frame-ancestors 'none'\r\nCache-Control: no-store\r\n"
        "Referrer-Policy: no-referrer\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + raw
