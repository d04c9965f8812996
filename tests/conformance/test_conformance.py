"""The official MCP conformance suite against fixtures that are declared through a catalog."""

import asyncio
import os
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
    env = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(tmp_path),
    }
    async with served(http_app(conformance_catalog())) as url:
        process = await asyncio.create_subprocess_exec(
            str(SUITE), "server", "--url", f"{url}/mcp", *words, "-o", str(tmp_path / "results"),
            env=env, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        out, _ = await asyncio.wait_for(process.communicate(), 200)
    said = out.decode()
    assert process.returncode == 0, said[-4000:]
    assert "passed" in said
