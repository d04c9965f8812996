"""The reference servers of the protocol, as upstreams: pinned npm packages, over each transport they speak."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pegboard.egress.process import clean_environment
from pegboard.sources.mcp.server_settings import ServerSettings
from tests.upstream_mcp.parts import free_port, running, until_open, view_of

BIN = Path(__file__).parent / "node_modules" / ".bin"
pytestmark = pytest.mark.skipif(not BIN.is_dir(), reason="`make setup` brings the reference servers")


def reference(name: str, *args: str, **said: Any) -> ServerSettings:
    return ServerSettings(
        name="up", transport="stdio", command=str(BIN / f"mcp-server-{name}"), args=args, trust="any", **said
    )


@asynccontextmanager
async def everything(kind: str, port: int) -> AsyncGenerator[None]:
    process = await asyncio.create_subprocess_exec(
        str(BIN / "mcp-server-everything"),
        kind,
        env=clean_environment({"PORT": str(port)}),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        await until_open(port)
        yield
    finally:
        # The `node` of a Python package starts the real one, and is not asked before it ends.
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def exercise_everything(settings: ServerSettings) -> None:
    async with running(settings) as (catalog, source):
        view = view_of(catalog)
        assert (source.state().status, source.rejected, source.partial) == ("ok", (), "")
        assert {"up__echo", "up__get-sum"} <= set(view.names())
        assert "hello" in (await view.call("up__echo", {"message": "hello"})).text
        assert "5" in (await view.call("up__get-sum", {"a": 2, "b": 3})).text
        refused = await view.call("up__get-sum", {"a": "2", "b": 3})
        assert refused.error is not None
        assert refused.error.kind == "invalid_arguments"


async def test_everything_over_stdio() -> None:
    await exercise_everything(reference("everything", "stdio"))


@pytest.mark.parametrize(("kind", "transport", "path"), [("streamableHttp", "http", "mcp"), ("sse", "sse", "sse")])
async def test_everything_over_http(kind: str, transport: Any, path: str) -> None:
    port = free_port()
    async with everything(kind, port):
        url = f"http://127.0.0.1:{port}/{path}"
        await exercise_everything(ServerSettings(name="up", transport=transport, url=url, trust="any"))


async def directly_listed(command: str, *args: str) -> dict[str, Any]:
    """Return the tools of a server by name, as it sends them."""
    process = await asyncio.create_subprocess_exec(
        command, *args, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL, env=clean_environment({}), start_new_session=True, limit=2**22,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    client = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    try:
        for message in (
            {"id": 1, "method": "initialize", "params": client},
            {"method": "notifications/initialized"},
            {"id": 2, "method": "tools/list"},
        ):
            process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        while line := await process.stdout.readline():
            message = json.loads(line)
            if message.get("id") == 2 and "result" in message:
                return {tool["name"]: tool for tool in message["result"]["tools"]}
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    raise AssertionError("the server sent no list")


@pytest.mark.parametrize("server", ["everything", "filesystem", "memory"])
async def test_every_reference_tool_is_listed_as_its_server_lists_it_except_name_and_execution(
    server: str, tmp_path: Path
) -> None:
    args = {"everything": ("stdio",), "filesystem": (str(tmp_path),)}.get(server, ())
    settings = reference(server, *args)
    direct = await directly_listed(str(settings.command), *args)
    async with running(settings) as (catalog, _):
        listed = {tool["name"].removeprefix("up__"): tool for tool in view_of(catalog).export("mcp")}
    assert len(direct) >= 9
    for name, tool in direct.items():
        # Whether a call can be a task is what Pegboard says of itself; see "What a client sees" in mcp-servers.md.
        tool.pop("execution", None)
        assert listed[name] == {**tool, "name": f"up__{name}"}


async def test_filesystem_reads_what_it_wrote(tmp_path: Path) -> None:
    async with running(reference("filesystem", str(tmp_path))) as (catalog, source):
        view = view_of(catalog)
        assert source.rejected == ()
        path = os.path.realpath(tmp_path / "note.txt")
        assert not (await view.call("up__write_file", {"path": path, "content": "remember"})).is_error
        assert "remember" in (await view.call("up__read_text_file", {"path": path})).text
        outside = await view.call("up__read_text_file", {"path": "/etc/passwd"})
        assert outside.error is not None
        assert outside.error.kind == "tool_error"


async def test_memory_finds_what_it_was_told(tmp_path: Path) -> None:
    env = {"MEMORY_FILE_PATH": str(tmp_path / "memory.jsonl")}
    async with running(reference("memory", env=env)) as (catalog, source):
        view = view_of(catalog)
        assert source.rejected == ()
        ann = {"name": "Ann", "entityType": "person", "observations": ["likes tea"]}
        assert not (await view.call("up__create_entities", {"entities": [ann]})).is_error
        found = await view.call("up__search_nodes", {"query": "tea"})
        assert "Ann" in json.dumps(found.structured)


async def test_a_question_of_an_earlier_era_reaches_the_person_behind_the_only_call() -> None:
    asked: list[str] = []

    class Person:
        supports_ui = False

        async def elicit(self, message: str, schema: Any = None) -> Any:
            asked.append(message)
            return {"name": "Ann"}

        async def approve(self, request: object) -> bool | None:
            return None

    async with running(reference("everything", "stdio")) as (catalog, _):
        result = await view_of(catalog, client=Person()).call("up__trigger-elicitation-request", {})
        assert "Ann" in result.text
    assert len(asked) == 1
