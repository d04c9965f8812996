"""Posix: Linux, macOS and their kin, where everything works."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import socket  # noqa: TID251 - prepares one to listen, and calls nobody
import stat
import termios
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import TextIO

NO_PROGRAMS: str | None = None
"""Why no program can be started so that it is surely ended again; `None` where it can."""
NO_FILES: str | None = None
"""Why files cannot be opened so that no link leads out of a folder; `None` where they can."""
NO_WORKERS: str | None = None
"""Why there cannot be several workers; `None` where there can."""
NO_OWNERS: str | None = None
"""Why it cannot be told who may write a file; `None` where it can."""
POLLS_PIPES = True
"""Whether a loop can wait for standard input and output."""

# Never follow, never wait for the other end of a FIFO, never become anyone's terminal.
OPEN_SAFELY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
NO_LINK = os.O_NOFOLLOW
"""Flags for `os.open`."""


@contextmanager
def signals_to(handler: Callable[[], None]) -> Generator[None]:
    """Have the running loop call `handler` at SIGINT and SIGTERM; for the main thread alone."""
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        loop.add_signal_handler(number, handler)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


def forget_typed(keyboard: TextIO) -> None:
    """Drop what was typed on a terminal and has not been read."""
    with suppress(OSError, ValueError, termios.error):
        termios.tcflush(keyboard.fileno(), termios.TCIFLUSH)


def take_address_again(listening: socket.socket) -> None:
    """Let a socket listen where the connections of a server that has ended are not quite gone."""
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)


def is_of_another_user(status: os.stat_result) -> bool:
    """Tell whether a file belongs to somebody else than the user that runs this and the system."""
    return status.st_uid not in (os.getuid(), 0)


def may_everybody_write(status: os.stat_result) -> bool:
    """Tell whether every user of the machine may write a file."""
    return bool(status.st_mode & stat.S_IWOTH)


def lock_now(handle: int) -> None:
    """Hold a folder or file against others, or raise `BlockingIOError`."""
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def unlock(handle: int) -> None:
    """Let go of what `lock_now` holds."""
    fcntl.flock(handle, fcntl.LOCK_UN)
