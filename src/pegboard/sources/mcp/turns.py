"""Turns: yields to other tasks during long work."""

from __future__ import annotations

import asyncio
import time

from pegboard.model.bounds import KIB

MCP_STRETCH_S = 0.01  # seconds of work on one list before other tasks get a turn
MCP_LONG_MESSAGE_BYTES = 64 * KIB  # bytes of a message above which its two readers yield in between


class Turns:
    """Long work that yields after each stretch of time, however long a single step takes."""

    def __init__(self) -> None:
        self._since = time.monotonic()

    async def next(self) -> None:
        """Yield if this work has used the loop for a stretch."""
        if time.monotonic() - self._since >= MCP_STRETCH_S:
            await asyncio.sleep(0)
            self._since = time.monotonic()


async def between_readings(message: bytes) -> None:
    """Yield before a long message is parsed a second time: first by us, then by the SDK."""
    if len(message) > MCP_LONG_MESSAGE_BYTES:
        await asyncio.sleep(0)
