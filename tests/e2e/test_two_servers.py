"""The official conformance suite on two servers, each request at the next of them: `make e2e`."""

import contextlib
import re
import signal
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from tests import forking
from tests.conformance.test_conformance import faults_in, scored_scenarios, suite
from tests.limits.server import redis_server
from tests.server.round_robin import proxied
from tests.timing import PATIENCE_S

ROOT = Path(__file__).parents[2]
SERVER = f"""
import asyncio, sys
sys.path.insert(0, {str(ROOT)!r})
from pegboard import http_app, replace
from pegboard.consent.redis_used_answers import RedisAnswerStore
from tests.conformance.fixtures import conformance_catalog
from tests.server.doors import served

async def main():
    catalog = conformance_catalog()
    catalog.executor.swap(replace(catalog.executor.ports, used_answers=RedisAnswerStore(sys.argv[1])))
    async with served(http_app(catalog, keys=(b"k" * 32,), bus=sys.argv[1])) as url:
        print(url, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""
pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Generator[list[str]]:
    folder = tmp_path_factory.mktemp("two")
    script = folder / "server.py"
    script.write_text(SERVER)
    said = [folder / f"said-{number}" for number in range(2)]
    with redis_server(folder) as redis, contextlib.ExitStack() as stack:
        for path in said:
            file = stack.enter_context(path.open("wb")).fileno()
            server = forking.fork(["python", str(script), redis.uri], files=(file, file, file), cwd=folder)
            stack.callback(server.wait)
            stack.callback(server.send_signal, signal.SIGKILL)
        deadline = time.monotonic() + PATIENCE_S
        while not all(b"http://" in path.read_bytes() for path in said):
            assert time.monotonic() < deadline, [path.read_text() for path in said]
            time.sleep(0.05)
        yield [re.findall(r"http://[\d.:]+", path.read_text())[0] for path in said]


@pytest.mark.parametrize("revision", ["2026-07-28", "2025-11-25"])
async def test_every_scenario_that_is_scored_passes_on_two_servers(
    revision: str, servers: list[str], tmp_path: Path
) -> None:
    async with proxied(servers) as url:
        code, said = await suite(tmp_path, "server", "--url", f"{url}/mcp", "--requirements", revision)
    passed = re.findall(r"^✓ (\S+): [1-9]\d* passed, 0 failed", said, re.MULTILINE)
    missing = set(scored_scenarios(revision, "server")) - set(passed)
    assert (code, missing) == (0, set()), faults_in(tmp_path) + said[-2000:]
