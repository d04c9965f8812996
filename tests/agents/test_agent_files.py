"""The file of an agent: what it declares, what is refused, and that its tools are its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pegboard import ToolContext
from pegboard.cli import main
from pegboard.config import warnings
from pegboard.config.build import load_catalog
from tests.agents.files import agent_file, faults, load, write
from tests.core.parts import kind_of


def ask(name: str, target: str, extra: str = "") -> str:
    return f"- {{name: {name}, type: agent, agent: {target}{extra}}}\n"


def asking(*targets: str) -> str:
    return "tools:\n" + "".join(f"  {ask(f'ask-{target}', target)}" for target in targets)


async def test_two_agents_have_a_tool_of_one_name_each_with_its_own_config(tmp_path: Path) -> None:
    (tmp_path / "acme.py").write_text("def one() -> str:\n    return 'one'\n\ndef two() -> str:\n    return 'two'\n")
    spec = "tools:\n  - {{name: lookup, type: internal, handler: 'python:acme:{0}'}}\n  - {{group: core}}\n"
    catalog = load(
        tmp_path,
        {
            "pegboard.yaml": "files: [agents/*.yaml]\n"
            "tools: [{name: lookup, type: internal, handler: 'python:acme:one', description: shared}]\n",
            "agents/a.yaml": agent_file("a", spec.format("one")),
            "agents/b.yaml": agent_file("b", spec.format("two")),
        },
    )
    assert catalog.agents.names() == ["a", "b"]
    for name, value in (("a", "one"), ("b", "two")):
        view = catalog.agents.view(name)
        assert view.names() == ["lookup", "main__lookup"]
        assert (await view.call("lookup")).unwrap() == value
        assert (await view.call("main.lookup")).unwrap() == "one"
    everything = catalog.view(ToolContext(), internal=["a.lookup", "a__lookup", "lookup"])
    assert everything.names() == ["lookup"]
    assert everything["lookup"].spec.description == "shared"
    assert kind_of(await everything.call("a__lookup")) == "not_found"
    await catalog.close()


def test_agents_that_run_each_other_in_a_circle_are_refused_with_the_shortest_way(tmp_path: Path) -> None:
    assert faults(tmp_path / "1", {"agents/a.yaml": agent_file("a", asking("a"))}) == [
        "agents/a.yaml:7: spec.tools[0].agent: agents run each other in a circle: a → a: a by 'ask-a' "
        f"({tmp_path}/1/agents/a.yaml:7). Take one of these tools away"
    ]
    told = faults(
        tmp_path / "2",
        {
            "agents/z.yaml": agent_file("z", asking("a")),
            "agents/a.yaml": agent_file("a", asking("b")),
            "agents/b.yaml": agent_file("b", asking("a")),
        },
    )
    assert len(told) == 1
    assert "a → b → a: a by 'ask-b'" in told[0]
    assert "agents/b.yaml:7" in told[0]


def test_an_agent_that_takes_itself_with_a_group_is_refused_with_the_line_and_a_way_out(tmp_path: Path) -> None:
    main_file = "files: [agents/*.yaml]\ntools:\n  - {name: ask-a, type: agent, agent: a, groups: [core]}\n"
    files = {"pegboard.yaml": main_file, "agents/a.yaml": agent_file("a", "tools:\n  - {group: core}\n")}
    (told,) = faults(tmp_path / "1", files)
    assert f"a by 'ask-a' ({tmp_path}/1/pegboard.yaml:3), taken by `group: core` ({tmp_path}/1/agents/a.yaml:" in told
    way = "permissions: {denied_actions: [ask-a]}"
    assert (
        f"'a' takes 'ask-a' by `group: core`: write `{way}` under `spec:` of 'a', or give the tool another group"
        in told
    )
    files["agents/a.yaml"] = agent_file("a", f"tools:\n  - {{group: core}}\n{way}\n")
    assert load(tmp_path / "2", files).agents.names() == ["a"]
    files["agents/a.yaml"] = agent_file("a", "tools:\n  - {tool: main.ask-a}\n")
    (told,) = faults(tmp_path / "3", files)
    assert "taken by `tool: main.ask-a`" in told
    assert told.endswith("Take one of these tools away")


def test_a_diamond_loads(tmp_path: Path) -> None:
    files = {
        "agents/top.yaml": agent_file("top", asking("left", "right")),
        "agents/left.yaml": agent_file("left", asking("bottom")),
        "agents/right.yaml": agent_file("right", asking("bottom")),
        "agents/bottom.yaml": agent_file("bottom", ""),
    }
    assert faults(tmp_path, files) == []


def test_an_unknown_agent_is_refused_with_the_one_that_was_meant(tmp_path: Path) -> None:
    files = {"agents/a.yaml": agent_file("a", asking("reseacher")), "agents/b.yaml": agent_file("researcher", "")}
    assert faults(tmp_path, files) == [
        "agents/a.yaml:7: spec.tools[0].agent: there is no agent 'reseacher'. Did you mean 'researcher'?"
    ]


ASTROMESH = """\
apiVersion: astromesh/v1
kind: Agent
metadata: {name: assistant, version: 0.1.0, namespace: support}
spec:
  identity: {description: "Helps customers"}
  model:
    primary:
      provider: ollama
      model: "llama3.1:8b"
      endpoint: "http://ollama:11434"
      parameters: {temperature: 0.3, max_tokens: 2048}
  prompts:
    system: |
      You help {{ context.company }}.
  orchestration: {pattern: react, max_iterations: 10, timeout_seconds: 60}
  tools:
    - {name: web_search, type: internal, description: "Search the web for current information", parameters: {query: {type: string, description: "Search query", required: true}, max_results: {type: integer, description: "Maximum results", required: false, default: 5}}, rate_limit: {max_calls: 10, window_seconds: 60}}
    - {name: mcp_database, type: mcp, description: "Database access via MCP", mcp: {transport: sse, url: "http://localhost:3001/sse"}}
    - name: send_email
      type: webhook
      description: "Send an email via the email service"
      webhook: {url: "https://api.internal.example.com/send-email", method: POST, headers: {Authorization: "Bearer ${EMAIL_API_KEY}"}, timeout: 10}
      parameters: {to: {type: string, required: true}, subject: {type: string, required: true}, body: {type: string, required: true}}
    - {name: knowledge_base, type: rag, description: "Search the product knowledge base", rag: {collection: product_docs, top_k: 5, score_threshold: 0.7}}
    - {name: qualify-lead, type: agent, agent: sales-qualifier, description: "Qualify a sales lead using BANT methodology", context_transform: '{"company": "{{ data.company }}", "budget": "{{ data.budget }}"}'}
    - {name: http_request, type: builtin, config: {timeout_seconds: 30}}
  permissions: {allowed_actions: [web_search, knowledge_base], denied_actions: [send_email]}
  memory: {conversational: {strategy: sliding_window, max_turns: 20}}
