"""The security cases of component config, as far as what they attack exists."""

import json
import logging
import os
import traceback
from base64 import b64encode
from pathlib import Path
from urllib.parse import quote

import pytest

from pegboard import CallError, DefinitionError
from pegboard.config import context_for, load, load_catalog
from tests.config.project import Project

CANARY = "canary/Zx9 secret+value"
MINE = """
from pegboard import ToolContext, default_catalog

SEEN = []

@default_catalog.tool
def leak(ctx: ToolContext, how: str) -> str:
    secret = ctx.secrets["EMAIL_API_KEY"]
    SEEN.append(secret.reveal())
    if how == "raise":
        raise RuntimeError(f"dsn=postgres://u:{secret.reveal()}@h/db")
    if how == "setting":
        return str(ctx.settings["header"])
    return f"{secret} {secret.reveal()}"

def echo(text: str) -> str:
    return text
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path, {"EMAIL_API_KEY": CANARY})


def assert_clean(text: str) -> None:
    spellings = [
        CANARY,
        quote(CANARY),
        quote(CANARY, safe=""),
        json.dumps(CANARY)[1:-1],
        b64encode(CANARY.encode()).decode(),
    ]
    spellings += [CANARY[i : i + 8] for i in range(len(CANARY) - 8)]
    assert [spelling for spelling in spellings if spelling in text] == []


async def test_cfg_01_a_secret_from_the_environment_stands_in_nothing_that_goes_out(
    project: Project, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    project.write(
        """\
        python: [mine]
        settings: {header: "Bearer ${EMAIL_API_KEY}"}
        predicates: {key: {secret: EMAIL_API_KEY}}
        tools: [{name: echo, type: internal, handler: "python:mine:echo", available: key}]
        profiles: {chat: {}}
        """,
        mine=MINE,
    )
    catalog, config = project.load()
    ctx = context_for(config)
    view = catalog.view(ctx, profile="chat")
    out = [repr(config), repr(ctx), repr(catalog.snapshot().entries), repr(view.why("echo")), repr(config.secrets)]
    out += [view.export_bytes(target).decode() for target in ("openai", "anthropic", "gemini", "mcp")]
    events: list[object] = []
    catalog.observe(Recorder(events))
    results = [await view.call("leak", {"how": how}) for how in ("return", "raise", "setting")]
    results.append(await view.call("echo", {"text": f"{CANARY} {b64encode(CANARY.encode()).decode()}"}))
    out += [repr(results[:3]), results[3].text, *(str(event) for event in events), caplog.text]
    for text in out[:-1]:
        if "on_tool_call" not in text:  # the caller's own words, which a caller who knows the secret may repeat
            assert_clean(text)
    # The tool itself had the real value.
    handler_module = __import__("sys").modules["mine"]
    assert handler_module.SEEN == [CANARY] * 3


class Recorder:
    """Keeps every event."""

    def __init__(self, events: list[object]) -> None:
        self._events = events

    def on_tool_call(self, event: object) -> None:
        self._events.append(event)

    def on_tool_result(self, event: object) -> None:
        self._events.append(event)


def test_cfg_01_problems_of_a_config_do_not_show_what_came_from_the_environment(project: Project) -> None:
    project.write(
        """\
        python: [mine]
        name: "${EMAIL_API_KEY}"
        rate_limits: {default: "${EMAIL_API_KEY}"}
        groups: {g: ["${EMAIL_API_KEY}"]}
        profiles: {chat: {include: ["${EMAIL_API_KEY}"], exposure: "${EMAIL_API_KEY}"}}
        tools:
          - {name: "${EMAIL_API_KEY}", type: internal, handler: "${EMAIL_API_KEY}", timeout_seconds: "${EMAIL_API_KEY}"}
          - {name: b, type: internal, handler: "python:mine:echo", consent: "${EMAIL_API_KEY}",
             parameters: {text: {type: "${EMAIL_API_KEY}", required: true}}}
          - {name: c, type: "${EMAIL_API_KEY}"}
        """,
        mine=MINE,
    )
    said = project.said()
    assert len(said) == 11
    assert_clean("\n".join(said))


async def test_cfg_02_a_secret_in_an_exception_reaches_neither_caller_nor_log(
    project: Project, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    project.env = {"DB_PASS": CANARY}
    project.write(
        """\
        settings: {dsn: "postgres://u:${DB_PASS}@h/db"}
        tools:
          - {name: query, type: internal, handler: "python:mine:query"}
          - {name: refuse, type: internal, handler: "python:mine:refuse"}
        """,
        mine="""
        from pegboard import CallError, ToolContext

        def query(ctx: ToolContext) -> str:
            try:
                raise ValueError(f"bad password {ctx.settings['dsn']}")
            except ValueError as error:
                raise RuntimeError(f"dsn={ctx.settings['dsn']}") from error

        def refuse(ctx: ToolContext) -> str:
            raise CallError("tool_error", f"dsn={ctx.settings['dsn']}", hint=ctx.settings["dsn"])
        """,
    )
    view = project.view(user="ann")
    results = [await view.call(name) for name in ("query", "refuse")]
    assert [result.error and result.error.kind for result in results] == ["tool_error", "tool_error"]
    raised: list[str] = []
    for name in ("query", "refuse"):
        with pytest.raises(CallError) as caught:
            await view.call(name, raise_errors=True)
        raised.append("".join(traceback.format_exception(caught.value)))
    assert "[redacted]" in results[1].text
    assert len(results[0].text) < 200
    for text in (repr(results), *raised, caplog.text):
        assert_clean(text)
    # The id that the caller is told leads to the line of the log.
    call_id = results[0].text.partition("(call ")[2].partition(")")[0]
    assert call_id
    assert call_id in caplog.text


@pytest.mark.parametrize("text", ["${AWS_SECRET_ACCESS_KEY}", "$HOME", "${HOME:-x}", "$${HOME}", "$(id)", "`id`"])
async def test_cfg_04_variables_in_arguments_are_delivered_as_they_are(
    project: Project, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", CANARY)
    project.write("python: [mine]\nsettings: {a: '${EMAIL_API_KEY}'}\n", mine=MINE)
    project.write('tools: [{name: echo, type: internal, handler: "python:mine:echo"}]', mine=MINE)
    catalog, config = load_catalog(project.path, env=os.environ)
    assert (await catalog.view(context_for(config)).call("echo", {"text": text})).text == text


@pytest.mark.parametrize(
    "tagged",
    [
        "!!python/object/apply:os.system ['touch {proof}']",
        "!!python/object/apply:subprocess.check_output [[touch, '{proof}']]",
        "!!python/object/new:os.system ['touch {proof}']",
        "!!python/module:antigravity",
        "!!python/name:os.system",
        "!<tag:yaml.org,2002:python/object/apply:os.system> ['touch {proof}']",
        "! [x]\n    b: !!python/object/apply:os.system ['touch {proof}']",
    ],
)
def test_cfg_06_an_object_tag_is_refused_with_its_line_and_nothing_runs(project: Project, tagged: str) -> None:
    proof = project.folder / "proof"
    project.write("files: [tools.yaml]\n")
    project.file("tools.yaml", f"tools:\n  - name: x\n    a: {tagged.format(proof=proof)}\n")
    with pytest.raises(DefinitionError) as caught:
        load(project.path, env={})
    problem = next(problem for problem in caught.value.problems if "the tag" in problem.message)
    assert "'!!python/" in problem.message
    file, line, _ = problem.where.rsplit(":", 2)
    assert (Path(file).name, int(line)) == ("tools.yaml", 4 if "\n" in tagged else 3)
    assert not proof.exists()


def test_cfg_08_a_key_that_stands_twice_is_refused_with_both_lines(project: Project) -> None:
    project.write("tools: []\nname: a\ntools: [x]\n")
    assert project.said() == [
        "pegboard.yaml:3:1: the key 'tools' occurs twice: first at pegboard.yaml:1:1. Remove one, or merge the two"
    ]


def test_cfg_08_a_tool_that_stands_twice_is_refused_with_both_lines(project: Project) -> None:
    project.write(
        """\
        tools:
          - {name: a, type: internal, handler: "python:mine:echo"}
          - {name: a, type: internal, handler: "python:mine:echo"}
        """,
        mine=MINE,
    )
    assert project.said() == [
        "pegboard.yaml:3:12: tools[0].name".replace("[0]", "[1]")
        + ": the tool 'a' is declared twice: first at pegboard.yaml:2:12. Rename one"
    ]
