"""`pegboard plan` on pairs of configs with every kind of tool says what asking both catalogs tool by tool says."""

import asyncio
import json
from pathlib import Path
from typing import Any, NamedTuple

import orjson
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from pegboard import ToolContext
from pegboard.config import load_catalog
from pegboard.core.schema import compile_schema
from pegboard.core.validated_entry import enforced_schema
from pegboard.model.tool import ToolEntry
from pegboard.sources.mcp.lock_file import LockFile
from tests.cli.conftest import Run
from tests.sizes import examples

GROUPS = ("core", "admin", "extra")
CONSENTS = ("never", "destructive", "always")
SAMPLES: tuple[Any, ...] = (
    {}, {"text": "a"}, {"text": "abc"}, {"txt": "a"}, {"text": 1}, {"id": 1}, {"id": "x"}, {"query": "a"},
    {"text": "a", "more": 1}, {"id": 1, "more": 1},
)  # fmt: skip

groups = st.lists(st.sampled_from(GROUPS), min_size=1, max_size=2, unique=True)
texts = st.sampled_from([
    {"type": "string"}, {"type": "string", "required": True}, {"type": "string", "maxLength": 2},
])  # fmt: skip
functions = st.fixed_dictionaries(
    {"type": st.just("internal"), "handler": st.just("python:tests.cli.workshop:echo"), "description": st.just("Do."),
     "groups": groups, "parameters": texts.map(lambda text: {"text": text})},
    optional={"consent": st.sampled_from(["never", "always"]), "aliases": st.just({"txt": "text"})},
)  # fmt: skip
webhooks = st.fixed_dictionaries(
    {"type": st.just("webhook"), "description": st.just("Tell."), "groups": groups,
     "webhook": st.just({"url": "https://hooks.example.com/ping"}),
     "parameters": texts.map(lambda text: {"text": text})},
    optional={"consent": st.sampled_from(["never", "always"])},
)  # fmt: skip
agent_tools = st.fixed_dictionaries(
    {"type": st.just("agent"), "agent": st.just("sage"), "description": st.just("Ask."), "groups": st.just(["core"])}
)
servers = st.fixed_dictionaries(
    {"type": st.just("mcp"), "groups": groups},
    optional={"consent": st.sampled_from(["never", "always"])},
)
server_tools = st.fixed_dictionaries(
    {},
    optional={
        "only": st.just(["list*", "drop"]), "skip": st.just(["drop"]), "rename": st.just({"list": "ls"}),
        "groups": st.just({"drop": ["admin"]}), "consent": st.just({"drop": "always"}),
    },
)  # fmt: skip
apis = st.fixed_dictionaries({}, optional={"operations": st.just(["get*"]), "rename": st.just({"getItem": "item"})})


def definition(name: str, kind: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"id": {"type": kind}}, "required": ["id"]}
    return {"name": name, "description": "At the server.", "inputSchema": schema}


def operation(name: str, kind: str) -> dict[str, Any]:
    parameter = {"name": "id", "in": "query", "required": kind == "integer", "schema": {"type": kind}}
    return {"operationId": name, "summary": "At the API.", "parameters": [parameter],
            "responses": {"200": {"description": "done"}}}  # fmt: skip


MODEL = {"provider": "openai_compatible", "base_url": "http://127.0.0.1:9/v1", "name": "m"}


def write(folder: Path, draw: Any) -> Path:
    """Write a config with tools of each kind, its agent, its API document and its lock; return its path."""
    folder.mkdir(exist_ok=True)
    kinds = st.sampled_from(["integer", "string"])
    tools = [
        {"name": name, **draw(functions)}
        for name in draw(st.lists(st.sampled_from(["read", "write", "send", "find"]), max_size=3, unique=True))
    ]
    lock = folder / "pegboard.lock"
    lock.unlink(missing_ok=True)
    pinned = draw(st.lists(st.sampled_from(["list", "list_all", "drop"]), min_size=1, unique=True))
    LockFile(lock).accept("files", {name: definition(name, draw(kinds)) for name in pinned})
    document = {
        "openapi": "3.1.0", "info": {"title": "Shop", "version": "1"},
        "paths": {"/items": {"get": operation("getItem", draw(kinds)), "post": operation("addItem", draw(kinds))}},
    }  # fmt: skip
    (folder / "shop.json").write_text(json.dumps(document))
    agent = {
        "apiVersion": "pegboard/v1", "kind": "Agent", "metadata": {"name": "sage", "version": "1.0.0"},
        "spec": {"model": MODEL, "prompts": {"system": "Answer."},
                 "tools": [{"group": draw(st.sampled_from(["admin", "extra"]))}]},
    }  # fmt: skip
    (folder / "sage.yaml").write_text(json.dumps(agent))
    if draw(st.booleans()):
        tools.append({"name": "ping", **draw(webhooks)})
    if draw(st.booleans()):
        tools.append({"name": "ask", **draw(agent_tools)})
    if draw(st.booleans()):
        server = {"transport": "stdio", "command": "true", "tools": draw(server_tools)}
        tools.append({"name": "files", **draw(servers), "mcp": server})
    if draw(st.booleans()):
        api = {"spec": "shop.json", "base_url": "https://shop.example.com", **draw(apis)}
        tools.append({"name": "shop", "type": "openapi", "groups": draw(groups), "openapi": api})
    named = ["w*", "*n*", "ask", *(f"{tool['name']}__*" for tool in tools if tool["type"] in ("mcp", "openapi"))]
    globs = st.lists(st.sampled_from(named), max_size=2, unique=True)
    profiles = {
        name: {"include": draw(groups), "deny": draw(globs), **({"allow": draw(globs)} if draw(st.booleans()) else {})}
        for name in draw(st.lists(st.sampled_from(["chat", "office"]), min_size=1, unique=True))
    }
    config = {"groups": dict.fromkeys(GROUPS, "some"), "files": ["sage.yaml"], "tools": tools, "profiles": profiles}
    path = folder / "pegboard.yaml"
    path.write_text(json.dumps(config))
    return path


