"""Faults: a TCP proxy on loopback that delays, throttles, cuts, half-closes or swallows what passes through it."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field


@dataclass(kw_only=True)
class Faults:
    """What the proxy does, changeable while it runs; counts are per connection, of what comes back from the server."""

    latency_s: float = 0.0
    reset_at_byte: int | None = None
    resets_left: int | None = None
    half_close_at_byte: int | None = None
    bytes_per_s: float | None = None
    is_black_hole: bool = False
    is_refusing: bool = False
    port: int = 0
    open_connections: set[asyncio.Task[None]] = field(default_factory=set)


@asynccontextmanager
async def fault_proxy(target: int, faults: Faults) -> AsyncGenerator[Faults]:
    """Stand between a client and the server on port `target`; `faults.port` is where to connect."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        faults.open_connections.add(task)
        try:
            await _carry(reader, writer, target, faults)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            faults.open_connections.discard(task)
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    faults.port = server.sockets[0].getsockname()[1]
    try:
        yield faults
    finally:
        server.close()
        for task in tuple(faults.open_connections):
            task.cancel()
        await asyncio.gather(*faults.open_connections, return_exceptions=True)


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: int, faults: Faults) -> None:
    if faults.is_refusing:
        writer.transport.abort()
        return
    there, thither = await asyncio.open_connection("127.0.0.1", target)
    try:
        upward = asyncio.create_task(_copy_up(reader, thither))
        try:
            await _copy_down(there, writer, faults)
        finally:
            upward.cancel()
            await asyncio.gather(upward, return_exceptions=True)
    finally:
        thither.close()


async def _copy_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while piece := await reader.read(65_536):
            writer.write(piece)
            await writer.drain()
        writer.write_eof()


async def _copy_down(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, faults: Faults) -> None:
    passed = 0
    while piece := await reader.read(65_536):
        if faults.is_black_hole:
            continue
        if faults.latency_s:
            await asyncio.sleep(faults.latency_s)
        for limit in (faults.reset_at_byte, faults.half_close_at_byte):
            if limit is not None and passed + len(piece) > limit and faults.resets_left != 0:
                if faults.resets_left is not None:
                    faults.resets_left -= 1
                writer.write(piece[: max(0, limit - passed)])
                await writer.drain()
                if limit == faults.reset_at_byte:
                    writer.transport.abort()
                else:
                    writer.write_eof()
                    await asyncio.sleep(300)
                return
        if faults.bytes_per_s:
            await asyncio.sleep(len(piece) / faults.bytes_per_s)
        passed += len(piece)
        writer.write(piece)
        await writer.drain()
