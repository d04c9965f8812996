"""Turns: let others run in between the steps of long work."""

from __future__ import annotations

import asyncio
import time

from pegboard.model.bounds import KIB

MCP_STRETCH_S = 0.01  # that the tools of one list are judged at a stretch, before others get their turn
MCP_LONG_MESSAGE_BYTES = 64 * KIB  # of one message, up to which its readers read it one after the other at once


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
