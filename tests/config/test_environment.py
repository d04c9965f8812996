"""`${NAME}`: expanded at load, in operator files, and nowhere else."""

import os
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegboard import Secret, ToolContext
from pegboard.config import load_catalog
from pegboard.config.yaml.environment import Environment, Expanded, concealed, typed
from pegboard.config.yaml.parser import parse
from pegboard.config.yaml.tree import At
from pegboard.model.error import DefinitionError
from tests.config.project import Project

ENV = {"NAME": "ann", "EMPTY": "", "PORT": "8420", "FLAG": "true", "YAML": "{a: 1}"}


def expand(text: str) -> tuple[object, Environment]:
    root, _ = parse(text, file="f.yaml")
    assert root is not None
    environment = Environment(ENV)
    plain = environment.plain(At(root))
    assert isinstance(plain, dict)
    return plain["v"], environment


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("v: Bearer ${NAME}", "Bearer ann"),
        ("v: '${NAME}-${PORT}'", "ann-8420"),
        ("v: ${MISSING:-x y}", "x y"),
        ("v: ${EMPTY:-x}", "x"),
        ("v: '${MISSING:-}'", ""),
        ("v: a${EMPTY}b", "ab"),
        ("v: ${NAME:-x}", "ann"),
        ("v: $NAME", "$NAME"),
        ("v: costs $5", "costs $5"),
        ("v: $${NAME}", "${NAME}"),
        ("v: $$", "$"),
        ("v: $$$${NAME}", "$${NAME}"),
    ],
)
def test_variables_are_put_in(text: str, value: str) -> None:
    found, environment = expand(text)
    assert found == value
    assert (environment.problems, environment.unset) == ([], [])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("v: ${MISSING}", "the variable 'MISSING' is not set; set it, or write a default: ${MISSING:-…}"),
        ("v: '${}'", "'${' starts no ${NAME}, ${NAME:-default} or ${file:PATH}; for the text '${' write '$${'"),
        ("v: '${NAME'", "'${' starts no ${NAME}, ${NAME:-default} or ${file:PATH}; for the text '${' write '$${'"),
        ("v: '${A:-${B}}'", "'${' starts no ${NAME}, ${NAME:-default} or ${file:PATH}; for the text '${' write '$${'"),
        ("v: '${1X}'", "'${' starts no ${NAME}, ${NAME:-default} or ${file:PATH}; for the text '${' write '$${'"),
    ],
)
def test_a_variable_that_is_not_set_or_not_one_is_a_problem_with_its_line(text: str, message: str) -> None:
    environment = expand(text)[1]
    problem = [*environment.problems, *(problem for _, problem in environment.unset)][0]
    assert str(problem) == f"f.yaml:1:4: v: {message}"


def test_a_variable_in_a_key_is_refused() -> None:
    assert "not in keys" in str(expand("v: {'${NAME}': 1}")[1].problems[0])


def test_a_value_from_the_environment_never_becomes_structure() -> None:
    assert expand("v: ${YAML}")[0] == "{a: 1}"


def test_where_any_value_may_stand_quotes_make_it_a_text() -> None:
    assert typed(expand("v: ${PORT}")[0]) == 8420
    assert typed(expand("v: '${PORT}'")[0]) == "8420"
    assert typed(expand("v: [{x: ${FLAG}}]".replace("${FLAG}", "'${FLAG}'"))[0]) == [{"x": "true"}]
    assert typed(expand("v: ${FLAG}")[0]) is True


def test_every_variable_that_was_used_is_a_secret_and_an_empty_one_is_none() -> None:
    assert expand("v: ['${NAME}', '${EMPTY}', '${MISSING:-x}']")[1].secrets == {"NAME": Secret("ann")}


def test_in_a_place_for_credentials_the_whole_text_is_a_secret() -> None:
    found = concealed(expand("v: {a: 'Bearer ${NAME}', b: plain, c: ['${PORT}']}")[0])
    assert found == {"a": Secret("Bearer ann"), "b": "plain", "c": [Secret("8420")]}
    assert "ann" not in repr(found)


