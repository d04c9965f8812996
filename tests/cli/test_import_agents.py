"""`pegboard import` of Astromesh's agents: what goes in, what becomes a comment, and that the agents run."""

import asyncio
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from pegboard.config import load_catalog
from tests.agents.team import playing
from tests.cli.conftest import Run

KEYS = {"TAVILY_API_KEY": "tavily-key", "EMAIL_API_KEY": "email-key", "OPENAI_API_KEY": "openai-key"}

# One tool of each type that the documentation of Astromesh has.
RESEARCHER = """\
apiVersion: astromesh/v1
kind: Agent
metadata: {name: researcher, version: 1.0, namespace: growth}
spec:
  identity: {display_name: Researcher, description: Finds out about companies}
  model:
    primary: {provider: ollama, model: small, endpoint: "http://localhost:11434", parameters: {temperature: 0.2}}
  prompts: {system: "You find out about companies."}
  orchestration: {pattern: react, max_iterations: 6, timeout_seconds: 60}
  tools:
    - {name: web_search, type: builtin, config: {provider: tavily, api_key: "${TAVILY_API_KEY}"}}
    - {name: http_request, type: builtin, config: {timeout_seconds: 20}}
    - {name: sql_query, type: builtin, config: {connection_string: "sqlite:///data/crm.db", read_only: true}}
    - name: find_news
      type: internal
      description: Find news about a company
      parameters:
        query: {type: string, description: Its name, required: true}
        max_results: {type: integer, description: How many, required: false, default: 5}
      rate_limit: {max_calls: 10, window_seconds: 60}
    - {name: files, type: mcp, description: Files, mcp: {transport: stdio, command: "false", args: ["-y", "/data"]}}
    - {name: crm, type: mcp, mcp: {transport: sse, url: "http://127.0.0.1:9/sse"}}
    - name: send_email
      type: webhook
      description: Send an email
      webhook:
        url: "https://mail.example.com/send"
        method: POST
        headers: {Authorization: "Bearer ${EMAIL_API_KEY}"}
        timeout: 10
      parameters: {to: {type: string, required: true}, body: {type: string, required: true}}
    - {name: handbook, type: rag, description: Search the handbook, rag: {collection: handbook, top_k: 5}}
    - name: qualify-lead
      type: agent
      agent: qualifier
      description: Qualify a lead
      context_transform: '{"company": "{{ data.company }}"}'
  permissions: {allowed_actions: [sql_query, find_news, qualify-lead, handbook], denied_actions: [send_email]}
"""
QUALIFIER = """\
apiVersion: astromesh/v1
kind: Agent
metadata: {name: qualifier, version: 0.1.0}
spec:
  model: {primary: {provider: openai, model: large, api_key_env: OPENAI_API_KEY}}
  prompts: {system: "You qualify {{ company }}."}
"""
STUB = """\
    # Not carried over: handler: nothing runs 'find_news': give `handler: python:module:function`, or register that \
function in a module under `python:`
    # - name: find_news
    #   type: internal
    #   description: Find news about a company
"""


def agent(name: str, spec: str = "") -> str:
    model = "{primary: {provider: ollama, model: small}}"
    return f"apiVersion: astromesh/v1\nkind: Agent\nmetadata: {{name: {name}}}\nspec:\n  model: {model}\n{spec}"


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def imported(run: Run, *words: str) -> tuple[int, Any]:
    ran = run("import", *words, "--yes", "--json")
    assert ran.out, ran.err
    return ran.code, json.loads(ran.out)


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)


def test_agents_go_in_before_their_keys_are_set_and_run_once_they_are(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, {"old/researcher.agent.yaml": RESEARCHER, "old/qualifier.agent.yaml": QUALIFIER})
    code, told = imported(run, "old")
    assert (code, told["files"]) == (1, ["agents/qualifier.agent.yaml", "agents/researcher.agent.yaml"])
    assert told["exports"] == ["OPENAI_API_KEY", "TAVILY_API_KEY", "EMAIL_API_KEY"]
    (left_out,) = told["left_out"]
    assert left_out.startswith("agents/researcher.agent.yaml: spec.tools[3] (find_news): handler: nothing runs")
    file = tmp_path / "agents" / "researcher.agent.yaml"
    text = file.read_text()
    for reference in ('"${TAVILY_API_KEY}"', '"Bearer ${EMAIL_API_KEY}"', '"sqlite:///data/crm.db"'):
        assert reference in text
    assert STUB in text

    ran = run("check")
    assert (ran.code, [name in ran.out + ran.err for name in KEYS]) == (2, [True] * 3)
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    assert run("check").code == 0

    # What the comment says to write is all that is missing.
    (tmp_path / "news_tools.py").write_text(
        "def find_news(query: str, max_results: int = 5) -> str:\n    return f'{query} grows'\n"
    )
    lines = text.splitlines()
    start = next(number for number, line in enumerate(lines) if "# - name: find_news" in line)
    for number in range(start, start + 16):
        lines[number] = lines[number].replace("# ", "", 1)
    lines.insert(start + 2, '      handler: "python:news_tools:find_news"')
    file.write_text("\n".join(lines) + "\n")
    assert run("check").code == 0
    (tmp_path / "data").mkdir()
    with sqlite3.connect(tmp_path / "data" / "crm.db") as database:
        database.execute("CREATE TABLE people (name TEXT)")
        database.execute("INSERT INTO people VALUES ('Ada')")
    asyncio.run(_run_researcher(tmp_path))


