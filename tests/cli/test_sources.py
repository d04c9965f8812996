"""Commands beside a config with MCP servers: which servers they start, how long they wait, and what they leave."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import orjson
import pytest

from tests.cli.conftest import Ran, Run
from tests.timing import pace
from tests.upstream_mcp.parts import EVIL, processes_with

CONFIG = """\
tools:
  - name: local
    type: internal
    description: Here.
    handler: python:tests.cli.workshop:shout
    groups: [own]
  - name: needy
    type: internal
    description: Here, while a server is up.
    handler: python:tests.cli.workshop:shout
    groups: [own]
    available: {{all: [true, {{source: one}}]}}
  - name: one
    type: mcp
    groups: [first]
    mcp: {{transport: stdio, command: "{python}", args: ["{evil}", "log={folder}/one.log"], cwd: .}}
  - name: two
    type: mcp
    groups: [second]
    mcp: {{transport: stdio, command: "{python}", args: ["{evil}", "log={folder}/two.log"], cwd: .}}
profiles: {{first: {{include: [first]}}, second: {{include: [second]}}}}
"""
MORE = """\
  - {{name: three, type: mcp, mcp: {{transport: stdio, command: no-such-program}}}}
  - name: four
    type: mcp
    mcp: {{transport: stdio, command: "{python}", args: ["{evil}", "start=hang"], timeout: 1}}
"""


@pytest.fixture
def servers(tmp_path: Path) -> Path:
    (tmp_path / "pegboard.yaml").write_text(CONFIG.format(python=sys.executable, evil=EVIL, folder=tmp_path))
    return tmp_path


def started(folder: Path) -> set[str]:
    return {path.stem for path in folder.glob("*.log")}


def names(ran: Ran) -> list[str]:
    assert ran.code == 0, ran.err
    return [tool["name"] for tool in orjson.loads(ran.out)["tools"]]


OF_ONE = ["one__echo", "one__write", "one__read"]


def test_the_tools_of_servers_are_listed_and_nothing_is_left_behind(run: Run, servers: Path) -> None:
    ran = run("list", "--json")
    assert names(ran) == ["local", "needy", *OF_ONE, "two__echo", "two__write", "two__read"]
    assert ran.err == ""
    assert processes_with(f"log={servers}") == []
    assert sorted(path.name for path in servers.iterdir() if path.is_file()) == ["one.log", "pegboard.yaml", "two.log"]


def test_a_profile_starts_the_servers_that_may_bring_its_tools(run: Run, servers: Path) -> None:
    assert names(run("list", "--json", "--profile", "second")) == ["two__echo", "two__write", "two__read"]
    # `needy` is in no list of this profile, but its availability asks for the first.
    assert started(servers) == {"one", "two"}
    assert len(orjson.loads(run("export", "openai", "--profile", "first").out)) == 3


@pytest.mark.parametrize(
    ("words", "code", "needed"),
    [
        (["call", "local"], 0, set()),
        (["why", "local"], 0, set()),
        (["why", "needy"], 0, {"one"}),
        (["call", "one__echo", "text=hi"], 0, {"one"}),
        (["call", "two.echo", "text=hi"], 0, {"two"}),
        (["show", "two__read"], 0, {"two"}),
        (["why", "two__nothing"], 1, {"two"}),
        (["why", "nothing"], 1, {"one", "two"}),
        (["check"], 0, set()),
    ],
)
def test_a_command_starts_the_servers_that_it_needs_and_no_other(
    run: Run, servers: Path, words: list[str], code: int, needed: set[str]
) -> None:
    ran = run(*words)
    assert (ran.code, ran.err) == (code, "")
    assert started(servers) == needed
    if "text=hi" in words:
        assert ran.out == "hi\n"


def test_a_server_that_fails_or_hangs_is_told_of_and_holds_nobody_up(
    run: Run, servers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (servers / "pegboard.yaml").open() as file:
        text = file.read()
    tools, _, rest = text.partition("profiles:")
    more = MORE.format(python=sys.executable, evil=EVIL)
    (servers / "pegboard.yaml").write_text(f"{tools}{more}profiles:{rest}")
    # As long as the other two may take to connect; the fourth never does.
    wait_s = round(4.0 * pace())
    monkeypatch.setattr("pegboard.sources.mcp.supervised_source.MCP_CONNECT_S", float(wait_s))
    monkeypatch.setattr("pegboard.cli.source_startup.CLI_SILENT_WAIT_S", 0.75 * wait_s)
    ran = run("list", "--json", "--all")
    shown = {tool["name"] for tool in json.loads(ran.out)["tools"]}
    assert {*OF_ONE, "two__echo"} <= shown
    failing, waiting, late = ran.err.splitlines()
    assert "MCP server 'three'" in failing
    assert "no-such-program" in failing
    assert waiting == f"Waiting up to {wait_s} s for 'four' to tell its tools."
    assert "MCP server 'four': The MCP server 'four' did not answer in time." in late
    assert processes_with(f"log={servers}") == []


def test_why_of_a_server_that_is_away_says_so_and_what_to_do(run: Run, tmp_path: Path) -> None:
    (tmp_path / "pegboard.yaml").write_text("tools:\n" + MORE.partition("  - name: four")[0].format())
    ran = run("why", "three__read", "--json")
    told = json.loads(ran.out)
    assert (ran.code, told["visible"], told["code"]) == (1, False, "source")
    assert told["reason"].startswith("'three__read' is not known, as source 'three' is unreachable: ")
    assert "no-such-program" in told["reason"]
    assert told["fix"]["text"] == "bring source 'three' up (pegboard doctor)"
    assert json.loads(run("why", "nothing", "--json").out)["code"] == "unknown"


BROKEN = """\
import os
from pegboard import default_catalog
from pegboard.model.source_state import SourceState

