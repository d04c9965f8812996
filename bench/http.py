"""HTTP: the processor time of a server for one request, against a bare echo in the same kind of server.

Each server is a process of its own, and only its time counts. All stand on uvicorn with uvloop and httptools, and
get the same JSON-RPC body over connections that stay open. Our tool has three parameters, an output schema, a rate
limit, a before- and an after-hook and an observer, and a policy stands before it; the peers' tools have none of these
but the schemas.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import peers
from bench.measure import THOROUGH, Cost, Effort, Row, compared

if TYPE_CHECKING:
    from pegboard import Catalog

CONNECTIONS = 8
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
}
ECHO, OURS, SDK, FASTMCP = "bare Starlette echo", "pegboard", "mcp MCPServer", "fastmcp FastMCP"
MANY = "pegboard, 10,000 tools registered"


def run(effort: Effort = THOROUGH) -> list[Row]:
    """Measure one call, the same among 10,000 tools, and a list of 1,000."""
    return calls(effort) + many_tools(effort) + lists(effort)


def calls(effort: Effort) -> list[Row]:
    with ExitStack() as stack:
        names = [ECHO, OURS, SDK, *([FASTMCP] if peers.HAS_FASTMCP else [])]
        times = {ECHO: 2_000, OURS: 2_000, SDK: 300, FASTMCP: 100}
        ways = {
            f"{name}: tools/call": cost(stack.enter_context(serving(name)), CALL, effort.times(times[name]))
            for name in names
        }
        return compared(ways, effort, floor=f"{ECHO}: tools/call", held={f"{OURS}: tools/call": (2, 1.35)})


def many_tools(effort: Effort) -> list[Row]:
    with serving(OURS) as few, serving(MANY) as many:
        floor, ours = f"{OURS}: tools/call", f"{MANY}: tools/call"
        ways = {floor: cost(few, CALL, effort.times(2_000)), ours: cost(many, CALL, effort.times(2_000))}
        return compared(ways, effort, floor=floor, held={ours: (1.1, None)})


def lists(effort: Effort) -> list[Row]:
    with serving(SDK, "1000") as sdk, serving(OURS, "1000") as pegboard:
        floor, ours = f"{SDK}: tools/list of 1,000", f"{OURS}: tools/list of 1,000"
        ways = {floor: cost(sdk, LIST, effort.times(10)), ours: cost(pegboard, LIST, effort.times(300))}
        return compared(ways, effort, floor=floor, held={ours: (0.03, 0.015)})


# ---- requests --------------------------------------------------------------------------------------------------------


def request(method: str, **params: object) -> bytes:
    """Return one request, byte for byte."""
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": META}}
    body = json.dumps(message).encode()
    heads = {
        "Host": "127.0.0.1:8420",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": method,
        "Mcp-Name": str(params.get("name", "")),
        "Content-Length": str(len(body)),
    }
    told = "".join(f"{name}: {value}\r\n" for name, value in heads.items() if value)
    return f"POST /mcp HTTP/1.1\r\n{told}\r\n".encode() + body


CALL = request("tools/call", name="add", arguments={"a": 1, "b": 2, "text": "hey"})
LIST = request("tools/list")


class Server:
    """A running server and the connections to it."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process, self.port = process, port
        self.runner = asyncio.Runner()
        self.open: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    def cpu_s(self) -> float:
        """Return the processor time that its process has used (Linux: the clock of another process)."""
        return time.clock_gettime(~self.process.pid << 3 | 2)

    def send(self, wanted: bytes, times: int) -> None:
        self.runner.run(self._send(wanted, times))

    def ask(self, wanted: bytes) -> bytes:
        """Return the body of one answer, whatever it says."""
        return self.runner.run(self._ask(wanted))

    async def _ask(self, wanted: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 22)
        writer.write(wanted)
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
        body = await reader.readexactly(length)
        writer.close()
        return body

    async def _send(self, wanted: bytes, times: int) -> None:
        # A server closes connections that were idle for a while; the loop hears of it once it runs again.
        await asyncio.sleep(0.001)
        self.open = [one for one in self.open if not one[0].at_eof()]
        while len(self.open) < CONNECTIONS:
            self.open.append(await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 22))
        share = max(1, times // CONNECTIONS)
        await asyncio.gather(*(exchange(*connection, wanted, share) for connection in self.open))

    def close(self) -> None:
        for _, writer in self.open:
            writer.transport.abort()
        self.runner.close()


async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, wanted: bytes, times: int) -> None:
    for _ in range(times):
        writer.write(wanted)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
        body = await reader.readexactly(length)
        assert b'"error"' not in body, body[:200]


