"""Ended streams: what a crowd of them took is given back by a running server."""

import asyncio
import json
from pathlib import Path

from tests.server.doors import META, VERSION
from tests.server.processes import Server, serving

STREAMS = 120
TOOLS = """
import asyncio
import gc
from pegboard import default_catalog

@default_catalog.tool(groups="core")
async def objects() -> int:
    "Count the objects that the collector knows, also those that it has set aside."
    await asyncio.sleep(0.2)  # the server counts its connections every 0.1 s; timers of one loop run in their order
    gc.disable()  # only the collection that the server asks for itself is left
    gc.unfreeze()  # which, if it took long, freezes all it found alive, and get_objects leaves that out
    return len(gc.get_objects())
"""
LISTEN = json.dumps(
    {
        "jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen",
        "params": {"notifications": {"toolsListChanged": True}, "_meta": META},
    }
)  # fmt: skip


async def asked(
    server: Server, path: str, body: str, **headers: str
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, bytes]:
    """Send a request from an address of its own for each, and return the connection and the head of the answer."""
    host, port = server.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port), local_addr=(headers.pop("address"), 0))
    more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    writer.write(
        f"POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n{more}"
        f"Accept: application/json, text/event-stream\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
    )
    return reader, writer, await reader.readuntil(b"\r\n\r\n")


async def objects(server: Server) -> int:
    reader, writer, _ = await asked(server, "/v1/tools/objects/call", "{}", address="127.0.0.1", Connection="close")
    answer = json.loads(await reader.read())
    writer.close()
    return answer["structuredContent"]


async def test_streams_that_ended_give_their_memory_back(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(TOOLS)
    (tmp_path / "pegboard.yaml").write_text("python: [tools]\n")
    async with serving(tmp_path) as server:
        before = await objects(server)
        streams = [
            await asked(
                server, "/mcp", LISTEN, address=f"127.0.0.{2 + number % 2}", MCP_Protocol_Version=VERSION,
                Mcp_Method="subscriptions/listen",
            )
            for number in range(STREAMS)
        ]  # fmt: skip
        assert all(head.startswith(b"HTTP/1.1 200") for _, _, head in streams)
        taken = await objects(server) - before
        assert taken > 50 * STREAMS
        for _, writer, _ in streams:
            writer.close()
        # A stream is a good hundred objects, which are circles when it ended and stayed for good.
        async with asyncio.timeout(60):
            while await objects(server) - before > taken / 4:
                pass
