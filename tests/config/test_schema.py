"""The JSON Schema for editors agrees with what loading accepts."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from pegboard.config import INIT_TEMPLATE, agent_schema, init_files, json_schema, warnings
from pegboard.config.yaml.environment import Environment
from pegboard.config.yaml.parser import parse
from pegboard.config.yaml.tree import At
from tests.agents.test_agent_files import ASTROMESH
from tests.config.project import Project

VALIDATOR = jsonschema_rs.Draft202012Validator(json_schema())


def unexpanded(text: str) -> Any:
    """Return what an editor sees: the file as it stands."""
    root, problems = parse(text.replace("$", "$$"), file="f")
    assert problems == []
    assert root is not None
    return Environment({}).plain(At(root))


def test_the_schema_is_a_schema() -> None:
    schema = json_schema()
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema_rs.meta.validate(schema)


def test_the_schema_of_agent_files_takes_what_loads_and_refuses_what_does_not() -> None:
    schema = agent_schema()
    jsonschema_rs.meta.validate(schema)
    # A key that says the same as the form that it refers to leaves it to that.
    of_form = {f"#/$defs/{name}": "description" in form for name, form in schema["$defs"].items()}
    assert [path for path, inner in keys(schema) if not {"description", "const"} & inner.keys()
            and not of_form.get(inner.get("$ref", ""))] == []  # fmt: skip
    judge = jsonschema_rs.Draft202012Validator(schema)
    shared = Path(__file__).parents[2] / "examples" / "team" / "agents"
    head = "apiVersion: {0}/v1\nkind: Agent\nmetadata: {{name: a}}\nspec: "
    good = [path.read_text() for path in shared.glob("*.yaml")]
    good += [ASTROMESH, head.format("pegboard") + "{model: openai:gpt-5.2, budgets: {requests: '${N:-3}'}}"]
    bad = [head.format(version) + spec for version, spec in (
        ("pegboard", "{tools: [{name: a, type: intrnal}]}"), ("pegboard", "{orchestration: {pattern: plan}}"),
        ("pegboard", "{model: {primary: {provider: openai, model: m}}}"), ("other", "{}"),
        ("astromesh", "{model: 'openai:m'}"), ("pegboard", "{budget: {requests: 1}}"),
        ("pegboard", "{tools: [{gruop: a}]}"),
    )]  # fmt: skip
    assert len(good) == 5
    assert [text for text in good if not judge.is_valid(unexpanded(text))] == []
    assert [text for text in bad if judge.is_valid(unexpanded(text))] == []


def keys(schema: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(schema, dict):
        for name, inner in schema.get("properties", {}).items():
            yield f"{path}.{name}", inner
        for name, inner in schema.items():
            yield from keys(inner, f"{path}.{name}")
    if isinstance(schema, list):
        for item in schema:
            yield from keys(item, path)


def test_every_key_is_described() -> None:
    assert [path for path, inner in keys(json_schema()) if "description" not in inner and "const" not in inner] == []


GOOD = [
    "x-shared: &shared {rate_limit: 5/60s}\ntools: [{<<: *shared, name: a, type: client, description: d}]",
    INIT_TEMPLATE,
    "name: a\nfiles: [x.yaml]\npython: [m]\nsettings: {a: [1, {b: c}]}\n",
    "groups: {a: x}\npredicates: {p: {all: [q, {not: {secret: S}}]}}\n",
    "tools:\n  - {name: a, type: internal, groups: core, available: {any: [p, true]}, rate_limit: 10/60s}\n",
    "tools:\n  - {name: a, type: internal, timeout_seconds: '${T:-5}', inline: '${I}', consent: always}\n",
    "profiles: {chat: {include: core, deny: [a], exposure: auto, rate_limit: {max_calls: 1, window_seconds: 2}}}\n",
    "profiles: {chat: {exposure: search, pinned: a, rename: {getTools: get_tools}, require_context: true}}\n",
    "profiles: {chat: {token_budget: 5000}}\n",
    'hooks: [{on: before, match: "*", use: "python:a.b:c", required: false}]\n',
    "limits: {json_depth: 5, hook_s: 0.5}\nrate_limits: {default: 1/1s}\n",
    "identity: {api_keys: {store: 'sqlite:./k.db'}, map: [{when: {key: a}, user: ann, roles: x, profiles: [p]}]}\n",
    "identity: {jwt: {issuer: i, audience: a, jwks_url: 'https://x', scopes: [s]}, map: [{when: {claim: {a: 1}}}]}\n",
    "identity: {anonymous: {profile: chat, on: anywhere}}\n",
    "workspace: {}\n",
    "workspace: {store: 'sqlite:d.db', embedder: none}\n",
]
BAD = [
    "nmae: x",
    "workspace: {spaces: s1}",
    "workspace: {embedder: magic}",
    "tools: [{name: a}]",
    "tools: [{name: a, type: mcp}]",
    "tools: [{name: a b, type: internal}]",
    "tools: [{name: a, type: internal, colour: red}]",
    "tools: [{name: a, type: internal, timeout_seconds: x}]",
    "tools: [{name: a, type: internal, consent: maybe}]",
    "tools: [{name: a, type: internal, rate_limit: often}]",
    "tools: [{name: a, type: internal, description: null}]",
    "predicates: {p: {}}",
    "predicates: {p: {secret: A, setting: b}}",
    "profiles: {chat: {exposure: flat}}",
    "profiles: {chat: {rename: {findTools: x}}}",
    "profiles: {chat: {token_budget: 0}}",
    "profiles: {chat: {allow: }}",
    "hooks: [{on: befor, use: 'python:a:b'}]",
    "hooks: [{on: before}]",
    "limits: {json_depth: 0}",
    "identity: {anonymous: {on: everywhere}}",
    "identity: {api_keys: {}}",
    "identity: {api_keys: {store: 'redis://x'}}",
    "identity: {map: [{when: {}}]}",
    "identity: {map: [{when: {key: a, claim: {b: c}}}]}",
    "identity: {map: [{user: ann}]}",
    "identity: {jwt: {issuer: i, audience: a}}",
    "limits: {jsondepth: 1}",
]


@pytest.mark.parametrize("text", GOOD)
def test_an_editor_accepts_what_loading_accepts(text: str) -> None:
    assert [error.message for error in VALIDATOR.iter_errors(unexpanded(text))] == []


@pytest.mark.parametrize("text", BAD)
def test_an_editor_marks_what_loading_refuses(project: Project, text: str) -> None:
    assert not VALIDATOR.is_valid(unexpanded(text))
    assert project.write(text).problems()


async def test_what_init_writes_works_without_a_warning(project: Project) -> None:
    for name, text in init_files().items():
        project.file(name, text)
    catalog, config = project.load()
    assert warnings(config, catalog) == []
    view = project.view(profile="chat")
    assert view.names() == ["word_count", "shout"]
    assert (await view.call("shout", {"text": "hi", "marks": 2})).text == "HI!!"
    assert (await view.call("word_count", {"text": "to be or not to be", "unique": True})).structured == 4
    assert project.view(profile="messaging").names() == ["word_count"]
