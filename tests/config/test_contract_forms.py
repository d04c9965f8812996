"""Every form of YAML that is documented loads as it is written, once what it names exists, and works."""

import json
from typing import Any

import pytest

from pegboard import Catalog
from pegboard.config import Config, context_for
from pegboard.core.view import View
from pegboard.sources.mcp.supervised_source import McpSource
from tests.builtin.web import Site, as_json
from tests.config.project import Project

MAIN = """\
name: acme
files: [tools/*.yaml, agents/*.yaml]         # globs, relative to this file
python: [acme.tools]                         # modules imported; what they register on pegboard.default_catalog is collected
settings: {web_search: true}
models: {default: "openai:gpt-5.2", cheap: {provider: openai_compatible, base_url: "http://127.0.0.1:8000/v1", name: qwen3}}
predicates:
  sentry_configured: {secret: SENTRY_TOKEN}  # present and not empty
  in_space: {context: space_id}
  web_enabled: {setting: web_search}
tools:
  - {name: web_search, type: builtin, groups: [core], config: {provider: tavily, api_key: "${TAVILY_API_KEY}"}, rate_limit: {max_calls: 10, window_seconds: 60}}
  - name: fs
    type: mcp
    groups: [files]
    mcp: {transport: stdio, command: npx, args: ["-y", "@modelcontextprotocol/server-filesystem", "./data"]}
profiles:
  chat: {include: [core, chat_only], exposure: auto}
  messaging: {include: [core], deny: ["metabase__delete_*"], exposure: direct}
"""  # noqa: E501 - as it is documented
METABASE = """\
tools:
  - name: metabase
    type: mcp
    mcp: {transport: http, url: "http://127.0.0.1:9/mcp", tools: {groups: {"*": [metabase_full], "list_*": [metabase_full, metabase_messaging]}}}
"""  # noqa: E501 - as it is documented
TOOLS = """\
from pegboard import ToolContext, default_catalog

@default_catalog.tool(groups="chat_only")
def smile(ctx: ToolContext) -> str:
    return ":-)"
"""
WEB_SEARCH = '{name: web_search, type: internal, description: "Search the web for current information", parameters: {query: {type: string, description: "Search query", required: true}, max_results: {type: integer, description: "Maximum results", required: false, default: 5}}, rate_limit: {max_calls: 10, window_seconds: 60}}'  # noqa: E501 - as it is documented
SEND_EMAIL = """\
tools:
    - name: send_email
      type: webhook
      description: "Send an email via the email service"
      webhook: {url: "https://api.internal.example.com/send-email", method: POST, headers: {Authorization: "Bearer ${EMAIL_API_KEY}"}, timeout: 10}
      parameters: {to: {type: string, required: true}, subject: {type: string, required: true}, body: {type: string, required: true}}
"""  # noqa: E501 - as it is documented


def loaded(project: Project, text: str, **env: str) -> tuple[Catalog, Config]:
    project.env = env
    project.path.write_text(text, encoding="utf-8")
    return project.load()


def view(project: Project, text: str, **env: str) -> View:
    catalog, config = loaded(project, text, **env)
    return catalog.view(context_for(config, user="ann", space="s1"))


def item(text: str) -> str:
    return f"tools:\n    - {text}\n"


async def test_the_file_to_start_from(project: Project) -> None:
    project.file("acme/__init__.py", "").file("acme/tools.py", TOOLS).file("tools/metabase.yaml", METABASE)
    catalog, config = loaded(project, MAIN, TAVILY_API_KEY="tavily-key-1", OPENAI_API_KEY="openai-key-1")
    assert (config.name, sorted(config.models), config.settings) == ("acme", ["cheap", "default"], {"web_search": True})
    assert catalog.view(context_for(config), profile="chat").names() == ["web_search", "smile"]
    assert catalog.view(context_for(config), profile="messaging").names() == ["web_search"]
    found = catalog.snapshot().find("web_search")
    assert found is not None
    assert (found.spec.qualified_id, found.spec.rate_limit and found.spec.rate_limit.max_calls) == (
        "builtin.web_search", 10,
    )  # fmt: skip
    server = catalog.registry.sources["fs"]
    assert isinstance(server, McpSource)
    assert (server.settings.command, server.settings.args) == (
        "npx", ("-y", "@modelcontextprotocol/server-filesystem", "./data"),
    )  # fmt: skip
    assert {"metabase_full", "metabase_messaging", "files"} <= catalog.registry.known_groups()


