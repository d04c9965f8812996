"""Every refusal of the contract: at its place, in words that say what would be right, all of them at once."""

from pathlib import Path

import pytest

from pegboard import DefinitionError
from pegboard.config import load, load_catalog
from pegboard.config.unsupported import UNSUPPORTED
from pegboard.config.yaml.problems import PROBLEM_LINES
from pegboard.model.bounds import Bounds
from tests.config.project import Project

MINE = """
def f(q: str, n: int = 3) -> str:
    return q
"""


def cases(name: str) -> list[tuple[str, str]]:
    """Return the pairs of a file: a line, and below it, indented, what is said of it."""
    text = Path(__file__).with_name(name).read_text(encoding="utf-8")
    blocks = [block.splitlines() for block in text.split("\n\n")]
    return [(block[-2], block[-1].strip()) for block in blocks if len(block) >= 2]


@pytest.mark.parametrize(("text", "said"), cases("refused_files.txt"))
def test_a_refusal_names_the_place_and_what_would_be_right(project: Project, text: str, said: str) -> None:
    project.write(text, mine=MINE)
    assert project.said() == [said]


@pytest.mark.parametrize(("keys", "said"), cases("refused_tools.txt"))
def test_a_tool_that_cannot_be_honoured_is_refused_with_its_key(project: Project, keys: str, said: str) -> None:
    handler = "" if keys.startswith("handler") else '\n    handler: "python:mine:f"'
    project.write(f"tools:\n  - name: a\n    type: internal{handler}\n    {keys}\n", mine=MINE)
    (problem,) = project.problems()
    assert f"{problem.path}: {problem.message}" == f"tools[0].{said}"
    line = int(problem.where.split(":")[1])
    assert line == (5 if handler else 4)


def test_unknown_top_level_keys_are_reported_together_with_the_known_ones(project: Project) -> None:
    project.write("foo: 1\nname: x\ntool: []\nzork: {a: 1}\nmcp_servers: {x: {url: 'http://127.0.0.1:9'}}\n")
    unknown, meant, clients = project.said()
    assert unknown.startswith("pegboard.yaml:1:1: foo: unknown keys 'foo', 'zork'. Keys: agents, ")
    assert all(f" {key}," in unknown for key in ("profiles", "rate_limits", "tools"))
    assert meant == "pegboard.yaml:3:1: tool: unknown key 'tool'. Did you mean 'tools'?"
    assert clients.endswith("This is the form of MCP clients: `pegboard import FILE` converts it.")


def test_a_file_with_unknown_keys_alone_is_refused_with_them_and_without_a_value(project: Project) -> None:
    project.write("A: hunter2\nhello: [1]\n")
    (problem,) = project.problems()
    assert problem.message.startswith("unknown keys 'A', 'hello'. Keys: agents, ")
    assert "hunter2" not in f"{problem} {problem.source}"
    project.write("k3y-of-somebody: hunter2\n")
    (said,) = project.said()
    assert "this is not a Pegboard config" in said
    assert "k3y" not in said


@pytest.mark.parametrize(
    ("tool", "path"),
    [
        ("type: mcp, mcp: {transport: http, url: $NOPE}", "mcp.url"),
        ("type: mcp, mcp: {transport: http, url: $NOPE/mcp}", "mcp.url"),
        ("type: openapi, openapi: {spec: $NOPE}", "openapi.spec"),
    ],
)
def test_an_address_of_an_unexpanded_variable_is_refused_with_the_notation(
    project: Project, tool: str, path: str
) -> None:
    project.write(f"tools: [{{name: x, {tool}}}]")
    (said,) = project.said()
    text = "'$NOPE' is not expanded; for the value of the variable write ${NOPE}"
    assert said.endswith(f": tools[0].{path}: {text}")


def test_a_key_one_level_too_high_is_refused_with_the_place(project: Project) -> None:
    project.write("tools: [{name: x, type: mcp, url: 'http://127.0.0.1:9'}]")
    assert "unknown key 'url'. It belongs under `mcp:`; write `mcp: {url: …}`." in project.said()[1]


@pytest.mark.parametrize("text", ["", "# only a comment\n", "---\n", "\n\n"])
def test_an_empty_file_is_refused(project: Project, text: str) -> None:
    project.write(text)
    (said,) = project.said()
    assert said == "pegboard.yaml:1:1: the file is empty; `pegboard init` writes one to start from"


def test_a_tool_that_nothing_runs_is_refused(project: Project) -> None:
    project.write("tools: [{name: web_search, type: internal}]")
    assert project.said() == [
        "pegboard.yaml:1:9: tools[0].handler: nothing runs 'web_search': give `handler: python:module:function`, or "
        "register that function in a module under `python:`"
    ]


