"""What is wrong is said with the place, the mark below it and the next step; what would do nothing is refused."""

import json
import os
import pty
import re
import socket
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import orjson
import pytest

from pegboard import Catalog, DefinitionError, Profile, ToolContext, ToolSpec, http_app, run_http
from pegboard.server.app import addresses
from pegboard.server.identify import Identified
from tests.cli.conftest import Ran, Run
from tests.server.doors import inside

SECRET = "hunter2-is-no-good"


def write(folder: Path, text: str, name: str = "pegboard.yaml") -> None:
    (folder / name).write_text(text, encoding="utf-8")


def marked(ran: Ran) -> list[tuple[str, str]]:
    """Return each line of the file that was shown, with the text from where the mark below it stands."""
    lines = ran.out.splitlines()
    pairs: list[tuple[str, str]] = []
    for line, below in pairwise(lines):
        if re.match(r" *\d+ \| ", line) and re.match(r" +\| +\^", below):
            pairs.append((line, line[below.index("^") :]))
    return pairs


def test_each_problem_shows_its_line_with_a_mark_below_the_place(run: Run, tmp_path: Path) -> None:
    write(
        tmp_path,
        "tools:\n"
        "  - {name: a, type: client, descripton: An A.}\n"
        "  - name: ümläut_日本\n"
        "    type: client\n"
        '    description: "日本語"   \n'
        f"    {'x' * 30}: {'y ' * 200}\n"
        "profiles:\n"
        "\tp: {}\n",
    )
    ran = run("check")
    assert (ran.code, marked(ran)[-1][1][:1]) == (2, "\t".replace("\t", " "))  # YAML's own fault first: a tab
    write(tmp_path, (tmp_path / "pegboard.yaml").read_text().replace("\tp: {}", "  p: {includ: [core], bogus: 1}"))
    ran = run("check")
    assert [text.split(":")[0] for _, text in marked(ran)] == ["descripton", "ümläut_日本", "x" * 30, "includ"]
    assert all(len(line) < 115 for line, _ in marked(ran))
    # Two problems of one line share what is shown of it.
    assert ran.out.count("p: {includ: [core], bogus: 1}") == 1
    assert ran.out.splitlines()[-1].count("^") == 2


def test_a_misspelled_key_is_one_problem_and_lists_few_words(run: Run, tmp_path: Path) -> None:
    write(
        tmp_path,
        "tools:\n  - {nam: a, type: client, description: A}\n  - {name: b, type: mcp, mcp: {}, zebra: 1, comand: [x]}\n"
        "  - {name: c, typ: client, description: c}\n"
        "  - {name: d, type: internal, handlr: 'python:x:y'}\n"
        "predicates: {p: {settin: web}}\n" + "k" * 900 + ": 1\n",
    )
    problems = orjson.loads(run("check", "--json").out)["problems"]
    assert [(item["where"], "Did you mean" in item["message"]) for item in problems] == [
        ("pegboard.yaml:2:6", True),
        ("pegboard.yaml:3:31", False),
        ("pegboard.yaml:3:35", False),
        ("pegboard.yaml:3:45", True),
        ("pegboard.yaml:4:15", True),
        ("pegboard.yaml:5:31", True),
        ("pegboard.yaml:6:18", True),
        ("pegboard.yaml:7:1", False),
    ]
    assert all(len(item["message"].split()) < 44 for item in problems)
    *nested, top = problems
    assert all(len(item["message"]) < 280 for item in nested)
    # Here all keys of a config are named.
    assert len(top["message"]) < 420


