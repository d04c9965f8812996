"""Capacity: what sessions, calls in flight, long use and a second worker cost a server, and how late its loop gets.

The client is this process, the servers are others; memory is what the system counts for the server (resident bytes,
while all are open, less what it had when the first hundredth were), without what the kernel keeps for sockets. Lateness
is what timers of 10 ms were late by, within the server, while the load was on. `wrk` sends what is many.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from bench.http import CALL, OURS, Server, request, serving
from bench.measure import THOROUGH, Effort

if TYPE_CHECKING:
    from pegboard import Catalog

KIB = 1024
MIB = 1024 * KIB
SESSIONS = CALLS = 10_000
SLOPE_CALLS, SLOPE_ROUNDS = 100_000, 5
# Of one address; a caller without a credential is its address, and has a share of everything alone.
OF_ONE = 50
AT_ONCE = 50
REVISION = "2025-11-25"
PAIR = """\
name: pair
tools: [{name: add, type: internal, handler: "python:bench.calls:add"}]
profiles: {all: {include: [core], exposure: direct}}
"""


def lines(effort: Effort = THOROUGH, only: Sequence[str] = ()) -> Iterator[str]:
    """Measure all of it, or only some of `PIECES`."""
    yield "| what | found | hold | |"
    yield "|---|---:|---:|---|"
    for name, piece in PIECES.items():
        if name in only or not only:
            yield from piece(effort)


def open_sessions(effort: Effort) -> list[str]:
    with serving("capacity", module="bench.capacity") as server:
        return asyncio.run(sessions(server, effort.times(SESSIONS)))


def calls_in_flight(effort: Effort) -> list[str]:
    with serving("capacity", module="bench.capacity") as server:
        return asyncio.run(calls(server, effort.times(CALLS)))


def row(what: str, found: float, unit: str, hold: float | None = None, *, words: str = "") -> str:
    verdict = "beside" if hold is None else "PASS" if found <= hold else "short"
    bound = "" if hold is None else f"≤ {hold:g} {unit}".rstrip()
    return f"| {what} | {found:.3g} {unit}{words} | {bound} | {verdict} |"


# ---- sessions, each with an open stream ------------------------------------------------------------------------------


async def sessions(server: Server, count: int) -> list[str]:
    """Open sessions of the earlier revisions, each with its stream of notifications; the first warm it up."""
    opened = await streams(server.port, range(first := max(1, count // 100)))
    before = resident_bytes(server.process.pid)
    opened += await streams(server.port, range(first, count))
    each = (resident_bytes(server.process.pid) - before) / (count - first) / KIB
    for _, writer in opened:
        writer.transport.abort()
    return [row(f"{count:,} sessions with an open stream, each", each, "KiB", 10)]


async def streams(port: int, numbers: range) -> list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    return [one async for one in together(stream(port, number) for number in numbers)]


async def stream(port: int, number: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open one session and its stream."""
    reader, writer = await connected(port, number)
    info = {"name": "bench", "version": "1"}
    params = {"protocolVersion": REVISION, "capabilities": {}, "clientInfo": info}
    head = await exchanged(reader, writer, {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
    session = head.partition("mcp-session-id: ")[2].partition("\r")[0]
    of_session = f"mcp-session-id: {session}\r\nmcp-protocol-version: {REVISION}\r\n"
    await exchanged(reader, writer, {"jsonrpc": "2.0", "method": "notifications/initialized"}, of_session)
    writer.write(f"GET /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\naccept: text/event-stream\r\n{of_session}\r\n".encode())
    answered = await reader.readuntil(b"\r\n\r\n")
    assert answered.startswith(b"HTTP/1.1 200"), answered
    return reader, writer


async def exchanged(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, message: dict[str, Any], more: str = ""
) -> str:
    """Send one message and read its answer; return the answer's head."""
    body = json.dumps(message)
    writer.write(
        f"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n{more}"
        f"accept: application/json, text/event-stream\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode()
    )
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    assert head.startswith("HTTP/1.1 20"), head
    if "content-length: " in head:
        await reader.readexactly(int(head.partition("content-length: ")[2].partition("\r")[0]))
    elif "chunked" in head:
        await reader.readuntil(b"0\r\n\r\n")
    return head


# ---- calls in flight -------------------------------------------------------------------------------------------------


async def calls(server: Server, count: int) -> list[str]:
    """Have calls wait within their tools, all at once, and end them."""
    await told(server.port, "watch")
    before = resident_bytes(server.process.pid)
    opened = [one async for one in together(held(server.port, number) for number in range(count))]
    async with asyncio.timeout(120):
        while (await told(server.port, "waiting"))["n"] < count:
            await asyncio.sleep(0.05)
    each = (resident_bytes(server.process.pid) - before) / count / KIB
    await told(server.port, "release")
    for reader, writer in opened:
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        writer.transport.abort()
    late = await told(server.port, "lateness")
    return [
        row(f"{count:,} calls in flight, each", each, "KiB", 40),
        row("the loop was late by, p99, while they came, waited and ended", late["p99_ms"], "ms", 100),
        row("... and at most", late["most_ms"], "ms"),
    ]


async def held(port: int, number: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await connected(port, number)
    writer.write(request("tools/call", name="hold", arguments={}))
    return reader, writer


async def told(port: int, tool: str) -> dict[str, Any]:
    """Call a tool of the server without anything; return what it gives."""
    reader, writer = await connected(port, 100 * OF_ONE)
    writer.write(request("tools/call", name=tool, arguments={}))
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    body = await reader.readexactly(int(head.partition("content-length: ")[2].partition("\r")[0]))
    writer.transport.abort()
    return json.loads(body)["result"]["structuredContent"]


def capacity_catalog() -> Catalog:
    from pegboard import Bounds, Catalog, Profile

    catalog = Catalog("capacity", bounds=Bounds(calls_in_flight=2 * CALLS, tool_timeout_s=600.0))
    late: list[float] = []
    waiting: list[asyncio.Future[None]] = []
    watches: list[asyncio.Task[None]] = []

    async def watching() -> None:
        while True:
            ends_at = time.perf_counter() + 0.01
            await asyncio.sleep(0.01)
            late.append(time.perf_counter() - ends_at)

    async def watch() -> dict[str, float]:
        """Begin to note how late the loop is."""
        watches.append(asyncio.create_task(watching()))
        return {}

    async def lateness() -> dict[str, float]:
        """Tell how late it was."""
        for one in watches:
            one.cancel()
        return {"p99_ms": statistics.quantiles(late, n=100)[98] * 1e3, "most_ms": max(late) * 1e3}

    async def hold() -> str:
        """Wait until released."""
        waiting.append(asyncio.get_running_loop().create_future())
        await waiting[-1]
        return "released"

    async def counted() -> dict[str, int]:
        """Tell how many wait."""
        return {"n": len(waiting)}

    async def release() -> dict[str, int]:
        """Release all that wait, some in each turn of the loop: no tools of many callers end in one moment."""
        for number, one in enumerate(waiting):
            one.set_result(None)
            if number % 50 == 0:
                await asyncio.sleep(0)
        return {"n": len(waiting)}

    tools = {"hold": hold, "release": release, "waiting": counted, "watch": watch, "lateness": lateness}
    for name, tool in tools.items():
        catalog.tool(name=name)(tool)
    catalog.profile(Profile(name="all", include=("core",), exposure="direct"))
    return catalog


# ---- long use, and a second worker -----------------------------------------------------------------------------------


def slope(effort: Effort) -> Iterator[str]:
    """Measure what resident memory grows by in calls over connections that stay open."""
    count = effort.times(SLOPE_CALLS)
    with serving(OURS) as server:
        sent_calls(server.port, count)
        grown = [resident_bytes(server.process.pid)]
        for _ in range(SLOPE_ROUNDS):
            sent_calls(server.port, count)
            grown.append(resident_bytes(server.process.pid))
    each = (grown[-1] - grown[0]) / SLOPE_ROUNDS / MIB
    yield row(f"resident memory per {count:,} calls, over {SLOPE_ROUNDS * count:,}", each, "MiB", 1)


def workers(effort: Effort) -> Iterator[str]:
    """Measure processor time a call with two workers, against one, in turns; and who has how many connections."""
    count, rounds = effort.times(20_000), max(2, effort.rounds // 3)
    with pegboard_serve(1) as one, pegboard_serve(2) as two:
        ratios: list[float] = []
        shares: list[float] = []
        for server in (one, two):
            sent_calls(server.port, count)
        for _ in range(rounds):
            alone = cpu_of_calls(one, count)
            idle, busy = sockets(two), list[list[int]]()
            ratios.append(cpu_of_calls(two, count, during=partial(counted, two, busy)) / alone)
            shares += [busier(idle, now) for now in busy]
    found, share = statistics.median(ratios), max(shares)
    words = f"× ({min(ratios):.3g}–{max(ratios):.3g}), at most {share:.0%} of the connections at one"
    verdict = "PASS" if found <= 1.1 and share <= 0.6 else "short"
    yield f"| processor time a call with two workers, against one | {found:.3g}{words} | ≤ 1.1×, 60% | {verdict} |"


def cpu_of_calls(server: Server, count: int, *, during: Callable[[], None] | None = None) -> float:
    """Return the seconds that a call took of all the server's processes."""
    before = cpu_s(server.process.pid)
    done = sent_calls(server.port, count, during=during)
    used = {pid: seconds - before.get(pid, 0.0) for pid, seconds in cpu_s(server.process.pid).items()}
    return sum(used.values()) / done


def sockets(server: Server) -> list[int]:
    """Return how many sockets each worker has."""
    workers = sorted(set(cpu_s(server.process.pid)) - {server.process.pid})
    return [
        sum(os.readlink(link).startswith("socket:") for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink())
        for pid in workers
    ]


def counted(server: Server, found: list[list[int]]) -> None:
    """Add how many sockets each worker has now."""
    found.append(sockets(server))


def busier(idle: list[int], busy: list[int]) -> float:
    """Return the share of the connections that the worker with the most of them has."""
    opened = [now - before for before, now in zip(idle, busy, strict=True)]
    return max(opened) / sum(opened)


def cpu_s(parent: int) -> dict[int, float]:
    """Return the seconds that each process of a tree has used."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return {
        parent: time.clock_gettime(~parent << 3 | 2),
        **{pid: seconds for child in children for pid, seconds in cpu_s(int(child)).items()},
    }


@contextmanager
def pegboard_serve(count: int) -> Iterator[Server]:
    """Run `pegboard serve` with so many workers."""
    with TemporaryDirectory(prefix="pegboard-bench-") as name:
        folder = Path(name)
        (folder / "pegboard.yaml").write_text(PAIR)
        command = [str(Path(sys.executable).with_name("pegboard")), "serve", "--port", "0", "--workers", str(count)]
        environment = {**os.environ, "PYTHONPATH": os.getcwd(), "NO_COLOR": "1"}
        with (folder / "said").open("w") as said:
            process = subprocess.Popen(
                [*command, "--log-level", "warning"], cwd=folder, env=environment, text=True, stderr=said, stdout=said
            )
        try:
            yield Server(process, port_of(process, folder / "said"))
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


def port_of(process: subprocess.Popen[str], said: Path) -> int:
    while True:
        text = said.read_text()
        if found := re.search(r"127\.0\.0\.1:(\d+)/mcp", text):
            return int(found[1])
        if process.poll() is not None:
            raise RuntimeError(f"The server ended: {text[-500:]}")
        time.sleep(0.05)


WRK = """\
wrk.method, wrk.path = "POST", "/mcp"
wrk.body = [==[{body}]==]
wrk.headers = {{{headers}}}
function response(status, headers, body)
  if status ~= 200 or string.find(body, '"error"') then wrk.thread:stop() end
end
"""


def sent_calls(port: int, count: int, *, during: Callable[[], None] | None = None) -> int:
    """Send about so many calls over 20 connections that stay open; return how many were answered.

    Raises:
        RuntimeError: there is no `wrk`, or a call was refused.
    """
    if shutil.which("wrk") is None:
        raise RuntimeError("`wrk` sends these calls, and is not installed.")
    head, _, body = CALL.partition(b"\r\n\r\n")
    pairs = [line.decode().split(": ", 1) for line in head.split(b"\r\n")[1:]]
    headers = ", ".join(f'["{name}"]="{value}"' for name, value in pairs if name != "Content-Length")
    done = 0
    with TemporaryDirectory(prefix="pegboard-bench-") as folder:
        script = Path(folder) / "call.lua"
        script.write_text(WRK.format(body=body.decode(), headers=headers))
        command = ["wrk", "-t1", "-c20", "-d2s", "-s", str(script), f"http://127.0.0.1:{port}/mcp"]
        while done < count:
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
                if during is not None:
                    time.sleep(1)
                    during()
                said = running.communicate()[0]
            answered = re.search(r"(\d+) requests in", said)
            if answered is None or "Non-2xx" in said or "Socket errors" in said:
                raise RuntimeError(f"A call was refused: {said}")
            done += int(answered[1])
    return done


# ---- what they share -------------------------------------------------------------------------------------------------


async def connected(port: int, number: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect from an address of its own for each few."""
    own = number // OF_ONE
    address = f"127.0.{1 + own // 200}.{1 + own % 200}"
    return await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))


async def together(works: Iterator[Any]) -> AsyncIterator[Any]:
    """Do the works, some at once, and yield what they give."""
    batch: list[Any] = []
    for work in works:
        batch.append(work)
        if len(batch) == AT_ONCE:
            for one in await asyncio.gather(*batch):
                yield one
            batch = []
    for one in await asyncio.gather(*batch):
        yield one


def resident_bytes(pid: int) -> int:
    """Return the bytes of memory that a process has."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


PIECES: dict[str, Callable[[Effort], Iterable[str]]] = {
    "sessions": open_sessions, "calls": calls_in_flight, "slope": slope, "workers": workers,
}  # fmt: skip


if __name__ == "__main__":
    from pegboard import run_http

    run_http(
        capacity_catalog(), port=0,
        on_ready=lambda address: print(address.split(":")[2].partition("/")[0], flush=True),
    )  # fmt: skip