def cost(server: Server, wanted: bytes, times: int) -> Cost:
    """Return the processor seconds of the server for one request."""
    whole = max(1, times // CONNECTIONS) * CONNECTIONS

    def once() -> float:
        before = server.cpu_s()
        server.send(wanted, times)
        return (server.cpu_s() - before) / whole

    return once


# ---- servers: this module run as a program ---------------------------------------------------------------------------


@contextmanager
def serving(name: str, *words: str, module: str = "bench.http") -> Iterator[Server]:
    """Run a server of this module, or another, in a process of its own."""
    root = Path(__file__).parents[1]
    command = [sys.executable, "-m", module, name, *words]
    process = subprocess.Popen(
        command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env={**os.environ, "FASTMCP_LOG_LEVEL": "ERROR"},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        with process.stdout:
            server = Server(process, int(process.stdout.readline()))
            try:
                yield server
            finally:
                server.close()
    finally:
        process.kill()
        process.wait()


def serve_app(app: Any) -> None:
    """Serve an ASGI app, as we are served, and print the port."""
    import uvicorn

    config = uvicorn.Config(
        app, port=0, loop="uvloop", http="httptools", ws="none", log_level="error", access_log=False
    )

    class Told(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            print(self.servers[0].sockets[0].getsockname()[1], flush=True)

    Told(config).run()


def serve_echo() -> None:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    async def echo(asked: Request) -> JSONResponse:
        return JSONResponse(await asked.json())

    serve_app(Starlette(routes=[Route("/mcp", echo, methods=["POST"])]))


def bench_catalog(count: int, limit_store: Any = None) -> Catalog:
    """Return a catalog of `count` tools, one of them with every guard that a call may pass."""
    # Here, not at the top: the echo's process must not carry what it does not use.
    from bench.calls import OUTPUT, Silent, add
    from bench.tools import spec
    from pegboard import Catalog, Policy, Profile, RateLimit

    catalog = Catalog("bench", limit_store=limit_store)
    catalog.tool(output=OUTPUT, rate_limit=RateLimit(max_calls=10**9, window_s=0.01))(add)
    catalog.before("add")(lambda call: None)
    catalog.after("add")(lambda call, result: None)
    catalog.observe(Silent())
    catalog.predicate(name="is_configured")(lambda ctx: True)

    async def answer(ctx: object, args: object) -> str:
        return "done"

    for number in range(count - 1):
        catalog.register(spec(number), answer)
    groups = ("core", "search", "files", "mail", "crm", "admin")
    policy = Policy(allow=("add", "tool_*"), deny=("tool_9999999", "delete_*"))
    catalog.profile(Profile(name="all", include=groups, exposure="direct", policy=policy))
    return catalog


def serve_pegboard(count: int) -> None:
    from pegboard import run_http

    catalog = bench_catalog(count)
    run_http(catalog, port=0, on_ready=lambda address: print(address.split(":")[2].partition("/")[0], flush=True))


def serve_sdk(count: int) -> None:
    from mcp.server.mcpserver import MCPServer

    from bench.calls import add
    from bench.tools import spec

    server = MCPServer("bench")
    server.add_tool(add)
    for number in range(count - 1):
        declared = spec(number)

        async def one(field_0: str, field_1: str, field_2: str = "", field_3: str = "") -> str:
            return "done"

        server.add_tool(one, name=declared.name, description=declared.description)
    serve_app(server.streamable_http_app())


def serve_fastmcp() -> None:
    from bench.calls import add

    server = peers.load("fastmcp").FastMCP("bench")
    server.tool(add)
    serve_app(server.http_app(path="/mcp"))


def main(name: str, count: str = "10") -> None:
    match name:
        case "bare Starlette echo":
            serve_echo()
        case "pegboard":
            serve_pegboard(int(count))
        case "pegboard, 10,000 tools registered":
            serve_pegboard(10_000)
        case "mcp MCPServer":
            serve_sdk(int(count))
        case _:
            serve_fastmcp()


if __name__ == "__main__":
    main(*sys.argv[1:])
