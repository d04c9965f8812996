"""The nginx and Caddy blocks of the page on deployment, with TLS: `make e2e`."""

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest

from tests import forking
from tests.config.project import Project
from tests.e2e.test_real_clients import _started, _until
from tests.limits.server import redis_server
from tests.server.doors import META, VERSION
from tests.server.test_two_workers import CONFIG, MODULE
from tests.timing import PATIENCE_S
from tests.upstream_mcp.parts import free_port

PAGE = Path(__file__).parents[2] / "docs/howto/deploy.md"
HOST = "tools.example.com"
AROUND = {
    "nginx": """\
daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/nginx.err;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    client_body_temp_path {folder}/t1; proxy_temp_path {folder}/t2; fastcgi_temp_path {folder}/t3;
    uwsgi_temp_path {folder}/t4; scgi_temp_path {folder}/t5;
{block}
}}
""",
    # Of its own authority, which it puts into nobody's store: the page's host would be asked for a certificate.
    "caddy": """\
{{
    admin off
    skip_install_trust
    storage file_system {folder}/caddy
}}
{block}
""",
}
EVERYBODY = """
identity: {anonymous: {profile: everybody, on: anywhere}}
profiles: {everybody: {include: [core], exposure: direct}}
"""
pytestmark = pytest.mark.e2e


def block(heading: str) -> str:
    """Return the last block of text below a heading of the page."""
    below = PAGE.read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"^```text\n(.*?)^```$", below, re.MULTILINE | re.DOTALL)[-1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Generator[Path]:
    """Serve as the page says, at a file, with two workers."""
    folder = tmp_path_factory.mktemp("deployed")
    with redis_server(folder) as redis, contextlib.ExitStack() as stack:
        Project(folder).write(CONFIG.format(key="k" * 32, uri=redis.uri) + EVERYBODY, mine=MODULE)
        said = stack.enter_context((folder / "said").open("wb")).fileno()
        words = ["pegboard", "serve", "--uds", str(folder / "socket"), "--workers", "2", "--allow-host", HOST]
        server = forking.fork(words, files=(said, said, said), cwd=folder)
        stack.callback(server.wait)
        stack.callback(server.send_signal, signal.SIGTERM)
        _until(lambda: b"Serving MCP on" in (folder / "said").read_bytes())
        yield folder


@contextlib.contextmanager
def fronted(folder: Path, name: str) -> Generator[int]:
    """Run nginx or Caddy with the page's block, its addresses and files changed to ours; give its port."""
    program = shutil.which(name, path=f"{os.environ['PATH']}{os.pathsep}/usr/sbin")
    if program is None:
        pytest.skip(f"{name} is not installed; Debian has it")
    port, config = free_port(), folder / f"{name}.conf"
    said = block(name if name == "nginx" else "Caddy").replace("/run/pegboard/socket", str(folder / "socket"))
    if name == "nginx":
        words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={HOST}"]
        own = ["-keyout", str(folder / "tls.key"), "-out", str(folder / "tls.pem")]
        subprocess.run([*words, *own], check=True, capture_output=True)
        said = said.replace("listen 443 ssl", f"listen 127.0.0.1:{port} ssl").replace("/etc/ssl/tools", f"{folder}/tls")
        command = [program, "-c", str(config), "-e", str(folder / "nginx.err")]
    else:
        said = said.replace(f"{HOST} {{", f"https://{HOST}:{port} {{\n    bind 127.0.0.1\n    tls internal", 1)
        command = [program, "run", "--config", str(config), "--adapter", "caddyfile"]
    config.write_text(AROUND[name].format(folder=folder, block=said))
    with _started(command) as process:
        _until(lambda: process.poll() is None and _answers(port))
        yield port


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5) as plain:
        trusting().wrap_socket(plain, server_hostname=HOST).close()
        return True
    return False


def trusting() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


async def called(port: int, tool: str, **arguments: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Call a tool with a progress token, as a client of the page's host."""
    params = {"name": tool, "arguments": arguments, "_meta": {**META, "progressToken": 1}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting(), server_hostname=HOST)
    writer.write(
        f"POST /mcp HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\nConnection: close\r\n"
        f"Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: {VERSION}\r\nMcp-Method: tools/call\r\n"
        f"Mcp-Name: {tool}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
    )
    return reader, writer


@pytest.mark.parametrize("name", ["nginx", "caddy"])
async def test_a_call_and_its_progress_come_through_a_proxy_over_tls_as_they_are_said(folder: Path, name: str) -> None:
    with fronted(folder, name) as port:
        async with asyncio.timeout(PATIENCE_S):
            reader, writer = await called(port, "who")
            whole = await reader.read()
            assert whole.startswith(b"HTTP/1.1 200"), whole
            assert b'"isError":false' in whole
            writer.close()
            # What is said in the middle of a call arrives before its end: nothing on the way waits for more.
            reader, writer = await called(port, "steps")
            assert (await reader.readuntil(b"step 0")).startswith(b"HTTP/1.1 200")
            assert b'"isError":false' in await reader.read()
            writer.close()
            # A client that leaves ends its call behind the proxy, too.
            reader, writer = await called(port, "hold", name=name)
            await asyncio.to_thread(_until, (folder / f"began-{name}").exists)
            writer.transport.abort()
            await asyncio.to_thread(_until, (folder / f"cancelled-{name}").exists)