class Told(NamedTuple):
    """What a catalog says of one tool that a profile shows."""

    schema: Any
    aliases: frozenset[str]
    consent: int
    accepts: frozenset[int]


def told_of(entry: ToolEntry) -> Told:
    spec, schema = entry.spec, enforced_schema(entry)
    is_valid = compile_schema(schema).is_valid
    accepts = frozenset(number for number, sample in enumerate(SAMPLES) if is_valid(sample))
    return Told(schema, frozenset(spec.aliases), CONSENTS.index(str(spec.consent)), accepts)


def asked(path: Path) -> dict[str, dict[str, Told]]:
    """Return what the catalog of a config answers for each profile and each name that any config could have."""
    catalog, _ = load_catalog(path)
    names = {entry.wire_name for entry in catalog.snapshot().entries}

    async def ask() -> dict[str, dict[str, Told]]:
        answers: dict[str, dict[str, Told]] = {}
        for profile in catalog.registry.profiles:
            view = catalog.view(ToolContext(), profile=profile)
            found = {name: await view.afind(name) for name in names if (await view.awhy(name)).visible}
            answers[profile] = {name: told_of(entry) for name, entry in found.items() if entry is not None}
        await catalog.close(grace_s=0)
        return answers

    return asyncio.run(ask())


def expected(before: dict[str, Told], after: dict[str, Told]) -> set[tuple[str, str]]:
    changes = {("lost", name) for name in before.keys() - after.keys()}
    changes |= {("gained", name) for name in after.keys() - before.keys()}
    for name in before.keys() & after.keys():
        old, new = before[name], after[name]
        changes |= {("input", name)} if old.schema != new.schema or old.aliases - new.aliases else set()
        changes |= {("weaker", name)} if new.consent < old.consent else set()
        changes |= {("stronger", name)} if new.consent > old.consent else set()
    return changes


def said(changes: list[dict[str, Any]]) -> set[tuple[str, str]]:
    found = {(c["kind"], c["tool"]) for c in changes if c["kind"] in ("lost", "gained")}
    found |= {("input", c["tool"]) for c in changes if c["what"] == "input"}
    return found | {(c["kind"], c["tool"]) for c in changes if c["what"] == "consent" and c["tool"]}


# Shrinking a failure would take minutes.
@settings(max_examples=examples(300, few=15), phases=[Phase.generate])
@given(data=st.data())
def plans_agree(run: Run, folder: Path, data: Any) -> None:
    old, new = write(folder / "old", data.draw), write(folder, data.draw)
    ran = run("plan", "--against", str(old), "--json")
    assert ran.code == 0, ran.err
    answer, before, after = orjson.loads(ran.out), asked(old), asked(new)
    assert answer["not_compared"] == []
    assert {one["profile"] for one in answer["profiles"]} == before.keys() | after.keys()
    for one in answer["profiles"]:
        was, now = before.get(one["profile"], {}), after.get(one["profile"], {})
        assert said(one["changes"]) == expected(was, now)
        compatible = {c["tool"] for c in one["changes"] if c["what"] == "input" and c["kind"] == "compatible"}
        assert [name for name in compatible if was[name].accepts - now[name].accepts] == []


def test_a_plan_says_what_asking_both_catalogs_tool_by_tool_says(run: Run, folder: Path) -> None:
    plans_agree(run, folder)