@pytest.mark.parametrize(
    "line",
    [
        f"{{name: a, type: webhook, descripton: x, url: 'https://me:{SECRET}@example.com/'}}",
        f"{{name: a, type: webhook, descripton: x, url: 'https://me:{SECRET}/x@example.com/'}}",
        f"{{name: a, type: webhook, descripton: x, url: 'https://me:p@ss/{SECRET}@example.com/'}}",
        f'{{name: a, type: webhook, descripton: x, url: "https://me:p\'{SECRET}/x@example.com/"}}',
        f"{{name: a, type: webhook, descripton: x, url: 'https://example.com/?api_key={SECRET}&x=1'}}",
        f"{{name: a, type: webhook, headers: {{Authorization: Bearer {SECRET}}}, wat: 1}}",
        f"{{name: a, type: builtin, confg: {{tokn: {SECRET}}}}}",
        f"{{name: a, type: builtin, api_kee: {SECRET}}}",
        f'{{name: a, type: mcp, command: [x, "--password", "{SECRET}"], wat: 1}}',
        f"{{name: a, type: builtin, config: {{password:\n      {SECRET}\n    }}, wat: 1}}",
        f"\n    name: a\n    type: builtin\n    config:\n      secret_key: |\n        {SECRET}\n       {SECRET}: [\n",
        "{name: a, type: builtin, anything: Zm9vYmFyMTIzNDU2Nzg5MGFiY2RlZg==}",
        "{name: a, type: client, description: '${FROM_ENV}', wat: hunter2-of-the-environment}",
    ],
)
def test_no_secret_of_a_config_is_shown_with_its_line(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.setenv("FROM_ENV", "hunter2-of-the-environment")
    write(tmp_path, f"tools:\n  - {line}\n")
    for words in (("check",), ("list",)):
        ran = run(*words)
        assert ran.code == 2
        assert SECRET not in ran.out + ran.err
        assert "hunter2-of" not in ran.out + ran.err
        assert "Zm9v" not in ran.out + ran.err


def test_of_a_file_that_is_no_config_no_line_is_shown(run: Run, tmp_path: Path) -> None:
    assert run("init", "new").code == 0
    for text in ((tmp_path / "new/my_tools.py").read_text(), "def name(tool: str):\n\tpass  # groups: [x\n"):
        write(tmp_path, text, "tools.py")
        ran = run("check", "tools.py")
        assert ran.code == 2
        assert " | " not in ran.out
    for text in ("root:x:0:0\n\tdaemon: [\n", "-----BEGIN KEY-----\nMIIE: [\n", "- a\n- b: [\n"):
        write(tmp_path, text, "other.yaml")
        ran = run("check", "other.yaml")
        assert ran.code == 2
        assert not [word for word in text.split() if len(word) > 2 and word in ran.out]


def test_problems_are_coloured_on_a_terminal_alone(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "tols: []\n")
    assert "\x1b" not in run("check").out + run("list").err
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[31m" in run("check").out
    assert "\x1b[31m" in run("list").err
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in run("check").out
    monkeypatch.delenv("FORCE_COLOR")
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "xterm")
    master, slave = pty.openpty()
    with os.fdopen(slave, "w", encoding="utf-8") as screen, monkeypatch.context() as patch:
        patch.setattr("sys.stderr", screen)
        assert run("list").code == 2
    assert b"\x1b[31m" in os.read(master, 65536)
    os.close(master)


def test_check_takes_the_file_as_its_word(run: Run, tmp_path: Path) -> None:
    write(tmp_path, "tools: []\n", "mine.yaml")
    assert run("check", "mine.yaml").out.startswith("OK: ")
    assert run("check", "mine.yaml", "--config", "mine.yaml").code == 0
    assert "Two files are named" in run("check", "mine.yaml", "--config", "other.yaml").err
    assert "'none.yaml' does not exist" in run("check", "none.yaml").err
    assert run("list", "mine.yaml").err == (
        "pegboard: Unexpected argument 'mine.yaml'; name the config with --config mine.yaml. "
        "See `pegboard list --help`.\n"
    )


def test_help_is_a_command_too(run: Run) -> None:
    assert run("help") == run("--help")
    assert run("help", "lock", "accept") == run("lock", "accept", "--help")
    assert run("help", "lsit").code == 2


def test_help_does_without_the_library() -> None:
    code = (
        "import sys; from pegboard.cli import main\n"
        "main(['--help']); main(['help'])\n"
        "assert not sys.modules.keys() & {'pegboard.catalog', 'pegboard.library', 'pydantic', 'yaml'}\n"
        "import pegboard; assert pegboard.Catalog and 'pegboard.catalog' in sys.modules"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]


def test_a_client_on_stdio_waits_for_nothing_that_only_http_and_rare_requests_need(tmp_path: Path) -> None:
    write(tmp_path, "tools: [{name: shout, type: internal, handler: 'python:mine:shout'}]\n")
    (tmp_path / "mine.py").write_text("def shout(text: str) -> str:\n    return text.upper()\n")
    code = (
        "import sys; from pegboard.cli import main\n"
        "main(['serve', '--stdio'])\n"
        "print(sorted(sys.modules.keys() & {'mcp', 'mcp_types', 'starlette', 'uvicorn'}), file=sys.stderr)"
    )
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    messages = [
        {"id": 1, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/list"},
        {"id": 3, "method": "tools/call", "params": {"name": "shout", "arguments": {"text": "hey"}}},
    ]
    given = "".join(json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in messages)
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, input=given, capture_output=True, text=True, timeout=60, check=True
    )
    assert '"HEY"' in ran.stdout
    assert ran.stderr.splitlines()[-1] == "[]"


@pytest.mark.parametrize("command", ["list", "check", "serve", "keys add", "lock diff", "why"])
def test_an_unknown_option_points_to_the_help_of_its_own_command(run: Run, command: str) -> None:
    ran = run(*command.split(), "--frobnicate")
    assert ran.code == 2
    assert f"See `pegboard {command} --help`." in ran.err


@pytest.mark.parametrize(
    "words", [("--port", "0"), ("--host", "127.0.0.1"), ("--allow-host", "a.example"), ("--reload",)]
)
def test_an_option_of_http_is_refused_with_stdio(run: Run, tmp_path: Path, words: tuple[str, ...]) -> None:
    write(tmp_path, "tools: []\n")
    ran = run("serve", "--stdio", *words)
    assert ran.code == 2
    assert f"{words[0]} is for HTTP" in ran.err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "mcpServers: {m: {command: npx}}\n",
            "unknown key 'mcpServers'. This is the form of MCP clients: `pegboard import",
        ),
        (
            "tools: [{name: web_search, type: builtin, provider: tavily}]\n",
            "Settings of a built-in are under `config:`;",
        ),
    ],
)
def test_a_key_that_belongs_elsewhere_is_told_where(run: Run, tmp_path: Path, text: str, words: str) -> None:
    write(tmp_path, text)
    ran = run("check")
    assert (ran.code, words in ran.out) == (2, True), ran.out


