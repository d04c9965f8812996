"""Each command says what it should, in words and as JSON, and ends with the right code."""

import io
import json
import os
import re
import sys
from pathlib import Path
from typing import get_args

import orjson
import pytest
from inline_snapshot import snapshot

from pegboard.cli.commands.export import TargetName
from pegboard.providers import EXPORTERS
from tests.cli.conftest import Ran, Run

CALL_ID = re.compile(r"call [0-9a-f]{32}\b")


def answer(ran: Ran) -> object:
    """Return the one JSON document of a command that had nothing else to say."""
    assert ran.err == ""
    return orjson.loads(ran.out)


@pytest.mark.usefixtures("folder")
def test_list_shows_the_tools_of_a_profile(run: Run) -> None:
    assert run("list", "--profile", "chat") == snapshot(
        Ran(
            code=0,
            out="""\
Tool          Namespace   Groups   Description                  Hints
─────────────────────────────────────────────────────────────────────────────────
count_words   main        core     Count the words of a text.   read-only, 10/60s
echo          main        core     Give back the arguments.

2 tools for profile 'chat'.
""",
            err="",
        )
    )


@pytest.mark.usefixtures("folder")
def test_list_all_shows_hidden_tools_with_code_and_reason(run: Run) -> None:
    assert run("list", "--all", "--profile", "chat") == snapshot(
        Ran(
            code=0,
            out="""\
Tool          Namespace   Groups   Description                  Hints
─────────────────────────────────────────────────────────────────────────────────
count_words   main        core     Count the words of a text.   read-only, 10/60s
echo          main        core     Give back the arguments.

Hidden        Code     Reason
────────────────────────────────────────────────────────────────────────────────────────────────────
delete_page   group    not in include=['core'] of profile 'chat' (pegboard.yaml:66); its groups are
                       ['admin']
search_web    policy   denied by ['search_*'] (pegboard.yaml:66)
explode       group    not in include=['core'] of profile 'chat' (pegboard.yaml:66); its groups are
                       ['admin']
shout         group    not in include=['core'] of profile 'chat' (pegboard.yaml:66); its groups are
                       ['admin']
chatter       group    not in include=['core'] of profile 'chat' (pegboard.yaml:66); its groups are
                       ['admin']

2 tools for profile 'chat', 5 hidden.
""",
            err="",
        )
    )


@pytest.mark.usefixtures("folder")
def test_list_without_a_profile_sees_all_groups_and_names_the_profiles(run: Run) -> None:
    ran = run("list")
    assert ran.code == 0
    last = "6 tools in all groups.\nTo list the tools of one profile, add --profile NAME: chat, operator\n"
    assert ran.out.endswith(last)


@pytest.mark.usefixtures("folder")
def test_list_as_json_has_a_row_a_tool(run: Run) -> None:
    assert answer(run("list", "--json", "--as", "user=ann,profile=chat")) == snapshot(
        {
            "profile": "chat",
            "user": "ann",
            "tools": [
                {
                    "name": "count_words",
                    "id": "main.count_words",
                    "namespace": "main",
                    "groups": ["core"],
                    "description": "Count the words of a text.",
                    "hints": ["read-only", "10/60s"],
                    "asks": False,
                    "connect": None,
                    "visible": True,
                    "code": "visible",
                    "reason": "in the selection, allowed and available",
                },
                {
                    "name": "echo",
                    "id": "main.echo",
                    "namespace": "main",
                    "groups": ["core"],
                    "description": "Give back the arguments.",
                    "hints": [],
                    "asks": False,
                    "connect": None,
                    "visible": True,
                    "code": "visible",
                    "reason": "in the selection, allowed and available",
                },
            ],
            "problems": [],
        }
    )