async def _run_researcher(folder: Path) -> None:
    catalog, _ = load_catalog(folder / "pegboard.yaml")
    scripts = {
        "small": [
            [("sql_query", {"query": "SELECT name FROM people"}), ("find_news", {"query": "Acme"})],
            [("qualify-lead", {"company": "Acme"})],
            "done",
        ],
        "large": ["a good lead"],
    }
    seen: dict[str, list[Any]] = {}
    catalog.runtime.agents.make_model = playing(scripts, seen=seen)
    result = await catalog.agents.run("researcher", "What about Acme?")
    assert (result.status, result.output) == ("completed", "done")
    told_model = str(seen["small"][-1][0])
    assert [part in told_model for part in ("Ada", "Acme grows", "a good lead")] == [True] * 3
    assert "You qualify Acme." in str(seen["large"])
    await catalog.close(grace_s=0.0)


CONFIG_VALUES = [
    ("connection_string", "sqlite:///data/app.db", True),
    ("connection_string", "sqlite:////srv/app.db", True),
    ("connection_string", "postgresql://db.example.com:5432/app", True),
    ("connection_string", "postgresql://${DB_USER}:${DB_PASSWORD}@db/app", True),
    ("connection_string", "postgresql://app:hunter2@db/app", False),
    ("connection_string", "postgresql://app:hunter2@${DB_HOST}/app", False),
    ("api_key", "${KEY}", True),
    ("api_key", "${KEY:-}", True),
    ("api_key", "${KEY:-tvly-abcdefgh12345678}", False),
    ("api_key", "my-own-key", False),
    ("authorization", "Bearer ${KEY}", True),
    ("authorization", "Basic ${NAME}:${WORD}", True),
    ("authorization", "Bearer abcdefgh12345678", False),
    ("authorization", "Bearer abcdefgh12345678 ${KEY}", False),
    ("webhook_url", "https://${HOST}/hooks/${ID}", True),
    ("note", "costs $5 and $$ more, ${not-a-name}, ${file:/etc/passwd}", True),
]


def test_references_stay_and_secrets_in_clear_become_variables(run: Run, tmp_path: Path) -> None:
    fields = "".join(f"      - {key}: {json.dumps(value)}\n" for key, value, _ in CONFIG_VALUES)
    spec = f"  output_schema:\n    type: object\n    properties: {{}}\n    examples:\n{fields}"
    write(tmp_path, {"old/a.yaml": agent("a", spec)})
    code, told = imported(run, "old")
    assert (code, told["left_out"]) == (0, [])
    env = dict.fromkeys(told["exports"], "concealed")
    names = ("KEY", "DB_USER", "DB_PASSWORD", "DB_HOST", "NAME", "WORD", "HOST", "ID")
    _, config = load_catalog(tmp_path / "pegboard.yaml", env={**env, **{name: f"<{name}>" for name in names}})
    examples = (config.agents[0].file.value.spec.output_schema or {})["examples"]

    def expanded(value: str) -> str:
        for name in names:
            value = value.replace(f"${{{name}}}", f"<{name}>").replace(f"${{{name}:-}}", f"<{name}>")
        return value

    expected = [expanded(value) if is_kept else "concealed" for _, value, is_kept in CONFIG_VALUES]
    assert [next(iter(example.values())) for example in examples] == expected


def test_a_broken_file_or_a_circle_costs_no_other_agent_its_place(run: Run, tmp_path: Path) -> None:
    ask = "  tools:\n    - {{name: ask, type: agent, agent: {}}}\n".format
    broken = {"broken.yaml": "metadata: {name: x\nspec: [", "denied.yaml": agent("d", "  permissions: {typo: [x]}\n")}
    files = {
        "a.yaml": agent("a", ask("b")), "b.yaml": agent("b", ask("a")), "c.yml": agent("c", ask("d")),
        "compose.yaml": "services: {}\n", "rag.yaml": "apiVersion: astromesh/v1\nkind: RagPipeline\n", **broken,
    }  # fmt: skip
    write(tmp_path, {f"old/{name}": text for name, text in files.items()})
    code, told = imported(run, "old")
    assert (code, told["files"]) == (1, [f"agents/{name}.agent.yaml" for name in "abc"])
    assert [text.split(": ")[:2] for text in told["left_out"]] == [
        ["broken.yaml", "'old/broken.yaml' cannot be read"],
        ["rag.yaml", "'astromesh/v1 RagPipeline' has no counterpart here; `astromesh/v1` Agent has"],
        ["agents/a.agent.yaml", "spec.tools[0] (ask)"],
        ["agents/c.agent.yaml", "spec.tools[0] (ask)"],
        ["agents/d.agent.yaml", "spec.permissions.typo"],
    ]
    assert "agents run each other in a circle: a → b → a" in told["left_out"][2]
    assert told["notes"] == ["compose.yaml was skipped: it is not a file of Astromesh."]
    assert run("check").code == 0


