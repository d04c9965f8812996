"""Windows: functions, YAML, the command line and MCP over HTTP. What cannot work is refused by name."""

from __future__ import annotations

import asyncio
import os
import signal
import socket  # noqa: TID251 - prepares one to listen, and calls nobody
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import TextIO

NO_PROGRAMS: str | None = (
    "programs are not started on Windows, where Pegboard cannot end what they start, nor limit their memory. "
    "Reach the server over HTTP, or run Pegboard in WSL"
)
NO_FILES: str | None = (
    "files are not opened on Windows, where Pegboard cannot hold that no link leads out of a folder. "
    "Run Pegboard in WSL"
)
NO_WORKERS: str | None = (
    "several workers share one socket and are forked from one process, which Windows has not. "
    "Serve with one worker, or run Pegboard in WSL"
)
NO_OWNERS: str | None = "who may write a file cannot be told on Windows"
POLLS_PIPES = False
OPEN_SAFELY = OPEN_FOLDER = NO_LINK = 0


@contextmanager
def signals_to(handler: Callable[[], None]) -> Generator[None]:
    """Have the running loop call `handler` at a signal that ends; its own way does not exist here."""
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
    """Leave what was typed as it is: only the keyboard of a real terminal there could be asked."""


def take_address_again(listening: socket.socket) -> None:
    """Let a socket have its address alone; that of a server that has ended is free at once here."""
    # Without it another program could listen at the same address, and take our callers.
    exclusive: int | None = getattr(socket, "SO_EXCLUSIVEADDRUSE", None)
    if exclusive is not None:
        listening.setsockopt(socket.SOL_SOCKET, exclusive, 1)


def is_of_another_user(status: os.stat_result) -> bool:
    """Return `False`: an owner cannot be told."""
    return False


def may_everybody_write(status: os.stat_result) -> bool:
    """Return `False`: access lists say so here, and the mode does not."""
    return False


def lock_now(handle: int) -> None:
    """Refuse: nothing is opened that could be held."""
    raise NotImplementedError(NO_FILES)


def unlock(handle: int) -> None:
    """Refuse: nothing is opened that could be held."""
    raise NotImplementedError(NO_FILES)
