"""Proxy: the processor time that passing one call on to another MCP server costs, beside the proxy of a peer.

Client, proxy and the server behind it are processes of their own; only the proxy's time counts, all of it: what a
caller adds by going through it rather than to that server itself. Ours judges the arguments, the limits and the
result on the way. The server behind is the SDK's, over HTTP and over stdio. What is to be held here is a time.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack

from bench import peers
from bench.http import ECHO, SDK, Server, cost, request, serve_app, serving
from bench.measure import THOROUGH, Effort, Row, compared

OURS, FASTMCP = "pegboard", "fastmcp create_proxy"
NAMES = {OURS: "up__add", FASTMCP: "add"}
HOLD_S, REACH_S = 0.003, 0.0015
_READY_S = 120.0


def run(effort: Effort = THOROUGH) -> list[Row]:
    """Measure one call through each proxy, over each transport."""
    with ExitStack() as stack:
        echo = stack.enter_context(serving(ECHO))
        behind = stack.enter_context(serving(SDK))
        url = f"http://127.0.0.1:{behind.port}/mcp"
        ways = {f"{ECHO}: tools/call": cost(echo, request("tools/call", name="add", arguments=ARGUMENTS), 200)}
        held: dict[str, tuple[float, float | None]] = {}
        for proxy, times in ((OURS, 200), *([(FASTMCP, 24)] if peers.HAS_FASTMCP else [])):
            for transport, target in (("HTTP", url), ("stdio", "stdio")):
                server = stack.enter_context(serving(proxy, target, module="bench.proxy"))
                wanted = request("tools/call", name=NAMES[proxy], arguments=ARGUMENTS)
                until_ready(server, wanted)
                ways[f"{proxy}, {transport}"] = cost(server, wanted, effort.times(times))
                if proxy == OURS:
                    held[f"{proxy}, {transport}"] = (HOLD_S, REACH_S)
        return compared(ways, effort, floor=f"{ECHO}: tools/call", held=held, is_time_held=True)


ARGUMENTS = {"a": 1, "b": 2, "text": "hey"}


def until_ready(server: Server, wanted: bytes) -> None:
    """Wait until a call comes through: a proxy may listen before it knows the tools behind it.

    Raises:
        RuntimeError: none does.
    """
    ends_at = time.monotonic() + _READY_S
    while True:
        answer = server.ask(wanted)
        if b'"n":3' in answer.replace(b" ", b"") and b'"isError":true' not in answer:
            return
        if time.monotonic() > ends_at:
            raise RuntimeError(f"No call comes through: {answer[:500]!r}")
        time.sleep(0.05)


# ---- servers: this module run as a program ---------------------------------------------------------------------------


def serve_ours(target: str) -> None:
    from pegboard import Catalog, Profile, run_http
    from pegboard.sources.mcp.server_settings import ServerSettings
    from pegboard.sources.mcp.supervised_source import McpSource

    catalog = Catalog("bench")
    if target == "stdio":
        settings = ServerSettings(
            name="up",
            transport="stdio",
            command=sys.executable,
            args=("-m", "bench.proxy", "behind", "-"),
            env={"PYTHONPATH": os.getcwd()},
            trust="any",
        )
    else:
        settings = ServerSettings(name="up", transport="http", url=target, trust="any")
    catalog.add_source(McpSource(settings))
    catalog.profile(Profile(name="all", include=("core",), exposure="direct"))
    run_http(catalog, port=0, on_ready=lambda address: print(address.split(":")[2].partition("/")[0], flush=True))


def serve_fastmcp(target: str) -> None:
    behind = {"command": sys.executable, "args": ["-m", "bench.proxy", "behind", "-"], "env": dict(os.environ)}
    config = {"mcpServers": {"up": behind}}
    proxy = peers.load("fastmcp.server").create_proxy(config if target == "stdio" else target, name="bench")
    serve_app(proxy.http_app(path="/mcp"))


def serve_behind(_: str) -> None:
    from mcp.server.mcpserver import MCPServer

    from bench.calls import add

    server = MCPServer("behind")
    server.add_tool(add)
    server.run()


SERVERS: dict[str, Callable[[str], None]] = {OURS: serve_ours, FASTMCP: serve_fastmcp, "behind": serve_behind}

if __name__ == "__main__":
    SERVERS[sys.argv[1]](sys.argv[2])
