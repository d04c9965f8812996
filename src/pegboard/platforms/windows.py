"""Windows: functions, YAML, the command line and MCP over HTTP. Unsupported features are refused by name."""

from __future__ import annotations

import asyncio
import getpass
import os
import signal
import socket  # noqa: TID251 - prepares one to listen, and calls nobody
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import TextIO

NO_PROGRAMS: str | None = (
    "programs are not started on Windows, where Pegboard can neither end their child processes nor limit their "
    "memory. Connect to the server over HTTP, or run Pegboard in WSL"
)
NO_FILES: str | None = (
    "files are not opened on Windows, where Pegboard cannot prevent a link from leading out of a folder. "
    "Run Pegboard in WSL"
)
NO_WORKERS: str | None = (
    "several workers share a socket and are forked from one process, which Windows does not support. "
    "Serve with one worker, or run Pegboard in WSL"
)
NO_OWNERS: str | None = "Pegboard cannot determine on Windows which users may write a file"
POLLS_PIPES = False
OPEN_SAFELY = OPEN_FOLDER = NO_LINK = 0


@contextmanager
def signals_to(handler: Callable[[], None]) -> Generator[None]:
    """Have the running loop call `handler` at a signal that ends the process; `add_signal_handler` is missing here."""
    loop = asyncio.get_running_loop()
    numbers = [number for name in ("SIGINT", "SIGTERM", "SIGBREAK") if (number := getattr(signal, name, None))]

    def tell(_number: int, _frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(handler)

    before = {number: signal.signal(number, tell) for number in numbers}
    try:
        yield
    finally:
        for number, usual in before.items():
            signal.signal(number, usual)


def forget_typed(keyboard: TextIO) -> None:
    """Do nothing: Windows cannot discard the input of every kind of terminal."""


def take_address_again(listening: socket.socket) -> None:
    """Reserve a socket's address; here the address of an earlier server is free at once."""
    # Otherwise another program could listen at the same address and receive our callers.
    exclusive: int | None = getattr(socket, "SO_EXCLUSIVEADDRUSE", None)
    if exclusive is not None:
        listening.setsockopt(socket.SOL_SOCKET, exclusive, 1)


def current_user() -> str:
    """Return the name of the user who runs this process."""
    return getpass.getuser()


def is_of_another_user(status: os.stat_result) -> bool:
    """Return `False`: the owner is unknown."""
    return False


def lock_now(handle: int) -> None:
    """Refuse: files are not opened here, so there is nothing to lock."""
    raise NotImplementedError(NO_FILES)


def unlock(handle: int) -> None:
    """Refuse: files are not opened here, so there is nothing to lock."""
    raise NotImplementedError(NO_FILES)
