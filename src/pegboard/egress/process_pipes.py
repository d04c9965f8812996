"""Process pipes: the three pipes of a running program, each with a limit."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable
from typing import IO, cast

from pegboard.model.bounds import MIB
from pegboard.model.error import CallError

PIPE_WAITING_BYTES = 1 * MIB  # bytes of unread lines; above this the program has to wait
PIPE_LINE_COST_BYTES = 64  # bytes of memory per line in addition to its text
PIPE_LINGER_S = 0.25  # seconds to read the remaining output of a program; a descendant may keep the pipe open that long


class ProcessPipes:
    """Splits stdout into lines, keeps the end of stderr, and blocks writers while stdin is full.

    Uses plain pipes instead of the event loop's subprocess support, which in uvloop leaks descriptors into the child
    and uses sockets.
    """

    def __init__(self, command: str, *, line_bytes: int, stderr_bytes: int, keeps_returns: bool = False) -> None:
        self.exited = asyncio.Event()
        self.stderr = bytearray()
        self.stderr_ended = asyncio.Event()
        self._command = command
        self._line_bytes, self._keeps_returns = line_bytes, keeps_returns
        self._stderr_bytes = stderr_bytes
        self._lines: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._unfinished_line = bytearray()
        self._fault: CallError | None = None
        self._is_ended = False
        self._is_paused = False
        self._is_stdin_open = True
        self._changed = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._transports: list[asyncio.BaseTransport] = []
        self._open_pipes = 0
        self._all_closed = asyncio.Event()

    async def attach(self, stdin: IO[bytes], stdout: IO[bytes], stderr: IO[bytes]) -> None:
        """Connect the three pipes to the event loop."""
        loop = asyncio.get_running_loop()
        self._inodes = frozenset(os.fstat(pipe.fileno()).st_ino for pipe in (stdout, stderr))
        self._stdin, _ = await loop.connect_write_pipe(lambda: _Input(self), stdin)
        # Bytes may arrive, and be refused, before `connect_read_pipe` returns; the protocol has the transport by then.
        self._stdout = _Output(self, self._on_stdout, self._end)
        await loop.connect_read_pipe(lambda: self._stdout, stdout)
        await loop.connect_read_pipe(lambda: _Output(self, self._on_stderr, self.stderr_ended.set), stderr)

    # ---- for the process

    async def read_line(self) -> bytes | None:
        """Return the next line, or None at the end."""
        while not self._lines:
            if self._fault is not None:
                raise self._fault
            if self._is_ended:
                return None
            self._changed.clear()
            await self._changed.wait()
        line = self._lines.popleft()
        self._waiting_bytes -= len(line) + PIPE_LINE_COST_BYTES
        if self._is_paused and self._fault is None and self._waiting_bytes <= PIPE_WAITING_BYTES // 2:
            self._is_paused = False
            if not self._is_ended:
                self._stdout.transport.resume_reading()
        return line

    async def write(self, payload: bytes) -> None:
        """Send bytes, waiting before and after while the pipe is full."""
        await self._writable.wait()
        if not self._is_stdin_open or self.exited.is_set():
            text = f"The program {self._command!r} has ended or takes no more input."
            raise CallError("upstream_lost", text, outcome_unknown=False)
        self._stdin.write(payload)
        await self._writable.wait()
        if not self._is_stdin_open or self.exited.is_set():
            text = f"The program {self._command!r} ended while it was being asked. The action may have happened."
            raise CallError("upstream_lost", text, outcome_unknown=True)

    def close_stdin(self) -> None:
        """Close stdin after the buffered bytes are sent."""
        self._stdin.close()

    def output_inodes(self) -> frozenset[int]:
        """Return the inode numbers of stdout and stderr."""
        return self._inodes

    async def close(self) -> None:
        """Close every pipe, and wait until the event loop has released them."""
        if self._stdin.get_write_buffer_size():
            self._stdin.abort()
        for transport in self._transports:
            transport.close()
        await self._all_closed.wait()

    # ---- callbacks of the event loop

    def on_exit(self) -> None:
        """Record that the program has exited."""
        self.exited.set()
        self._writable.set()
        asyncio.get_running_loop().call_later(PIPE_LINGER_S, self._hang_up)

    def on_pipe_open(self, transport: asyncio.BaseTransport) -> None:
        """Record a pipe that must be closed at the end."""
        self._transports.append(transport)
        self._open_pipes += 1

    def on_pipe_closed(self) -> None:
        """Record that a pipe is closed."""
        self._open_pipes -= 1
        if self._open_pipes == 0:
            self._all_closed.set()

    def on_writable(self, is_writable: bool) -> None:
        """Record that stdin is full or has room again."""
        if is_writable:
            self._writable.set()
        else:
            self._writable.clear()

    def on_stdin_closed(self) -> None:
        """Record that the program reads no more input."""
        self._is_stdin_open = False
        self._writable.set()

    def _on_stderr(self, arrived: bytes) -> None:
        self.stderr += arrived
        del self.stderr[: -self._stderr_bytes]

    def _on_stdout(self, arrived: bytes) -> None:
        if self._fault is None:
            self._split_lines(arrived)
            self._changed.set()

    # ---- internal

    def _split_lines(self, arrived: bytes) -> None:
        first, *others = arrived.split(b"\n")
        self._unfinished_line += first
        for part in others:
            self._add_line(bytes(self._unfinished_line))
            self._unfinished_line[:] = part
        if len(self._unfinished_line) > self._line_bytes:
            self._refuse_line()
        if self._waiting_bytes > PIPE_WAITING_BYTES and not self._is_paused:
            self._pause()

    def _add_line(self, line: bytes) -> None:
        if len(line) > self._line_bytes:
            self._refuse_line()
        elif self._fault is None:
            self._lines.append(line if self._keeps_returns else line.removesuffix(b"\r"))
            self._waiting_bytes += len(self._lines[-1]) + PIPE_LINE_COST_BYTES

    def _refuse_line(self) -> None:
        text = f"The program {self._command!r} wrote a line of more than {self._line_bytes} bytes. Stop and replace it."
        self._fault = CallError("protocol_error", text)
        self._unfinished_line.clear()
        self._pause()

    def _pause(self) -> None:
        if not self._is_paused and not self._is_ended:
            self._is_paused = True
            self._stdout.transport.pause_reading()

    def _hang_up(self) -> None:
        self._stdout.transport.close()
        self._end()

    def _end(self) -> None:
        if not self._is_ended:
            self._is_ended = True
            if self._unfinished_line and self._fault is None:
                self._add_line(bytes(self._unfinished_line))
                self._unfinished_line.clear()
        self._changed.set()


class _Output(asyncio.Protocol):
    """One output pipe of the program; `transport` is set before the first bytes arrive."""

    transport: asyncio.ReadTransport

    def __init__(self, pipes: ProcessPipes, on_bytes: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        self._pipes = pipes
        self._on_end = on_end
        self._on_bytes = on_bytes

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.ReadTransport", transport)
        self._pipes.on_pipe_open(transport)

    def data_received(self, data: bytes) -> None:
        self._on_bytes(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_end()
        self._pipes.on_pipe_closed()


class _Input(asyncio.Protocol):
    """The input pipe of the program."""

    def __init__(self, pipes: ProcessPipes) -> None:
        self._pipes = pipes

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._pipes.on_pipe_open(transport)

    def pause_writing(self) -> None:
        self._pipes.on_writable(False)

    def resume_writing(self) -> None:
        self._pipes.on_writable(True)

    def connection_lost(self, exc: Exception | None) -> None:
        self._pipes.on_stdin_closed()
        self._pipes.on_pipe_closed()
