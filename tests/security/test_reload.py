"""The shared case CFG-10: a running `pegboard serve --reload` and files that break."""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.config.project import Project
from tests.config.test_reload import BAD, write
from tests.server.doors import call, names
from tests.timing import is_within


class Served:
    """A `pegboard serve --reload` of a folder, and what it writes to stderr."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process, self.said = process, ""
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            self.said += line.decode()

    async def until(self, words: str, *, within_s: float = 60.0) -> float:
        """Return after how many seconds it said so."""
        started = time.perf_counter()
        async with asyncio.timeout(within_s):
            while words not in self.said:
                assert self.process.returncode is None, self.said
                await asyncio.sleep(0.01)
        return time.perf_counter() - started


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[tuple[Project, Served]]:
    project = Project(tmp_path)
    write(project, 1)
    pegboard = Path(sys.executable).with_name("pegboard")
    process = await asyncio.create_subprocess_exec(
        pegboard, "serve", "--reload", "--port", "0", cwd=tmp_path, env=os.environ, stderr=asyncio.subprocess.PIPE
    )
    server = Served(process)
    await server.until("Serving MCP on ")
    yield project, server
    if process.returncode is None:
        process.terminate()
        assert await asyncio.wait_for(process.wait(), 60) == 0, server.said


@pytest.mark.parametrize("how", BAD)
async def test_cfg_10_a_broken_file_fails_no_call_and_a_fix_is_taken_within_2_s(
    served: tuple[Project, Served], how: str
) -> None:
    project, server = served
    text, said = BAD[how]
    url = server.said.partition("Serving MCP on ")[2].partition("/mcp")[0]
    answers, done = list[Any](), asyncio.Event()

    async def client() -> None:
        async with httpx2.AsyncClient(base_url=url) as client:
            while not done.is_set():
                answers.append((await call(client, "stable"))["result"]["isError"])
                listed = [name.rpartition("_")[2] for name in await names(client) if "_" in name]
                assert len(listed) == 5
                assert len(set(listed)) == 1
                await asyncio.sleep(0.02)

    clients = [asyncio.create_task(client()) for _ in range(5)]
    if text is None:
        project.path.unlink()
    else:
        project.path.write_text(text)
    await server.until("config_reload_refused: ")
    assert said in server.said, "the place and what is wrong there"
    async with httpx2.AsyncClient(base_url=url) as one:
        assert "t0_1" in await names(one)
        write(project, 2)
        assert is_within(await server.until("Reloaded "), 2)
        assert "t0_2" in await names(one)
    done.set()
    await asyncio.gather(*clients)
    assert set(answers) == {False}
    assert len(answers) > 5
