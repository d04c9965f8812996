"""Clients of others through nginx, which gives each request to the next of two servers: `make e2e`.

What they need is installed by that target alone: the first SDK for Python, fastmcp, three frameworks, Claude Code.
"""

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest

from pegboard.testing import CallsTool, ModelRequest, ModelServer
from tests import forking
from tests.config.project import Project
from tests.limits.server import redis_server
from tests.server.doors import JSON_HEADERS, META, VERSION, answer_of
from tests.server.test_two_workers import CONFIG, MODULE, all_goes_well_for_a_client
from tests.timing import PATIENCE_S
from tests.upstream_mcp.parts import free_port

CLIENTS = Path(__file__).parent / "clients"
UPSTREAM = Path(__file__).parents[1] / "upstream_mcp" / "plain_server.py"
PYTHON = Path(__file__).parents[2] / ".venv-e2e" / "bin" / "python"
NAMES = {"who", "ask", "hold", "steps", "speak", "agree", "decide", "up__add", "up__fail"}
# A task that asks, and an upstream server, whose tools have output schemas like `who`.
MORE = f"""\
  - {{name: decide, type: internal, handler: "python:mine:decide", task: optional}}
  - {{name: up, type: mcp, mcp: {{transport: stdio, command: {sys.executable}, args: [{UPSTREAM}],
    tools: {{only: [add, fail]}}}}}}
tasks: {{store: "sqlite:tasks.db"}}
"""
MORE_CODE = """
async def decide(ctx: CallContext) -> dict:
    return {"said": await ctx.ask("Which one?", schema={"type": "string"})}
"""
# What every client reads of an error: of ours about arguments, the same of an upstream tool, and an upstream's own.
WRONG = ("'x'", "$.a", "Error executing tool fail")
TASKS = 6  # that ask; which server each of their messages goes to is nginx's choice
NGINX = """\
daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/nginx.err;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    client_body_temp_path {folder}/t1; proxy_temp_path {folder}/t2; fastcgi_temp_path {folder}/t3;
    uwsgi_temp_path {folder}/t4; scgi_temp_path {folder}/t5;
    upstream pegboard {{ {servers} keepalive 32; }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://pegboard;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host $http_host;
            proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
            proxy_set_header X-Forwarded-Proto $scheme;
            proxy_buffering off;
            proxy_request_buffering off;
            proxy_read_timeout 1h;
            proxy_next_upstream error timeout;
        }}
    }}
}}
"""
pytestmark = pytest.mark.e2e


class Site(NamedTuple):
    """What runs: nginx at `url`, and the servers behind it."""

    folder: Path
    url: str
    servers: list[forking.Forked]

    def change(self) -> None:
        """Change a tool, so that clients are told of it."""
        path = self.folder / "pegboard.yaml"
        path.write_text(path.read_text().replace("{name: who,", f'{{name: who, description: "{time.time()}",'))

    def restore(self) -> None:
        path = self.folder / "pegboard.yaml"
        path.write_text(re.sub(r'description: "[\d.]+", ?', "", path.read_text()))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Generator[Site]:
    folder = tmp_path_factory.mktemp("site")
    with redis_server(folder) as redis, contextlib.ExitStack() as stack:
        Project(folder).write(CONFIG.format(key="k" * 32, uri=redis.uri) + MORE, mine=MODULE + MORE_CODE)
        ports, servers = [free_port(), free_port()], list[forking.Forked]()
        for port in ports:
            file = stack.enter_context((folder / f"said-{port}").open("wb")).fileno()
            words = ["pegboard", "serve", "--port", str(port), "--reload", "--forwarded-allow", "127.0.0.1"]
            servers.append(forking.fork(words, files=(file, file, file), cwd=folder))
            stack.callback(servers[-1].wait)
            stack.callback(servers[-1].send_signal, signal.SIGTERM)
        for port in ports:
            _until(lambda port=port: b"Serving MCP on" in (folder / f"said-{port}").read_bytes())
            _until(lambda port=port: b"up__add" in httpx2.get(f"http://127.0.0.1:{port}/v1/tools").content)
        front = free_port()
        config = folder / "nginx.conf"
        lines = " ".join(f"server 127.0.0.1:{port} max_fails=1 fail_timeout=1s;" for port in ports)
        config.write_text(NGINX.format(folder=folder, servers=lines, port=front))
        program = shutil.which("nginx", path=f"{os.environ['PATH']}{os.pathsep}/usr/sbin")
        assert program is not None, "nginx is not installed; Debian has it"
        nginx = stack.enter_context(_started([program, "-c", str(config), "-e", str(folder / "nginx.err")]))
        _until(lambda: nginx.poll() is None and _is_open(front))
        yield Site(folder, f"http://127.0.0.1:{front}", servers)


