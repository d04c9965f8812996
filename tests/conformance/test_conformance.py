"""The official MCP conformance suites: the server's on a catalog of fixtures, the client's on an McpSource."""

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pegboard.serve import http_app
from tests.conformance.fixtures import conformance_catalog
from tests.serve.doors import served

HERE = Path(__file__).parent
SUITE = HERE / "node_modules/.bin/conformance"


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("--requirements", "2026-07-28"),
        ("--requirements", "2025-11-25"),
        ("--suite", "all", "--expected-failures", str(HERE / "expected-failures.yaml")),
    ],
    ids=["2026-07-28", "2025-11-25", "all"],
)
async def test_the_suite_passes(words: tuple[str, ...], tmp_path: Path) -> None:
    if not SUITE.exists():
        pytest.skip("the suite is not installed: make setup")
    async with served(http_app(conformance_catalog())) as url:
        code, said = await suite(tmp_path, "server", "--url", f"{url}/mcp", *words)
    assert code == 0, said[-4000:]
    assert "passed" in said


@pytest.mark.slow
async def test_our_client_of_other_servers_passes_each_scenario_that_is_scored(tmp_path: Path) -> None:
    if not SUITE.exists():
        pytest.skip("the suite is not installed: make setup")
    scored = scored_client_scenarios()
    assert len(scored) == 32
    command = f"{sys.executable} {HERE / 'upstream.py'}"
    # The suite itself would start all of them at once, and none would get far before its time is up.
    turns = asyncio.Semaphore(2)

    async def run(scenario: str) -> str:
        folder = tmp_path / scenario.replace("/", "-")
        folder.mkdir()
        words = ("--scenario", scenario, "--spec-version", "2026-07-28", "--command", command, "--timeout", "120000")
        async with turns:
            code, said = await suite(folder, "client", *words)
        passed = re.search(r"^Passed: ([1-9]\d*)/\1, 0 failed", said, re.MULTILINE)
        return "" if code == 0 and passed else f"{scenario}: {said[-3000:]}"

    failed = [fault for fault in await asyncio.gather(*map(run, scored)) if fault]
    assert failed == []


def scored_client_scenarios() -> list[str]:
    """Return the scenarios that the suite's own list scores, without a YAML reader: it is a plain list."""
    required = SUITE.parent.parent / "@modelcontextprotocol/conformance/requirements/2026-07-28.yaml"
    part = required.read_text().partition("\nclient:\n")[2].partition("\n\n")[0]
    return re.findall(r"^  - (\S+)$", part, re.MULTILINE)


async def suite(folder: Path, *words: str) -> tuple[int | None, str]:
    """Run the suite in a folder of its own; return how it ended and what it said."""
    env = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(folder),
    }
    process = await asyncio.create_subprocess_exec(
        str(SUITE), *words, "-o", str(folder / "results"),
        env=env, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    out, _ = await asyncio.wait_for(process.communicate(), 400)
    return process.returncode, out.decode()
