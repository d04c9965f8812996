"""`pegboard import`: what is carried over, what is named instead, and that no secret comes along in clear."""

import json
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pegboard.cli.declarations.command_words import WAY_OUT
from pegboard.config import load_catalog
from tests.cli.conftest import Run


@pytest.fixture(autouse=True)
def _no_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in WAY_OUT:
        monkeypatch.delenv(name, raising=False)


CANARY = "ghp_c4N4ryc4N4ryc4N4ryc4N4ry0042"


def imported(run: Run, *words: str) -> Any:
    ran = run("import", *words, "--print", "--json")
    assert CANARY not in ran.out + ran.err
    told = json.loads(ran.out)
    assert ran.code == (1 if told["left_out"] else 0), ran.err
    return told


def written(path: Path, value: Any) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return str(path)


# Each client's own way to say the same: a program with a token, and an address with one.
PROGRAM = {"command": "npx", "args": ["-y", "@acme/files", "--root", "/srv"], "env": {"ACME_TOKEN": CANARY}}
ADDRESS = {"url": "https://mcp.acme.example/mcp", "headers": {"Authorization": f"Bearer {CANARY}"}}
CLIENT_FILES = {
    "claude_desktop_config.json": {"mcpServers": {"files": PROGRAM, "far": ADDRESS}},
    ".cursor/mcp.json": {"mcpServers": {"files": PROGRAM, "far": {**ADDRESS, "type": "streamableHttp"}}},
    ".vscode/mcp.json": {"servers": {"files": {"type": "stdio", **PROGRAM}, "far": {"type": "http", **ADDRESS}}},
    "settings.json": {"mcp": {"servers": {"files": PROGRAM, "far": ADDRESS}}},
    "zed.json": {"context_servers": {"files": {"command": {"path": "npx", **{k: PROGRAM[k] for k in ("args", "env")}}},
                                     "far": ADDRESS}},
    "gemini.json": {"mcpServers": {"files": PROGRAM,
                                   "far": {"httpUrl": ADDRESS["url"], "headers": ADDRESS["headers"]}}},
    "windsurf.json": {"mcpServers": {"files": PROGRAM,
                                     "far": {"serverUrl": ADDRESS["url"], "headers": ADDRESS["headers"]}}},
    "config.toml": f'[mcp_servers.files]\ncommand = "npx"\nargs = ["-y", "@acme/files", "--root", "/srv"]\n'
                   f'env = {{ACME_TOKEN = "{CANARY}"}}\n[mcp_servers.far]\nurl = "{ADDRESS["url"]}"\n'
                   f'http_headers = {{Authorization = "Bearer {CANARY}"}}\n',
}  # fmt: skip


@pytest.mark.parametrize("name", CLIENT_FILES)
def test_the_servers_of_a_client_are_entries_whose_secrets_are_variables(run: Run, tmp_path: Path, name: str) -> None:
    told = imported(run, written(tmp_path / name, CLIENT_FILES[name]))
    assert [tool["mcp"] for tool in told["tools"]] == [
        {"transport": "stdio", "command": "npx", "args": ["-y", "@acme/files", "--root", "/srv"],
         "env": {"ACME_TOKEN": "${ACME_TOKEN}"}},
        {"transport": "http", "url": ADDRESS["url"], "headers": {"Authorization": "Bearer ${FAR_TOKEN}"}},
    ]  # fmt: skip
    assert told["exports"] == ["ACME_TOKEN", "FAR_TOKEN"]
    assert told["left_out"] == []


