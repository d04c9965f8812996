"""What clients themselves say of the file that `pegboard install` wrote: Claude Code, Gemini CLI and Codex, offline."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

PEGBOARD = Path(sys.executable).with_name("pegboard")
MODULES = Path(__file__).parent / "clients" / "node_modules"
pytestmark = pytest.mark.e2e

TRUSTED = '{"projects": {"WORK": {"hasTrustDialogAccepted": true, "enabledMcpjsonServers": ["pegboard"]}}}'


class Client(NamedTuple):
    """A client: what starts it, what enters a server of others with its own command, and what it trusts."""

    program: Path
    adds: Sequence[str]
    file: str
    settings: tuple[str, str] | None = None
    says: str = ""


CLIENTS = {
    "claude-code": Client(
        MODULES / "@anthropic-ai" / "claude-code" / "cli-wrapper.cjs", "mcp add -s project other -- true".split(),
        "work/.mcp.json",
        ("home/.claude.json", TRUSTED), "Connected",
    ),
    "gemini": Client(
        MODULES / ".bin" / "gemini", "mcp add -s user other true".split(), "home/.gemini/settings.json",
        ("home/.gemini/settings.json", '{\n  // mine\n  "security": {"folderTrust": {"enabled": false}}\n}\n'),
        "Connected",
    ),
    "codex": Client(
        MODULES / "@openai" / "codex" / "bin" / "codex.js", "mcp add other -- true".split(), "home/.codex/config.toml",
        ("home/.codex/config.toml", '# mine\nmodel = "m"\n\n[tui]\n# at the end\ntheme = "dark"\n'), "enabled",
    ),
}  # fmt: skip


class Desk:
    """A home and a folder that is worked in, whose names are not plain."""

    def __init__(self, folder: Path, client: str) -> None:
        self.home, self.work = folder / "home", folder / "work" / "Zoë's tools"
        self.name, self.client = client, CLIENTS[client]
        self.file = folder / self.client.file.replace("work/", f"work/{self.work.name}/")
        self.work.mkdir(parents=True)
        self.home.mkdir()
        (self.work / "pegboard.yaml").write_text("tools: []\nprofiles: {chat: {}}\n")
        if self.client.settings is not None:
            path, text = self.client.settings
            place = folder / path.replace("work/", f"work/{self.work.name}/")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text.replace("WORK", str(self.work)))

    def run(self, *command: str | Path) -> str:
        env = {**os.environ, "HOME": str(self.home), "DISABLE_AUTOUPDATER": "1", "NO_COLOR": "1",
               "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}  # fmt: skip
        done = subprocess.run(
            command, cwd=self.work, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def listed(self) -> list[str]:
        """Return the lines of the client's list that speak of servers."""
        said = self.run("node", self.client.program, "mcp", "list")
        return [line for line in said.splitlines() if "pegboard" in line or "other" in line]


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_lists_what_was_entered_and_the_rest_stays_when_it_is_taken_out(name: str, tmp_path: Path) -> None:
    desk = Desk(tmp_path, name)
    desk.run("node", desk.client.program, *desk.client.adds)
    before = desk.file.read_bytes()
    assert [("pegboard" in line, "other" in line) for line in desk.listed()] == [(False, True)]
    desk.run(PEGBOARD, "install", name, "--profile", "chat")
    ours = [line for line in desk.listed() if "pegboard" in line]
    assert len(ours) == 1
    assert desk.client.says in ours[0]
    assert f"{desk.work}/pegboard.yaml --profile chat serve --stdio" in ours[0]
    assert any("other" in line for line in desk.listed())
    desk.run(PEGBOARD, "install", name, "--remove")
    assert desk.file.read_bytes() == before
    assert [("pegboard" in line, "other" in line) for line in desk.listed()] == [(False, True)]