def test_the_key_whose_piece_is_missing_is_refused_by_its_name(project: Project) -> None:
    project.write("profiles: {chat: {limits: {}}}\n")
    [problem] = project.problems()
    assert (problem.where, problem.path) == ("pegboard.yaml:1:19", "profiles.chat.limits")
    assert problem.message.startswith("`limits:` is not supported by this version of Pegboard yet: ")


@pytest.mark.parametrize(
    ("form", "is_durable", "kept_s"),
    [
        ("{}", False, 86_400.0),
        ("{engine: inline, ttl_seconds: 60}", False, 60.0),
        ("{engine: inline, store: memory}", False, 86_400.0),
        ("{engine: dbos}", True, 86_400.0),
        ('{engine: dbos, store: "sqlite:./own.db", ttl_seconds: 86400}', True, 86_400.0),
        ('{store: "postgresql://127.0.0.1/tasks"}', True, 86_400.0),
        ("{ttl_s: 60}", False, 60.0),
    ],
)
def test_the_keys_of_tasks_say_what_runs_them_and_how_long_they_are_kept(
    project: Project, form: str, is_durable: bool, kept_s: float
) -> None:
    tasks = loaded(project, f"tasks: {form}\n")[0].tasks
    assert (tasks.is_durable, tasks.ttl_s) == (is_durable, kept_s)


async def test_the_documented_rag_tool_searches_its_collection_alone(project: Project) -> None:
    text = "{name: knowledge_base, type: rag, description: Search the product knowledge base, "
    text += "rag: {collection: product_docs, top_k: 2, score_threshold: 0.05}}"
    more = "- {name: rag_ingest, type: builtin}"
    shown = view(project, f"workspace: {{}}\ntools:\n    - {text}\n    {more}\n")
    for number, collection in enumerate(["product_docs"] * 3 + ["other"]):
        args = {"document": f"The lamp {number} has a bulb.", "collection": collection, "name": f"{number}.txt"}
        assert (await shown.call("rag_ingest", args)).error is None
    found = (await shown.call("knowledge_base", {"query": "lamp bulb"})).structured
    assert {each["source"] for each in found["results"]} <= {"0.txt", "1.txt", "2.txt"}
    assert len(found["results"]) == 2
    assert len((await shown.call("knowledge_base", {"query": "lamp bulb", "top_k": 9})).structured["results"]) == 3
    refused = await shown.call("knowledge_base", {"query": "lamp", "collection": "other"})
    assert refused.error is not None
    assert refused.error.kind == "invalid_arguments"
    # Without documents it is hidden, as the built-in tool is.
    assert "knowledge_base" not in view(project, f"tools:\n    - {text}\n").names()


async def test_the_documented_web_search_comes_out_exactly(project: Project) -> None:
    code = "from pegboard import default_catalog\n\n@default_catalog.tool\ndef web_search(query: str, max_results: int) -> list[str]:\n    return [query] * max_results\n"  # noqa: E501 - a whole module
    project.file("acme.py", code)
    tools = view(project, "python: [acme]\n" + item(WEB_SEARCH))
    wanted = '{"type":"function","function":{"name":"web_search","description":"Search the web for current information","parameters":{"type":"object","properties":{"query":{"type":"string","description":"Search query"},"max_results":{"type":"integer","description":"Maximum results","default":5}},"required":["query"]}}}'  # noqa: E501 - as it is documented
    assert tools.export("openai") == [json.loads(wanted)]
    # The keys in the documented order, too.
    assert json.dumps(tools.export("openai")[0], separators=(",", ":")) == wanted
    assert (await tools.call("web_search", {"query": "a"})).structured == ["a"] * 5
    kinds = [(await tools.call("web_search", {"query": "a"})).error for _ in range(10)]
    assert [error and error.kind for error in kinds] == [None] * 9 + ["rate_limited"]


def test_a_database_over_mcp(project: Project) -> None:
    text = '{name: mcp_database, type: mcp, description: "Database access via MCP", mcp: {transport: sse, url: "http://localhost:3001/sse"}}'
    source = loaded(project, item(text))[0].registry.sources["mcp_database"]
    assert isinstance(source, McpSource)
    assert (source.settings.transport, source.settings.url) == ("sse", "http://localhost:3001/sse")


async def test_a_mail_through_a_webhook(project: Project) -> None:
    tools = view(project, SEND_EMAIL, EMAIL_API_KEY="email-key-1")
    [drawn] = tools.export("openai")
    assert drawn["function"]["parameters"]["required"] == ["to", "subject", "body"]
    site = Site(lambda asked: as_json({"sent": asked.json}))
    mail = {"to": "bob", "subject": "Hi", "body": "there"}
    async with site.server() as server:
        here = SEND_EMAIL.replace("https://api.internal.example.com", server.url)
        result = await view(project, here, EMAIL_API_KEY="email-key-1").call("send_email", mail)
    assert result.structured == {"sent": mail}
    assert (site.asked[0].path, site.asked[0].headers["authorization"]) == ("/send-email", "Bearer email-key-1")