@pytest.mark.parametrize(
    ("server", "mcp"),
    [
        ({"command": "npx -y @acme/files 'a b'"}, {"command": "npx", "args": ["-y", "@acme/files", "a b"]}),
        ({"command": "npx", "args": "-y C:\\files"}, {"command": "npx", "args": ["-y", "C:\\files"]}),
        ({"command": "cat 'a"}, None),
        ({"type": "local", "command": ["npx", "files"], "environment": {"ROOT": "{env:ROOT}"}},
         {"command": "npx", "args": ["files"], "env": {"ROOT": "${ROOT}"}}),
        ({"command": "npx", "args": ["mcp-remote", "--header", "Authorization:${AUTH}"],
          "env": {"AUTH": f"Bearer {CANARY}"}},
         {"command": "npx", "args": ["mcp-remote", "--header", "Authorization:${FILES_AUTH}"],
          "env": {"AUTH": "${FILES_AUTH}"}}),
        ({"transportType": "sse", "url": "https://a.example/events", "headers": {"X_PROJECT_PATH": "/srv"}},
         {"transport": "sse", "url": "https://a.example/events", "headers": {"X_PROJECT_PATH": "/srv"}}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("section", ["mcpServers", "mcp", ""])
def test_forms_that_clients_accept_are_read_as_they_mean_them(
    run: Run, tmp_path: Path, section: str, server: Any, mcp: Any
) -> None:
    path = written(tmp_path / "mcp.json", {section: {"files": server}} if section else {"files": server})
    if mcp is None:
        assert run("import", path, "--print").code == 2
        return
    told = imported(run, path)
    assert told["tools"][0]["mcp"] == {"transport": "stdio", **mcp}
    assert told["left_out"] == []


def test_a_reference_in_an_argument_takes_no_name_of_a_variable(run: Run, tmp_path: Path) -> None:
    server = {
        "command": "npx", "args": ["mcp-remote", "--token", "${OTHER}", "--token", CANARY],
    }  # fmt: skip
    told = imported(run, written(tmp_path / "mcp.json", {"mcpServers": {"files": server}}))
    assert told["tools"][0]["mcp"]["args"][1:] == ["--token", "${OTHER}", "--token", "${FILES_TOKEN}"]


def test_settings_beside_the_servers_do_not_make_an_import_incomplete(run: Run, tmp_path: Path) -> None:
    told = imported(run, written(tmp_path / "mcp.json", {"mcpServers": {"files": PROGRAM}, "preferences": {"a": 1}}))
    assert told["left_out"] == []
    assert told["notes"] == ["Skipped 'preferences': these are settings of the client, not servers."]
    projects = {"/srv": {"mcpServers": {"far": ADDRESS}}}
    told = imported(run, written(tmp_path / "mcp.json", {"mcpServers": {"files": PROGRAM}, "projects": projects}))
    assert told["left_out"] == [
        "projects: servers of single projects; copy those that you need into a file, and import that file"
    ]


def test_a_program_that_fetches_its_package_gets_the_way_out_that_its_client_had(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    told = imported(run, written(tmp_path / "mcp.json", {"mcpServers": {"a": PROGRAM, "b": {"command": "true"}}}))
    assert [tool["mcp"].get("env") for tool in told["tools"]] == [
        {"ACME_TOKEN": "${ACME_TOKEN}", "HTTPS_PROXY": "${HTTPS_PROXY:-}"}, None,
    ]  # fmt: skip


def test_what_is_not_carried_over_is_named_one_by_one(run: Run, tmp_path: Path) -> None:
    servers = {
        "a": {"command": "x", "envFile": ".env", "autoApprove": ["y"], "timeout": 5, "novelty": 1},
        "b c": {"url": "https://b.example/sse", "oauth": {}, "disabledTools": ["drop"]},
        "off": {"command": "x", "disabled": True},
        "none": {}, "number": 5, "ftp": {"url": "ftp://x"},
        "odd": {"command": ["x", "-v"], "env": {"A-B": "1", "C": None}},
    }  # fmt: skip
    told = imported(run, written(tmp_path / "mcp.json", {"mcpServers": servers, "theme": "dark"}))
    assert [tool["name"] for tool in told["tools"]] == ["a", "b_c", "odd"]
    assert told["tools"][1]["mcp"] == {
        "transport": "sse", "url": "https://b.example/sse", "tools": {"skip": ["drop"]},
    }  # fmt: skip
    heads = [text.partition(": ")[0] for text in told["left_out"]]
    assert heads == [
        "mcpServers.a.envFile", "mcpServers.a.autoApprove", "mcpServers.a.timeout", "mcpServers.a.novelty",
        "mcpServers.b c.oauth", "mcpServers.off", "mcpServers.none", "mcpServers.number",
        "mcpServers.ftp", "mcpServers.odd.env.A-B",
    ]  # fmt: skip


def test_references_of_an_editor_become_ours(run: Run, tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text("")
    server = {
        "command": "${env:PY}", "args": ["${workspaceFolder}/server.py", "--key", "${input:api-key}", "${TOKEN:-none}"],
        "env": {"MODE": "${MODE}", "PRICE": "costs $5 ${config:x}"}, "cwd": "${workspaceFolder}",
    }  # fmt: skip
    config = {"servers": {"s": server}, "inputs": [{"id": "api-key", "type": "promptString"}]}
    told = imported(run, written(tmp_path / ".vscode" / "mcp.json", config))
    assert told["tools"][0]["mcp"] == {
        "transport": "stdio", "command": "${PY}", "cwd": ".",
        "args": [f"{tmp_path}/server.py", "--key", "${API_KEY}", "${TOKEN:-none}"],
        "env": {"MODE": "${MODE}", "PRICE": "${S_PRICE}"},
    }  # fmt: skip
    assert "known to the editor alone" in told["left_out"][0]


@pytest.mark.parametrize(
    "server",
    [
        {"command": "x", "args": ["--api-key", CANARY]}, {"command": "x", "args": [f"--api-key={CANARY}"]},
        {"command": "x", "args": [f"postgres://u:{CANARY}@h/d"]}, {"command": "x", "args": ["-e", f"TOKEN={CANARY}"]},
        {"command": "x", "args": ["--header", f"Authorization: Bearer {CANARY}"]},
        {"command": "x", "args": [f"https://h.example/?a=${{A}}&key={CANARY}"]}, {"command": f"/x/{CANARY}"},
        {"url": f"https://h.example/{CANARY}/mcp"}, {"url": f"https://h.example/mcp?api_key={CANARY}"},
        {"command": "x", "env": {"HARMLESS": CANARY}}, {"url": "https://h.example", "headers": {"X": CANARY}},
        {"command": "x", "env": {"A": f"${{B}} {CANARY}"}},
    ],
)  # fmt: skip
def test_a_secret_in_clear_is_printed_and_written_nowhere(run: Run, tmp_path: Path, server: Any) -> None:
    path = written(tmp_path / "mcp.json", {"mcpServers": {"s": server}})
    told = imported(run, path)
    assert CANARY not in json.dumps(told)
    assert len(told["exports"]) >= 1
    ran = run("import", path, "--yes")
    assert CANARY not in ran.out + ran.err + (tmp_path / "pegboard.yaml").read_text()


def test_a_catalog_of_docker_starts_containers_and_reaches_what_is_far(run: Run, tmp_path: Path) -> None:
    catalog = """\
version: 3
registry:
  github:
    type: server
    image: mcp/github@sha256:abc
    secrets: [{name: github.token, env: GITHUB_TOKEN}]
    env: [{name: HOST, value: "{{github.host}}"}, {name: LEVEL, value: info}]
    command: [stdio, "--repo={{github.repo}}"]
    volumes: ["cache:/cache", "{{github.paths|volume|into}}"]
    allowHosts: ["api.github.com:443"]
    disableNetwork: true
  context7: {type: remote, remote: {transport_type: sse, url: "https://c7.example/sse", headers: {KEY: "${C7_KEY}"}}}
  docker: {type: poci, tools: []}
"""
    told = imported(run, written(tmp_path / "catalog.yaml", catalog))
    github, far = (tool["mcp"] for tool in told["tools"])
    assert github == {
        "transport": "stdio", "command": "docker",
        "args": ["run", "-i", "--rm", "--init", "--network", "none", "-e", "GITHUB_TOKEN", "-e", "HOST", "-e", "LEVEL",
                 "-v", "cache:/cache", "mcp/github@sha256:abc", "stdio", "--repo=${GITHUB_REPO}"],
        "env": {"GITHUB_TOKEN": "${GITHUB_TOKEN}", "HOST": "${GITHUB_HOST}", "LEVEL": "info"},
    }  # fmt: skip
    assert far == {"transport": "sse", "url": "https://c7.example/sse", "headers": {"KEY": "${C7_KEY}"}}
    assert [text.partition(":")[0] for text in told["left_out"]] == [
        "registry.github.volumes", "registry.github.allowHosts", "registry.docker",
    ]  # fmt: skip


def test_a_fastmcp_server_is_run_by_fastmcp(run: Run, tmp_path: Path) -> None:
    (tmp_path / "notes_server.py").write_text("")
    told = imported(run, "notes_server.py:app")
    assert told["tools"][0]["mcp"] == {
        "transport": "stdio", "command": "fastmcp", "args": ["run", "notes_server.py:app", "--transport", "stdio"],
        "cwd": ".",
    }  # fmt: skip
    project = {"source": {"path": "notes_server.py"}, "deployment": {"transport": "http", "port": 80}}
    told = imported(run, written(tmp_path / "fastmcp.json", project))
    assert told["tools"][0]["name"] == "notes"
    assert [text.partition(":")[0] for text in told["left_out"]] == ["deployment.transport", "deployment.port"]


def test_tools_of_langchain_are_called_through_the_guards(run: Run, tmp_path: Path) -> None:
    (tmp_path / "chain_tools.py").write_text(
        "from langchain_core.tools import tool\n\n@tool\ndef double(n: int) -> int:\n"
        '    """Double a number."""\n    return 2 * n\n\nEVERY = [double]\n'
    )
    ran = run("import", "chain_tools:EVERY", "--yes")
    assert ran.code == 0, ran.err
    assert run("call", "double", "n=4").out == "8\n"
    assert json.loads(run("call", "double", "n:=[4]", "--json").out)["error"]["kind"] == "invalid_arguments"
    assert run("import", "chain_tools:missing", "--yes").code == 2
    assert run("import", "chain_tools:EVERY", "--yes").code == 2
    sys.modules.pop("chain_tools", None)


def test_a_folder_of_astromesh_keeps_what_can_be_honoured(run: Run, tmp_path: Path) -> None:
    agent = """\
apiVersion: astromesh/v1
kind: Agent
metadata: {name: helper}
spec:
  model:
    primary: {provider: openai_compat, model: m, endpoint: "http://127.0.0.1:1", api_key: "KEY"}
    routing: {strategy: cost_optimized}
  prompts:
    system: |
      You help: always.

      "Quoted" and 100% plain.
  memory: {semantic: {backend: x}}
""".replace("KEY", CANARY)
    written(tmp_path / "old" / "helper.agent.yaml", agent)
    written(tmp_path / "old" / "rag.yaml", "apiVersion: astromesh/v1\nkind: RagPipeline\n")
    ran = run("import", "old", "--yes", "--json")
    assert ran.code == 1, ran.err
    told = json.loads(ran.out)
    assert told["files"] == ["agents/helper.agent.yaml"]
    heads = [text.partition(": ")[2].partition(": ")[0] for text in told["left_out"]]
    assert heads[1:] == ["spec.model.routing", "spec.memory.semantic"]
    text = (tmp_path / "agents" / "helper.agent.yaml").read_text()
    assert CANARY not in text + ran.out + ran.err
    assert '      "Quoted" and 100% plain.\n' in text


@pytest.mark.parametrize(
    ("word", "said"),
    [("missing.json", "There is no file"), ("curser", "Did you mean 'cursor'"), ("api.json", "pegboard add"),
     ("odd.json", "Known are"), ("empty", "no agent of Astromesh"), ("no.such.module:tools", "cannot be imported"),
     ("gone.py:x", "There is no file"), ("none.json", "Nothing of")],
)  # fmt: skip
def test_what_cannot_be_imported_is_refused_with_what_to_do(run: Run, tmp_path: Path, word: str, said: str) -> None:
    (tmp_path / "empty").mkdir()
    for name, value in {"api": {"openapi": "3.1.0"}, "odd": {"a": 1}, "none": {"mcpServers": {"a": {}}}}.items():
        written(tmp_path / f"{name}.json", value)
    ran = run("import", word, "--yes")
    assert (ran.code, said in ran.err) == (2, True), ran.err
    assert not (tmp_path / "pegboard.yaml").exists()


HOSTILE = "x: !!python/object/apply:os.system [id]\ntools: []\n# ${HOME} `id` $(id) \u202e"


def test_names_and_words_of_any_kind_stay_names_and_words(run: Run, tmp_path: Path) -> None:
    servers = {
        HOSTILE: {
            "command": "x", "args": [HOSTILE, "- a: b", "'", '"', "\\", "\n", "{}", "*a", "&a", "!!str", "%", "@", "`"],
        },
        "naïve ☕ сервер": {"command": ";", "args": ["rm -rf /"], "env": {"A": HOSTILE}},
        **{name: {"command": "x"} for name in ("a" * 500, "", "A", "a", "__proto__")},
    }  # fmt: skip
    ran = run("import", written(tmp_path / "mcp.json", {"mcpServers": servers}), "--yes", "--json")
    assert ran.code == 0, ran.err
    told = json.loads(ran.out)
    env = dict.fromkeys(told["exports"], HOSTILE)
    _, config = load_catalog(tmp_path / "pegboard.yaml", env=env)
    read = [tool.value for tool in config.tools]
    assert len({tool.name.casefold() for tool in read}) == len(servers)
    assert list(read[0].mcp.args)[1:] == servers[HOSTILE]["args"][1:]
    assert read[1].mcp.command == ";"


@pytest.mark.parametrize(
    "text",
    ["a: &a [*a]\nmcpServers: *a\n", "mcpServers: " + "[" * 5000,
     '{"mcpServers": {"a": ' + '{"b":' * 3000 + "1" + "}" * 3002,
     "a: &a [x,x,x,x,x,x,x,x,x]\n"
     + "".join(f"{c}: &{c} [{','.join(['*' + p] * 9)}]\n" for p, c in pairwise("abcdefghi")),
     "\x00\x01", "mcpServers: !!python/object/apply:os.system ['touch hacked']\n"],
    ids=["cyclic", "deep list", "deep object", "bomb", "binary", "tag"],
)  # fmt: skip
def test_a_hostile_file_ends_in_one_line(run: Run, tmp_path: Path, text: str) -> None:
    for name in ("mcp.json", "mcp.yaml", "mcp.toml"):
        ran = run("import", written(tmp_path / name, text), "--yes")
        assert ran.code == 2, (name, ran)
        assert "bug" not in ran.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mcp.json", "mcp.toml", "mcp.yaml"]