def test_a_builtin_that_stands_twice_is_told_of_as(run: Run, tmp_path: Path) -> None:
    two = "  - {name: http_request, type: builtin}\n" * 2
    write(tmp_path, f"tools:\n{two}")
    ran = run("check")
    assert "Give one of them another name: `as: my_http_request`" in ran.out
    write(tmp_path, f"tools:\n{two}".replace("builtin}\n", "builtin, as: my_http_request}\n", 1))
    assert run("check").code == 0


OLD = "  - {name: old, type: client, description: An old one.}\n"
NEW = "  - {name: new, type: client, description: A new one., renamed_from: [gone, OLD]}\n"


@pytest.mark.parametrize(
    ("tools", "place"), [(OLD + NEW, "pegboard.yaml:3:70: tools[1].renamed_from"), (NEW + OLD, "pegboard.yaml:3:5: ")]
)
def test_a_former_name_that_a_tool_still_has_is_refused(run: Run, tmp_path: Path, tools: str, place: str) -> None:
    write(tmp_path, f"tools:\n{tools}")
    ran = run("check")
    assert ran.code == 2
    assert ran.out.startswith(place)
    assert "renamed_from='OLD' is a name of 'main.old'" in ran.out
    assert "remove it here, or rename that tool" in ran.out


def test_a_former_name_is_free_again_when_its_tool_is_gone() -> None:
    catalog = Catalog()

    def declare(name: str, *, replace: bool = False, **options: object) -> None:
        catalog.register(ToolSpec(name=name, **options), lambda ctx, args: name, replace=replace)  # pyright: ignore[reportArgumentType] - options of any type

    declare("new", renamed_from=("old", "older"))
    with pytest.raises(DefinitionError, match=r"renamed_from='old' is a name of 'main\.old'"):
        declare("old")
    with pytest.raises(DefinitionError, match=r"renamed_from='older' is a name of 'admin\.older'"):
        declare("older", namespace="admin")
    declare("new", replace=True, renamed_from=("older",))
    declare("old")
    catalog.unregister("new")
    declare("older")
    assert catalog.view(ToolContext()).names() == ["old", "older"]


async def test_a_server_says_at_its_root_what_is_here_to_those_who_may_know() -> None:
    catalog = Catalog("acme")
    catalog.profile(Profile(name="chat"))
    catalog.profile(Profile(name="ops"))
    assert addresses("http://127.0.0.1:1/mcp", catalog, profile="ops") == (
        "Serving MCP on http://127.0.0.1:1/mcp\n"
        "  http://127.0.0.1:1/mcp/chat  profile 'chat'\n"
        "  http://127.0.0.1:1/mcp/ops   profile 'ops', also at /mcp\n"
    )
    async with inside(http_app(catalog)) as client:
        page = await client.get("/")
        assert page.status_code == 200
        for word in ("acme", "/mcp ", "/mcp/chat", "/mcp/ops", "/v1/tools", "/openapi.json", "/healthz"):
            assert word in page.text
    known = {"ann": Identified(user="ann", profiles=("chat",))}
    async with inside(
        http_app(catalog, identify=lambda request: known.get(request.headers.get("x-user", "")))
    ) as client:
        mine = (await client.get("/", headers={"x-user": "ann"})).text
        assert "/mcp/chat" in mine
        assert "ops" not in mine
        strangers = (await client.get("/")).text
        assert "credential" in strangers
        assert not any(word in strangers for word in ("acme", "chat", "ops"))


async def test_a_host_that_is_not_ours_is_named_with_the_option_that_lets_it_in() -> None:
    async with inside(http_app(Catalog())) as client:
        for path in ("/mcp", "/v1/tools", "/metrics", "/"):
            answer = await client.get(path, headers={"host": "tools.example.com:8420"})
            assert answer.status_code == 421
            assert "'tools.example.com'" in answer.text
            assert "--allow-host tools.example.com" in answer.text
        odd = await client.get("/v1/tools", headers={"host": "<script>" + "x" * 300})
        assert odd.status_code == 421
        assert "script" not in odd.text
        page = await client.get("/v1/tools", headers={"origin": "https://evil.example"})
        assert page.status_code == 403
        assert "'evil.example'" in page.text


def test_run_http_takes_identify_in_place_of_a_config_that_names_callers() -> None:
    options = {"host": "0.0.0.0", "allowed_hosts": ["tools.example.com"]}
    with pytest.raises(DefinitionError, match="other machines could call every tool"):
        run_http(Catalog(), **options)
    with socket.create_server(("0.0.0.0", 0)) as taken, pytest.raises(OSError, match="in use"):
        run_http(Catalog(), port=taken.getsockname()[1], identify=lambda request: None, **options)
