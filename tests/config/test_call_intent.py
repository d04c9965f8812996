"""A foreign tool may be said to take properties from what the model is about; an address is no secret."""

import asyncio
import sys
from typing import Any

import orjson
import pytest

from pegboard import Profile
from pegboard.config import context_for
from tests.builtin.web import Site, as_json
from tests.config.api import post, spec
from tests.config.project import Project

# A server of MCP with one tool that gives back its arguments, and no package to load.
SERVER = """
import json, sys
schema = {"type": "object", "properties": {"goal": {"type": "string"}, "context": {"type": "object"}, "x": {}},
          "required": ["goal", "x"]}
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    result = {}
    if asked["method"] == "initialize":
        result = {"protocolVersion": asked["params"]["protocolVersion"], "capabilities": {"tools": {}},
                  "serverInfo": {"name": "s", "version": "1"}}
    elif asked["method"] == "tools/list":
        result = {"tools": [{"name": name, "inputSchema": schema} for name in ("note", "other")]}
    elif asked["method"] == "tools/call":
        text = json.dumps(asked["params"]["arguments"])
        result = {"content": [{"type": "text", "text": text}]}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""
CONTEXT = {"workspaceId": "default", "sessionId": "s", "memory": "none", "goal": "ship it"}


async def batch(project: Project, *calls: dict[str, Any]) -> list[dict[str, Any]]:
    catalog, config = project.load()
    catalog.profile(Profile(name="all", exposure="search"))
    changed = asyncio.Event()
    catalog.subscribe(changed.set)
    await catalog.start()
    try:
        while not catalog.snapshot().entries:
            await changed.wait()
            changed.clear()
        view = catalog.exposed(await catalog.aview(context_for(config, user="ann"), profile="all"))
        shown = await view.call(
            "getTools", {"request": [{"agent": calls[0]["tool"].partition("__")[0], "tools": [calls[0]["tool"]]}]}
        )
        result = await view.call("useTools", {"calls": list(calls), "context": CONTEXT})
    finally:
        await catalog.close()
    assert '"x"' in shown.text
    assert '"goal"' not in shown.text
    return result.structured["data"]["results"]


async def test_properties_of_an_mcp_tool_are_filled_where_the_config_says_so(project: Project) -> None:
    project.file("server.py", SERVER)
    project.write(
        f"""\
        tools:
          - name: s
            type: mcp
            mcp:
              transport: stdio
              command: {sys.executable}
              args: [server.py]
              cwd: .
              tools: {{call_intent: {{"no*": [goal, context]}}}}
        """
    )
    filled, own, other = await batch(
        project,
        {"tool": "s__note", "params": {"x": 1}},
        {"tool": "s__note", "params": {"x": 1, "goal": "mine"}},
        {"tool": "s__other", "params": {"x": 1}, "onError": "continue"},
    )
    assert orjson.loads(filled["data"]) == {"x": 1, "goal": "ship it", "context": CONTEXT}
    assert orjson.loads(own["data"])["goal"] == "mine"
    assert not other["success"]


async def test_properties_of_an_operation_are_filled_where_the_config_says_so(project: Project) -> None:
    body = {"type": "object", "properties": {"goal": {"type": "string"}, "x": {}}, "required": ["goal"]}
    project.file("api.json", orjson.dumps(spec({"/x": post(body)})).decode())
    site = Site(lambda _: as_json({}))
    async with site.server() as server:
        project.write(
            f"tools: [{{name: api, type: openapi, openapi: {{spec: api.json, base_url: '{server.url}', "
            "call_intent: {'POST /*': [goal]}}}]"
        )
        [result] = await batch(project, {"tool": "api__ask", "params": {"x": 2}})
    assert result["success"]
    assert orjson.loads(site.asked[0].body) == {"goal": "ship it", "x": 2}


def test_only_what_an_intent_has_can_be_filled(project: Project) -> None:
    project.file("api.json", orjson.dumps(spec({"/x": post({})})).decode())
    project.write(
        "tools: [{name: api, type: openapi, openapi: {spec: api.json, base_url: 'https://a.example', "
        "call_intent: {'*': [gaol]}}}]"
    )
    assert "Did you mean 'goal'?" in project.said()[0]


@pytest.mark.parametrize(
    ("address", "is_shown"),
    [
        ("http://127.0.0.1:9", True),
        ("http://127.0.0.1:9/api/v2", True),
        ("http://127.0.0.1:9/services/T00/B00/x1Y2z3", False),
        ("http://127.0.0.1:9/a?token=hunter2", False),
    ],
)
async def test_a_base_url_of_the_environment_is_no_secret_unless_it_holds_one(
    project: Project, address: str, is_shown: bool
) -> None:
    project.env = {"API": address}

    async def given_back(*, elsewhere: str = "none") -> str:
        project.write(
            f"""\
            tools:
              - {{name: hook, type: webhook, description: h, webhook: {{method: GET, url: "${{API}}"}}}}
              - {{name: echo, type: internal, handler: "python:mine:echo"}}
            settings: {{site: "{elsewhere}"}}
            """,
            mine="def echo(text: str) -> str:\n    return text\n",
        )
        view = project.view()
        failed = (await view.call("hook", {})).text
        assert "refused the connection" in failed
        assert not any(word in failed for word in ("hunter2", "x1Y2z3"))
        return (await view.call("echo", {"text": f"see {address} there"})).text

    assert ((await given_back()) == f"see {address} there") is is_shown
    # Where the same variable stands for something else too, it is a secret.
    assert await given_back(elsewhere="${API}") == "see [redacted] there"