def test_keys_that_cannot_be_honoured_stay_in_the_file_as_comments(run: Run, tmp_path: Path) -> None:
    spec = """\
  orchestration: {pattern: supervisor, max_iterations: 3}
  memory: {conversational: {backend: redis, strategy: sliding_window, max_turns: 5}, semantic: {backend: chroma}}
  guardrails: {input: [{type: pii_detection}]}
  tools:
    - name: hook
      type: webhook
      description: Post
      webhook: {url: "${BASE_URL}/x", timeout: "${SECONDS_LEFT}", retry_on: [500]}
"""
    write(tmp_path, {"old/a.yaml": agent("a", spec)})
    code, told = imported(run, "old/a.yaml")
    assert code == 1
    assert [text.split(": ")[1] for text in told["left_out"]] == [
        "spec.orchestration.pattern", "spec.memory.conversational.backend", "spec.memory.semantic",
        "spec.guardrails.input[0]", "spec.tools[0].webhook.retry_on",
    ]  # fmt: skip
    text = (tmp_path / "agents" / "a.agent.yaml").read_text()
    assert "    # pattern: supervisor\n    max_iterations: 3\n" in text
    reason = "  # Not carried over: expected text, not a mapping\n"
    assert f"  # guardrails:\n  #   input:\n{reason}  #     - type: pii_detection\n" in text
    assert told["exports"] == ["BASE_URL", "SECONDS_LEFT"]


def test_names_that_are_not_legal_here_are_changed_wherever_they_are_said(run: Run, tmp_path: Path) -> None:
    tools = """\
  tools:
    - {name: "pergunta já", type: agent, agent: "Vendas & Ação"}
  permissions: {allowed_actions: ["pergunta já"]}
"""
    write(tmp_path, {"old/one.yaml": agent("One"), "old/two.yaml": agent("'Vendas & Ação'")})
    write(tmp_path, {"old/3.yaml": agent("'one two'", tools), "old/4.yaml": agent("one_two")})
    nameless = agent("x").replace("metadata: {name: x}\n", "")
    write(tmp_path, {"old/no name.agent.yaml": nameless, "old/5.yaml": agent("One")})
    code, told = imported(run, "old")
    assert (code, told["left_out"]) == (1, ["one.yaml: there is another agent 'One'; rename one"])
    assert run("check").code == 0
    agents = json.loads(run("agents", "--json").out)["agents"]
    assert sorted(each["name"] for each in agents) == ["One", "Vendas_Acao", "no_name", "one_two", "one_two_2"]
    text = (tmp_path / "agents" / "one_two_2.agent.yaml").read_text()
    assert "agent: Vendas_Acao\n" in text
    assert "allowed_actions: [pergunta_j_]\n" in text


def test_a_second_import_leaves_what_people_changed_and_adds_what_is_new(run: Run, tmp_path: Path) -> None:
    write(tmp_path, {"agents/researcher.yaml": RESEARCHER, "agents/qualifier.yaml": QUALIFIER})
    # Of originals that lie where the imported files would, none is touched.
    code, first = imported(run, "agents")
    assert (code, first["files"][0]) == (1, "imported-agents/qualifier.agent.yaml")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.yaml")}
    code, again = imported(run, "agents")
    assert (code, again["files"], len(again["left_out"])) == (1, {}, 1)
    assert again["notes"][0] == "imported-agents/qualifier.agent.yaml is there already."
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.yaml")} == before

    changed = tmp_path / "imported-agents" / "qualifier.agent.yaml"
    changed.write_text(changed.read_text().replace("You qualify", "Please qualify"))
    write(tmp_path, {"agents/new.yaml": agent("new")})
    code, third = imported(run, "agents")
    assert (code, third["files"]) == (1, ["imported-agents/new.agent.yaml"])
    assert third["left_out"][0].startswith("imported-agents/qualifier.agent.yaml: the file exists with other content")
    assert (tmp_path / "pegboard.yaml").read_text().count("imported-agents/*.agent.yaml") == 1
    assert not list(tmp_path.rglob("*.trial"))
