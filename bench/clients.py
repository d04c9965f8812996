"""Clients: the processor time of a server for what real clients send, against an echo of the same bytes.

The headers and `_meta` of each client in both eras, from `bench/requests/clients.jsonl`; sessions are opened first.
Servers and tools are those of the bench `http`, and all are sent an API key, which ours looks up for each request.
`call` has the client's own progress token and log level.

There are many requests to measure, so each has fewer rounds than elsewhere; the clock of a process is exact enough for
short ones.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from bench import credentials, peers
from bench.http import CONNECTIONS, ECHO, FASTMCP, MANY, OURS, SDK, Server, serving
from bench.measure import THOROUGH, Cost, Effort, Row, Spread, compared

ROUNDS = 9
RECORDED = Path(__file__).with_name("requests") / "clients.jsonl"
JSON = dict[str, Any]


class Client(NamedTuple):
    """What one client sends."""

    name: str
    headers: JSON
    initialize: JSON | None
    list: JSON
    call: JSON


def run(effort: Effort = THOROUGH) -> list[Row]:
    """Measure a call and a list of 10 of each client, and a list of 1,000 of one client in each era."""
    rows: list[Row] = []
    effort = replace(effort, rounds=min(effort.rounds, ROUNDS))
    with ExitStack() as stack:
        path = Path(stack.enter_context(TemporaryDirectory(prefix="pegboard-bench-"))) / "keys.db"
        key = credentials.made_key(path)

        def server(name: str, count: int) -> Server:
            kind = (credentials.KEY, str(path), str(count)) if name in (OURS, MANY) else (name, str(count))
            module = credentials.__name__ if name in (OURS, MANY) else "bench.http"
            return stack.enter_context(serving(*kind, module=module))

        beside = [SDK, *([FASTMCP] if peers.HAS_FASTMCP else [])]
        few = {name: server(name, 10) for name in (ECHO, OURS, *beside)}
        calls = {**few, MANY: server(MANY, 10_000)}
        times = {ECHO: 240, OURS: 240, MANY: 240, SDK: 16, FASTMCP: 8}
        for client in clients(key):
            held = {OURS: (2.0, 1.35)}
            rows += measured(calls, client, client.call, f"{client.name}: call", effort, times, held)
            rows += measured(few, client, client.list, f"{client.name}: list of 10", effort, times, {})
        many = {name: server(name, 1_000) for name in (ECHO, OURS, SDK)}
        times = {ECHO: 80, OURS: 16, SDK: 1}
        for client in [one for one in clients(key) if one.name.startswith(("fastmcp", "TypeScript"))]:
            rows += measured(many, client, client.list, f"{client.name}: list of 1,000", effort, times, {})
    return rows


def clients(key: str) -> Iterator[Client]:
    """Yield what each client sends, with this API key."""
    for line in RECORDED.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        era = "2026-07-28" if row["initialize"] is None else "session of " + row["headers"]["mcp-protocol-version"]
        headers = {**row["headers"], "authorization": f"Bearer {key}"}
        yield Client(f"{row['client']}, {era}", headers, row["initialize"], row["list"], row["call"])


def measured(
    servers: dict[str, Server],
    client: Client,
    message: JSON,
    what: str,
    effort: Effort,
    times: dict[str, int],
    held: dict[str, tuple[float, float]],
) -> list[Row]:
    """Return the rows of one request of one client, on each server."""
    ways = {
        f"{name}: {what}": cost(server, client, message, effort.times(times[name])) for name, server in servers.items()
    }
    found = compared(
        ways, effort, floor=f"{ECHO}: {what}", held={f"{name}: {what}": each for name, each in held.items()}
    )
    return [*found, *(_flat(found) if MANY in servers else [])]


def _flat(rows: list[Row]) -> list[Row]:
    """Return what the call costs among 10,000 tools beside what it costs among 10, of the same rounds."""
    few, many = (next(row for row in rows if row.what.startswith(f"{name}: ")) for name in (OURS, MANY))
    ratio = Spread(
        low=many.ratio.low / few.ratio.median,
        median=many.ratio.median / few.ratio.median,
        high=many.ratio.high / few.ratio.median,
    )
    return [replace(many, what=f"... {many.what}", against=few.what, ratio=ratio, hold=1.1)]


def cost(server: Server, client: Client, message: JSON, times: int) -> Cost:
    """Return the processor seconds of the server for one request."""
    whole = max(1, times // CONNECTIONS) * CONNECTIONS
    wanted: list[bytes] = []

    def once() -> float:
        # A session for each connection: within one, the ids of open requests must differ.
        while len(wanted) < CONNECTIONS:
            wanted.append(server.runner.run(opened(server.port, client, message)))
        server.runner.run(connect(server))
        before = server.cpu_s()
        server.runner.run(send_all(server, wanted, times))
        return (server.cpu_s() - before) / whole

    return once


async def opened(port: int, client: Client, message: JSON) -> bytes:
    """Open a session where the client has one; return the bytes of the request."""
    if client.initialize is None:
        return request(client, message, {})
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    first = {name: value for name, value in client.headers.items() if name != "mcp-protocol-version"}
    writer.write(request(client._replace(headers=first), client.initialize, {}))
    head, _ = await answer(reader)
    # The echo opens none; it gets a header as long as ours.
    session = {"mcp-session-id": head.partition("mcp-session-id: ")[2].partition("\r")[0] or "0" * 105}
    writer.write(request(client, {"jsonrpc": "2.0", "method": "notifications/initialized"}, session))
    await answer(reader)
    writer.close()
    return request(client, message, session)


def request(client: Client, message: JSON, more: JSON) -> bytes:
    """Return one request, byte for byte."""
    body = json.dumps(message, separators=(",", ":")).encode()
    heads = {"host": "127.0.0.1:8420", **client.headers, **more, "content-length": len(body)}
    if client.initialize is None:
        heads["mcp-method"] = message["method"]
        if "name" in message["params"]:
            heads["mcp-name"] = message["params"]["name"]
    lines = "".join(f"{name}: {value}\r\n" for name, value in heads.items())
    return f"POST /mcp HTTP/1.1\r\n{lines}\r\n".encode() + body


async def connect(server: Server) -> None:
    """Open the connections anew: those that were idle while other servers were measured may be closed by now."""
    for _, writer in server.open:
        writer.transport.abort()
    server.open = [await asyncio.open_connection("127.0.0.1", server.port, limit=1 << 22) for _ in range(CONNECTIONS)]


async def send_all(server: Server, wanted: list[bytes], times: int) -> None:
    share = max(1, times // CONNECTIONS)

    async def one(asked: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(share):
            writer.write(asked)
            head, body = await answer(reader)
            assert head.startswith("HTTP/1.1 200"), (head, body[:500])
            assert b'"error"' not in body, body[:500]

    await asyncio.gather(*(one(asked, *connection) for asked, connection in zip(wanted, server.open, strict=True)))


async def answer(reader: asyncio.StreamReader) -> tuple[str, bytes]:
    """Return head and body of one answer, plain or in chunks."""
    # Each of these servers writes the names in small letters; ids of sessions are told apart by large ones, too.
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    if "content-length: " in head:
        return head, await reader.readexactly(int(head.partition("content-length: ")[2].partition("\r")[0]))
    if "transfer-encoding: chunked" not in head:
        return head, b""
    body = b""
    while size := int(await reader.readline(), 16):
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readexactly(2)
    return head, body
