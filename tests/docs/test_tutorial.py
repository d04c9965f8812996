"""The tutorial ends with the reader's own tool in a client of other people: the MCP inspector."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import Runner, blocks_of

ROOT = Path(__file__).parents[2]
INSPECTOR = ROOT / "tests/conformance/node_modules/.bin/mcp-inspector"


def inspect(config: Path, home: Path, *words: str) -> dict[str, object]:
    """Start the inspector as a client is started: elsewhere, with a home of its own and no virtual environment."""
    # Node comes with the development environment.
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    ran = subprocess.run(
        [INSPECTOR, "--cli", "--config", config, "--server", "notes", *words],
        cwd="/",
        env={"PATH": path, "HOME": str(home), "MCP_INSPECTOR_SECRET_STORE": "memory"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_the_tools_of_the_tutorial_work_in_a_client_that_reads_its_file(tmp_path: Path) -> None:
    if not INSPECTOR.exists():
        pytest.skip("the inspector is not installed: make setup")
    page = (ROOT / "docs" / "tutorial" / "first-tool.md").read_text(encoding="utf-8")
    wanted = [
        block for block in blocks_of(page) if block.title or (block.language == "console" and "tee" in block.text)
    ]
    again = "".join(
        f"```{block.language}{f' title={block.title}' if block.title else ''}\n{block.text}```\n" for block in wanted
    )
    Runner(folder=tmp_path, name="first-tool.md").run(again)

    config = tmp_path / "mcp.json"
    listed = inspect(config, tmp_path, "--method", "tools/list")["tools"]
    assert isinstance(listed, list)
    assert [tool["name"] for tool in listed] == ["find_notes", "delete_notes"]
    called = inspect(config, tmp_path, "--method", "tools/call", "--tool-name", "find_notes", "--tool-arg", "word=ann")
    assert called["structuredContent"] == {"result": ["Call Ann about the milk order"]}
