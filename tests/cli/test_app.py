"""The words around the commands: options, the config that is found, and how it ends when something is wrong."""

import importlib
import inspect
import os
import shlex
import sys
from pathlib import Path

import orjson
import pytest

from pegboard.cli import app
from pegboard.cli.actions import ACTIONS
from pegboard.cli.app import COMMANDS, build_app, with_default_action
from pegboard.cli.command_error import CommandError
from pegboard.cli.options import Identity
from pegboard.cli.project import find_config
from pegboard.cli.terminal import Terminal
from tests.cli.conftest import Run


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in ACTIONS])
def test_a_command_says_the_same_in_the_list_and_in_its_own_help(run: Run, name: str) -> None:
    module = COMMANDS[name].module or name
    command = getattr(importlib.import_module(f"pegboard.cli.commands.{module}"), f"{module}_command")
    assert (inspect.getdoc(command) or "").partition("\n")[0] == COMMANDS[name].summary
    ran = run(name, "--help")
    assert (ran.code, ran.err) == (0, "")
    assert COMMANDS[name].summary in " ".join(ran.out.split())


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_ends_with_an_example_that_the_command_line_accepts(run: Run, name: str) -> None:
    program, *words = shlex.split(COMMANDS[name].example)
    assert (program, words[0]) == ("pegboard", name)
    shared = {"--profile"}
    own = [word for place, word in enumerate(words) if word not in shared and words[place - 1] not in shared]
    build_app(Terminal()).parse_args(own, exit_on_error=False, print_error=False)
    assert run(name, "--help").out.rstrip().endswith(f"Example: {COMMANDS[name].example}")


@pytest.mark.parametrize("name", ACTIONS)
def test_the_help_of_a_command_with_actions_lists_them(run: Run, name: str) -> None:
    shown = run(name, "--help").out
    assert [action for action in ACTIONS[name] if f"│ {action} " not in shown] == []


@pytest.mark.parametrize(("name", "action"), [(name, action) for name in ACTIONS for action in ACTIONS[name]])
def test_an_action_has_its_own_help_with_an_example_that_the_command_line_accepts(
    run: Run, name: str, action: str
) -> None:
    summary, example = ACTIONS[name][action]
    command = getattr(
        importlib.import_module(f"pegboard.cli.commands.{COMMANDS[name].module or name}"),
        f"{action.replace('-', '_')}_command",
    )
    assert (inspect.getdoc(command) or "").partition("\n")[0] == summary
    ran = run(name, action, "--help")
    assert (ran.code, ran.out.startswith(f"Usage: pegboard {name} {action}"), ran.err) == (0, True, "")
    assert ran.out.rstrip().endswith(f"Global options: see `pegboard --help`.\n\nExample: {example}")
    program, *words = shlex.split(example)
    build_app(Terminal()).parse_args(with_default_action(words), exit_on_error=False, print_error=False)
    assert (program, words[0]) == ("pegboard", name)


def test_the_global_options_are_in_the_help_of_pegboard_alone(run: Run) -> None:
    assert "--config" in run("--help").out
    for words in (["list"], ["consent"], ["consent", "deny"]):
        assert "--config" not in run(*words, "--help").out


def test_without_words_the_next_step_is_named(run: Run) -> None:
    assert "Start with `pegboard init`, then `pegboard list`." in " ".join(run().out.split())


def test_the_table_and_the_folder_name_the_same_commands() -> None:
    folder = {path.stem for path in Path(app.__file__).with_name("commands").glob("*.py")} - {"__init__"}
    assert {command.module or name for name, command in COMMANDS.items()} == folder


def test_no_command_imports_the_command_line_that_imports_it() -> None:
    # import-linter does not see that `app` imports the commands, so it cannot see this circle either.
    ways_back = ("cli.app", "cli.command_line", "cli import app", "cli import command_line")
    commands = Path(app.__file__).with_name("commands").glob("*.py")
    assert [path.name for path in commands if any(f"pegboard.{way}" in path.read_text() for way in ways_back)] == []