@contextlib.contextmanager
def _started(command: list[str]) -> Generator[Any]:
    process = subprocess.Popen(command)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def _is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


async def seen_by(site: Site, *command: str | Path) -> dict[str, Any]:
    """Run a client; cancel and change something when it says so; return what it saw."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, site.url, stdin=pipe, stdout=pipe, cwd=CLIENTS)
    assert process.stdin is not None
    assert process.stdout is not None
    name = Path(command[-1]).stem
    line, is_held = b"", False
    try:
        async with asyncio.timeout(4 * PATIENCE_S):
            async for line in process.stdout:
                if line == b"holding\n":
                    is_held = True
                    await asyncio.to_thread(_until, (site.folder / f"began-{name}").exists)
                    process.stdin.write(b"go on\n")
                elif line == b"changing\n":
                    if is_held:
                        await asyncio.to_thread(_until, (site.folder / f"cancelled-{name}").exists)
                    site.change()
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        site.restore()
    return json.loads(line)


@pytest.mark.parametrize(
    "command",
    [(PYTHON, "mcp_1.py"), (PYTHON, "fastmcp_3.py"), ("node", "typescript.mjs")],
    ids=lambda command: command[-1],
)
async def test_a_client_lists_calls_is_asked_reads_errors_ends_tasks_hears_progress_cancels_and_hears_of_changes(
    command: tuple[str | Path, ...], site: Site
) -> None:
    saw = await seen_by(site, *command)
    assert (set(saw["names"]), saw["pids"], saw["asked"]) == (NAMES, 2, ["Ann"] * 4)
    assert (saw["told"], "Error" in saw["held"]) == ([0.0, 0.33, 0.67], True)
    assert_reads_errors(saw["wrong"])
    assert saw["decided"] == [{"said": "Ann"}] * TASKS


def assert_reads_errors(texts: list[str]) -> None:
    assert len(texts) == len(WRONG)
    assert all(word in text for word, text in zip(WRONG, texts, strict=True)), texts


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_the_newest_python_client_does_all_of_it_in_both_eras(mode: str, site: Site) -> None:
    await all_goes_well_for_a_client(site.url, site.folder, mode)


@pytest.mark.parametrize("framework", ["pydantic_ai", "openai_agents", "langchain"])
async def test_a_framework_lists_calls_hears_of_changes_and_is_asked_where_it_can_be(
    framework: str, site: Site
) -> None:
    saw = await seen_by(site, PYTHON, "frameworks.py", framework)
    assert (set(saw["names"]), saw["pids"]) == (NAMES, 2)
    assert saw["asked"] == ([] if framework == "openai_agents" else ["Ann"] * 4)
    assert saw.get("told", [0.0, 0.33, 0.67]) == [0.0, 0.33, 0.67]
    assert_reads_errors(saw["wrong"])


async def test_claude_code_lists_and_calls(site: Site, tmp_path: Path) -> None:
    asked, pids = set[str](), set[str]()

    def answer(request: ModelRequest) -> Any:
        asked.update(request.tools)
        ran = [outcome.text for message in request.messages for outcome in message.outcomes]
        pids.update(ran)
        return [CallsTool("mcp__pair__who")] if request.tools and len(ran) < 4 else "done"

    # The program itself; what npm calls needs a script that is not run at its installation.
    (program,) = CLIENTS.glob("node_modules/@anthropic-ai/claude-code-*/claude")
    config = tmp_path / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"pair": {"type": "http", "url": f"{site.url}/mcp"}}}))
    with ModelServer(answer) as model:
        env = {**os.environ, "HOME": str(tmp_path), "ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "sk-x",
               "ENABLE_TOOL_SEARCH": "false", "DISABLE_AUTOUPDATER": "1",
               "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}  # fmt: skip
        process = await asyncio.create_subprocess_exec(
            program, "-p", "Who is there?", "--mcp-config", str(config),
            "--strict-mcp-config", "--allowedTools", "mcp__pair__who", "--output-format", "json",
            cwd=tmp_path, env=env, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        async with asyncio.timeout(4 * PATIENCE_S):
            out, _ = await process.communicate()
    assert (process.returncode, json.loads(out)["result"]) == (0, "done"), out
    assert {f"mcp__pair__{name}" for name in NAMES} <= asked
    assert pids == {str(server.pid) for server in site.servers}


async def test_a_server_killed_in_the_middle_of_1000_calls_loses_only_its_own(site: Site) -> None:
    """A call that had reached it is answered 502 by nginx, once and not made again; the others are answered."""
    params = {"name": "who", "arguments": {}, "_meta": META}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    heads = {"accept": "application/json, text/event-stream", "mcp-protocol-version": VERSION,
             "mcp-method": "tools/call", "mcp-name": "who"}  # fmt: skip
    outcomes: list[int] = []

    async def caller(client: httpx2.AsyncClient) -> None:
        for _ in range(50):
            answer = await client.post(f"{site.url}/mcp", json=message, headers=heads)
            outcomes.append(answer.status_code)
            if len(outcomes) == 300:
                os.kill(site.servers[0].pid, signal.SIGKILL)

    async with httpx2.AsyncClient(verify=False, timeout=PATIENCE_S) as client:
        await asyncio.gather(*(caller(client) for _ in range(20)))
    assert (len(outcomes), set(outcomes) <= {200, 502, 504}) == (1_000, True)
    assert outcomes.count(200) >= 980


async def test_a_task_of_the_extension_that_asks_ends_whichever_server_each_request_goes_to(site: Site) -> None:
    """No client has the extension yet: each message is sent as the specification has it."""
    declared = {
        **META,
        "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
    }

    async def asked(client: httpx2.AsyncClient, method: str, params: dict[str, Any], name: str) -> dict[str, Any]:
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": declared}}
        heads = {**JSON_HEADERS, "mcp-protocol-version": VERSION, "mcp-method": method, "mcp-name": name}
        return answer_of(await client.post(f"{site.url}/mcp", json=message, headers=heads))["result"]

    async with httpx2.AsyncClient(verify=False, timeout=PATIENCE_S) as client, asyncio.timeout(4 * PATIENCE_S):
        for _ in range(TASKS):
            made = await asked(client, "tools/call", {"name": "decide", "arguments": {}}, "decide")
            assert made["resultType"] == "task"
            task_id = made["taskId"]
            while (task := await asked(client, "tasks/get", {"taskId": task_id}, task_id))["status"] != "completed":
                assert task["status"] in ("working", "input_required")
                answers = {
                    key: {"action": "accept", "content": {"answer": "Ann"}} for key in task.get("inputRequests", {})
                }
                if answers:
                    await asked(client, "tasks/update", {"taskId": task_id, "inputResponses": answers}, task_id)
                await asyncio.sleep(0.05)
            assert task["result"]["structuredContent"] == {"said": "Ann"}
