"""Stdio: from starting a server process to its first list of tools, beside the servers of the peers.

Each serves the same ten functions and is stopped as soon as it has answered `tools/list`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from bench import peers
from bench.measure import THOROUGH, Cost, Effort, Row, compared, spawned
from bench.processes import Starter, starter

FUNCTIONS = "".join(
    f'''
@tool
async def add_{number}(a: int, b: int, text: str = "x") -> str:
    """Add two numbers, way {number}."""
    return str(a + b)
'''
    for number in range(10)
)
FILES = {
    "mcp_server.py": f"""
from mcp.server.mcpserver import MCPServer
server = MCPServer("bench")
tool = server.tool()
{FUNCTIONS}
server.run()
""",
    "fastmcp_server.py": f"""
from fastmcp import FastMCP
server = FastMCP("bench")
tool = server.tool
{FUNCTIONS}
server.run(show_banner=False)
""",
    "bench_tools.py": f"""
from pegboard import default_catalog
tool = default_catalog.tool
{FUNCTIONS}
""",
    "pegboard.yaml": "name: bench\npython: [bench_tools]\n",
}
PEGBOARD = "import sys; sys.argv = ['pegboard', 'serve', '--stdio']; from pegboard.cli import main; main()"
CLIENT = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
REQUESTS: tuple[dict[str, Any], ...] = (
    {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": CLIENT},
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}},
)


def run(effort: Effort = THOROUGH) -> list[Row]:
    """Measure the servers."""
    floor, ours = "mcp MCPServer, stdio", "pegboard serve --stdio"
    with starter() as start:
        for name, text in FILES.items():
            (start.folder / name).write_text(text, encoding="utf-8")
        ways = {floor: listed(start, "mcp_server.py"), ours: listed(start, "-c", PEGBOARD)}
        if peers.HAS_FASTMCP:
            ways["fastmcp FastMCP, stdio"] = listed(start, "fastmcp_server.py")
        return compared(ways, effort, floor=floor, held={ours: (0.5, 0.25)})


def listed(start: Starter, *arguments: str) -> Cost:
    """Return the cost of `python *arguments` until it has listed its ten tools."""

    def until_listed() -> subprocess.Popen[str]:
        command = [sys.executable, *arguments]
        server = subprocess.Popen(
            command, env=start.environment, cwd=start.folder, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            ask_for_list(server)
        finally:
            server.kill()
        return server

    return spawned(until_listed)


def ask_for_list(server: subprocess.Popen[str]) -> None:
    assert server.stdin is not None
    assert server.stdout is not None
    answer: dict[str, Any] = {}
    with server.stdin, server.stdout:
        for request in REQUESTS:
            server.stdin.write(json.dumps(request) + "\n")
            server.stdin.flush()
            if "id" in request:
                line = server.stdout.readline()
                if not line:
                    raise EOFError(f"{server.args!r} ended without an answer to {request['method']}; run it by hand.")
                answer = json.loads(line)
        assert len(answer["result"]["tools"]) == 10, answer
