"""Processes: `pegboard serve` in a folder, as its users run it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from tests import forking

PEGBOARD = Path(sys.executable).with_name("pegboard")


class Server(NamedTuple):
    """A running one: its address, the file of what it says on standard error, and its process."""

    url: str
    said: Path
    pid: int


@asynccontextmanager
async def serving(
    folder: Path, *options: str, env: Mapping[str, str] | None = None, address: str | None = None
) -> AsyncGenerator[Server]:
    """Serve what the folder declares for the time of the block."""
    said = folder / f"said-{len(list(folder.glob('said-*')))}"
    with said.open("wb") as stderr:
        words = ["pegboard", "serve", "--port", "0", *options]
        files = (stderr.fileno(), stderr.fileno(), stderr.fileno())
        server = forking.fork(words, files=files, cwd=folder, env={**os.environ, **(env or {})}, address=address)
        ended = asyncio.create_task(asyncio.to_thread(server.wait))
    try:
        async with asyncio.timeout(60):
            while "Serving MCP on " not in (text := said.read_text()) or not text.endswith("\n"):
                assert not ended.done(), text
                await asyncio.sleep(0.02)
        assert "Serving MCP on " in text, text
        yield Server(text.partition("Serving MCP on ")[2].partition("/mcp")[0], said, server.pid)
    finally:
        if not ended.done():
            server.send_signal(signal.SIGTERM)
        await asyncio.wait_for(ended, 60)