"""  # noqa: E501 - as it is documented
SEARCH = """\
from pegboard import default_catalog

@default_catalog.tool
def web_search(query: str, max_results: int = 5) -> list[str]:
    return [query] * max_results
"""


async def test_the_documented_spec_of_astromesh_loads_unchanged(tmp_path: Path) -> None:
    (tmp_path / "acme.py").write_text(SEARCH)
    main = "files: [agents/*.yaml]\npython: [acme]\nworkspace: {store: 'sqlite:./docs.db', space: s1}\n"
    files = {
        "pegboard.yaml": main, "agents/a.yaml": ASTROMESH, "agents/b.yaml": agent_file("sales-qualifier", ""),
    }  # fmt: skip
    catalog = load(tmp_path, files, env={"EMAIL_API_KEY": "email-key-1"})
    spec = catalog.agents.spec("assistant")
    assert (spec.namespace, spec.version, spec.description) == ("support", "0.1.0", "Helps customers")
    assert (spec.model.provider, spec.model.name, spec.model.base_url) == (
        "openai_compatible", "llama3.1:8b", "http://ollama:11434/v1",
    )  # fmt: skip
    assert spec.model.parameters == {"temperature": 0.3, "max_tokens": 2048}
    assert (spec.max_iterations, spec.timeout_s, spec.memory.max_turns) == (10, 60, 20)
    view = catalog.agents.view("assistant")
    assert sorted(view.names()) == ["knowledge_base", "web_search"]
    assert (await view.call("web_search", {"query": "q", "max_results": 2})).unwrap() == ["q", "q"]
    assert kind_of(await view.call("send_email", {"to": "a", "subject": "b", "body": "c"})) == "not_found"
    # The module registered it for all; the agent's own is beside it.
    assert catalog.view(ToolContext())["web_search"].spec.description != view["web_search"].spec.description
    await catalog.close()


def test_a_private_server_of_two_agents_is_two_sources_and_each_has_its_own(tmp_path: Path) -> None:
    tool = "tools: [{{name: fs, type: mcp, mcp: {{transport: http, url: 'http://127.0.0.1:9/{0}', start: lazy}}}}]"
    files = {f"agents/{name}.yaml": agent_file(name, tool.format(name)) for name in "ab"}
    catalog = load(tmp_path, files)
    assert sorted(catalog.registry.sources) == ["a.fs", "b.fs"]
    assert catalog.view(ToolContext()).names() == []


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("tools: [{name: getTools, type: internal, handler: 'python:acme:one'}]", "spec.tools[0].name: 'getTools' is the name of a meta tool"),  # noqa: E501 - a case a line
        ("tools: [{name: main__x, type: internal, handler: 'python:acme:one'}]", "spec.tools[0].name: 'main__x' looks like a tool of a namespace"),  # noqa: E501 - a case a line
        ("tools: [{name: mcp, type: mcp, mcp: {transport: stdio, command: 'true'}}]", "spec.tools[0].name: 'mcp' is the name of tools of the catalog"),  # noqa: E501 - a case a line
        ("permissions: {allowed: [x]}", "spec.permissions.allowed: unknown key 'allowed'. Keys: allowed_actions, "),
        ("tools: [{group: cor}]", "spec.tools[0].group: unknown group 'cor'. Did you mean 'core'?"),
        ("tools: [{tool: main.lookpu}]", "spec.tools[0].tool: unknown tool 'main.lookpu'. Did you mean 'main.lookup'?"),
        ("orchestration: {pattern: reactt}", "spec.orchestration.pattern: \"reactt\" is not one of react. Did you mean 'react'?"),  # noqa: E501 - a case a line
        ("budgets: {usd: 1}", "spec.budgets.usd: there is no price of openai_compatible:a; take `usd` off, or budget tokens"),  # noqa: E501 - a case a line
        ("output_schema: {type: array}", "spec.output_schema: the schema of an answer has `type: object`"),
        ("guardrails: {input: ['python:acme:nope']}", "spec.guardrails.input[0]: 'acme' has no 'nope'."),
        (
            "tools: [{name: x, type: internal, handler: 'python:acme:one'}, {name: X, type: internal, handler: 'python:acme:one'}]",  # noqa: E501 - a case a line
            "spec.tools[1].name: the tool 'X' is declared twice: first at",
        ),
    ],
)  # fmt: skip
def test_what_an_agent_file_cannot_mean_is_refused_at_its_place(tmp_path: Path, spec: str, said: str) -> None:
    (tmp_path / "acme.py").write_text("def one() -> str:\n    return 'one'\n")
    main = "files: [agents/*.yaml]\ntools: [{name: lookup, type: internal, handler: 'python:acme:one'}]\n"
    told = faults(tmp_path, {"pegboard.yaml": main, "agents/a.yaml": agent_file("a", spec)})
    assert len(told) == 1
    assert told[0].startswith("agents/a.yaml:")
    assert said in told[0]


@pytest.mark.parametrize("name", ["a__b", "x" * 33, "a b", ""])
def test_a_name_that_no_agent_can_have_is_refused(tmp_path: Path, name: str) -> None:
    [told] = faults(tmp_path, {"agents/a.yaml": agent_file("a", "").replace("name: a}", f"name: '{name}'}}", 1)})
    assert "metadata.name: " in told


def test_the_command_lists_agents_with_whom_each_may_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {"agents/a.yaml": agent_file("a", asking("b")), "agents/b.yaml": agent_file("b", "")}
    path = write(tmp_path, files)
    assert main(["agents", "--json", "--config", str(path)]) == 0
    [a, b] = json.loads(capsys.readouterr().out)["agents"]
    assert (a["name"], a["tools"], a["runs"]) == ("a", ["ask-b"], [{"agent": "b", "tool": "ask-b"}])
    assert (b["name"], b["runs"]) == ("b", [])


def test_the_command_tells_once_what_many_ways_lead_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Thirty diamonds, one below the other, have a thousand million ways.
    files: dict[str, str] = {}
    for number in range(30):
        files[f"agents/t{number}.yaml"] = agent_file(f"t{number}", asking(f"l{number}", f"r{number}"))
        for side in "lr":
            files[f"agents/{side}{number}.yaml"] = agent_file(f"{side}{number}", asking(f"t{number + 1}"))
    files["agents/t30.yaml"] = agent_file("t30", "")
    assert main(["agents", "--config", str(write(tmp_path, files))]) == 0
    shown = capsys.readouterr().out
    tree = [line.strip() for line in shown[shown.index("\nt0\n") :].splitlines()]
    assert tree.count("t1 (by ask-t1)") == tree.count("t1 (by ask-t1) …") == 1
    assert tree[-1] == "91 agents."


def test_a_permission_that_means_no_tool_and_a_tool_that_agents_take_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "acme.py").write_text("def one() -> str:\n    return 'one'\n")
    tool = "{{name: {0}, type: internal, handler: 'python:acme:one', groups: [{0}]}}"
    main_file = f"files: [agents/*.yaml]\nprofiles: {{p: {{include: [core]}}}}\ntools:\n  - {tool.format('taken')}\n"
    main_file += f"  - {tool.format('named')}\n  - {tool.format('left')}\n"
    own = "{name: mine, type: internal, handler: 'python:acme:one'}"
    permissions = "permissions: {allowed_actions: [mine, ask-b, theirs, tyypo], denied_actions: ['send_*']}"
    theirs = "tools: [{name: theirs, type: internal, handler: 'python:acme:one'}]"
    files = {
        "pegboard.yaml": main_file,
        "agents/a.yaml": agent_file(
            "a", f"tools: [{own}, {{group: taken}}, {{tool: main.named}}, {{name: ask-b, type: agent, agent: b}}]\n{permissions}"  # noqa: E501 - one list
        ),
        "agents/b.yaml": agent_file("b", theirs),
    }  # fmt: skip
    catalog, config = load_catalog(write(tmp_path, files), env={})
    assert [(problem.path, problem.message) for problem in warnings(config, catalog)] == [
        ("spec.permissions.allowed_actions[3]", "'tyypo' matches no tool at present"),
        ("spec.permissions.denied_actions[0]", "'send_*' matches no tool at present"),
        ("left", "no profile includes 'left'. Included: core, taken."),
    ]
