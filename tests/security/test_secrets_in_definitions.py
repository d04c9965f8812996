"""Secrets in definitions: a credential that a server writes into what it says of itself reaches nobody."""

from __future__ import annotations

import base64
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from pegboard import CallContext, Catalog, Secret, Tasks, ToolSpec, http_app
from pegboard.config import load_catalog
from pegboard.core.declarations import PrivateSource
from pegboard.model.agent import AgentEntry
from pegboard.model.record import replace
from pegboard.model.resource import CompletionSpec, PromptArgument, PromptSpec, ResourceSpec
from pegboard.model.tool import Annotations, ToolEntry
from pegboard.sources.mcp.server_settings import ServerSettings
from pegboard.sources.mcp.supervised_source import McpSource
from pegboard.sources.openapi.openapi_source import ApiSettings, OpenApiSource
from tests.agents.team import agent
from tests.core.parts import ANN, FakeSource
from tests.server.doors import inside, post, served
from tests.upstream_mcp.parts import running, until

CANARY = "sk-canary/4711+plain==text"
SPELLINGS = (CANARY, json.dumps(CANARY)[1:-1].replace("/", "\\/"), base64.b64encode(CANARY.encode()).decode())
ICON = {"src": f"https://icons.example/{CANARY}.png"}
PLAIN_ICON = {"src": "https://icons.example/plain.png"}


def telling() -> Catalog:
    """Return a server that repeats the credential wherever it can."""
    catalog = Catalog("behind")
    said = f"Looks things up with {' or '.join(SPELLINGS)}."
    schema: Any = {
        "type": "object",
        "title": said,
        "properties": {
            "text": {"type": "string", "description": said, "default": CANARY, "examples": ["a", CANARY]},
            # A property that has the name of a keyword.
            "description": {"type": "string", "enum": ["short", "long"]},
        },
    }
    catalog.register(
        ToolSpec(name="look", title=said, description=said, input_schema=schema, icons=(ICON, PLAIN_ICON),
                 meta={"note": said, "deep": [{CANARY: CANARY}]}, annotations=Annotations(read_only=True)),
        lambda ctx, args: {"got": args, "said": said},
    )  # fmt: skip
    catalog.register(ToolSpec(name="calm"), lambda ctx, args: "ran")
    rules: dict[str, Any] = {
        "named": {"properties": {CANARY: {}}},
        "chosen": {"properties": {"key": {"enum": [CANARY]}}},
        "needed": {"required": [CANARY]},
        "shaped": {"properties": {"key": {"anyOf": [{"const": CANARY}, {"type": "null"}]}}},
    }
    for name, rule in rules.items():
        catalog.register(ToolSpec(name=name, input_schema={"type": "object", **rule}), lambda ctx, args: "ran")
    catalog.resource("note://plain", name="plain", title=said, description=said, icons=(ICON,), meta={"a": said})(
        lambda: said
    )
    catalog.resource(f"note://{CANARY}", name="address")(lambda: said)
    catalog.resource(f"note://{CANARY}/{{day}}", name="family")(lambda day: day)
    catalog.prompt(name="ask", title=said, description=said)(lambda: said)
    return catalog


async def asked(client: Any) -> dict[str, str]:
    """Return what a caller is answered, by what it asks, over both doors."""
    answers: dict[str, str] = {}
    for path in ("/mcp/all", "/mcp/few", "/mcp/find"):
        for method in ("server/discover", "tools/list", "resources/list", "resources/templates/list", "prompts/list"):
            answers[f"{path} {method}"] = (await post(client, method, path=path)).text
    calls: list[tuple[str, str, Any]] = [
        ("/mcp/few", "getTools", {"filter": "looks things up"}),
        ("/mcp/few", "getTools", {"tool_names": ["up__look"]}),
        ("/mcp/find", "searchTools", {"queries": ["looks things up"]}),
        ("/mcp/all", "up__look", {"text": 7}),
        ("/mcp/all", "up__look", {"text": "a"}),
        ("/mcp/all", "up__lok", {}),
        ("/mcp/all", "up__chosen", {"key": CANARY}),
    ]
    for path, name, args in calls:
        params = {"name": name, "arguments": args}
        answers[f"{path} {name} {args}"] = (await post(client, "tools/call", params, path=path)).text
    for address in ("/v1/tools", "/v1/tools/up__look", "/v1/tools/up__look/why", "/v1/search?q=looks", "/v1/sources"):
        answers[address] = (await client.get(address)).text
    answers["prompt"] = (await post(client, "prompts/get", {"name": "up__ask"}, path="/mcp/all")).text
    return answers


