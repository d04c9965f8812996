"""The example examples/connections: a service where everybody has an account, and the commands of its page."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2

from tests import forking
from tests.ports import free_port
from tests.timing import PATIENCE_S
from tests.upstream_mcp.parts import until_open

EXAMPLE = Path(__file__).parents[2] / "examples" / "connections"
ENV = {**os.environ, "CONNECTIONS_KEY": "a-key-of-the-example-that-is-long-enough-0123456789"}


class Terminal:
    """A terminal in the folder of the example, next to its service."""

    def __init__(self, folder: Path, service: str) -> None:
        self._folder, self.service = folder, service

    async def run(self, line: str, *, visitor: str = "") -> tuple[int, str, str]:
        """Run a command of the page; `visitor` is who goes to the address that it prints, and agrees there."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *forking.started(*line.split()), stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe,
            cwd=self._folder, env={**ENV, "NOTES_SERVICE": self.service},
        )  # fmt: skip
        async with asyncio.timeout(PATIENCE_S):
            noted = ""
            while visitor and process.stderr is not None and (raw := await process.stderr.readline()):
                noted += raw.decode()
                if (url := re.search(r"^(http://\S+)$", raw.decode(), re.MULTILINE)) is not None:
                    await self._agree(url[1], visitor)
                    break
            out, err = await process.communicate()
        return process.returncode or 0, out.decode(), noted + err.decode()

    async def _agree(self, url: str, visitor: str) -> None:
        async with httpx2.AsyncClient() as browser:
            login = (await browser.get(url)).headers["location"]
            [ticket] = parse_qs(urlsplit(login).query)["ticket"]
            back = await browser.get(f"{self.service}/login", params={"ticket": ticket, "user": visitor})
            page = await browser.get(back.headers["location"])
            assert "Connected: notes" in page.text, page.text


@asynccontextmanager
async def terminal(folder: Path) -> AsyncGenerator[Terminal]:
    shutil.copytree(EXAMPLE, folder, dirs_exist_ok=True)
    port = free_port()
    service = f"http://127.0.0.1:{port}"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "notes_service.py", cwd=folder, env={**ENV, "NOTES_SERVICE": service},
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        await until_open(port)
        yield Terminal(folder, service)
    finally:
        process.kill()
        await process.wait()


async def test_each_person_connects_once_and_reads_their_own_notes(tmp_path: Path) -> None:
    async with terminal(tmp_path) as shell:
        code, _, err = await shell.run("pegboard call notes__connect --as user=bob")
        assert (code != 0, "connection_required" in err, "pegboard connect notes" in err) == (True, True, True), err
        for user, note in (("ann", "Call the bank"), ("bob", "Buy a present for Ann")):
            code, out, err = await shell.run(f"pegboard connect notes --as user={user} --no-browser", visitor=user)
            assert (code, f"Connected: '{user}' to 'notes'. Scopes: notes." in out) == (0, True), out + err
            code, out, err = await shell.run(f"pegboard call notes__my_notes --as user={user}")
            assert (code, note in out) == (0, True), out + err
        code, out, _ = await shell.run("pegboard connections ls --json")
        listed: Any = json.loads(out)["connections"]
        assert {(one["user"], one["source"], one["state"]) for one in listed} == {
            ("ann", "notes", "connected"), ("bob", "notes", "connected"),
        }  # fmt: skip
        code, out, _ = await shell.run("pegboard connections show notes --user ann")
        assert (code, shell.service in out) == (0, True)
        code, out, _ = await shell.run("pegboard connections disconnect notes --user ann")
        assert (code, out) == (0, "Disconnected 'ann' from 'notes'. The issuer revoked its tokens.\n")
        code, _, err = await shell.run("pegboard call notes__connect --as user=ann")
        assert (code != 0, "connection_required" in err) == (True, True), err
        code, out, err = await shell.run("pegboard call notes__my_notes --as user=bob")
        assert (code, "Buy a present" in out) == (0, True), err


async def test_a_command_says_what_it_lacks(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE, tmp_path, dirs_exist_ok=True)
    shell = Terminal(tmp_path, "http://127.0.0.1:9")
    for line, words in (
        ("pegboard connect notes", "--as user=ann"),
        ("pegboard connect letters --as user=ann", "there are: notes"),
        ("pegboard connect notes --as user=ann", "127.0.0.1:9"),
        ("pegboard connections show notes", "needs --user"),
        ("pegboard connections disconnect notes --user ann", "There is no connection 'notes'"),
    ):
        code, _, err = await shell.run(line)
        assert (code != 0, words in err) == (True, True), err
    (tmp_path / "pegboard.yaml").write_text("name: empty\n")
    code, _, err = await shell.run("pegboard connections")
    assert (code != 0, "connects nobody" in err) == (True, True), err
