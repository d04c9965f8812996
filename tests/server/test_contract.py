"""What the contract of `pegboard serve` says in a word: where it listens, the same list everywhere, headers as sent."""

import asyncio
import json
import os
import socket
from pathlib import Path

import httpx2
import pytest

from pegboard import http_app
from tests.server.doors import JSON_HEADERS, META, VERSION, post, served, workshop
from tests.server.processes import PEGBOARD, serving
from tests.timing import PATIENCE_S

TOOLS = "tools: [{name: datetime_now, type: builtin}, {name: cache_store, type: builtin}]\n"


async def test_without_options_it_listens_on_port_8420_of_this_machine_only(tmp_path: Path) -> None:
    (tmp_path / "pegboard.yaml").write_text(TOOLS)
    is_ours = True
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", 8420))
            taken.listen()
        except OSError:
            is_ours = False  # somebody else has it, or had it until now
        process = await asyncio.create_subprocess_exec(
            PEGBOARD, "serve", cwd=tmp_path, env=os.environ, stderr=asyncio.subprocess.PIPE
        )
        assert process.stderr is not None
        try:
            async with asyncio.timeout(PATIENCE_S):
                # It says so where it can have the port, and where it cannot.
                while b"127.0.0.1:8420" not in (line := await process.stderr.readline()):
                    assert line
                if is_ours:
                    assert await process.wait() == 2
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


async def test_two_processes_list_the_same_bytes(tmp_path: Path) -> None:
    groups = "groups: {core: C, a: A, b: B}\nprofiles: {all: {include: [b, core, a]}}\n"
    (tmp_path / "pegboard.yaml").write_text(TOOLS + groups)
    lists = set[bytes]()
    for seed in ("1", "2"):
        env = {"PYTHONHASHSEED": seed}
        async with serving(tmp_path, env=env) as server, httpx2.AsyncClient(base_url=server.url) as client:
            lists.add((await post(client, "tools/list", request_id=1)).content)
            lists.add((await post(client, "tools/list", request_id=1)).content)
    assert len(lists) == 1


@pytest.mark.parametrize("progress", [{}, {"progressToken": 1}], ids=["door", "sdk"])
async def test_white_space_around_header_values_says_nothing(progress: dict[str, int]) -> None:
    params = {"name": "add", "arguments": {"a": 1, "b": 2}, "_meta": {**META, **progress}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    named = {**JSON_HEADERS, "mcp-protocol-version": VERSION, "mcp-method": "tools/call", "mcp-name": "add"}
    async with served(http_app(workshop()[0])) as url:
        host = url.removeprefix("http://")
        heads = {**named, "host": host, "content-length": str(len(body)), "connection": "close"}
        reader, writer = await asyncio.open_connection(*host.split(":"))
        head = "".join(f"{name}: \t {value} \t\r\n" for name, value in heads.items())
        writer.write(f"POST /mcp HTTP/1.1\r\n{head}\r\n{body}".encode())
        answer = await asyncio.wait_for(reader.read(), 60)
        writer.close()
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b'"structuredContent":3' in answer
