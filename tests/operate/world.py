"""World: a served config whose parts a test takes away one at a time, and everything that Pegboard says about it."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import orjson
import psycopg
from msgspec import Struct

from tests import forking
from tests.builtin.web import Asked, Site, answer, as_json
from tests.ports import free_port
from tests.server.processes import Server
from tests.timing import PATIENCE_S

ALERTS = (
    "changed", "quarantined", "flagged", "down", "config_refused", "store_down", "audit_broken", "task_stuck",
    "consent_waiting", "budget",
)  # fmt: skip
FUNCTIONS = '''
"""The tools of the outage tests."""

from pathlib import Path

from pegboard import default_catalog


@default_catalog.tool(groups="core", read_only=True)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@default_catalog.tool(groups="core")
def send(text: str) -> str:
    """Send a text."""
    return f"sent {text}"


CONFIG = Path("pegboard.yaml").read_text()

if "consents" in CONFIG:

    @default_catalog.tool(groups="core", consent="always")
    def wipe() -> str:
        """Delete everything."""
        return "deleted"


if "tasks" in CONFIG:

    @default_catalog.tool(groups="core", task="required")
    async def later() -> str:
        """Run for longer than a call."""
        return "done"
'''
CHUNK = {
    "id": "1", "object": "chat.completion.chunk", "created": 0, "model": "m",
    "choices": [{"index": 0, "delta": {"role": "assistant", "content": "fine"}, "finish_reason": "stop"}],
}  # fmt: skip
MODEL_ANSWER = b"data: " + orjson.dumps(CHUNK) + b"\n\ndata: [DONE]\n\n"
API = {
    "openapi": "3.1.0",
    "info": {"title": "Shop", "version": "1"},
    "paths": {"/orders": {"get": {"operationId": "orders", "summary": "List orders.", "responses": {"200": {}}}}},
}


CALL_WAIT_S = 2.0
WAITS = "no answer yet"


class Relay:
    """Forwards a port of loopback to a server.

    After `cut` it refuses connections, as a dead server does. After `freeze` it keeps its connections, accepts new ones
    and answers none, as a stopped server does. `mend` ends both.
    """

    def __init__(self, target: str | int) -> None:
        """Forward to a socket file, or to a port of loopback."""
        self.port, self._target = free_port(), target
        self._server: asyncio.Server | None = None
        self._tasks = set[asyncio.Task[None]]()
        self._is_flowing = asyncio.Event()

    async def mend(self) -> None:
        self._is_flowing.set()
        if self._server is not None:
            return
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)

    def freeze(self) -> None:
        self._is_flowing.clear()

    async def cut(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        writers = [writer]
        with suppress(asyncio.CancelledError):
            await self._is_flowing.wait()
            if isinstance(self._target, int):
                their_reader, their_writer = await asyncio.open_connection("127.0.0.1", self._target)
            else:
                their_reader, their_writer = await asyncio.open_unix_connection(self._target)
            writers.append(their_writer)
            await asyncio.gather(self._copy(reader, their_writer), self._copy(their_reader, writer))
        for each in writers:
            each.close()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while piece := await reader.read(65_536):
                await self._is_flowing.wait()
                writer.write(piece)
                await writer.drain()
            writer.close()


class Database:
    """A PostgreSQL database behind a relay."""

    def __init__(self, superuser_url: str, name: str) -> None:
        folder = superuser_url.partition("host=")[2].partition("&")[0]
        with psycopg.connect(superuser_url, autocommit=True) as connection:
            connection.execute(f"drop database if exists {name} with (force)".encode())
            connection.execute(f"create database {name}".encode())
        self.relay = Relay(str(Path(folder, ".s.PGSQL.5432")))
        self.address = f"127.0.0.1:{self.relay.port}"
        self.uri = f"postgresql://postgres@{self.address}/{name}"


class Web:
    """An HTTP server with a model and an API, always on the same port."""

    def __init__(self) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._running: Any = None

    async def start(self) -> None:
        def reply(asked: Asked) -> bytes:
            if "chat" in asked.target:
                return answer(MODEL_ANSWER, headers=["Content-Type: text/event-stream"])
            return as_json([{"id": 1}])

        server = Site(reply).server()
        server.port = self.port
        self._running = await server.__aenter__()

    async def stop(self) -> None:
        server, self._running = self._running, None
        if server is not None:
            await server.__aexit__(None, None, None)


class Served(Struct, frozen=True, kw_only=True):
    """What a server said at one moment. Texts that differ between runs, such as ports, are replaced."""

    readyz: str
    metrics: tuple[str, ...]
    """The gauges that are not as they are when everything works."""
    log: tuple[str, ...]
    alerts: tuple[str, ...]
    call: str
    """How a call of the tool that needs the part ended."""


class Seen(Struct, frozen=True, kw_only=True):
    """What an operator sees: what the server says, and the rows of `doctor` that need somebody."""

    served: Served
    doctor: tuple[str, ...]
    served_s: float
    """Seconds until the server had said it."""
    doctor_s: float
    """Seconds that `doctor` took."""


class World:
    """A served config."""

    def __init__(self, folder: Path, server: Server, *, tool: str, arguments: Any, env: dict[str, str]) -> None:
        self.folder, self.server = folder, server
        self._tool, self._arguments, self._env = tool, arguments, env
        self.address: str | None = None
        """Where `forking` forks from."""
        self._log_from = self._alerts_from = 0
        self._usual: frozenset[str] = frozenset()
        self._calling: asyncio.Task[str] | None = None
        self.is_calling = True
        """Whether the tool is called all the time."""
        self.gauge = ""
        """The only gauge that counts, for a server that was never well. At 1 it is not counted, as one that is `up`."""

    async def settle(self) -> None:
        """Take the present state as the usual one."""
        self._usual = frozenset(await self._gauges())
        self.forget()

    def forget(self) -> None:
        """Forget the log and the alerts so far."""
        self._log_from, self._alerts_from = len(self._log_lines()), len(self._alert_lines())

    async def seen(self, is_said: Callable[[Served], bool], doctor: str) -> Seen:
        """Wait until the server has said it, for a minute at most, and ask `doctor` then, until a row has the text.

        An empty text waits until no row needs somebody.
        """
        began = time.monotonic()
        while not is_said(served := await self._served()) and time.monotonic() - began < PATIENCE_S:
            await asyncio.sleep(0.1)
        asked = time.monotonic()
        rows = await self._doctor()
        while not (doctor in str(rows) if doctor else not rows) and time.monotonic() - asked < PATIENCE_S:
            rows = await self._doctor()
        return Seen(
            served=served,
            doctor=tuple(map(self._clean, rows)),
            served_s=asked - began,
            doctor_s=time.monotonic() - asked,
        )

    async def _served(self) -> Served:
        call, readyz, gauges = await asyncio.gather(self._latest_call(), self._readyz(), self._gauges())
        clean = self._clean
        return Served(
            readyz=clean(readyz),
            metrics=tuple(clean(line) for line in gauges if self._is_unusual(line)),
            log=tuple(dict.fromkeys(clean(_logged(line)) for line in self._log_lines()[self._log_from :])),
            alerts=tuple(dict.fromkeys(clean(_alerted(line)) for line in self._alert_lines()[self._alerts_from :])),
            call=clean(call),
        )

    def _is_unusual(self, gauge: str) -> bool:
        if self.gauge:
            return self.gauge in gauge and not ("_up{" in gauge and gauge.endswith(" 1.0"))
        return gauge not in self._usual

    async def _latest_call(self) -> str:
        """Return how the latest call ended. A call may wait for a part that is stopped, and nothing waits for it."""
        if not self.is_calling:
            return WAITS
        calling = self._calling = self._calling or asyncio.ensure_future(self._call())
        await asyncio.wait({calling}, timeout=CALL_WAIT_S)
        if not calling.done():
            return WAITS
        self._calling = None
        return calling.result()

    async def end(self) -> None:
        """Leave the call that still waits."""
        if self._calling is not None:
            self._calling.cancel()
            await asyncio.wait({self._calling})

    async def _call(self) -> str:
        got = await self._get("POST", f"/v1/tools/{self._tool}/call", json=self._arguments)
        if got is None:
            return "no answer"
        said = got.json()
        error = said.get("error") or said
        return f"{got.status_code} {error.get('kind', 'ok')}" + (f": {error['detail']}" if "detail" in error else "")

    async def _readyz(self) -> str:
        got = await self._get("GET", "/readyz")
        return "no answer" if got is None else f"{got.status_code} {got.text}".replace("\n", "; ")

    async def _gauges(self) -> list[str]:
        got = await self._get("GET", "/metrics")
        if got is None:
            return ["no answer"]
        if got.status_code != 200:
            return [f"{got.status_code} {got.text}"]
        gauges = ("store_up", "server_up", "source_up", "source_status", "config_refused", "metrics_partial",
                  "tools_held", "host_ok")  # fmt: skip
        starts = tuple(f"pegboard_{name}" for name in gauges)
        return [line for line in got.text.splitlines() if line.startswith(starts)]

    async def _get(self, method: str, path: str, **options: Any) -> httpx2.Response | None:
        try:
            async with httpx2.AsyncClient(timeout=20, verify=False, trust_env=False) as client:
                return await client.request(method, self.server.url + path, headers=self._headers(), **options)
        except httpx2.HTTPError:
            return None

    def _headers(self) -> dict[str, str]:
        key = self._env.get("CALLER_KEY")
        return {"authorization": f"Bearer {key}"} if key else {}

    async def _doctor(self) -> list[str]:
        words = ["pegboard", "doctor", "--json"]
        env = {**os.environ, **self._env}
        done = await asyncio.to_thread(forking.run, words, cwd=self.folder, env=env, address=self.address)
        if not done.stdout.strip():
            return [done.stderr.decode().strip()]
        rows = orjson.loads(done.stdout)
        if "findings" not in rows:
            error = rows["error"]
            return [f"{error['kind']}: {each['where']}: {each['message']}" for each in error["problems"]]
        return [
            f"{row['kind']} {row['name']} | {row['state']}: {row['detail']} | {row['to_do']}"
            for row in rows["findings"]
            if row["is_wrong"]
        ]

    def _log_lines(self) -> list[str]:
        return self.server.said.read_text().splitlines()

    def _alert_lines(self) -> list[str]:
        file = self.folder / "alerts.jsonl"
        return [line for line in file.read_text().splitlines() if line] if file.exists() else []

    def _clean(self, text: str) -> str:
        text = text.replace(str(self.folder.resolve()), "/srv").replace(str(self.folder), "/srv")
        text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:PORT", text)
        text = re.sub(r'127\.0\.0\.1", port \d+', '127.0.0.1", port PORT', text)
        text = re.sub(r"port \d+", "port PORT", text)
        text = re.sub(r"\b[0-9a-f]{32}\b", "ID", text)
        text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", "2026-11-26 14:37 UTC", text)
        text = re.sub(r"within \d+\.\d s|in \d+\.\d s", lambda each: each[0].split()[0] + " 0.2 s", text)
        return re.sub(r"\b7[12]\d\d s", "7200 s", text)


def _logged(line: str) -> str:
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:
        return line
    return f"{record['level']}: {record['message']}"


def _alerted(line: str) -> str:
    alert = orjson.loads(line)
    return f"{alert['alert']} {alert['status']}: {alert['text']}"