@pytest.mark.usefixtures("folder")
def test_show_has_the_whole_declaration(run: Run) -> None:
    assert run("show", "count_words") == snapshot(
        Ran(
            code=0,
            out="""\
name           count_words
id             main.count_words
namespace      main
description    Count the words of a text.
               More about it.
groups         core
visible        yes
origin         pegboard.yaml:7
annotations    {
                 "readOnlyHint": true
               }
rate limit     10/60s
input schema   {
                 "type": "object",
                 "properties": {
                   "text": {
                     "type": "string"
                   },
                   "unique": {
                     "type": "boolean",
                     "default": false
                   }
                 },
                 "required": [
                   "text"
                 ]
               }
output schema  {
                 "type": "integer"
               }
""",
            err="",
        )
    )


@pytest.mark.usefixtures("folder")
def test_show_as_json_has_every_key_whatever_the_tool(run: Run) -> None:
    keys = [set(orjson.loads(run("show", name, "--json").out)) for name in ("count_words", "delete_page", "main.echo")]
    assert keys[0] == keys[1] == keys[2]
    assert {"name", "visible", "input_schema", "consent", "rate_limit", "origin"} <= keys[0]


@pytest.mark.usefixtures("folder")
def test_show_of_a_hidden_tool_says_what_hides_it(run: Run) -> None:
    ran = run("show", "delete_page", "--profile", "chat")
    assert ran.code == 0
    assert "visible       no\ncode          group\nreason        not in include=['core']" in ran.out


@pytest.mark.usefixtures("folder")
def test_show_of_an_unknown_tool_names_the_near_one(run: Run) -> None:
    assert run("show", "count_word") == (
        1,
        "",
        "pegboard: No tool named 'count_word' is declared. Did you mean 'count_words'?\n",
    )


@pytest.mark.usefixtures("folder")
def test_why_explains_a_hidden_tool_and_ends_with_1(run: Run) -> None:
    assert run("why", "search_web", "--profile", "chat") == snapshot(
        Ran(
            code=1,
            out="""\
search_web: hidden for profile 'chat', code 'policy'
reason  denied by ['search_*'] (pegboard.yaml:66)
fix     remove ['search_*'] from deny
then    hidden, code 'available': the setting web is off
""",
            err="",
        )
    )


@pytest.mark.usefixtures("folder")
def test_why_of_a_visible_tool_ends_with_0(run: Run) -> None:
    assert run("why", "echo", "--as", "user=ann,profile=chat") == (
        0,
        "echo: visible for profile 'chat', as 'ann'\nreason  in the selection, allowed and available\n",
        "",
    )


@pytest.mark.usefixtures("folder")
def test_why_of_a_typo_names_the_near_one(run: Run) -> None:
    assert run("why", "ecko") == snapshot(
        Ran(
            code=1,
            out="""\
ecko: hidden in all groups, code 'unknown'
reason  No tool named 'ecko' is declared. Did you mean 'echo'?
""",
            err="",
        )
    )


@pytest.mark.usefixtures("folder")
def test_why_as_json(run: Run) -> None:
    assert answer(run("why", "delete_page", "--profile", "chat", "--json")) == snapshot(
        {
            "name": "delete_page",
            "profile": "chat",
            "visible": False,
            "code": "group",
            "reason": "not in include=['core'] of profile 'chat' (pegboard.yaml:66); its groups are ['admin']",
            "fix": {"kind": "group", "subject": "admin", "text": "include 'admin'"},
            "next": "visible",
            "next_reason": "",
            "callable": False,
            "asks": False,
            "blocked": None,
            "notes": [],
        }
    )


