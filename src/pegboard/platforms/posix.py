"""Posix: Linux, macOS and similar systems, where everything is supported."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pwd
import signal
import socket  # noqa: TID251 - prepares one to listen, and calls nobody
import termios
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import TextIO

NO_PROGRAMS: str | None = None
"""Why programs cannot be started, because ending them would not be certain; `None` if they can."""
NO_FILES: str | None = None
"""Why files cannot be opened, because a link could lead out of their folder; `None` if they can."""
NO_WORKERS: str | None = None
"""Why several workers are not supported; `None` if they are."""
NO_OWNERS: str | None = None
"""Why it is unknown which users may write a file; `None` if it is known."""
POLLS_PIPES = True
"""Whether a loop can wait for standard input and output."""

# Follow no links, do not wait for the other end of a FIFO, do not become the terminal of the process.
OPEN_SAFELY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
NO_LINK = os.O_NOFOLLOW
"""Flags for `os.open`."""


@contextmanager
def signals_to(handler: Callable[[], None]) -> Generator[None]:
    """Have the running loop call `handler` at SIGINT and SIGTERM within the block; only in the main thread."""
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
    """Discard unread keyboard input of a terminal."""
    with suppress(OSError, ValueError, termios.error):
        termios.tcflush(keyboard.fileno(), termios.TCIFLUSH)


def take_address_again(listening: socket.socket) -> None:
    """Let a socket listen at an address where connections of an earlier server are still closing."""
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)


def current_user() -> str:
    """Return the name of the user who runs this process, whatever the environment says."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # pragma: no cover - a container that runs as a user without a name
        return str(os.getuid())


def is_of_another_user(status: os.stat_result) -> bool:
    """Tell whether a file belongs to a user other than the current one and root."""
    return status.st_uid not in (os.getuid(), 0)


def lock_now(handle: int) -> None:
    """Lock a folder or file for this process.

    Raises:
        BlockingIOError: another process has locked it.
    """
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def unlock(handle: int) -> None:
    """Release a lock of `lock_now`."""
    fcntl.flock(handle, fcntl.LOCK_UN)