class Broken:
    name = "broken"

    def entries(self):
        return ()

    def groups(self):
        return frozenset()

    def subscribe(self, on_change):
        pass

    def state(self):
        if "STATE" in os.environ:
            raise KeyError("no state for " + os.environ["SHOP_KEY"])
        return SourceState()

    async def start(self):
        pass

    async def stop(self):
        pass

    async def listed(self, *, afresh=False):
        if "STATE" not in os.environ:
            raise ValueError("no tools for " + os.environ["SHOP_KEY"])

default_catalog.add_source(Broken())
"""


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_source.py").write_text(BROKEN)
    (tmp_path / "pegboard.yaml").write_text('python: [broken_source]\nsettings: {key: "${SHOP_KEY}"}\n')
    monkeypatch.setenv("SHOP_KEY", "canary/of the shop")


@pytest.mark.usefixtures("broken")
def test_a_source_that_fails_to_list_is_told_of_by_name_without_the_secrets_in_what_it_says(run: Run) -> None:
    listed = run("list", "--json")
    assert (listed.code, orjson.loads(listed.out)["tools"]) == (0, [])
    assert listed.err == (
        "'broken' did not tell its tools, and they may be missing here. ValueError: no tools for [redacted]\n"
    )
    ran = run("doctor", "--json")
    (row,) = [row for row in orjson.loads(ran.out)["findings"] if row["kind"] == "source"]
    assert (ran.code, row["name"], row["state"], row["is_wrong"]) == (1, "broken", "unreachable", True)
    assert row["detail"] == "ValueError: no tools for [redacted]"
    assert "canary" not in ran.out + ran.err


@pytest.mark.usefixtures("broken")
@pytest.mark.parametrize("debug", ["", "1"])
def test_cfg_01_a_crash_writes_no_secret_to_the_screen_nor_into_its_file(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, debug: str
) -> None:
    monkeypatch.setenv("STATE", "raise")
    monkeypatch.setenv("PEGBOARD_DEBUG", debug)
    ran = run("doctor", "--json")
    assert (ran.code, "internal error (KeyError)" in ran.err) == (70, True)
    written = "".join(path.read_text("utf-8") for path in tmp_path.glob("pegboard-*.log"))
    assert ("no state for [redacted]" in written, "no state for [redacted]" in ran.err) == (not debug, bool(debug))
    assert "canary" not in ran.out + ran.err + written


@pytest.mark.usefixtures("broken")
def test_cfg_01_a_crash_while_the_config_is_read_writes_no_secret_either(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(path: Path, *, env: Mapping[str, str], **_: bool) -> None:
        raise ZeroDivisionError(f"at {path.name} with {env['SHOP_KEY']}")

    monkeypatch.setattr("pegboard.cli.project.load_catalog", crash)
    ran = run("list")
    (written,) = tmp_path.glob("pegboard-*.log")
    assert ran.code == 70
    assert "at pegboard.yaml with [redacted]" in written.read_text("utf-8")


def test_what_only_lists_takes_pinned_definitions_from_the_lock_and_starts_nothing(run: Run, servers: Path) -> None:
    assert run("lock").code == 0
    for log in servers.glob("*.log"):
        log.unlink()
    assert set(names(run("list", "--json"))) == {"local", "needy", *OF_ONE, "two__echo", "two__write", "two__read"}
    assert "Say it again." in run("show", "one__echo").out
    assert len(orjson.loads(run("export", "openai", "--profile", "first").out)) == 3
    assert "one__echo" in run("search", "say it again").out
    assert started(servers) == set()
    # What asks how things are now asks the servers.
    assert run("list", "--all").code == 0
    assert started(servers) == {"one", "two"}


def test_a_command_waits_as_long_as_a_server_gives_itself(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pegboard.cli.source_startup.CLI_SOURCE_WAIT_S", 0.0)
    monkeypatch.setattr("pegboard.cli.source_startup.CLI_SILENT_WAIT_S", 0.0)
    mcp = {"transport": "stdio", "command": sys.executable, "args": [str(EVIL)], "timeout": 120}
    (tmp_path / "pegboard.yaml").write_text(json.dumps({"tools": [{"name": "one", "type": "mcp", "mcp": mcp}]}))
    ran = run("list", "--json")
    assert names(ran) == OF_ONE
    assert ran.err == "Waiting up to 120 s for 'one' to tell its tools.\n"


def test_doctor_tells_why_a_server_died_in_its_own_words_and_without_its_secrets(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UP_KEY", "up-key-canary")
    code = "import os, sys; print('Usage: up', flush=True); sys.exit('no such key: ' + os.environ['KEY'])"
    mcp = {"transport": "stdio", "command": sys.executable, "args": ["-c", code], "env": {"KEY": "${UP_KEY}"}}
    (tmp_path / "pegboard.yaml").write_text(json.dumps({"tools": [{"name": "up", "type": "mcp", "mcp": mcp}]}))
    ran = run("doctor", "--json")
    (row,) = [row for row in orjson.loads(ran.out)["findings"] if row["kind"] == "source"]
    assert (row["state"], row["detail"]) == (
        "unreachable",
        "The MCP server 'up' is gone: it ended the connection: its program ended with exit code 1. "
        "Its stdout, which is for messages of the protocol alone, has 'Usage: up'. "
        "The last lines of its stderr, which are data: 'no such key: [redacted]'.",
    )
    assert "canary" not in ran.out + ran.err
    assert "Traceback" not in ran.err
