"""Clients: those that people have, over HTTP and stdio: the inspector's command line and fastmcp."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pegboard import http_app
from pegboard.consent.sqlite_store import SqliteConsents
from pegboard.model.record import replace
from tests import forking
from tests.server.doors import served, workshop
from tests.timing import PATIENCE_S

ROOT = Path(__file__).parents[2]
INSPECTOR = ROOT / "tests/conformance/node_modules/.bin/mcp-inspector"
STDIO = """
import sys
sys.path.insert(0, {root!r})
from pegboard import run_stdio
from tests.server.doors import workshop
run_stdio(workshop()[0], profile=sys.argv[1])
"""
FASTMCP_CLIENT = """
import asyncio, json, sys
from fastmcp import Client
from fastmcp.client.transports import StdioTransport

async def main():
    target = json.loads(sys.argv[1])
    if not isinstance(target, str):
        target = StdioTransport(command=target[0], args=target[1:], cwd=sys.argv[2])
    async with Client(target) as client:
        names = [tool.name for tool in await client.list_tools()]
        result = await client.call_tool("add", {"a": 2, "b": 3})
        try:
            await client.call_tool("nope", {})
            refused = ""
        except Exception as error:
            refused = str(error)
        print(json.dumps([names, result.content[0].text, refused]))

asyncio.run(main())
"""
pytestmark = pytest.mark.slow


async def run(*command: str | Path, home: Path) -> tuple[int, str]:
    """Run a program to its end; return its exit code and output."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "HOME": str(home), "PATH": path}
    process = await asyncio.create_subprocess_exec(
        *map(str, command), env=env, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    out, _ = await asyncio.wait_for(process.communicate(), 3 * PATIENCE_S)
    return process.returncode or 0, out.decode()


@pytest.fixture
def server_script(tmp_path: Path) -> Path:
    path = tmp_path / "server.py"
    path.write_text(STDIO.format(root=str(ROOT)))
    return path


@pytest.mark.parametrize(
    ("era", "door"),
    [
        ("legacy", "stdio"), ("modern", "http"), pytest.param("legacy", "http", marks=pytest.mark.soak),
        pytest.param("modern", "stdio", marks=pytest.mark.soak),
    ],
)  # fmt: skip
async def test_the_inspector_lists_and_calls(era: str, door: str, tmp_path: Path, server_script: Path) -> None:
    if not INSPECTOR.exists():
        pytest.skip("the inspector is not installed: make setup")
    async with served(http_app(workshop()[0])) as url:
        http = [f"{url}/mcp/admin", "--transport", "http"]
        stdio = ["--", *forking.started("python", str(server_script), "admin")]

        async def inspect(*words: str) -> tuple[int, str]:
            said = [*http, *words] if door == "http" else [*words, *stdio]
            return await run(INSPECTOR, "--cli", "--protocol-era", era, *said, home=tmp_path)

        code, listed = await inspect("--method", "tools/list")
        assert (code, "wipe" in listed, "echo" in listed) == (0, True, False), listed
        arguments = ["--tool-arg", "a=2", "--tool-arg", "b=3"]
        code, called = await inspect("--method", "tools/call", "--tool-name", "add", *arguments)
        assert (code, '"text": "5"' in called) == (0, True), called
        code, refused = await inspect("--method", "tools/call", "--tool-name", "echo")
        assert (code != 0, "No tool named 'echo'" in refused or "not found" in refused.lower()) == (True, True), refused


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_the_inspector_which_cannot_ask_makes_an_approved_call(era: str, tmp_path: Path) -> None:
    if not INSPECTOR.exists():
        pytest.skip("the inspector is not installed: make setup")
    store, (catalog, seen) = SqliteConsents(tmp_path / "consents.db"), workshop()
    catalog.executor.swap(replace(catalog.executor.ports, consents=store))
    async with served(http_app(catalog)) as url:
        wipe = ["--method", "tools/call", "--tool-name", "wipe", "--tool-arg", "what=disk"]

        async def inspect() -> str:
            command = ["--cli", "--protocol-era", era, f"{url}/mcp/admin", "--transport", "http", *wipe]
            return (await run(INSPECTOR, *command, home=tmp_path))[1]

        refused = await inspect()
        [question] = await store.listed()
        assert f"pegboard consent approve {question.id}" in refused
        await store.decide(question.id, is_yes=True, decided_by="cli:ann")
        assert "wiped disk" in await inspect()
    assert seen.runs == ["wipe disk"]


@pytest.mark.parametrize("door", ["http", "stdio"])
async def test_fastmcp_lists_and_calls(door: str, tmp_path: Path, server_script: Path) -> None:
    script = tmp_path / "client.py"
    script.write_text(FASTMCP_CLIENT)
    async with served(http_app(workshop()[0])) as url:
        target: Any = f"{url}/mcp/admin" if door == "http" else forking.started("python", str(server_script), "admin")
        code, out = await run(sys.executable, script, json.dumps(target), ROOT, home=tmp_path)
    assert code == 0, out
    names, text, refused = json.loads(out.splitlines()[-1])
    assert names == ["add", "count", "wait", "steps", "greet", "broken", "wipe"]
    assert text == "5"
    assert "No tool named 'nope' is available to this caller." in refused
