"""pegboard install: what stands in a client's file stays, and what was entered goes again."""

import json
import os
import subprocess
import sys
import threading
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pegboard.cli import jsonc
from pegboard.cli.command_error import CommandError
from pegboard.cli.mcp_clients import CLIENTS
from pegboard.cli.operator_file import change_operator_file, write_operator_file
from tests.cli.conftest import Run

PEGBOARD = Path(sys.executable).with_name("pegboard")
COMMENTED = """\
// my settings
{
  "theme": "dark", // at night
  /* servers */
  "SECTION": {
    "other": {"command": "x", "args": ["a, b", "// no comment"],},
    // the last one
  },
  "list": [1, 2,],
}
"""
TOML = """\
# my settings
model = "o5"

[mcp_servers.other] # keep
command = "x"

# about the next
[tui]
theme = "dark"
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pegboard.yaml").write_text("profiles: {chat: {}}\n")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("USERPROFILE", str(tmp_path / "home"))
    monkeypatch.setenv("APPDATA", str(tmp_path / "home"))


def read(client: str, text: str) -> Any:
    return tomllib.loads(text) if CLIENTS[client].is_toml else jsonc.read(text)


# A server on standard input and output as each client has it, and who says so: its own documentation, read again in
# November 2026, or the client itself, which lists what was written in the test that is named.
DOCUMENTED = {
    "claude-code": (
        {"mcpServers": {"pegboard": {"type": "stdio", "command": "COMMAND", "args": []}}},
        "tests/e2e/test_client_lists.py",
    ),
    "gemini": (
        {"mcpServers": {"pegboard": {"command": "COMMAND", "args": []}}},
        "https://geminicli.com/docs/tools/mcp-server, and tests/e2e/test_client_lists.py",
    ),
    "codex": (
        {"mcp_servers": {"pegboard": {"command": "COMMAND", "args": []}}},
        "tests/e2e/test_client_lists.py",
    ),
    "claude-desktop": (
        {"mcpServers": {"pegboard": {"command": "COMMAND", "args": []}}},
        "https://modelcontextprotocol.io/quickstart/user",
    ),
    "cursor": ({"mcpServers": {"pegboard": {"command": "COMMAND", "args": []}}}, "https://cursor.com/docs/mcp"),
    "vscode": (
        {"servers": {"pegboard": {"type": "stdio", "command": "COMMAND", "args": []}}},
        "https://code.visualstudio.com/docs/copilot/reference/mcp-configuration",
    ),
    "windsurf": (
        {"mcpServers": {"pegboard": {"command": "COMMAND", "args": []}}},
        "https://docs.windsurf.com/windsurf/cascade/mcp",
    ),
    "zed": ({"context_servers": {"pegboard": {"command": "COMMAND", "args": []}}}, "https://zed.dev/docs/ai/mcp"),
}
FILES = {
    "claude-code": ".mcp.json", "vscode": ".vscode/mcp.json", "cursor": "home/.cursor/mcp.json",
    "codex": "home/.codex/config.toml", "gemini": "home/.gemini/settings.json",
    "windsurf": "home/.codeium/windsurf/mcp_config.json",
}  # fmt: skip


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_gets_a_server_in_its_documented_form_and_loses_it_again(
    run: Run, tmp_path: Path, client: str
) -> None:
    done = json.loads(run("install", client, "--profile", "chat", "--json").out)
    path = tmp_path / done["file"]
    assert done["outcome"] == "installed"
    if client in FILES:
        assert path == tmp_path / FILES[client]
    written = read(client, path.read_text())
    [[section, servers]] = written.items()
    command, args = servers["pegboard"]["command"], servers["pegboard"]["args"]
    servers["pegboard"].update(command="COMMAND", args=[])
    form, _ = DOCUMENTED[client]
    assert {section: servers} == form
    assert Path(command) == PEGBOARD
    assert args == ["--config", str(tmp_path / "pegboard.yaml"), "--profile", "chat", "serve", "--stdio"]
    assert json.loads(run("install", client, "--profile", "chat", "--json").out)["outcome"] == "unchanged"
    assert json.loads(run("install", client, "--remove", "--json").out)["outcome"] == "removed"
    assert read(client, path.read_text()) == {}


def test_a_profile_that_the_config_does_not_have_is_refused_unless_other_files_may_have_it(
    run: Run, tmp_path: Path
) -> None:
    assert (
        run("install", "cursor", "--profile", "chad").err == "pegboard: Unknown profile 'chad'. Did you mean 'chat'?\n"
    )
    assert not (tmp_path / FILES["cursor"]).exists()
    (tmp_path / "pegboard.yaml").write_text("files: [more.yaml]\nprofiles: {chat: {}}\n")
    assert run("install", "cursor", "--profile", "chad").code == 0


@pytest.mark.parametrize("client", CLIENTS)
def test_what_stands_in_the_file_stays_with_its_comments_and_comes_back_byte_by_byte(
    run: Run, tmp_path: Path, client: str
) -> None:
    before = TOML if CLIENTS[client].is_toml else COMMENTED.replace("SECTION", CLIENTS[client].section)
    path = tmp_path / "settings"
    path.write_text(before)
    path.chmod(0o640)
    assert run("install", client, "--file", str(path)).code == 0
    during = path.read_text()
    assert set(before.splitlines()) <= set(during.splitlines())
    assert set(read(client, during)[CLIENTS[client].section]) == {"other", "pegboard"}
    assert path.stat().st_mode & 0o777 == 0o640
    assert run("install", client, "--file", str(path), "--remove").code == 0
    assert path.read_text().rstrip("\n") == before.rstrip("\n")


@pytest.mark.parametrize(
    "text",
    ["{}", "{ }", "{\n}\n", '{"a": 1}', '{"a": 1,}', '{"S": {}}', '{"S": {"o": {}}}', '{"S": {\n\t"o": {},\n}}', "",
     '{\r\n  "a": 1\r\n}', '{"S": {"pegboard": 1, "o": 2}}', '{"S": {"o": "}{\\"//"} /* { */}', '// c\n{"S":{/* c */}}',
     '{"S": {"pegboard": {"old": 1}}}'],
)  # fmt: skip
def test_a_member_is_added_and_removed_in_whatever_is_json(text: str) -> None:
    said = jsonc.read(text) if text else {}
    added = jsonc.with_member(text, "S", "pegboard", {"x": ["y"]})
    assert jsonc.read(added) == {**said, "S": {**said.get("S", {}), "pegboard": {"x": ["y"]}}}
    removed = jsonc.read(jsonc.without_member(added, "S", "pegboard"))
    rest = {key: value for key, value in said.get("S", {}).items() if key != "pegboard"}
    assert {key: value for key, value in removed.items() if value or key != "S"} == {
        key: value for key, value in {**said, "S": rest}.items() if value or key != "S"
    }


@pytest.mark.parametrize(
    "text", ["[1]", "{", '{"mcpServers": []}', '{"a" 1}', "{]", '{"a": 1} x', "nonsense", "{a: 1}"]
)
def test_a_file_that_cannot_be_read_is_left_as_it_is(run: Run, tmp_path: Path, text: str) -> None:
    path = tmp_path / "settings.json"
    path.write_text(text)
    result = run("install", "cursor", "--file", str(path))
    assert result.code == 2
    assert result.err.startswith("pegboard: Cursor's configuration")
    assert path.read_text() == text
    assert os.listdir(tmp_path).count("settings.json") == len([n for n in os.listdir(tmp_path) if "settings" in n])


def test_print_shows_the_file_and_writes_nothing_and_a_wrong_name_says_the_right_one(run: Run, tmp_path: Path) -> None:
    shown = run("install", "codex", "--print")
    assert tomllib.loads(shown.out)["mcp_servers"]["pegboard"]["args"][-1] == "--stdio"
    assert not (tmp_path / "home").exists()
    assert "'cursor'" in run("install", "curser").err


def test_what_is_written_starts_a_server_that_answers(run: Run, tmp_path: Path) -> None:
    run("install", "claude-code", "--profile", "chat")
    entry = json.loads((tmp_path / ".mcp.json").read_text())["mcpServers"]["pegboard"]
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    message = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello})
    server = subprocess.run(
        [entry["command"], *entry["args"]], input=message + "\n", capture_output=True, text=True, timeout=60, cwd="/"
    )
    assert json.loads(server.stdout.splitlines()[0])["result"]["protocolVersion"] == "2025-06-18"


@pytest.mark.parametrize("client", ["cursor", "codex"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_the_mark_of_its_encoding_and_the_ends_of_its_lines_stay(
    run: Run, tmp_path: Path, client: str, mark: str
) -> None:
    text = TOML if CLIENTS[client].is_toml else COMMENTED.replace("SECTION", "mcpServers")
    before = (mark + text.replace("\n", "\r\n")).encode()
    path = tmp_path / "settings"
    path.write_bytes(before)
    assert run("install", client, "--file", str(path)).code == 0
    during = path.read_bytes().decode()
    assert during.count("\n") == during.count("\r\n") > before.count(b"\n")
    assert "pegboard" in read(client, during.removeprefix("\ufeff"))[CLIENTS[client].section]
    assert run("install", client, "--file", str(path), "--remove").code == 0
    assert path.read_bytes() == before


@pytest.mark.parametrize("end", ["", "\n", "\n\n", "\n\n\n"])
@pytest.mark.parametrize("tail", ["", "[tui]\ntheme = 'dark'\n"])
def test_a_table_that_goes_leaves_no_empty_line_wherever_it_stood(end: str, tail: str) -> None:
    codex = CLIENTS["codex"]
    before = f"[mcp_servers.other]\ncommand = 'x'{end}"
    during = codex.with_server(before, "pegboard", ["p"])
    assert codex.with_server(during, "pegboard", ["p"]) == during
    # As the client itself adds what is new.
    after = codex.without_server(f"{during}\n{tail}" if tail else during, "pegboard")
    assert after == f"{before if end else before + chr(10)}{chr(10) + tail if tail else ''}"


@pytest.mark.parametrize("client", ["codex", "cursor"])
def test_a_server_of_any_name_in_a_folder_of_any_name_comes_and_goes(run: Run, tmp_path: Path, client: str) -> None:
    folder = tmp_path / "Werkzeug 🧰 für Zoë"
    folder.mkdir()
    (folder / "pegboard.yaml").write_text("tools: []\n")
    path = folder / "settings"
    path.write_text(before := TOML if client == "codex" else COMMENTED.replace("SECTION", "mcpServers"))
    words = ("--config", str(folder / "pegboard.yaml"), "install", client, "--name", "🧰]", "--file", str(path))
    assert run(*words).code == 0
    entry = read(client, path.read_text())[CLIENTS[client].section]["🧰]"]
    assert entry["args"][1] == str(folder / "pegboard.yaml")
    assert run(*words, "--remove").code == 0
    assert path.read_text() == before
    for name in ("Zoë's", 'a"b\\c', "x.y", "a]b # c", "[z]", ""):
        during = CLIENTS[client].with_server(before, name, ["p"])
        assert CLIENTS[client].with_server(during, name, ["p"]) == during
        assert read(client, during)[CLIENTS[client].section][name] == {"command": "p", "args": []}
        assert CLIENTS[client].without_server(during, name) == before


def test_a_table_that_somebody_quoted_otherwise_is_taken_out_and_one_in_a_line_is_left(
    run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "settings"
    path.write_text("[mcp_servers.'pegboard']\ncommand = 'x'\n[ mcp_servers . pegboard.env ]\nA = '1'\n[b]\n")
    assert run("install", "codex", "--file", str(path), "--remove").code == 0
    assert path.read_text() == "[b]\n"
    path.write_text(before := '[mcp_servers]\npegboard = {command = "x"}\n')
    for words in ((), ("--remove",)):
        assert run("install", "codex", "--file", str(path), *words).code == 2
    assert path.read_text() == before


def test_a_protected_file_and_one_that_changes_meanwhile_are_left_as_they_are(run: Run, tmp_path: Path) -> None:
    path, shown = tmp_path / "settings.json", tmp_path / "link.json"
    path.write_text('{"a": 1}')
    shown.symlink_to(path)
    path.chmod(0o444)
    refused = run("install", "cursor", "--file", str(shown))
    assert (refused.code, path.read_text()) == (2, '{"a": 1}')
    assert "is write-protected" in refused.err
    path.chmod(0o644)
    assert run("install", "cursor", "--file", str(shown)).code == 0
    assert shown.is_symlink()
    assert "pegboard" in path.read_text()
    with pytest.raises(CommandError, match="has changed meanwhile"):
        write_operator_file(shown, "mine", expected='{"a": 1}')
    assert sorted(os.listdir(tmp_path)) == ["link.json", "pegboard.yaml", "settings.json"]


def test_entries_that_several_write_at_one_instant_all_stand_there(tmp_path: Path) -> None:
    path, together = tmp_path / "settings.json", threading.Barrier(4)
    # One that was ended while it wrote holds nobody up.
    (left := tmp_path / ".settings.json.pegboard.tmp").write_text("")
    os.utime(left, (0, 0))

    def enter(name: str) -> None:
        def change(text: str) -> str:
            # All four have read the same text when the first of them writes.
            if name not in waited:
                waited.add(name)
                together.wait(30)
            return json.dumps({**json.loads(text or "{}"), name: {}})

        change_operator_file(path, change)

    waited: set[str] = set()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(enter, "abcd"))
    assert sorted(json.loads(path.read_text())) == ["a", "b", "c", "d"]
    assert not left.exists()
