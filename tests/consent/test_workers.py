"""One yes, two workers: two real processes with the same keys use an answer once, or one of them takes it alone."""

import asyncio
import re
import signal
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests import forking
from tests.config.project import Project
from tests.limits.server import redis_server
from tests.server.doors import answer_of, post

CAN_ASK = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
YES = {"pegboard.consent": {"action": "accept", "content": {}}}
PAY = {"name": "pay", "arguments": {"to": "bob"}}
CONFIG = """\
name: shop
{consents}
tools:
  - {{name: pay, type: internal, handler: "python:mine:pay", consent: always}}
"""
MODULE = """
from pathlib import Path

async def pay(to: str) -> str:
    with (Path(__file__).parent / "paid").open("a") as paid:
        paid.write(to + chr(10))
    return "paid"
"""
WORKER = """
from pegboard import load_catalog, run_http
from pegboard.consent import redis_used_answers, sqlite_store
from pathlib import Path
import os, sys

# A worker that has the lock, or its Redis, may stand still for longer than usual.
redis_used_answers.CONSENT_STORE_BUSY_S = sqlite_store.CONSENT_STORE_BUSY_S = 60.0

def ready(address):
    print(address, flush=True)

catalog, config = load_catalog(Path("pegboard.yaml"), env=os.environ)
run_http(catalog, config, port=0, keys=(b"k" * 32,), on_ready=ready)
"""


@asynccontextmanager
async def worker(folder: Path, number: int) -> AsyncGenerator[httpx2.AsyncClient]:
    """Run a worker; gives a client for it."""
    said = folder / f"said-{number}"
    with said.open("wb") as file:
        process = forking.fork(["python", "worker.py"], files=(file.fileno(), file.fileno(), file.fileno()), cwd=folder)
        ended = asyncio.create_task(asyncio.to_thread(process.wait))
    try:
        async with asyncio.timeout(60):
            while not (address := re.search(r"^(http\S+)/mcp$", said.read_text(), re.MULTILINE)):
                assert not ended.done(), said.read_text()
                await asyncio.sleep(0.02)
        async with httpx2.AsyncClient(base_url=address[1], verify=False, timeout=60) as client:
            yield client
    finally:
        process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(ended, 60)


@asynccontextmanager
async def workers(folder: Path, consents: str) -> AsyncGenerator[list[httpx2.AsyncClient]]:
    Project(folder).write(CONFIG.format(consents=consents), mine=MODULE)
    (folder / "worker.py").write_text(WORKER)
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(worker(folder, number)) for number in range(2)]


async def asked(client: httpx2.AsyncClient) -> str:
    return answer_of(await post(client, "tools/call", PAY, meta=CAN_ASK))["result"]["requestState"]


async def agreed(client: httpx2.AsyncClient, state: str) -> str:
    params = {**PAY, "inputResponses": YES, "requestState": state}
    answer: dict[str, Any] = answer_of(await post(client, "tools/call", params, meta=CAN_ASK))
    return answer["error"]["message"] if "error" in answer else answer["result"]["content"][0]["text"]


def paid(folder: Path) -> int:
    return len((folder / "paid").read_text().splitlines()) if (folder / "paid").exists() else 0


REFUSED = "Invalid or expired requestState"


async def used_once(first: httpx2.AsyncClient, second: httpx2.AsyncClient) -> None:
    """Let the first ask, and both be told yes ten times at once."""
    state = await asked(first)
    told = await asyncio.gather(*(agreed(client, state) for client in (second, first) * 10))
    assert sorted(told) == [REFUSED] * 19 + ["paid"]


async def test_a_yes_is_used_once_by_the_workers_of_one_machine(tmp_path: Path) -> None:
    async with workers(tmp_path, 'consents: {store: "sqlite:answers.db"}') as (first, second):
        for count in (1, 2, 3):
            await used_once(first, second)
            assert paid(tmp_path) == count
        # What one asked, the other runs.
        assert await agreed(second, await asked(first)) == "paid"
    assert "No store of consents" not in (tmp_path / "said-0").read_text()


async def test_a_yes_is_used_once_by_workers_that_share_a_redis(tmp_path: Path) -> None:
    with redis_server(tmp_path) as server:
        async with workers(tmp_path, f'consents: {{store: "{server.uri}"}}') as (first, second):
            await used_once(first, second)
            assert paid(tmp_path) == 1
            # A store that is away cannot say whether an answer was used: it is not taken, and nothing runs.
            state = await asked(first)
            server.stop()
            assert "Nothing was run" in await agreed(second, state)
            assert paid(tmp_path) == 1
            server.start()
            assert await agreed(second, await asked(first)) == "paid"


async def test_without_a_store_the_worker_that_asked_takes_the_yes_alone_and_says_so_at_start(tmp_path: Path) -> None:
    async with workers(tmp_path, "") as (first, second):
        state = await asked(first)
        assert [await agreed(second, state), await agreed(first, state)] == [REFUSED, "paid"]
        assert [await agreed(second, state), await agreed(first, state)] == [REFUSED, REFUSED]
    assert paid(tmp_path) == 1
    assert "No store of consents" in (tmp_path / "said-0").read_text()


@pytest.mark.parametrize(
    ("store", "problem"),
    [
        ("postgresql://[::1", "the URI of the store cannot be used"),
        ("mongo:x", "a store of the kind 'mongo' is unknown"),
        ("sqlite:", "a store of the kind 'sqlite' is unknown"),
        ("sqlite:missing/answers.db", "there is no folder"),
        ("redis://host:port", "the URI of the store cannot be used"),
    ],
)
def test_a_store_that_cannot_be_used_is_refused_where_it_stands(tmp_path: Path, store: str, problem: str) -> None:
    [said] = Project(tmp_path).write(f'consents: {{store: "{store}"}}').said()
    assert said.startswith("pegboard.yaml:1:")
    assert problem in said


async def test_a_file_that_is_no_database_takes_no_answer(tmp_path: Path) -> None:
    async with workers(tmp_path, 'consents: {store: "sqlite:answers.db"}') as (first, _):
        state = await asked(first)
        (tmp_path / "answers.db").write_bytes(b"no database" * 500)
        assert "Nothing was run" in await agreed(first, state)
        refused = answer_of(await post(first, "tools/call", PAY, meta=CAN_ASK))["result"]
        assert refused["_meta"]["pegboard/error"]["kind"] == "storage_unavailable"
    assert paid(tmp_path) == 0