def test_a_file_of_problems_is_reported_whole_in_the_order_of_its_lines(project: Project) -> None:
    project.write(
        """\
        nmae: x
        python: [nowhere, mine]
        predicates:
          p: {context: spaceid}
        profiles:
          chat: {include: [nope], exposure: fancy}
        tools:
          - {name: a, type: internal, handler: "python:mine:f", available: nope, colour: red}
          - {name: b, type: intern}
          - {name: a, type: internal, handler: "python:mine:f"}
          - {name: c, type: internal, handler: "python:mine:g", description: "${UNSET}"}
        hooks: [{on: befor, use: "python:mine:f"}]
        """,
        mine=MINE,
    )
    assert [problem.where.split(":", 1)[1] for problem in project.problems()] == [
        "1:1", "2:10", "4:16", "6:20", "6:37", "8:68", "8:74", "9:21", "10:12", "11:40", "11:70", "12:14",
    ]  # fmt: skip


def test_two_tools_of_one_name_are_refused_with_both_places(project: Project) -> None:
    project.write(
        """\
        files: [more.yaml]
        tools:
          - {name: Search, type: internal, handler: "python:mine:f"}
        """,
        mine=MINE,
    ).file("more.yaml", 'tools:\n  - {name: search, type: internal, handler: "python:mine:f"}\n')
    assert project.said() == [
        "more.yaml:2:12: tools[0].name: the tool 'search' is declared twice: first at pegboard.yaml:3:12. Rename one"
    ]


def test_a_tool_that_python_registers_too_is_refused_with_both_places(project: Project) -> None:
    project.write(
        'python: [mine]\ntools:\n  - {name: f, type: internal, handler: "python:mine:f"}\n',
        mine="from pegboard import default_catalog\n\n@default_catalog.tool\ndef f(q: str) -> str:\n    return q\n",
    )
    assert project.said() == [
        "pegboard.yaml:3:12: tools[0].name: the tool 'f' is declared twice: at pegboard.yaml:3 and at mine:3. "
        "Rename one, or remove `handler:` to describe that function here"
    ]


def test_names_declared_in_two_files_are_refused_with_both_places(project: Project) -> None:
    project.write("files: [b.yaml]\ngroups: {g: one}\npredicates: {p: {context: user_id}}\n")
    project.file("b.yaml", "groups: {g: two}\npredicates: {p: {context: space_id}}\n")
    assert project.said() == [
        "b.yaml:1:10: groups.g: 'g' is declared twice: first at pegboard.yaml:2:10. Remove one",
        "b.yaml:2:14: predicates.p: 'p' is declared twice: first at pegboard.yaml:3:14. Remove one",
    ]


def test_keys_of_the_main_file_are_refused_in_the_others(project: Project) -> None:
    project.write("files: [b.yaml]").file("b.yaml", "limits: {hook_s: 2}\n")
    assert project.said()[0].startswith("b.yaml:1:1: limits: unknown key 'limits'. Keys: groups, hooks, ")


@pytest.mark.parametrize("spot", sorted(UNSUPPORTED))
def test_what_is_documented_and_not_there_yet_is_refused_by_name(project: Project, spot: str) -> None:
    path, _, value = spot.partition("=")
    *_, key = path.split(".")
    line = f"{key}: {'https://example.com/hook' if value == 'https' else value or '{}'}"
    match path.split(".")[0]:
        case "tools" if path.startswith(("tools.*.mcp.", "tools.*.auth.")):
            server = "transport: http, url: 'https://a.example/mcp'"
            inner = f"mcp: {{{server}, {line}}}" if "mcp" in path else f"mcp: {{{server}}}, auth: {{{line}}}"
            text = f"tools: [{{name: a, type: mcp, {inner}}}]"
        case "tools":
            kind = line if key == "type" else f"type: internal, {line}"
            text = f"tools: [{{name: a, {kind}}}]"
        case "profiles":
            text = f"profiles: {{chat: {{{line}}}}}"
        case "hooks":
            text = f"hooks: [{{on: before, {line}}}]"
        case "discovery":
            text = f"discovery: {{embedder: {{{line}}}}}"
        case "spec":
            text = "files: [agent.yaml]"
            for part in reversed(path.split(".")[:-1]):
                line = f"{part}: {{{line}}}"
            about = "apiVersion: astromesh/v1\nkind: Agent\nmetadata: {name: a}\n"
            project.file("agent.yaml", about + line + "\n")
        case ("rate_limits" | "limits") as section:
            text = f"{section}: {{{line}}}"
        case _:
            text = line
    project.write(text)
    said = [problem.message for problem in project.problems()]
    shown = f"{key}: {value}" if value else f"{key}:"
    assert f"`{shown}` is not supported by this version of Pegboard yet: {UNSUPPORTED[spot]}" in said


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"name: a\n# \xff\n", "pegboard.yaml:2:3: is not UTF-8 text; save the file as UTF-8"),
        (b"name: a\0b\n", "pegboard.yaml:1:8: the character U+0000 is not allowed in YAML; remove it"),
        (b"#" * (1024 * 1024 + 1), "pegboard.yaml: is larger than 1,048,576 bytes; split it, and name the parts under "
                                   "`files:`"),
    ],
)  # fmt: skip
def test_bytes_that_are_no_config_are_refused(project: Project, content: bytes, said: str) -> None:
    project.path.write_bytes(content)
    assert project.said() == [said]