async def test_a_request_with_a_time_limit(project: Project) -> None:
    tools = view(project, item("{name: http_request, type: builtin, config: {timeout_seconds: 30}}"))
    found = tools.find("http_request")
    assert found is not None
    assert found.spec.timeout_s == 31
    result = await tools.call("http_request", {"method": "GET", "url": "http://127.0.0.1:9/"})
    assert result.error is not None
    assert result.error.kind == "blocked_destination"


def test_an_agent_as_a_tool(project: Project) -> None:
    text = '{name: qualify-lead, type: agent, agent: sales-qualifier, description: "Qualify a sales lead using BANT methodology", context_transform: \'{"company": "{{ data.company }}", "budget": "{{ data.budget }}"}\'}'  # noqa: E501 - as it is documented
    model = "model: {provider: openai_compatible, base_url: 'http://127.0.0.1:9/v1', name: m}"
    about = "apiVersion: pegboard/v1\nkind: Agent\nmetadata: {name: sales-qualifier}\n"
    project.file("agent.yaml", f"{about}spec: {{{model}}}\n")
    [drawn] = view(project, f"files: [agent.yaml]\n{item(text)}").export("openai")
    parameters = drawn["function"]["parameters"]
    assert (drawn["function"]["description"], parameters["required"], parameters["properties"]) == (
        "Qualify a sales lead using BANT methodology",
        ["company", "budget"],
        {"company": {"type": "string"}, "budget": {"type": "string"}},
    )


@pytest.mark.parametrize(
    "text",
    [
        "{name: notify, type: client, description: Show a note, parameters: {text: {type: string}}, wait: false}",
        "{name: hook, type: webhook, description: x, webhook: {url: 'https://x.example/{id}', method: GET, body: args, result: $.a}, parameters: {id: {type: integer, required: true}}}",  # noqa: E501 - one line
        "{name: api, type: openapi, openapi: {spec: api.json, operations: ['*'], base_url: 'https://x.example/v1', auth: {bearer: abcdefgh}}}",  # noqa: E501 - one line
        "{name: fs, type: mcp, mcp: {transport: stdio, command: x, args: [a], env: {A: b}, cwd: ., tools: {only: ['*'], skip: [b], rename: {c: d}, groups: {'*': [g]}}, timeout: 30, start: lazy, grace: 60, trust_annotations: false, trust: first_use}}",  # noqa: E501 - one line
        "{name: read_file, as: read_notes, type: builtin, config: {roots: [.]}}",
        "{name: f, type: internal, handler: 'python:mine:f', description: x, inline: true, groups: [a], available: true, rate_limit: 5/60s, timeout_seconds: 3, consent: destructive, internal_only: false, annotations: {read_only: true}, aliases: {query: q}, output: {type: string}, examples: [{q: a}]}",  # noqa: E501 - one line
    ],
)  # fmt: skip
def test_every_key_of_a_kind_is_taken(project: Project, text: str) -> None:
    description: Any = {"openapi": "3.1.0", "paths": {"/": {"get": {"operationId": "ask"}}}}
    project.file("api.json", json.dumps(description)).file("mine.py", "def f(q: str) -> str:\n    return q\n")
    catalog = loaded(project, item(text))[0]
    assert len(catalog.snapshot().entries) + len(catalog.registry.sources) >= 1


def test_top_level_keys_that_begin_with_x_are_ignored_and_their_anchors_usable(project: Project) -> None:
    project.write(
        """
        x-shared: &shared
          type: internal
          parameters: {}
          handler: python:mine:f
          rate_limit: 5/60s
        x-unused: {password: "${NOT_SET}"}
        files: [more.yaml]
        tools:
          - {<<: *shared, name: a, description: A.}
        profiles: {all: {include: [core]}}
        """,
        mine="def f():\n    return 1\n",
    )
    project.file("more.yaml", "x-note: kept for later\ntools: [{name: b, type: client, description: B.}]")
    shared, other = project.view(profile="all").tools()
    assert (shared.spec.rate_limit and shared.spec.rate_limit.max_calls, other.spec.rate_limit) == (5, None)
    project.write("x-note: 1\ntools: [{name: a, type: client, description: A., x-note: 2}]\ny-note: 3\n")
    assert [each.partition("unknown key")[0] for each in project.said()] == [
        'pegboard.yaml:2:50: tools[0]["x-note"]: ',
        'pegboard.yaml:3:1: ["y-note"]: ',
    ]
