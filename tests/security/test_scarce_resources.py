"""EXEC-19 on a server without disk, descriptors or memory: it says so, stays up, and needs no restart."""

from __future__ import annotations

import asyncio
import resource
import sqlite3
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any

import httpx2

from tests.config.project import Project
from tests.server.processes import Server, serving
from tests.timing import PATIENCE_S

CONFIG = """
name: scarce
python: [mine]
consents: {store: "sqlite:consents.db"}
"""
MINE = """
import subprocess, sys
from pegboard import default_catalog as catalog

@catalog.tool(consent="always")
async def pay(to: str) -> str:
    "Pay somebody."
    return "paid"

@catalog.tool
def fill(megabytes: int) -> int:
    "Fill memory."
    return len(bytearray(megabytes * 2**20))

@catalog.tool
def begin() -> str:
    "Begin a process."
    return subprocess.run([sys.executable, "-c", "print('begun')"], capture_output=True, text=True).stdout
"""


async def call(client: httpx2.AsyncClient, server: Server, tool: str, **arguments: Any) -> tuple[str, Any]:
    answer = await client.post(f"{server.url}/v1/tools/{tool}/call", json=arguments)
    body = answer.json()
    return ("ok" if answer.status_code == 200 else body["kind"]), body


async def test_exec_19_a_server_without_disk_descriptors_or_memory_says_so_and_goes_on_when_there_are_some(
    tmp_path: Path,
) -> None:
    Project(tmp_path).write(CONFIG, mine=MINE)
    async with serving(tmp_path) as server, httpx2.AsyncClient(timeout=PATIENCE_S) as client:
        limits = {kind: resource.prlimit(server.pid, kind) for kind in KINDS}

        def allow(kind: int, most: int | None) -> None:
            usual = limits[kind]
            resource.prlimit(server.pid, kind, usual if most is None else (most, usual[1]))

        asked, refused = await call(client, server, "pay", to="ann")
        assert asked == "consent_required"
        # A disk that is full: nothing is filed, and what was filed before is there.
        allow(resource.RLIMIT_FSIZE, 1)
        for to in ("bob", "carol"):
            kind, problem = await call(client, server, "pay", to=to)
            assert (kind, problem["retryable"]) == ("storage_unavailable", True), problem
        allow(resource.RLIMIT_FSIZE, None)
        assert (await call(client, server, "pay", to="bob"))[0] == "consent_required"
        with closing(sqlite3.connect(tmp_path / "consents.db")) as consents:
            assert consents.execute("pragma integrity_check").fetchone() == ("ok",)
            ids = {row[0] for row in consents.execute("select id from consents")}
        assert (len(ids), refused["details"]["consent_id"] in ids) == (2, True)
        # No memory: the call fails, the process does not.
        allow(resource.RLIMIT_AS, memory_of(server.pid) + 300 * 2**20)
        assert (await call(client, server, "fill", megabytes=4_000))[0] == "tool_error"
        assert (await call(client, server, "fill", megabytes=1))[0] == "ok"
        allow(resource.RLIMIT_AS, None)
        # No descriptors: who is connected is answered; who comes waits, and is served when some are free.
        allow(resource.RLIMIT_NOFILE, 64)
        async with AsyncExitStack() as crowd:
            host, port = server.url.removeprefix("http://").split(":")
            for _ in range(100):
                _, writer = await asyncio.open_connection(host, int(port))
                crowd.callback(writer.close)
            for tool, arguments in (("begin", {}), ("pay", {"to": "dan"})):
                kind, problem = await call(client, server, tool, **arguments)
                assert kind in ("tool_error", "storage_unavailable"), problem
        allow(resource.RLIMIT_NOFILE, None)
        async with httpx2.AsyncClient(timeout=PATIENCE_S) as other:
            assert (await call(other, server, "begin"))[1]["content"][0]["text"] == "begun\n"
            assert (await call(other, server, "pay", to="dan"))[0] == "consent_required"


KINDS = (resource.RLIMIT_FSIZE, resource.RLIMIT_AS, resource.RLIMIT_NOFILE)


def memory_of(pid: int) -> int:
    """Return how many bytes of addresses a process has."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()