def test_names_are_looked_up_in_the_environment_of_the_process_unless_another_is_given(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PEGBOARD_TEST_NAME", "acme")
    project.write("name: ${PEGBOARD_TEST_NAME}\n")
    assert load_catalog(project.path)[1].name == "acme"
    with pytest.raises(DefinitionError, match="PEGBOARD_TEST_NAME"):
        load_catalog(project.path, env={})


def test_numbers_and_flags_may_come_from_the_environment(project: Project) -> None:
    project.env = {"T": "2.5", "INLINE": "true", "CALLS": "3"}
    project.write(
        """\
        python: [mine]
        tools:
          - {name: a, type: internal, handler: "python:mine:f", timeout_seconds: "${T}", inline: "${INLINE}",
             rate_limit: {max_calls: "${CALLS}", window_seconds: 60}}
        """,
        mine="def f() -> str: return 'x'",
    )
    entry = project.catalog().snapshot().find("a")
    assert entry is not None
    assert (entry.spec.timeout_s, entry.runs) == (2.5, "inline")
    assert entry.spec.rate_limit is not None
    assert entry.spec.rate_limit.max_calls == 3


def test_a_bad_value_from_the_environment_is_named_by_its_variable_and_not_shown(project: Project) -> None:
    project.env = {"T": "canary-value"}
    project.write(
        """\
        rate_limits: {default: "${T}"}
        tools:
          - {name: a, type: internal, handler: "python:mine:f", timeout_seconds: "${T}"}
        """,
        mine="def f() -> str: return 'x'",
    )
    said = project.said()
    assert len(said) == 2
    assert 'expected a number, not "${T}"' in said[1]
    assert "canary" not in "".join(said)


async def test_arguments_of_a_call_are_never_expanded(project: Project) -> None:
    project.env = {"NAME": "ann"}
    project.write("python: [mine]\nsettings: {name: '${NAME}'}\n", mine=ECHO)
    result = await project.view().call("echo", {"text": "${NAME} $HOME $$ ${NAME:-x}"})
    assert result.structured is None
    assert result.text == "${NAME} $HOME $$ ${NAME:-x}"


ECHO = """
from pegboard import default_catalog

@default_catalog.tool
def echo(text: str) -> str:
    return text
"""


@given(st.text())
def test_escaping_every_dollar_gives_the_text_itself(text: str) -> None:
    import json

    found, environment = expand(f"v: {json.dumps(text.replace('$', '$$'))}")
    assert found == json.loads(json.dumps(text))
    assert not isinstance(found, Expanded)
    assert (environment.problems, environment.unset) == ([], [])
    assert environment.secrets == {}


@pytest.mark.parametrize(
    ("address", "is_secret"),
    [
        ("https://api.example.com/v1", False),
        ("https://api.example.com:8443/reports/daily/", False),
        ("https://ann:sesame@api.example.com/v1", True),
        ("https://api.example.com/v1?key=sesame", True),
        ("https://hooks.example.com/T02AB9/B7XQ/k9sJd82hsKLa", True),
        ("sesame", True),
    ],
)
@pytest.mark.parametrize(("key", "is_address"), [("url", True), ("base_url", True), ("token", False)])
def test_only_an_address_in_which_nothing_could_be_one_is_no_secret(
    address: str, is_secret: bool, key: str, is_address: bool
) -> None:
    root, _ = parse(f"v:\n  {key}: ${{HERE}}", file="f.yaml")
    assert root is not None
    environment = Environment({"HERE": address})
    environment.plain(At(root))
    assert ("HERE" in environment.secrets) is (is_secret or not is_address)


# ---- files


def test_a_file_is_put_in_without_the_end_of_its_last_line(project: Project) -> None:
    (project.folder / "secrets").mkdir()
    (project.folder / "secrets" / "token").write_text("two\nlines of é\n")
    root, _ = parse("v: Bearer ${file:secrets/token}", file="f.yaml")
    assert root is not None
    environment = Environment({}, folder=project.folder)
    assert environment.plain(At(root)) == {"v": "Bearer two\nlines of é"}
    assert (environment.problems, environment.unset) == ([], [])
    assert [secret.reveal() for secret in environment.secrets.values()] == ["two\nlines of é"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nowhere", "does not exist"),
        # From Python 3.14 on, a path that is too long does not exist.
        ("x" * 5_000, "cannot be read: File name too long|does not exist"),
        ("large/token", "does not exist"),
        (".", "is a folder"),
        ("fifo", "is not an ordinary file"),
        ("large", "is larger than 65,536 bytes"),
        ("bytes", "is not UTF-8 text"),
    ],
)
def test_a_file_that_cannot_be_read_is_a_problem_with_its_line(project: Project, name: str, said: str) -> None:
    os.mkfifo(project.folder / "fifo")
    (project.folder / "large").write_text("x" * 70_000)
    (project.folder / "bytes").write_bytes(b"\xff\xfe")
    project.write(f'settings: {{key: "${{file:{name}}}"}}')
    (problem,) = project.said()
    assert re.search(said, problem)
    assert "pegboard.yaml:1:17" in problem