@pytest.mark.usefixtures("folder")
def test_a_tool_that_always_asks_is_marked_and_not_callable(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    decided = json.loads(run("why", "delete_page", "--json").out)
    assert (decided["visible"], decided["callable"], decided["asks"]) == (True, False, True)
    marks = {tool["name"]: tool["asks"] for tool in json.loads(run("list", "--json").out)["tools"]}
    assert (marks["delete_page"], marks["count_words"]) == (True, False)
    assert json.loads(run("show", "delete_page", "--json").out)["asks"] is True
    assert run("why", "delete_page").out.startswith("delete_page: visible in all groups; a person must agree")


@pytest.mark.usefixtures("folder")
def test_call_prints_the_text_or_the_structured_value(run: Run) -> None:
    assert run("call", "count_words", "text=a b a", "unique=true") == (0, "2\n", "")
    assert run("call", "echo", "whole=3", "text=3", "numbers=1", "numbers=2") == (
        0,
        '{\n  "whole": 3,\n  "text": "3",\n  "numbers": [\n    1,\n    2\n  ]\n}\n',
        "",
    )


@pytest.mark.usefixtures("folder")
def test_call_reads_arguments_from_standard_input(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO('{"text": "a b"}'))
    assert run("call", "count_words", "--args", "-") == (0, "2\n", "")


@pytest.mark.usefixtures("folder")
def test_call_shows_every_problem_with_its_path_and_ends_with_1(run: Run) -> None:
    assert run("call", "echo", "whole=x", "flag=7") == (
        1,
        "",
        "error (invalid_arguments): Invalid arguments for 'echo': $.whole: the value is not of type \"integer\"; "
        '$.flag: the value is not of type "boolean": write true or false. Correct them and call again.\n',
    )


@pytest.mark.usefixtures("folder")
def test_call_as_json_has_the_whole_result(run: Run) -> None:
    assert answer(run("call", "count_words", "text=a", "--json")) == snapshot(
        {
            "tool": "count_words",
            "is_error": False,
            "content": [{"type": "text", "text": "1"}],
            "structured": 1,
            "meta": {},
        }
    )


@pytest.mark.usefixtures("folder")
def test_call_as_json_has_the_whole_error(run: Run) -> None:
    ran = run("call", "echo", "whole=x", "--json")
    assert ran.code == 1
    said = "Invalid arguments for 'echo': $.whole: the value is not of type \"integer\". Correct them and call again."
    problem = {"path": "$.whole", "rule": "type", "message": 'the value is not of type "integer"', "value": '"x"'}
    assert answer(ran) == {
        "tool": "echo",
        "is_error": True,
        "content": [{"type": "text", "text": said}],
        "error": {
            "kind": "invalid_arguments",
            "message": said,
            "hint": "",
            "retryable": False,
            "retry_after_s": None,
            "outcome_unknown": False,
            "details": {"problems": [problem]},
        },
        "meta": {},
    }


@pytest.mark.usefixtures("folder")
def test_a_hidden_tool_cannot_be_called_and_answers_as_an_unknown_one(run: Run) -> None:
    hidden = run("call", "delete_page", "page=x", "--yes", "--profile", "chat")
    unknown = run("call", "destroy_all", "page=x", "--yes", "--profile", "chat")
    assert (hidden.code, hidden.out) == (1, "")
    assert hidden.err.replace("delete_page", "NAME") == unknown.err.replace("destroy_all", "NAME")


@pytest.mark.usefixtures("folder")
def test_a_tool_that_fails_shows_one_line_of_log_and_no_traceback(run: Run) -> None:
    ran = run("call", "explode")
    assert (ran.code, ran.out, CALL_ID.sub("call ID", ran.err)) == (
        1,
        "",
        "error: Tool 'explode' failed in call ID: RuntimeError: boom\n"
        "error (tool_error): An unexpected error occurred (call ID).\n",
    )


class Keyboard(io.StringIO):
    """A terminal on which somebody has typed."""

    def isatty(self) -> bool:
        return True


@pytest.mark.usefixtures("folder")
def test_a_tool_that_needs_a_yes_is_refused_where_nobody_can_be_asked(run: Run) -> None:
    ran = run("call", "delete_page", "page=x")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("error (consent_required): 'delete_page' was not run: a person must agree first")


@pytest.mark.usefixtures("folder")
def test_yes_agrees_in_advance(run: Run) -> None:
    assert run("call", "delete_page", "page=x", "--yes") == (0, "deleted x\n", "")


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("typed", "code"), [("y\n", 0), ("YES\n", 0), ("n\n", 1), ("\n", 1), ("", 1), ("sure\n", 1)])
def test_on_a_terminal_only_a_clear_yes_runs_the_tool(
    run: Run, monkeypatch: pytest.MonkeyPatch, typed: str, code: int
) -> None:
    screen = Keyboard()
    monkeypatch.setattr(sys, "stdin", Keyboard(typed))
    monkeypatch.setattr(sys, "stderr", screen)
    ran = run("call", "delete_page", "page=x\x1b[2J")
    asked = screen.getvalue()
    assert ran.code == code
    assert '"page": "x\\u001b[2J"' in asked
    assert "\x1b" not in asked
    assert "Go ahead? [y/N] " in asked
    assert ("consent_declined" in asked) is (code == 1)


