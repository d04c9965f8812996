"""LineStreams: reserves standard input and output for the protocol; other output goes to standard error."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import BinaryIO, Protocol

from pegboard.platforms import platform


class LineTooLongError(Exception):
    """A line exceeded the limit and was skipped."""


class LineStreams(Protocol):
    """Lines in, bytes out."""

    async def line(self) -> bytes:
        """Return the next line with its end, or the rest before the end of input; empty at the end.

        Raises:
            LineTooLongError: it was skipped.
        """
        ...

    def write(self, data: bytes) -> None: ...

    async def drain(self) -> None:
        """Wait until the reader has taken enough of the written data."""
        ...

    def stop(self) -> None:
        """End the input."""
        ...


@asynccontextmanager
async def standard_streams(max_line_bytes: int) -> AsyncGenerator[LineStreams]:
    """Take over file descriptors 0 and 1 within the block."""
    wire_in, wire_out = os.dup(0), os.dup(1)
    empty, writing_end = os.pipe()
    os.close(writing_end)
    os.dup2(empty, 0)
    os.close(empty)
    os.dup2(2, 1)
    # Output that was buffered before is not part of the protocol either.
    sys.stdout.flush()
    # The loop's transports own and close these two; the copies restore them.
    kept_in, kept_out = os.dup(wire_in), os.dup(wire_out)
    # Only a loop that can wait for a descriptor sets it to non-blocking.
    blocking = (os.get_blocking(kept_in), os.get_blocking(kept_out)) if platform.POLLS_PIPES else None
    try:
        with os.fdopen(wire_in, "rb", 0) as source, os.fdopen(wire_out, "wb", 0) as sink:
            if platform.POLLS_PIPES and _is_pollable(wire_in) and _is_pollable(wire_out):
                streams: PipeStreams | FileStreams = await PipeStreams.opened(source, sink, max_line_bytes)
            else:
                streams = FileStreams(source, sink, max_line_bytes)
            try:
                yield streams
            finally:
                await streams.close()
    finally:
        sys.stdout.flush()
        if blocking is not None:
            os.set_blocking(kept_in, blocking[0])
            os.set_blocking(kept_out, blocking[1])
        os.dup2(kept_in, 0)
        os.dup2(kept_out, 1)
        os.close(kept_in)
        os.close(kept_out)


def _is_pollable(fd: int) -> bool:
    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or (stat.S_ISCHR(mode) and os.isatty(fd))


class PipeStreams:
    """Pipes, sockets and terminals, without threads: a signal ends the wait."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._is_skipping = False

    @classmethod
    async def opened(cls, source: BinaryIO, sink: BinaryIO, max_line_bytes: int) -> PipeStreams:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=max_line_bytes)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), source)
        transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, sink)
        return cls(reader, asyncio.StreamWriter(transport, protocol, None, loop))

    async def line(self) -> bytes:
        while True:
            try:
                line = await self._reader.readuntil(b"\n")
            except asyncio.IncompleteReadError as rest:
                line = rest.partial
            except asyncio.LimitOverrunError as over:
                await self._reader.readexactly(over.consumed)
                self._is_skipping = True
                continue
            if self._is_skipping:
                self._is_skipping = False
                raise LineTooLongError
            return line

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    async def drain(self) -> None:
        await self._writer.drain()

    def stop(self) -> None:
        self._reader.feed_eof()

    async def close(self) -> None:
        """Write the remaining data if the reader still takes it."""
        self._writer.close()


class FileStreams:
    """Regular files, which a loop cannot wait for and which never block for long."""

    def __init__(self, source: BinaryIO, sink: BinaryIO, max_line_bytes: int) -> None:
        self._source, self._sink, self._max_line_bytes = source, sink, max_line_bytes
        self._is_stopped = False

    async def line(self) -> bytes:
        if self._is_stopped:
            return b""
        line = await asyncio.to_thread(self._source.readline, self._max_line_bytes + 1)
        if len(line) <= self._max_line_bytes:
            return line
        while line and not line.endswith(b"\n"):
            line = await asyncio.to_thread(self._source.readline, self._max_line_bytes)
        raise LineTooLongError

    def write(self, data: bytes) -> None:
        self._sink.write(data)

    async def drain(self) -> None:
        pass

    def stop(self) -> None:
        self._is_stopped = True

    async def close(self) -> None:
        pass