def test_only_files_that_the_main_file_allows_are_read(project: Project) -> None:
    (project.folder / "token").write_text("t0ken-of-a-file")
    project.write('env: ["file:secrets/*"]\nsettings: {key: "${file:token}"}')
    (problem,) = project.said()
    assert "the file 'token' is not under `env:`" in problem
    project.write('env: ["file:tok*"]\nsettings: {key: "${file:token}"}')
    assert project.said() == []


async def test_what_came_from_a_file_is_kept_out_of_what_tools_say(project: Project) -> None:
    (project.folder / "token").write_text("t0ken-of-a-file\n")
    project.write(
        'settings: {key: "${file:token}"}\ntools: [{name: leak, type: internal, handler: "python:mine:leak"}]',
        mine="def leak() -> str:\n    return 'it is t0ken-of-a-file'\n",
    )
    catalog = project.catalog()
    assert "t0ken-of-a-file" not in (await catalog.view(ToolContext()).call("leak")).text


@pytest.mark.parametrize(
    "written",
    [
        "$MAIL_KEY", "{{MAIL_KEY}}", "{{ env.MAIL_KEY }}", "{MAIL_KEY}", "$(MAIL_KEY)", "%MAIL_KEY%", "$env:MAIL_KEY",
        "env:MAIL_KEY", "os.environ/MAIL_KEY",
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "place",
    ["headers: {Authorization: 'Bearer @'}", "headers: {X-Any: '@'}", "url: 'https://ann:@@host.example/x'"],
)
def test_a_variable_in_anothers_spelling_is_refused_where_a_secret_is_expected(
    project: Project, written: str, place: str
) -> None:
    url = "" if "url:" in place else "url: 'https://host.example/x', "
    place = place.replace("@", written, 1)
    project.write(f"tools: [{{name: m, type: webhook, description: x, webhook: {{{url}{place}}}}}]")
    (said,) = project.said()
    assert f"{written!r} is taken literally; a variable is written ${{MAIL_KEY}}" in said


def test_a_variable_in_anothers_spelling_is_warned_of_elsewhere_and_no_text_is_touched(project: Project) -> None:
    project.env = {"HOME": "/home/ann", "to": "x"}
    project.write(
        """\
        tools:
          - {name: m, type: mcp, mcp: {transport: stdio, command: npx, args: ["$HOME/data", "$MORE", "costs $FIVE"]}}
          - name: w
            description: x
            type: webhook
            webhook: {url: "https://host.example/x", headers: {A: "$$KEY", B: "pa$word"}, body: {token: "{{ to }}"}}
            parameters: {to: {type: string, description: "$HOME"}}
        """
    )
    warned = [str(problem).split(": ", 1)[1] for problem in project.load()[1].warnings]
    assert warned == [
        "tools[0].mcp.args[0]: '$HOME' is taken literally; a variable is written ${HOME}; for the plain text write "
        "$$HOME",
        "tools[0].mcp.args[1]: '$MORE' is taken literally; a variable is written ${MORE}; for the plain text write "
        "$$MORE",
    ]


def test_where_the_name_of_a_variable_stands_a_reference_to_it_is_told_its_name(project: Project) -> None:
    project.write("predicates: {ready: {secret: $SENTRY_TOKEN}}")
    (said,) = project.said()
    assert "here write only the name of the variable: SENTRY_TOKEN" in said
