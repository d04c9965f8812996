"""Completion: what a shell is told, and that it is told by files alone."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Run

BIN = Path(sys.executable).parent
CONFIG = {
    "tools": [{"name": "count_words", "type": "internal"}, {"name": "count_lines", "type": "internal"},
              {"name": "fs", "type": "mcp"}],
    "profiles": {"chat": {}, "chores": {}, "admin": {}},
}  # fmt: skip
# `source` the script, and ask as a person does who types and presses Tab.
ASKS = {
    "bash": """
        source script.bash
        ask() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}; COMPREPLY=()
                _pegboard; echo "${COMPREPLY[*]}"; }
        ask pegboard sh; ask pegboard show cou; ask pegboard list --profile ch; ask pegboard add --ye
    """,
    "fish": """
        source script.fish
        for line in "pegboard sh" "pegboard show cou" "pegboard list --profile ch" "pegboard add --ye"
            complete -C "$line" | string split -f1 \\t | string join " "
        end
        true
    """,
}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path) -> None:
    (tmp_path / "pegboard.yaml").write_text(json.dumps(CONFIG))
    (tmp_path / "pegboard.lock").write_text(json.dumps({"version": 2, "servers": {"fs": {"read": {}, "write": {}}}}))


def offered(run: Run, *words: str) -> set[str]:
    lines = run("__complete", *words).out.splitlines()
    return {line.partition("\t")[0] for line in lines if line and not line.startswith("\x1f")}


def test_names_of_tools_and_profiles_come_of_the_config_and_the_lock(run: Run) -> None:
    assert {"count_words", "count_lines", "fs__read", "fs__write"} <= offered(run, "show", "")
    assert {"chat", "chores", "admin"} <= offered(run, "list", "--profile", "")


@pytest.mark.parametrize(
    "text", ["[1]", "a: [", "tools: 5", "tools: [5, {name: [1]}]", "!!python/object:os.x {}", "\x00"]
)
def test_a_config_that_cannot_be_read_ends_in_no_offer_and_no_words(run: Run, tmp_path: Path, text: str) -> None:
    (tmp_path / "pegboard.yaml").write_text(text)
    (tmp_path / "pegboard.lock").write_text(text)
    assert offered(run, "show", "") == set()


def test_completing_loads_no_server_and_no_framework() -> None:
    heavy = "mcp starlette uvicorn pydantic_ai langchain_core apsw"
    asked = "import sys; from pegboard.cli import main; main(['__complete', 'show', 'c'])"
    code = f"{asked}; print(set('{heavy}'.split()) & set(sys.modules))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert ended.stdout.splitlines()[-1] == "set()"
    assert "count_words" in ended.stdout


@pytest.mark.e2e
@pytest.mark.parametrize("shell", ASKS)
def test_a_real_shell_completes_commands_tools_profiles_and_options(tmp_path: Path, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    env = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "HOME": str(tmp_path)}
    made = subprocess.run([BIN / "pegboard", "completion", shell], env=env, capture_output=True, text=True, check=True)
    (tmp_path / f"script.{shell}").write_text(made.stdout)
    asked = subprocess.run([shell, "-c", ASKS[shell]], env=env, capture_output=True, text=True, check=True, timeout=300)
    commands, tools, profiles, options = (set(line.split()) for line in asked.stdout.splitlines())
    assert "show" in commands
    assert tools == {"count_words", "count_lines"}
    assert profiles == {"chat", "chores"}
    assert options == {"--yes"}


@pytest.mark.e2e
@pytest.mark.parametrize("shell", ["zsh", "fish", "bash"])
def test_the_script_is_one_that_the_shell_can_read(tmp_path: Path, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    made = subprocess.run([BIN / "pegboard", "completion", shell], capture_output=True, text=True, check=True)
    (tmp_path / "script").write_text(made.stdout)
    read = subprocess.run(
        [shell, "-n", "script"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert (read.returncode, read.stderr) == (0, "")
