"""The shared case CFG-10: a running `pegboard serve --reload` and files that break."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.config.project import Project
from tests.config.test_reload import BAD, write
from tests.server.doors import call, names
from tests.server.processes import Server, serving
from tests.timing import is_within


async def said(server: Server, words: str, *, within_s: float = 60.0) -> float:
    """Return after how many seconds it said so."""
    started = time.perf_counter()
    async with asyncio.timeout(within_s):
        while words not in server.said.read_text():
            await asyncio.sleep(0.01)
    return time.perf_counter() - started


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[tuple[Project, Server]]:
    project = Project(tmp_path)
    write(project, 1)
    async with serving(tmp_path, "--reload") as server:
        yield project, server


@pytest.mark.parametrize("how", BAD)
async def test_cfg_10_a_broken_file_fails_no_call_and_a_fix_is_taken_within_2_s(
    served: tuple[Project, Server], how: str
) -> None:
    project, server = served
    text, problem = BAD[how]
    url = server.url
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
    await said(server, "config_reload_refused: ")
    assert problem in server.said.read_text(), "the place and what is wrong there"
    async with httpx2.AsyncClient(base_url=url) as one:
        assert "t0_1" in await names(one)
        write(project, 2)
        assert is_within(await said(server, "Reloaded "), 2)
        assert "t0_2" in await names(one)
    done.set()
    await asyncio.gather(*clients)
    assert set(answers) == {False}
    assert len(answers) > 5
