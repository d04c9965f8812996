"""Proxy settings: what stands before a server: a proxy that is believed, a path, a file to listen at, a certificate."""

import asyncio
import os
import ssl
import stat
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests import forking
from tests.config.project import Project
from tests.server.doors import answer_of, post
from tests.server.processes import serving

CONFIG = """\
name: front
identity: {anonymous: {profile: all, on: anywhere}}
profiles: {all: {include: [core]}}
tools:
  - {name: where, type: internal, groups: [core], handler: "python:mine:where"}
"""
MODULE = """
from pegboard import CallContext

async def where(ctx: CallContext) -> str:
    return ctx.caller.address
"""


@asynccontextmanager
async def front(folder: Path, *options: str) -> AsyncGenerator[Any]:
    Project(folder).write(CONFIG, mine=MODULE)
    async with serving(folder, *options) as server:
        yield server


async def seen_from(client: httpx2.AsyncClient, forwarded: str, *, path: str = "/mcp") -> str:
    heads = {"x-forwarded-for": forwarded}
    answer = answer_of(await post(client, "tools/call", {"name": "where", "arguments": {}}, headers=heads, path=path))
    return answer["result"]["content"][0]["text"]


@pytest.mark.parametrize(
    ("options", "said", "seen"),
    [
        ([], "203.0.113.7", "127.0.0.1"),
        (["--forwarded-allow", "10.0.0.0/8"], "203.0.113.7", "127.0.0.1"),
        (["--forwarded-allow", "127.0.0.1"], "203.0.113.7", "203.0.113.7"),
        # Of several, that which the nearest proxy has added: what stands before it, its client may have written.
        (["--forwarded-allow", "127.0.0.0/8", "--root-path", "/tools/"], "198.51.100.9, 203.0.113.7", "203.0.113.7"),
    ],
)
async def test_a_proxy_is_believed_where_a_request_comes_from_if_its_address_is_trusted(
    options: list[str], said: str, seen: str, tmp_path: Path
) -> None:
    async with front(tmp_path, *options) as server:
        # A proxy strips the path below which it shows the server.
        address = server.url.removesuffix("/tools")
        async with httpx2.AsyncClient(base_url=address, verify=False) as client:
            assert await seen_from(client, said) == seen
            assert (await client.get("/openapi.json")).status_code == 200


async def test_at_a_file_the_proxy_is_believed_and_its_group_may_connect(tmp_path: Path) -> None:
    path = tmp_path / "s"
    Project(tmp_path).write(CONFIG, mine=MODULE)
    for number in range(2):
        said = tmp_path / f"told-{number}"
        words = ["pegboard", "serve", "--uds", str(path), "--workers", str(number + 1), "--allow-host", "tools.example"]
        with said.open("wb") as file:
            server = forking.fork(words, files=(file.fileno(), file.fileno(), file.fileno()), cwd=tmp_path)
        try:
            async with asyncio.timeout(60):
                while f"Serving MCP on unix:{path}:/mcp" not in said.read_text():
                    await asyncio.sleep(0.02)
            assert stat.S_IMODE(path.stat().st_mode) == 0o660
            transport = httpx2.AsyncHTTPTransport(uds=str(path))
            async with httpx2.AsyncClient(transport=transport, base_url="http://tools.example") as client:
                assert await seen_from(client, "203.0.113.7") == "203.0.113.7"
                assert (await client.post("/mcp", headers={"host": "other.example"})).status_code == 421
            second = forking.run(["pegboard", "serve", "--uds", str(path), "--allow-host", "x.example"], cwd=tmp_path)
            assert (second.returncode, b"another server listens there" in second.stderr) == (2, True)
        finally:
            # What it leaves is no obstacle for the next.
            os.kill(server.pid, 9 if number == 0 else 15)
            await asyncio.to_thread(server.wait)


async def test_with_a_certificate_it_answers_over_https_whatever_the_number_of_workers(tmp_path: Path) -> None:
    make = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
    ]
    make += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run(
        [*make, "-keyout", tmp_path / "key.pem", "-out", tmp_path / "cert.pem"], check=True, capture_output=True
    )
    trusting = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
    async with front(tmp_path, "--tls-cert", "cert.pem", "--tls-key", "key.pem", "--workers", "2") as server:
        assert server.url.startswith("https://127.0.0.1:")
        async with httpx2.AsyncClient(base_url=server.url, verify=trusting) as client:
            assert await seen_from(client, "203.0.113.7") == "127.0.0.1"
        with pytest.raises(httpx2.HTTPError):
            async with httpx2.AsyncClient(base_url=server.url.replace("https", "http")) as client:
                await client.get("/healthz")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--forwarded-allow", "proxy.example"], "is not an address or network"),
        (["--forwarded-allow", "10.0.0.1/8"], "is not an address or network"),
        (["--forwarded-allow", "*"], "is not an address or network"),
        (["--root-path", "tools?x"], "is not a path"),
        (["--tls-key", "key.pem"], "of no use without --tls-cert"),
        (["--tls-cert", "missing.pem"], "cannot be used"),
        (["--uds", "s", "--port", "1"], "Leave one out"),
        (["--uds", "s"], "name the hosts that clients use"),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_do(words: list[str], told: str, tmp_path: Path) -> None:
    Project(tmp_path).write(CONFIG, mine=MODULE)
    ended = forking.run(["pegboard", "serve", *words], cwd=tmp_path)
    assert (ended.returncode, told in ended.stderr.decode()) == (2, True), ended.stderr.decode()
    assert not (tmp_path / "s").exists()