@pytest.mark.usefixtures("folder")
def test_what_was_typed_before_a_question_stands_there_is_no_answer_to_it(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = os.openpty()

    class Screen(Keyboard):
        def write(self, text: str) -> int:
            if "Go ahead?" in text:
                os.write(ours, b"n\n")
            return super().write(text)

    with open(theirs) as keyboard:
        os.write(ours, b"y\n")
        monkeypatch.setattr(sys, "stdin", keyboard)
        monkeypatch.setattr(sys, "stderr", screen := Screen())
        assert run("call", "delete_page", "page=x").code == 1
    os.close(ours)
    assert "consent_declined" in screen.getvalue()


def test_a_question_that_is_too_long_for_a_screen_is_not_asked(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = folder / "pegboard.yaml"
    config.write_text(config.read_text().replace("workshop:echo\n", "workshop:echo\n    consent: always\n", 1))
    screen = Keyboard()
    monkeypatch.setattr(sys, "stdin", Keyboard("y\n"))
    monkeypatch.setattr(sys, "stderr", screen)
    many = json.dumps({"page": "x", **{f"note_{number}": "y" * 400 for number in range(30)}})
    assert run("call", "echo", "--args", many).code == 1
    assert "Go ahead?" not in screen.getvalue()
    assert "the question would be too long to read" in screen.getvalue()


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("target", get_args(TargetName))
def test_export_prints_an_array_in_the_form_of_the_target(run: Run, target: str) -> None:
    tools = orjson.loads(run("export", target, "--profile", "chat").out)
    assert [tool.get("name", tool.get("function", {}).get("name")) for tool in tools] == ["count_words", "echo"]


@pytest.mark.usefixtures("folder")
def test_export_reports_what_a_target_cannot_carry(run: Run) -> None:
    assert run("export", "--target", "gemini", "--profile", "chat", "--report").out == snapshot("""\
tool          where                 effect     what
──────────────────────────────────────────────────────────────────────────────────────────────────
count_words   $.properties.unique   reworded   'default' is not supported; said in the description

1 tool loses something on the way to gemini.
""")
    losses = orjson.loads(run("export", "openai_strict", "--profile", "chat", "--report", "--json").out)
    assert {(loss["tool"], loss["path"], loss["rule"], loss["effect"]) for loss in losses} == snapshot(
        {
            ("count_words", "$.properties.unique", "default", "reworded"),
            ("echo", "$", "additionalProperties", "narrowed"),
            ("echo", "$.properties.nothing", "null", "narrowed"),
        }
    )
    assert run("export", "mcp", "--report").out == "Nothing is lost on the way to mcp.\n"


def test_export_knows_every_target_there_is() -> None:
    assert set(get_args(TargetName)) == set(EXPORTERS)


@pytest.mark.usefixtures("folder")
def test_export_writes_a_file(run: Run, tmp_path: Path) -> None:
    ran = run("export", "mcp", "--profile", "chat", "-o", "tools.json")
    assert ran == (0, "", "Wrote 2 tools to tools.json.\n")
    assert len(orjson.loads((tmp_path / "tools.json").read_bytes())) == 2
    assert run("export", "mcp", "-o", "no/such/folder.json").code == 2


@pytest.mark.usefixtures("folder")
def test_check_counts_what_is_there(run: Run) -> None:
    assert run("check") == snapshot(
        Ran(code=0, out="OK: 7 tools, 2 profiles, 2 groups, 1 predicate, 0 sources\n", err="")
    )
    assert answer(run("check", "--json")) == snapshot(
        {
            "ok": True,
            "counts": {"tools": 7, "profiles": 2, "groups": 2, "predicates": 1, "sources": 0},
            "problems": [],
            "warnings": [],
        }
    )


def test_check_warns_of_a_policy_entry_that_matches_nothing(run: Run, folder: Path) -> None:
    config = folder / "pegboard.yaml"
    config.write_text(config.read_text("utf-8").replace("search_*", "serach_*"), encoding="utf-8")
    ran = run("check")
    assert ran.code == 0
    assert ran.out.startswith("warning: pegboard.yaml:")
    assert "profiles.chat.deny[0]: 'serach_*' matches no tool at present" in ran.out


def test_check_prints_all_problems_where_they_stand_and_ends_with_2(run: Run, tmp_path: Path) -> None:
    (tmp_path / "pegboard.yaml").write_text(
        "name: acme\nprofiels: {}\ntools:\n  - {name: a b, type: internal}\nprofiles:\n  chat: {include: [nowhere]}\n",
        encoding="utf-8",
    )
    ran = run("check")
    assert ran == snapshot(
        Ran(
            code=2,
            out="""\
pegboard.yaml:2:1: profiels: unknown key 'profiels'. Did you mean 'profiles'?
     2 | profiels: {}
       | ^
pegboard.yaml:4:12: tools[0].name: Tool name 'a b': use 1 to 64 of the characters A-Z a-z 0-9 _ -, for example 'a_b'.
     4 |   - {name: a b, type: internal}
       |            ^
pegboard.yaml:6:20: profiles.chat.include[0]: unknown group 'nowhere'. Groups: core.
     6 |   chat: {include: [nowhere]}
       |                    ^
""",
            err="3 problems found.\n",
        )
    )
    told = orjson.loads(run("check", "--json").out)
    assert told["ok"] is False
    assert [f"{p['where']}: {p['path']}: {p['message']}" for p in told["problems"]] == ran.out.splitlines()[::3]


def test_broken_yaml_names_the_line(run: Run, tmp_path: Path) -> None:
    (tmp_path / "pegboard.yaml").write_text("name: acme\ntools: [\n", encoding="utf-8")
    ran = run("list")
    assert (ran.code, ran.out) == (2, "")
    assert re.match(r"pegboard\.yaml:\d+:\d+: ", ran.err)
    assert ran.err.endswith("pegboard: 1 problem in the configuration; nothing was started.\n")


def test_init_writes_a_config_that_passes_its_own_check(run: Run, tmp_path: Path) -> None:
    assert run("init", "new") == snapshot(
        Ran(
            code=0,
            out="""\
Wrote new/pegboard.yaml
Wrote new/my_tools.py
Next:
  cd new
  pegboard check
  pegboard list
""",
            err="",
        )
    )
    assert run("check", "-c", "new").code == 0


def test_init_overwrites_nothing(run: Run, folder: Path) -> None:
    before = sorted(folder.iterdir())
    ran = run("init")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("pegboard: 'pegboard.yaml' exists already; nothing was written.")
    assert sorted(folder.iterdir()) == before


def test_schema_is_a_json_schema(run: Run) -> None:
    ran = run("schema")
    assert ran.code == 0
    assert orjson.loads(ran.out)["type"] == "object"


@pytest.mark.usefixtures("folder")
def test_a_bare_word_is_answered_with_the_arguments_of_the_tool(run: Run) -> None:
    ran = run("call", "count_words", "to be")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.endswith("'count_words' takes text, unique.\n")


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("port", ["80000", "-1"])
def test_a_port_that_is_none_is_refused_before_anything_starts(run: Run, port: str) -> None:
    ran = run("serve", f"--port={port}")
    assert (ran.code, ran.err) == (
        2,
        f"pegboard: --port {port} is not a port; choose one from 1 to 65535, or 0 for any that is free.\n",
    )


def test_init_names_each_file_that_is_there(run: Run) -> None:
    run("init")
    assert "'pegboard.yaml', 'my_tools.py' exist already; nothing was written." in run("init").err
    Path("my_tools.py").unlink()
    assert "'pegboard.yaml' exists already; nothing was written." in run("init").err


INTEGERS = """\
tools:
  - {name: same, type: internal, description: Same., handler: "python:tests.cli.workshop:echo",
     parameters: {n: {type: integer}, many: {type: array, items: {type: integer}}}}
  - {name: cache_store, type: builtin}
"""


def test_an_integer_travels_over_the_command_line(run: Run, tmp_path: Path) -> None:
    (tmp_path / "pegboard.yaml").write_text(INTEGERS)
    for words in ([f"n={2**70}", f"many={2**65}"], [f"n:={2**70}", f"many:=[{2**65}]"]):
        ran = run("call", "same", *words, "--json")
        assert ran.code == 0, ran.err
        assert json.loads(ran.out)["structured"] == {"n": 2**70, "many": [2**65]}
    ran = run("call", "same", "--args", json.dumps({"n": -(2**70)}))
    assert json.loads(ran.out) == {"n": -(2**70)}
    for action, more in (("set", [f"value:={2**70}"]), ("get", [])):
        ran = run("call", "cache_store", f"action={action}", "key=k", *more, "--json")
        assert ran.code == 0, ran.out


UNSET = """\
files: [agents/*.yaml]
groups: {core: for all}
tools:
  - name: web
    type: mcp
    groups: [net]
    mcp: {transport: stdio, command: "${PEGBOARD_UNSET_COMMAND}", args: [x], tools: {groups: {look: [net_read]}}}
  - {name: hook, type: webhook, description: x, webhook: {url: "https://a.example", headers: {A: "${PEGBOARD_UNSET}"}}}
  - {name: letter, type: webhook, description: x, webhook: {url: "https://a.example", headers: {A: "${file:none}"}}}
  - name: count_words
    type: internal
    description: Count the words.
    handler: python:tests.cli.workshop:count_words
    parameters: {text: {type: string, required: true}, unique: {type: boolean, default: false}}
  - {name: ask, type: agent, description: Ask., agent: helper, groups: [helpers]}
  - {name: ask_other, type: agent, description: Ask., agent: other}
profiles:
  a: {include: [core, net, net_read, helpers], deny: ["web.*"]}
"""
AGENT = """\
apiVersion: pegboard/v1
kind: Agent
metadata: {name: NAME}
spec:
  model: {provider: openai, name: gpt-4o}
  prompts: {system: Help.}
  tools: [{tool: count_words}]
"""


@pytest.fixture
def _unset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    (tmp_path / "pegboard.yaml").write_text(UNSET)
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "helper.yaml").write_text(AGENT.replace("NAME", "helper"))
    in_text = AGENT.replace("NAME", "other").replace("gpt-4o", "gpt-4o, api_key: '${PEGBOARD_UNSET}'")
    (tmp_path / "agents" / "other.yaml").write_text(in_text)


@pytest.mark.usefixtures("_unset")
def test_a_variable_that_is_not_set_costs_list_its_own_tools_and_agents_only(run: Run) -> None:
    ran = run("list", "--json")
    assert ran.code == 0, ran.err
    told = orjson.loads(ran.out)
    assert [tool["name"] for tool in told["tools"]] == ["count_words"]
    places = [problem.split(": ")[1] for problem in told["problems"]]
    assert places == [
        "tools[0].mcp.command",
        "tools[1].webhook.headers.A",
        "tools[2].webhook.headers.A",
        "tools[4].agent",
        "tools[5].agent",
        "spec.model",
        "spec.model.api_key",
    ]
    assert ran.err.count("Left out: ") == len(places)
    assert run("list", "--profile", "a").code == 0


@pytest.mark.usefixtures("_unset")
def test_why_and_doctor_go_on_without_what_needs_a_variable_that_is_not_set(run: Run) -> None:
    told = orjson.loads(run("why", "count_words", "--json").out)
    assert told["callable"] is True
    assert any("'PEGBOARD_UNSET_COMMAND' is not set" in note for note in told["notes"])
    gone = run("why", "hook")
    assert gone.code == 1
    assert "tools[1].webhook.headers.A: the variable 'PEGBOARD_UNSET' is not set" in gone.err
    ran = run("doctor", "--json")
    assert ran.code == 1
    rows = [row for row in orjson.loads(ran.out)["findings"] if row["state"] == "left out"]
    assert len(rows) == 7
    assert all(row["is_wrong"] for row in rows)


@pytest.mark.usefixtures("_unset")
@pytest.mark.parametrize("words", [["check"], ["call", "count_words", "--args", '{"text": "a b"}'], ["serve"]])
def test_a_variable_that_is_not_set_stops_what_checks_and_runs(run: Run, words: list[str]) -> None:
    ran = run(*words)
    assert ran.code == 2
    assert "the variable 'PEGBOARD_UNSET' is not set" in ran.out + ran.err


SECTIONS = """\
models:
  default: {provider: openai, name: gpt-4o, api_key: "${PEGBOARD_UNSET}"}
  keyless: openai:gpt-4o
  local: {provider: openai_compatible, name: m, base_url: "http://127.0.0.1:9/v1"}
discovery: {embedder: {type: openai, model: text-embedding-3-small}}
server: {bus: "${PEGBOARD_UNSET}"}
consents: {store: "${PEGBOARD_UNSET}"}
workspace: {store: "sqlite:documents.db", embedder: {type: openai, model: m, api_key: "${PEGBOARD_UNSET}"}}
identity: {oauth: {issuer: "${PEGBOARD_UNSET}"}}
agents: {store: "${PEGBOARD_UNSET}"}
limits: {result_bytes: "${PEGBOARD_UNSET}"}
files: [agents/*.yaml]
tools:
  - {name: count_words, type: internal, description: Count., handler: "python:tests.cli.workshop:count_words"}
hooks:
  - {on: before, use: "https://judge.example/", secret: "${PEGBOARD_UNSET}"}
"""


@pytest.mark.parametrize(
    "words",
    [
        ["list"], ["why", "count_words"], ["search", "count words"], ["refs", "agents"], ["doctor"], ["agents"],
        ["show", "count_words"], ["lint", "--fail-on", "never"], ["tokens"],
    ],
)  # fmt: skip
def test_commands_that_read_go_on_without_sections_that_need_a_variable(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    (tmp_path / "pegboard.yaml").write_text(SECTIONS)
    (tmp_path / "agents").mkdir()
    for name, model in {"one": "", "two": "  model: keyless\n", "three": "  model: local\n"}.items():
        text = (
            f"apiVersion: pegboard/v1\nkind: Agent\nmetadata: {{name: {name}}}\nspec:\n  prompts: {{system: Help.}}\n"
        )
        (tmp_path / "agents" / f"{name}.yaml").write_text(text + model)
    ran = run(*words)
    assert ran.code == (1 if words == ["doctor"] else 0), ran
    left_out = [line for line in ran.err.splitlines() if line.startswith("Left out: ")]
    assert [line.split(": ")[2] for line in left_out] == [
        "models.default.api_key", "models.keyless", "discovery.embedder", "server.bus", "consents.store",
        "workspace.embedder.api_key", "identity.oauth.issuer", "agents.store", "limits.result_bytes", "hooks[0].secret",
        "spec.model", "spec.model",
    ]  # fmt: skip
    assert left_out[0].startswith("Left out: pegboard.yaml:2:")
    ran = run("check")
    assert ran.code == 2
    assert "PEGBOARD_UNSET" in ran.out


@pytest.mark.usefixtures("_unset")
def test_export_says_that_tools_are_missing_and_ends_with_1(run: Run, tmp_path: Path) -> None:
    ran = run("export", "openai")
    assert ran.code == 1
    assert [tool["function"]["name"] for tool in orjson.loads(ran.out)] == ["count_words"]
    assert "tools[1].webhook.headers.A: the variable 'PEGBOARD_UNSET' is not set" in ran.err
    assert "This export is incomplete: tools were left out." in ran.err
    with (tmp_path / "pegboard.yaml").open("w") as config:
        config.write('server: {bus: "${PEGBOARD_UNSET}"}\npython: [tests.cli.workshop]\n')
    ran = run("export", "openai")
    assert ran.code == 0, "every tool is there"
    assert "Left out: " in ran.err


LOST = """\
settings: {depth: "${PEGBOARD_UNSET}"}
workspace: {store: "${PEGBOARD_UNSET}", space: main}
files: [agents/*.yaml]
tools:
  - {name: count_words, type: internal, description: Count., handler: "python:tests.cli.workshop:count_words"}
profiles:
  limited: {rate_limit: "${PEGBOARD_UNSET}"}
  documents: {include: [core, document, navigation, search]}
identity:
  api_keys: {store: "sqlite:keys.db"}
  map: [{when: {key: ann}, user: ann, profiles: [limited]}]
"""
READER = """\
apiVersion: pegboard/v1
kind: Agent
metadata: {name: reader}
spec:
  model: {provider: openai_compatible, name: m, base_url: "http://127.0.0.1:9/v1"}
  prompts: {system: Help.}
  tools: [{group: search}, {tool: search_documents}]
"""


@pytest.mark.parametrize(
    "words", [["list"], ["show", "count_words"], ["agents"], ["why", "count_words"], ["export", "mcp"]]
)
def test_commands_that_read_go_on_without_documents_settings_and_a_profile(
    run: Run, tmp_path: Path, words: list[str]
) -> None:
    (tmp_path / "pegboard.yaml").write_text(LOST)
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "reader.yaml").write_text(READER)
    ran = run(*words)
    assert ran.code == (1 if words[0] == "export" else 0), ran
    left_out = [line.split(": ")[2] for line in ran.err.splitlines() if line.startswith("Left out: ")]
    assert left_out == ["settings.depth", "workspace.store", "profiles.limited.rate_limit"]
    assert run(*words, "--profile", "documents").code == ran.code
    ran = run(*words, "--profile", "limited")
    assert ran.code == 2
    assert "The profile 'limited' is left out, because it needs a variable that is not set." in ran.err
    assert run("check").code == 2


def test_why_names_the_agents_that_lack_a_tool_that_is_not_there(run: Run, tmp_path: Path) -> None:
    (tmp_path / "pegboard.yaml").write_text(
        "files: [agents/*.yaml]\n"
        f"tools: [{{name: fs, type: mcp, mcp: {{transport: stdio, command: {sys.executable}, args: [-c, exit()]}}}}]\n"
    )
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "reader.yaml").write_text(
        READER.replace("{group: search}, {tool: search_documents}", "{tool: fs.read}")
    )
    answer = orjson.loads(run("why", "fs__read", "--json").out)
    assert answer["notes"] == ["the agent 'reader' declares this tool and runs without it"]