def test_a_byte_order_mark_is_no_fault(project: Project) -> None:
    project.path.write_bytes(b"\xef\xbb\xbfname: a\n")
    assert project.load()[1].name == "a"


def test_a_missing_file_and_a_folder_are_refused(project: Project) -> None:
    assert project.said() == ["pegboard.yaml: does not exist; `pegboard init` writes one to start from"]
    project.path.mkdir()
    assert project.said() == ["pegboard.yaml: is a folder; name the file in it, such as pegboard.yaml"]


def test_a_special_file_is_refused_without_being_opened(project: Project) -> None:
    import os

    os.mkfifo(project.path)
    assert project.said() == ["pegboard.yaml: is not an ordinary file"]


def test_load_alone_refuses_what_the_file_alone_shows(project: Project) -> None:
    project.write("nmae: x\npython: [nowhere]\n")
    with pytest.raises(DefinitionError) as caught:
        load(project.path, env={})
    assert [problem.path for problem in caught.value.problems] == ["nmae"]


def test_places_are_named_as_the_path_was_given(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.write("nmae: x\n")
    monkeypatch.chdir(project.folder)
    with pytest.raises(DefinitionError) as caught:
        load_catalog(Path("pegboard.yaml"), env={})
    assert caught.value.problems[0].where == "pegboard.yaml:1:1"


def test_every_bound_may_be_set_by_its_name(project: Project) -> None:
    project.write("limits: {json_depth: 7, hook_s: 2, tool_timeout_s: 0.5}")
    catalog = project.catalog()
    assert catalog.registry.bounds == Bounds(json_depth=7, hook_s=2, tool_timeout_s=0.5)


def test_a_fault_is_reported_where_it_is_and_not_where_its_name_is_used(project: Project) -> None:
    project.write(
        """\
        predicates: {p: {secert: X}}
        tools:
          - {name: fs, type: filesystem, groups: [files]}
          - {name: b, type: internal, handler: "python:mine:nope", groups: [more]}
          - {name: c, type: internal, handler: "python:mine:f", available: p}
        profiles: {a: {include: [files, more], deny: [fs__write]}}
        """,
        mine=MINE,
    )
    assert [problem.path for problem in project.problems()] == [
        "predicates.p.secert",
        "tools[0].type",
        "tools[1].handler",
    ]


def test_the_keys_of_a_tool_that_runs_an_agent_are_checked_beside_its_agent(project: Project) -> None:
    project.write("tools:\n  - {name: a, type: agent, agent: x, context_transfrom: y}\n  - {name: b, type: agent}\n")
    assert [problem.path for problem in project.problems()] == [
        "tools[0].agent", "tools[0].context_transfrom", "tools[1].agent",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("profiles: {chat: {exclude: [a]}}", "deny"),
        ("tools: [{name: a, type: mcp, mcp: {transport: streamable-http, url: 'http://h/'}}]", "http"),
        ("tools: [{name: a, type: mcp, mcp: {transport: streamable_http, url: 'http://h/'}}]", "http"),
        ("tools: [{name: a, type: client, parameters: {q: {type: str}}}]", "string"),
        ("tools: [{name: a, type: client, parameters: {q: {type: array, items: {type: int}}}}]", "integer"),
        ("tools: [{name: a, type: client, parameters: {q: {type: dict}}}]", "object"),
    ],
)
def test_the_word_that_others_use_is_answered_with_ours(project: Project, text: str, meant: str) -> None:
    (said,) = project.write(text).said()
    assert said.endswith(f"Did you mean {meant!r}?")


def test_of_very_many_problems_the_first_show_their_lines(project: Project) -> None:
    project.write("tools:\n" + "".join(f"  - {{nam: tool_{number}, type: internal}}\n" for number in range(150)))

    with pytest.raises(DefinitionError) as refused:
        load_catalog(str(project.path), env={})

    problems = refused.value.problems
    assert len(problems) >= 150
    assert all("nam: tool_" in problem.source for problem in problems[:PROBLEM_LINES])
    assert not any(problem.source for problem in problems[PROBLEM_LINES:])
    assert all(problem.where and problem.message for problem in problems)
