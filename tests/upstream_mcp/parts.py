"""What the tests of MCP sources share: servers that run for the time of a block, and catalogs on them."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from pegboard import Catalog, ToolContext
from pegboard.core.view import View
from pegboard.model.result import ToolResult
from pegboard.sources.mcp.backoff import MCP_LONGEST_RETRY_S
from pegboard.sources.mcp.lock_file import LockFile
from pegboard.sources.mcp.server_settings import ServerSettings
from pegboard.sources.mcp.supervised_source import McpSource
from tests import forking, ports

PLAIN = Path(__file__).parent / "plain_server.py"
TELLING = Path(__file__).parent / "telling_server.py"
EVIL = Path(__file__).parent.parent / "evil" / "server.py"


free_port = ports.free_port


def on_stdio(script: Path = PLAIN, *args: str, name: str = "up", **said: Any) -> ServerSettings:
    """Return the settings of a server on stdio."""
    command, *words = start_of(script, *args)
    return ServerSettings(name=name, transport="stdio", command=command, args=tuple(words), **said)


def start_of(script: Path, *args: str) -> tuple[str, ...]:
    """Return what starts a server; one that the SDK serves is forked, since reading the SDK takes two seconds."""
    words = (str(script), *args)
    return forking.started("python", *words) if script not in (EVIL, TELLING) else (sys.executable, *words)


async def until_open(port: int) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.02)
            else:
                writer.close()
                return


@asynccontextmanager
async def http_server(kind: str, port: int, script: Path = PLAIN) -> AsyncGenerator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *start_of(script, kind, str(port)), stderr=asyncio.subprocess.DEVNULL
    )
    try:
        await until_open(port)
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@asynccontextmanager
async def running(*settings: ServerSettings, lock: LockFile | None = None) -> AsyncGenerator[tuple[Catalog, Any]]:
    """Give a started catalog and its sources, the first attempt of each over; one source alone is given as such."""
    catalog = Catalog()
    sources = [McpSource(said, lock=lock) for said in settings]
    for source in sources:
        catalog.add_source(source)
    await catalog.start(wait_s=0)
    try:
        async with asyncio.timeout(60):
            for source in sources:
                if source.settings.start == "eager":
                    await source.settled()
        yield catalog, sources[0] if len(sources) == 1 else sources
    finally:
        await catalog.close(grace_s=0)


def view_of(catalog: Catalog, **context: Any) -> View:
    return catalog.view(ToolContext(budget=None, **context))


async def until(holds: Any, *, within_s: float = 60.0) -> None:
    """Wait until something becomes true, e.g. after a server told of a change."""
    async with asyncio.timeout(within_s):
        while not holds():
            await asyncio.sleep(0.01)


def processes_with(word: str) -> list[str]:
    """Return the command lines of all processes that have this word in them, zombies of ours included."""
    found: list[str] = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
                parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            except OSError:
                continue
            if word in command or (not command and parent == str(os.getpid())):
                found.append(command)
    return found


def processes_of(log: Path) -> list[int]:
    """Return the servers that write this log."""
    found: list[int] = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if str(log).encode() in (folder / "cmdline").read_bytes():
                    found.append(int(folder.name))
            except OSError:
                continue
    return found


def is_broken(result: ToolResult) -> bool:
    """Tell whether the breaker is open: the server is not tried for half a minute, and not for a second or so."""
    return result.error is not None and (result.error.retry_after_s or 0.0) > MCP_LONGEST_RETRY_S / 2
