"""`pegboard add` on real servers from the package indexes, and on large public OpenAPI documents."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.e2e]
BIN = Path(sys.executable).parent
SERVERS = [
    "npx -y @modelcontextprotocol/server-everything",
    "npx -y @modelcontextprotocol/server-filesystem .",
    "npx -y @modelcontextprotocol/server-memory",
    "npx -y @modelcontextprotocol/server-sequential-thinking",
    "npx -y @upstash/context7-mcp",
    "npx -y @playwright/mcp",
    "uvx mcp-server-time",
    "uvx mcp-server-fetch",
    "uvx mcp-server-git",
    "uvx --with 'mcp<2' mcp-server-sqlite --db-path notes.db",
]
BENCH = Path(os.environ.get("PEGBOARD_BENCH", Path(__file__).parents[3] / "shared" / "bench")) / "openapi"
DOCUMENTS = ["discord.json", "k8s_v1.json", "openai.yaml", "twilio_api.json", "k8s_apps.json"]


def pegboard(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    return subprocess.run(
        [BIN / "pegboard", *words], cwd=folder, env=env, capture_output=True, text=True, timeout=600, check=False
    )


@pytest.mark.parametrize("command", SERVERS)
def test_a_real_server_is_added_listed_and_pinned(tmp_path: Path, command: str) -> None:
    began = time.monotonic()
    added = pegboard(tmp_path, "add", "--yes", "--json", command)
    assert added.returncode == 0, added.stderr
    told = json.loads(added.stdout)
    listed = json.loads(pegboard(tmp_path, "list", "--json").stdout)["tools"]
    assert told["tools"]
    assert len(listed) == len(told["pinned"]) == len(told["tools"]) - len(told["held_back"])
    flagged = [tool["name"] for tool in told["tools"] if tool["warnings"]]
    took_s = time.monotonic() - began
    print(f"\n{command}: {len(listed)} tools, groups {told['groups']}, look twice {flagged}, {took_s:.0f} s")
    assert pegboard(tmp_path, "check").returncode == 0
    assert pegboard(tmp_path, "lock", "diff").returncode == 0


@pytest.mark.skipif(not BENCH.exists(), reason="the large documents lie outside of the repository: PEGBOARD_BENCH")
@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_large_document_is_added_and_listed(tmp_path: Path, name: str) -> None:
    began = time.monotonic()
    at = ["--base-url", "https://cluster.example.com"] if name.startswith("k8s") else []
    added = pegboard(tmp_path, "add", "--yes", "--json", *at, str(BENCH / name))
    assert added.returncode == 0, added.stderr
    told = json.loads(added.stdout)
    listed = json.loads(pegboard(tmp_path, "list", "--json").stdout)["tools"]
    assert len(listed) == len(told["tools"]) > 20
    reading = sum(tool["hints"]["readOnlyHint"] for tool in told["tools"])
    print(f"\n{name}: {told['name']}, {len(listed)} operations, {reading} only read, {time.monotonic() - began:.0f} s")
