"""Round robin: a small HTTP proxy on loopback that gives each request to the next server, as proxies do."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

_CONNECTION = re.compile(rb"(?im)^connection:.*\r\n")


@asynccontextmanager
async def proxied(urls: Sequence[str]) -> AsyncGenerator[str]:
    """Run the proxy for the time of the block; gives its address."""
    turns, tasks = itertools.cycle(urls), set[asyncio.Task[None]]()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(task := asyncio.create_task(serve(reader, writer)))
        task.add_done_callback(tasks.discard)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            try:
                head = await reader.readuntil(b"\r\n\r\n")
                parts = urlsplit(next(turns))
                above, below = await asyncio.open_connection(parts.hostname, parts.port)
                try:
                    # One request a connection: the next one is another server's.
                    line, _, fields = _CONNECTION.sub(b"", head).partition(b"\r\n")
                    below.write(line + b"\r\nconnection: close\r\n" + fields)
                    ways = [asyncio.create_task(_pipe(above, writer)), asyncio.create_task(_pipe(reader, below))]
                    try:
                        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                    finally:
                        # Whichever side leaves, the other hears of it.
                        for way in ways:
                            way.cancel()
                finally:
                    below.close()
            finally:
                writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
