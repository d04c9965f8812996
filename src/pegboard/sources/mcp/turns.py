"""Turns: let others run in between the steps of long work."""

from __future__ import annotations

import asyncio
import time

from pegboard.model.bounds import MCP_LONG_MESSAGE_BYTES, MCP_STRETCH_S


class Turns:
    """Long work that gives way after each stretch, however much or little a single step of it takes."""

    def __init__(self) -> None:
        self._since = time.monotonic()

    async def next(self) -> None:
        """Let others run, if this work had the loop for a stretch."""
        if time.monotonic() - self._since >= MCP_STRETCH_S:
            await asyncio.sleep(0)
            self._since = time.monotonic()


async def between_readings(message: bytes) -> None:
    """Let others run before a long message is read once more: we judge it, and then the SDK reads it."""
    if len(message) > MCP_LONG_MESSAGE_BYTES:
        await asyncio.sleep(0)
