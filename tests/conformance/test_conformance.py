"""The official MCP conformance suites: the server's on a catalog of fixtures, the client's on an McpSource."""

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pegboard import http_app
from pegboard.server.mcp.ready_bytes import SWITCH
from tests import forking
from tests.config.project import Project
from tests.conformance.fixtures import conformance_catalog
from tests.limits.server import redis_server
from tests.server.doors import served
from tests.server.processes import serving

HERE = Path(__file__).parent
SUITE = HERE / "node_modules/.bin/conformance"


@pytest.fixture(params=["with ready bytes", pytest.param("without ready bytes", marks=pytest.mark.soak)])
def with_ready_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Serve with the cache in front of the dispatcher, and without it."""
    monkeypatch.setenv(SWITCH, "on" if request.param == "with ready bytes" else "off")


@pytest.mark.slow
@pytest.mark.usefixtures("with_ready_bytes")
@pytest.mark.parametrize(
    ("revision", "scored"), [("2026-07-28", 37), pytest.param("2025-11-25", 30, marks=pytest.mark.soak)]
)
async def test_every_scenario_that_is_scored_passes(revision: str, scored: int, tmp_path: Path) -> None:
    names = scored_scenarios(revision, "server")
    assert len(names) == scored
    said = await serve_the_suite(tmp_path, "--requirements", revision)
    passed = re.findall(r"^✓ (\S+): [1-9]\d* passed, 0 failed", said, re.MULTILINE)
    assert set(names) - set(passed) == set(), said[-4000:]


@pytest.mark.slow
@pytest.mark.usefixtures("with_ready_bytes")
async def test_all_that_the_suite_has_passes(tmp_path: Path) -> None:
    said = await serve_the_suite(tmp_path, "--suite", "all")
    assert re.findall(r"^✗ (\S+): ", said, re.MULTILINE) == [], said[-4000:]
    assert len(re.findall(r"^✓ tasks-\S+: ", said, re.MULTILINE)) >= 9, said[-4000:]


DECLARED = """
from pegboard import default_catalog
from tests.conformance.fixtures import declare_all
declare_all(default_catalog)
"""
CONFIG = """
name: pegboard-conformance
python: [declared]
consents: {{store: "sqlite:answers.db"}}
tasks: {{store: "sqlite:tasks.db"}}
server: {{bus: "{bus}", keys: [{key}]}}
"""


@pytest.mark.soak
@pytest.mark.usefixtures("with_ready_bytes")
@pytest.mark.parametrize(
    "words", [("--suite", "all"), ("--requirements", "2026-07-28"), ("--requirements", "2025-11-25")], ids=" ".join
)
async def test_two_workers_pass_what_one_passes(words: tuple[str, ...], tmp_path: Path) -> None:
    with redis_server(tmp_path) as redis:
        Project(tmp_path).write(CONFIG.format(bus=redis.uri, key="k" * 32), declared=DECLARED)
        env = {"PYTHONPATH": str(HERE.parents[1]), SWITCH: os.environ[SWITCH]}
        async with serving(tmp_path, "--workers", "2", env=env) as server:
            code, said = await suite(tmp_path / "suite", "server", "--url", f"{server.url}/mcp", *words)
    assert code == 0, faults_in(tmp_path) + said[-4000:]


async def serve_the_suite(folder: Path, *words: str) -> str:
    """Return what the suite says of our server, which is content with it.

    The suite waits by the clock, which is too short at times on a machine that does much else: it may try again.
    """
    if not SUITE.exists():
        pytest.skip("the suite is not installed: make setup")
    said, faults = "", ""
    for attempt in range(3):
        own = folder / str(attempt)
        own.mkdir()
        async with served(http_app(conformance_catalog())) as url:
            code, said = await suite(own, "server", "--url", f"{url}/mcp", *words)
        if code == 0:
            return said
        faults += faults_in(own)
    raise AssertionError(faults + said[-4000:])


def faults_in(folder: Path) -> str:
    """Return each check that was not a success, as the suite wrote it down."""
    checks = [check for file in folder.rglob("checks.json") for check in json.loads(file.read_text())]
    return "".join(f"{json.dumps(check)[:1000]}\n" for check in checks if check["status"] in ("FAILURE", "WARNING"))


def scored_scenarios(revision: str, part: str) -> list[str]:
    """Return the scenarios that the suite's own list scores, without a YAML reader: it is a plain list."""
    required = SUITE.parent.parent / f"@modelcontextprotocol/conformance/requirements/{revision}.yaml"
    named = required.read_text().partition(f"\n{part}:\n")[2].partition("\n\n")[0]
    return re.findall(r"^  - (\S+)$", named, re.MULTILINE)


@pytest.mark.slow
async def test_our_client_of_other_servers_passes_each_scenario_that_is_scored(tmp_path: Path) -> None:
    if not SUITE.exists():
        pytest.skip("the suite is not installed: make setup")
    scored = set(scored_scenarios("2026-07-28", "client"))
    assert len(scored) == 32
    command = forking.command("python", str(HERE / "upstream.py"))
    run = ("client", "--command", command, "--timeout", "120000")
    _, said = await suite(tmp_path / "all", *run, "--requirements", "2026-07-28")
    late = scored - set(re.findall(r"^✓ (\S+): [1-9]\d* passed, 0 failed", said, re.MULTILINE))
    # All at once is too much for the clocks of some on a busy machine: these are tried again, alone.
    for scenario in late:
        folder = tmp_path / scenario.replace("/", "-")
        code, said = await suite(folder, *run, "--scenario", scenario, "--spec-version", "2026-07-28")
        assert code == 0, said[-3000:]
        assert re.search(r"^Passed: ([1-9]\d*)/\1, 0 failed", said, re.MULTILINE), said[-3000:]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["enterprise-managed-authorization", "client-credentials-jwt", "client-credentials-basic"]
)
async def test_our_client_passes_each_extension_of_authorization_that_we_have(name: str, tmp_path: Path) -> None:
    # Extensions are not scored.
    if not SUITE.exists():
        pytest.skip("the suite is not installed: make setup")
    command = forking.command("python", str(HERE / "upstream.py"))
    scenario = ("--scenario", f"auth/{name}", "--timeout", "120000")
    code, said = await suite(tmp_path, "client", "--command", command, *scenario)
    assert code == 0, said[-3000:]
    assert re.search(r"^Passed: ([1-9]\d*)/\1, 0 failed", said, re.MULTILINE), said[-3000:]


async def suite(folder: Path, *words: str) -> tuple[int | None, str]:
    """Run the suite in a folder of its own; return how it ended and what it said."""
    folder.mkdir(exist_ok=True)
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
