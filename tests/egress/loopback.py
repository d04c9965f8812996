"""Servers on 127.0.0.1 that misbehave by script and count what reaches them."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class RawServer:
    """Accepts connections, notes the head of each request, then runs the script. `hits` counts connections."""

    def __init__(
        self, script: Script | bytes, *, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None
    ) -> None:
        self.port = port
        self.hits = 0
        self.heads: list[str] = []
        self.bodies: list[bytes] = []
        self.closed_by_client = asyncio.Event()
        self._script = script
        self._host = host
        self._tls = tls
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://{self._host}:{self.port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, self._host, self.port, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.hits += 1
        # A client that hangs up in the middle is what many of these tests are about.
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                if head.startswith("OPTIONS * "):
                    # A probe, which every server of HTTP answers somehow.
                    writer.write(answer(status="204 No Content"))
                    break
                self.heads.append(head)
                length = next(
                    (int(h.split(":")[1]) for h in head.lower().split("\r\n") if h.startswith("content-length:")), 0
                )
                self.bodies.append(await reader.readexactly(length))
                if isinstance(self._script, bytes):
                    writer.write(self._script)
                    await writer.drain()
                else:
                    await self._script(reader, writer)
                    break
        self.closed_by_client.set()
        writer.close()
        with suppress(ConnectionError, asyncio.CancelledError):
            await writer.wait_closed()


def answer(body: bytes = b"hello", *, status: str = "200 OK", headers: Sequence[str] = ()) -> bytes:
    """The bytes of one whole HTTP answer."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


def redirect(location: str, *, status: str = "302 Found") -> bytes:
    """The bytes of a redirect."""
    return answer(b"", status=status, headers=[f"Location: {location}"])


def names(**addresses: str | Sequence[str]) -> Callable[[str, int], Awaitable[Sequence[str]]]:
    """A resolver that knows these names (`_` stands for a dot) and literal addresses."""
    book = {
        name.replace("_", "."): [found] if isinstance(found, str) else list(found) for name, found in addresses.items()
    }

    async def resolve(host: str, port: int) -> Sequence[str]:
        if host in book:
            return book[host]
        if host.replace(".", "").isdigit() or ":" in host:
            return [host]
        raise OSError(f"no such name {host}")

    return resolve