def test_without_words_the_help_is_shown(run: Run) -> None:
    shown = run()
    assert shown == run("--help")
    assert all(f"│ {name} " in shown.out for name in COMMANDS)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["lits"], 'Did you mean "list"?'),
        (["list", "--profle", "chat"], "Unknown option: --profle. Did you mean --profile?"),
        (["--confg", "a.yaml", "list"], 'Unknown command "--confg".'),
        (["--confg", "a.yaml", "list"], "Did you mean --config?"),
        (["call", "a", "--ys"], "Unknown option: --ys. Did you mean --yes?"),
        (["call", "a", "--page", "b"], "Write arguments of the tool without `--`: page=VALUE."),
        (["version"], "Did you mean `pegboard --version`?"),
        (["list", "chat"], "Unexpected argument 'chat'; options begin with `--`. See `pegboard list --help`."),
        (["call"], "NAME requires an argument"),
        (["call", "a", "--args"], "--args requires an argument"),
        (["list", "--profile"], "Parameter --profile requires an argument. See `pegboard"),
        (["export", "opnai"], "opnai"),
        (["serve", "--port", "many"], "many"),
        (["serve", "--stdio", "--reload"], "--reload is for HTTP"),
        (["serve", "--as", "user=ann"], "--as names the caller of --stdio"),
        (["list", "--as", "ann"], "'ann' is not name=value"),
        (["list", "--as", "usr=ann"], "unknown name 'usr'. Did you mean 'user'?"),
        (["list", "--as", "user=ann,user=bob"], "'user' is given twice"),
        (["list", "--profile", "caht"], "Unknown profile 'caht'. Did you mean 'chat'?"),
        (["list", "--profile", "zzz"], "Unknown profile 'zzz'. Profiles: chat, operator."),
        (["doctor", "--profile", "caht"], "Unknown profile 'caht'. Did you mean 'chat'?"),
        (["check", "--as", "profile=caht"], "Unknown profile 'caht'. Did you mean 'chat'?"),
        (["list", "-c", "no.yaml"], "The config file 'no.yaml' does not exist. Name another with --config, or run"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_a_wrong_word_ends_with_2_and_says_what_to_do(run: Run, words: list[str], said: str) -> None:
    ran = run(*words)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert "Traceback" not in ran.err
    as_json = run("--json", *words)
    assert as_json.code == 2
    assert said in orjson.loads(as_json.out)["error"]["message"]


def test_a_missing_config_says_how_to_get_one(run: Run) -> None:
    assert run("list") == (
        2,
        "",
        "pegboard: There is no pegboard.yaml here or in a folder above. Run `pegboard init` to write one, "
        "or name one with --config PATH.\n",
    )


def test_the_config_is_found_above_and_named_by_option_and_environment(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    below = folder / "a" / "b"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    assert run("call", "count_words", "text=a").out == "1\n"
    monkeypatch.chdir("/")
    assert run("call", "count_words", "text=a").code == 2
    assert run("-c", str(folder), "call", "count_words", "text=a").out == "1\n"
    monkeypatch.setenv("PEGBOARD_CONFIG", str(folder / "pegboard.yaml"))
    assert run("call", "count_words", "text=a").out == "1\n"


def test_a_config_above_that_belongs_to_somebody_else_is_not_run(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    below = folder / "below"
    below.mkdir()
    owner = (folder / "pegboard.yaml").stat().st_uid
    if owner == 0:
        os.chown(folder / "pegboard.yaml", 1, 1)
    else:
        monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    with pytest.raises(CommandError, match="belongs to another user"):
        find_config(None, start=below)
    assert find_config(folder, start=below) == folder / "pegboard.yaml"


def test_identity_comes_from_the_environment_and_the_option_goes_first(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert folder
    monkeypatch.setenv("PEGBOARD_AS", "user=ann,profile=chat")
    assert run("list", "--json").out == run("list", "--json", "--as", "user=ann", "--profile", "chat").out
    assert run("why", "delete_page").code == 1
    assert run("why", "delete_page", "--as", "user=bob").code == 0
    assert run("why", "delete_page", "--profile", "operator").code == 0


def test_identity_is_read_from_pairs() -> None:
    assert Identity.parse(" user=ann, space=s1,roles=a,roles=b,profile=chat,session=x,") == Identity(
        user="ann", space="s1", roles=("a", "b"), profile="chat", session="x"
    )


def test_a_bug_ends_with_one_line_and_a_file(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object, **options: object) -> None:
        raise ZeroDivisionError("\x1b[31mcanary")

    monkeypatch.setattr("pegboard.cli.project.load_catalog", broken)
    ran = run("list")
    assert (ran.code, ran.out) == (70, "")
    assert ran.err.count("\n") == 1
    assert "internal error (ZeroDivisionError). This is a bug in Pegboard; its traceback is in '" in ran.err
    [log] = folder.glob("pegboard-*.log")
    assert "canary" in log.read_text("utf-8")
    monkeypatch.setenv("PEGBOARD_DEBUG", "1")
    told = run("list").err
    assert "Traceback" in told
    assert r"\x1b[31mcanary" in told
    assert "\x1b" not in told


@pytest.mark.usefixtures("folder")
def test_what_a_tool_prints_is_not_the_answer(run: Run) -> None:
    ran = run("call", "chatter", "--json")
    assert orjson.loads(ran.out)["content"] == [{"type": "text", "text": "answer"}]
    assert ran.err == "chatter\n"


def test_a_reader_that_stops_reading_is_no_error(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed:
        encoding = "utf-8"

        def write(self, text: str) -> int:
            raise BrokenPipeError

        def flush(self) -> None:
            raise BrokenPipeError

        def isatty(self) -> bool:
            return False

        close = flush

    monkeypatch.setattr(sys, "stdout", Closed())
    assert run("schema").code == 0