async def test_a_credential_in_the_definitions_of_its_server_reaches_no_caller_and_no_lock(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with served(http_app(telling())) as url:
        config = tmp_path / "pegboard.yaml"
        config.write_text(
            f'tools:\n  - {{name: up, type: mcp, mcp: {{transport: http, url: "{url}/mcp", '
            'headers: {Authorization: "Bearer ${UP_KEY}"}}}\n'
            "profiles:\n  all: {include: [core]}\n  few: {include: [core], exposure: two_tool}\n"
            "  find: {include: [core], exposure: search}\n"
        )
        catalog, _ = load_catalog(config, env={"UP_KEY": CANARY})
        await catalog.start()
        try:
            await until(lambda: "up__look" in catalog.view(ANN).names())
            await until(lambda: catalog.registry.inventory("resources").ordered.entries)
            async with inside(http_app(catalog)) as client:
                answers = await asked(client)
            names = catalog.view(ANN).names()
            why = repr([catalog.view(ANN).why(name) for name in ("up__look", "up__chosen", "up__none")])
        finally:
            await catalog.close()
    pinned = (tmp_path / "pegboard.lock").read_text()
    said = {**answers, "why": why, "lock": pinned, "log": caplog.text}
    assert {where: text for where, text in said.items() if any(one in text for one in leaks())} == {}
    assert names == ["up__look", "up__calm"], "what has it in a rule is left out"
    assert "[redacted]" in answers["/mcp/all tools/list"]
    assert "[redacted]" in pinned
    tool, _ = json.loads(answers["/mcp/all tools/list"])["result"]["tools"]
    assert tool["icons"] == [PLAIN_ICON]
    assert tool["inputSchema"]["properties"]["description"]["enum"] == ["short", "long"]
    assert set(tool["inputSchema"]["properties"]["text"]) == {"type", "description"}
    resources = json.loads(answers["/mcp/all resources/list"])["result"]["resources"]
    assert [one["name"] for one in resources] == ["up__note_plain"]
    assert "is left out" not in caplog.text
    assert "'chosen' was left out: its name, its address or its schema contains a secret of this config" in caplog.text


def leaks() -> tuple[str, ...]:
    """Return what no answer may have in it: any spelling, and the middle of it that base64 leaves alone."""
    return (*SPELLINGS, "canary", SPELLINGS[2][4:-6])


def listed(**said: Any) -> ToolEntry:
    spec = ToolSpec(**{"name": "look", "namespace": "fake", **said})
    return ToolEntry(spec=spec, handler=lambda ctx, args: "ran", source="fake")


class Person:
    """A client that keeps what it is asked."""

    supports_ui = False

    def __init__(self) -> None:
        self.asked: list[Any] = []

    async def elicit(self, message: str, schema: Any = None) -> Any:
        self.asked.append([message, schema])
        return {"pin": "1"}

    async def sample(self, prompt: str, **options: Any) -> Any:
        self.asked.append([prompt, options])
        return "yes"


@pytest.mark.parametrize("way", ["ask", "elicit", "sample"])
async def test_a_question_that_a_tool_asks_has_no_secret_either(way: str) -> None:
    catalog, person = Catalog(), Person()
    catalog.add_secrets(Secret(CANARY))
    pin = {"type": "string", "title": f"PIN of {CANARY}", "enum": ["1", "2"]}
    form: Any = {"properties": {"pin": pin}, "required": ["pin"]}

    @catalog.tool
    async def login(ctx: CallContext) -> str:
        """Log in."""
        if way == "ask":
            await ctx.ask(f"Log in with {CANARY}?", schema=form)
        else:
            ask: Any = getattr(ctx.client, way)
            await ask(f"Log in with {CANARY}?", **({"schema": form} if way == "elicit" else {}))
        return "in"

    assert (await catalog.view(replace(ANN, client=person)).call("login")).text == "in"
    shown = {**form, "properties": {"pin": {**pin, "title": "PIN of [redacted]"}}}
    assert person.asked == [["Log in with [redacted]?", {} if way == "sample" else shown]]


@pytest.mark.parametrize("place", ["name", "value"])
async def test_a_form_with_a_secret_that_the_answer_is_judged_by_is_not_asked(place: str) -> None:
    catalog, person = Catalog(), Person()
    catalog.add_secrets(Secret(CANARY), Secret("production"))
    by_name: Any = {"properties": {"production": {"type": "string"}, CANARY: {"type": "string"}}}
    by_value: Any = {"properties": {"pin": {"type": "string", "enum": ["production", CANARY]}}}

    @catalog.tool
    async def login(ctx: CallContext) -> str:
        """Log in."""
        await ctx.ask("Log in?", schema={"type": "object", **(by_name if place == "name" else by_value)})
        return "in"

    result = await catalog.view(replace(ANN, client=person)).call("login")
    assert result.error is not None
    assert "not asked: a name or a value of its form contains a secret" in result.error.message
    assert person.asked == []


async def test_the_form_that_a_task_asks_has_no_secret() -> None:
    catalog = Catalog(tasks=Tasks("memory"))
    catalog.add_secrets(Secret(CANARY))

    @catalog.tool(task="required")
    async def login(ctx: CallContext) -> str:
        """Log in."""
        await ctx.ask(f"As {CANARY}?", schema={"type": "string", "title": f"As {CANARY}"})
        return "in"

    begun = await catalog.view(ANN).call("login")
    assert begun.task_id is not None
    while not (record := await catalog.tasks.get(begun.task_id, ANN)).questions:
        await catalog.tasks.changed(record, timeout_s=1.0)
    assert "[redacted]" in repr(record)
    assert CANARY not in repr(record)
    await catalog.close()


async def test_what_a_server_answers_to_a_source_made_in_python_is_searched_for_its_credential() -> None:
    async with served(http_app(telling())) as url:
        headers = {"Authorization": Secret(f"Bearer {CANARY}")}
        async with running(ServerSettings(name="up", transport="http", url=f"{url}/mcp", headers=headers)) as (made, _):
            await until(lambda: made.registry.inventory("resources").ordered.entries)
            async with inside(http_app(made)) as client:
                call = {"name": "up__look", "arguments": {"text": "a"}}
                answers = [
                    (await post(client, "tools/call", call)).text,
                    (await post(client, "prompts/get", {"name": "up__ask"})).text,
                    (await client.get("/v1/tools/up__look")).text,
                ]
    assert [one for one in answers if any(leak in one for leak in leaks()) or "[redacted]" not in one] == []


@pytest.mark.parametrize("kind", ["mirrored", "private", "openapi"])
async def test_every_source_that_is_added_tells_what_nothing_may_say(kind: str) -> None:
    catalog, key = Catalog(), Secret(CANARY)
    server = McpSource(ServerSettings(name="up", transport="stdio", command="server", env={"KEY": key}))
    if kind == "mirrored":
        catalog.mirror(source=server)
    elif kind == "private":
        catalog.registry.add_source(PrivateSource(server, "a.up"))
    else:
        catalog.add_source(OpenApiSource(ApiSettings(name="up", read=json.loads, spec="a.json", query={"key": key})))
    catalog.tool(name="tell")(said_by_a_tool)
    assert (await catalog.view(ANN).call("tell")).text == "with [redacted]"


def said_by_a_tool() -> str:
    """Tell the key."""
    return f"with {CANARY}"


def test_secrets_that_come_later_are_taken_out_and_what_has_none_stays_the_very_same() -> None:
    catalog, telling = Catalog(), listed(description=f"With {CANARY}.", examples=({"key": CANARY},))
    catalog.add_source(FakeSource(name="fake", listed=[telling, listed(name="plain"), listed(name="a b")]))
    before = {entry.spec.name: entry for entry in catalog.registry.inventory().ordered.entries}
    catalog.add_secrets(Secret(CANARY))
    after = {entry.spec.name: entry for entry in catalog.registry.inventory().ordered.entries}
    assert (after["look"].spec.description, after["look"].spec.examples) == (
        "With [redacted].",
        ({"key": "[redacted]"},),
    )
    assert after["look"].fingerprint != before["look"].fingerprint
    assert after["plain"] is before["plain"]


def test_the_tools_that_one_agent_alone_has_are_cleaned_as_well(caplog: pytest.LogCaptureFixture) -> None:
    catalog, rule = Catalog(), {"type": "object", "required": [CANARY]}
    catalog.add_secrets(Secret(CANARY))
    source = FakeSource(name="fake", listed=[listed(description=CANARY), listed(name="other", input_schema=rule)])
    catalog.registry.add_source(PrivateSource(source, "a.fake"))
    catalog.registry.add_agent(AgentEntry(spec=agent("a"), sources=("a.fake",)))
    (tool,) = catalog.agents.view("a").tools()
    assert tool.spec.description == "[redacted]"
    assert CANARY not in caplog.text


def test_a_word_that_is_a_variable_of_the_config_is_taken_out_of_prose_and_left_in_names() -> None:
    catalog = Catalog()
    catalog.add_secrets(Secret("production"))
    schema: Any = {"type": "object", "properties": {"stage": {"enum": ["production"]}}}
    catalog.add_source(FakeSource(name="fake", listed=[listed(description="In production.", input_schema=schema)]))
    (entry,) = catalog.registry.inventory().ordered.entries
    assert (entry.spec.description, entry.spec.input_schema) == ("In [redacted].", schema)


@pytest.mark.parametrize(
    "offer",
    [
        ResourceSpec(uri=f"note://{CANARY}", name="a"), PromptSpec(name=f"a {CANARY}"),
        PromptSpec(name="a", arguments=(PromptArgument(CANARY),)), CompletionSpec(argument="a", prompt=CANARY),
    ],
    ids=["uri", "name", "argument", "completion"],
)  # fmt: skip
def test_what_is_addressed_by_a_secret_is_left_out(offer: Any, caplog: pytest.LogCaptureFixture) -> None:
    catalog, source = Catalog(), FakeSource(name="fake")
    catalog.add_secrets(Secret(CANARY))
    entries = [ToolEntry(spec=listed().spec, handler=lambda ctx, args: "ran", offer=offer)]
    source.__dict__["resource_entries"] = lambda: entries
    catalog.add_source(source)
    assert not catalog.registry.inventory("resources").ordered.entries
    assert CANARY not in caplog.text
