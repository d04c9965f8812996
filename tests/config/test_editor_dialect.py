"""What editors are given: our own configs are right in it, and a slip is marked where it stands and nowhere else."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import jsonschema_rs
import pytest
from pydantic import BaseModel

from pegboard.config.editor_dialect import editor_schema
from pegboard.config.kinds import KINDS, Kind
from pegboard.config.kinds.plugin import plugin_declare, plugin_form
from pegboard.sources.plugins import PluginKind
from tests.config.test_schema import BAD, GOOD, unexpanded
from tests.docs.blocks import blocks_of

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *ROOT.glob("examples/*/*.md"),
]
# Files of others, pieces that stand below a key, and requests for the search: by how they begin.
_NOT_OURS = re.compile(
    r"(?:#.*\n|\n)*(?:openapi:|services:|scrape_configs:|groups:\n +- | +\w+:|- |tools:\n  \"|requests:\n)"
)


# Made when it is first asked for: every worker reads this module, and one of them runs it.
schema = cache(editor_schema)


@cache
def judge() -> Any:
    return jsonschema_rs.Draft7Validator(schema())


def marked(text: str) -> list[str]:
    """Return where an editor marks a file."""
    places = {".".join(map(str, error.instance_path)) for error in judge().iter_errors(unexpanded(text))}
    return sorted(places)


def yaml_of_the_docs() -> Iterator[tuple[str, str]]:
    """Yield each config in a page, with its place."""
    for page in PAGES:
        for block in blocks_of(page.read_text(encoding="utf-8")):
            if block.language in ("yaml", "yml") and not _NOT_OURS.match(block.text):
                yield f"{page.relative_to(ROOT)}:{block.line}", block.text


def yaml_of_the_examples() -> Iterator[tuple[str, str]]:
    """Yield each file of a config among the examples, with its place."""
    for path in sorted(ROOT.glob("examples/**/*.yaml")):
        text = path.read_text(encoding="utf-8")
        if not _NOT_OURS.match(text):
            yield str(path.relative_to(ROOT)), text


def test_it_is_a_schema_of_draft_07_and_nothing_stands_beside_a_reference() -> None:
    # The reference implementation of the draft, apart from the one that loading uses.
    jsonschema.Draft7Validator.check_schema(schema())
    beside = [part for part in _parts(schema()) if "$ref" in part and len(part) > 1]
    assert beside == []
    assert not {"$defs", "prefixItems", "unevaluatedProperties", "dependentRequired"} & {
        key for part in _parts(schema()) for key in part
    }


def _parts(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        yield schema
    for inner in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from _parts(inner)


def test_every_config_of_the_examples_and_the_docs_is_right() -> None:
    found = {place: marked(text) for place, text in (*yaml_of_the_examples(), *yaml_of_the_docs())}
    wrong = {place.partition(":")[0]: marks for place, marks in found.items() if marks}
    # A type that a plugin brings is known where that is installed.
    # The page on versions shows a former name of a key, which editors mark.
    assert wrong == {"docs/howto/plugins.md": ["tools.0.type"], "docs/versions.md": ["tasks"]}
    assert len(found) > 40


class Ping(BaseModel):
    host: str


def test_a_type_of_a_plugin_is_known_where_the_config_has_it() -> None:
    kind = PluginKind(name="ping", plugin="acme", make=lambda declaration: [], settings=Ping)
    judge = jsonschema_rs.Draft7Validator(
        editor_schema({**KINDS, "ping": Kind.of(plugin_form(kind), plugin_declare(kind))})
    )
    head = "tools: [{name: a, type: ping, description: d, ping: "
    assert judge.is_valid(unexpanded(head + "{host: h}}]"))
    assert not judge.is_valid(unexpanded(head + "{hots: h}}]"))


@pytest.mark.parametrize("text", GOOD)
def test_what_the_other_schema_takes_is_taken(text: str) -> None:
    assert marked(text) == []


@pytest.mark.parametrize("text", BAD)
def test_what_the_other_schema_refuses_is_marked(text: str) -> None:
    assert marked(text) != []


# Slips of many kinds → the one place that is marked.
SLIPS = {
    "nmae: shop": "",
    "name: [shop]": "name",
    "tools: {name: a, type: internal}": "tools",
    "tools: [{name: a, type: intrnal}]": "tools.0.type",
    "tools: [{name: a}]": "tools.0",
    "tools: [{type: internal}]": "tools.0",
    "tools: [{name: a, type: internal, handle: 'python:m:f'}]": "tools.0",
    "tools: [{name: a, type: internal, handler: 'm:f'}]": "tools.0.handler",
    "tools: [{name: 'a b', type: internal}]": "tools.0.name",
    "tools: [{name: a, type: internal, annotations: {readonly: true}}]": "tools.0.annotations",
    "tools: [{name: a, type: internal, task: maybe}]": "tools.0.task",
    "tools: [{name: a, type: internal, timeout_seconds: -1}]": "tools.0.timeout_seconds",
    "tools: [{name: a, type: internal, inline: 'yes'}]": "tools.0.inline",
    "tools: [{name: a, type: mcp, mcp: {transport: http, ulr: 'https://x'}}]": "tools.0.mcp",
    "tools: [{name: a, type: mcp, mcp: {transport: htttp, url: 'https://x'}}]": "tools.0.mcp.transport",
    "tools: [{name: a, type: mcp, mcp: {transport: stdio, command: x, args: -y}}]": "tools.0.mcp.args",
    "tools: [{name: a, type: mcp, mcp: {transport: http, url: u, tools: {onyl: a}}}]": "tools.0.mcp.tools",
    "tools: [{name: a, type: openapi, openapi: {}}]": "tools.0.openapi",
    "tools: [{name: a, type: webhook, description: d, webhook: {url: u, methd: POST}}]": "tools.0.webhook",
    "tools: [{name: raed_file, type: builtin}]": "tools.0.name",
    "tools: [{name: read_file, type: builtin, config: {root: [a]}}]": "tools.0.config",
    "tools: [{name: read_file, type: builtin, config: {roots: [a], hard_links: 3}}]": "tools.0.config.hard_links",
    "tools:\n  - {name: a, type: internal}\n  - {name: b, type: internal, consent: somtimes}": "tools.1.consent",
    "profiles: {chat: {inclde: core}}": "profiles.chat",
    "profiles: {chat: {exposure: flat}}": "profiles.chat.exposure",
    "consents: {store: 'sqlite:c.db', url: 'tools.example.com'}": "consents.url",
    "consents: {}": "consents",
    "limits: {json_deph: 5}": "limits",
    "limits: {json_depth: many}": "limits.json_depth",
    "discovery: {embedder: {kind: magic}}": "discovery.embedder",
    "discovery: {learn: {path: x}}": "discovery.learn",
    "hooks: [{on: befor, use: 'python:a:b'}]": "hooks.0.on",
    "identity: {api_keys: {stroe: 'sqlite:k.db'}}": "identity.api_keys",
    "agents: {sotre: 'sqlite:a.db'}": "agents",
    "env: TOKEN": "env",
    "apiVersion: pegboard/v2": "apiVersion",
    "apiVersion: pegboard/v1\nkind: Agent\nmetadata: {}\nspec: {}": "metadata",
    "apiVersion: pegboard/v1\nkind: Agent\nmetadata: {name: a}\nspec: {budgets: {reqests: 1}}": "spec.budgets",
    "apiVersion: pegboard/v1\nkind: Agent\nmetadata: {name: a}\nspec: {tools: [{gruop: a}]}": "spec.tools.0",
}  # fmt: skip


@pytest.mark.parametrize("text", SLIPS)
def test_a_slip_is_marked_where_it_stands_and_nowhere_else(text: str) -> None:
    places = set(marked(text))
    assert places == {SLIPS[text]}
