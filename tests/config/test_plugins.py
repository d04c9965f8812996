"""Kinds of tools that other packages bring: really installed ones, found by their entry points."""

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from pegboard.config import json_schema
from tests.config.project import Project

PING = """
from pydantic import BaseModel, Field

LOADED = []

class Ping(BaseModel):
    host: str = Field(min_length=1)
    times: int = 3

def make(declaration):
    if declaration.settings.host == "raise":
        raise RuntimeError("no such host")
    if declaration.settings.host == "nothing":
        return None

    async def run(ctx, args):
        said = declaration.settings
        return {"host": said.host, "times": said.times, "args": args, "folder": declaration.folder.name}

    return declaration.spec.bind(run)

def make_two(declaration):
    from pegboard import replace
    from pegboard import ToolSpec

    def one(n):
        async def run(ctx, args):
            return n
        return replace(declaration.spec, name=f"{declaration.spec.name}_{n}").bind(run)

    return [one(1), one(2)]

def register(registrar):
    LOADED.append(registrar)
    registrar.kind("ping", make, settings=Ping)
    registrar.kind("twins", make_two)
"""
Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path) -> Iterator[Install]:
    """Install packages as pip would: a module, and beside it what says which entry points it has."""
    site = tmp_path / "site-packages"
    site.mkdir()
    before = set(sys.modules)
    sys.path.insert(0, str(site))

    def put(package: str, source: str, points: str) -> None:
        module = package.replace("-", "_")
        (site / f"{module}.py").write_text(dedent(source))
        info = site / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[pegboard.sources]\n{points}\n")
        importlib.invalidate_caches()

    yield put
    sys.path.remove(str(site))
    importlib.invalidate_caches()
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(site)):
            del sys.modules[name]


@pytest.fixture
def folder(project: Project) -> Project:
    (project.folder / "mine").mkdir()
    return Project(project.folder / "mine")


async def test_a_plugin_that_is_named_brings_a_kind(folder: Project, install: Install) -> None:
    install("acme-ping", PING, "acme = acme_ping:register")
    folder.env = {"TIMES": "7"}
    folder.write(
        """\
        plugins: [acme]
        tools:
          - name: knock
            type: ping
            description: Knock at a host
            groups: [net]
            rate_limit: 1/60s
            ping: {host: example.test, times: "${TIMES}"}
            parameters: {why: {type: string, required: true}}
          - {name: pair, type: twins}
        profiles: {chat: {include: [net]}}
        """
    )
    view = folder.view(profile="chat", user="ann")
    assert view.names() == ["knock"]
    result = await view.call("knock", {"why": "so"})
    assert result.structured == {"host": "example.test", "times": 7, "args": {"why": "so"}, "folder": "mine"}
    kinds = [(await view.call("knock", args)).error for args in ({}, {"why": "again"})]
    assert [error and error.kind for error in kinds] == ["invalid_arguments", "rate_limited"]
    everything = folder.view(user="ann")
    assert everything.names() == ["knock", "pair_1", "pair_2"]
    assert (await everything.call("pair_2", {})).structured == 2


def test_nothing_is_loaded_that_is_not_named(folder: Project, install: Install) -> None:
    install("acme-ping", PING, "acme = acme_ping:register")
    folder.write("tools: [{name: knock, type: ping, ping: {host: x}}]")
    assert folder.said() == [
        'pegboard.yaml:1:29: tools[0].type: "ping" is not a type of tool. '
        "Types: agent, builtin, client, internal, mcp, openapi, rag, webhook."
    ]
    folder.write("name: a").catalog()
    assert "acme_ping" not in sys.modules


def test_a_module_with_a_function_register_is_a_plugin_too(folder: Project, install: Install) -> None:
    install("acme-ping", PING, "acme = acme_ping")
    folder.write("plugins: [acme]\ntools: [{name: knock, type: ping, ping: {host: x}}]")
    assert len(folder.catalog().snapshot().entries) == 1


POINT = "acme_ping:register"
MISSING = "module 'acme_ping' has no attribute 'nope'"
FAULTS = {
    # What the package holds and names: why it cannot be loaded.
    ("raise SystemExit('stop')", POINT): "loaded: SystemExit: stop",
    (PING, "acme_ping:nope"): f"loaded: AttributeError: {MISSING}",
    ("register = 5", POINT): "loaded: TypeError: 'int' object is not callable",
    ("def register(r): r.kind('mcp', print)", POINT): "used: the kind 'mcp' is taken already by Pegboard",
    ("def register(r): r.kind('agent', print)", POINT): "used: the kind 'agent' is taken already by Pegboard",
    ("def register(r): r.kind('groups', print)", POINT):
        "used: the kind 'groups' is taken already by a key of every tool",
    ("def register(r): r.kind('A b', print)", POINT):
        "used: 'A b' is not a valid name of a kind: use 1 to 32 of a-z 0-9 _, a letter first",
}  # fmt: skip


@pytest.mark.parametrize(("source", "point"), FAULTS)
def test_a_plugin_that_cannot_be_loaded_is_refused_at_its_name(
    folder: Project, install: Install, source: str, point: str
) -> None:
    install("acme-ping", source, f"acme = {point}")
    folder.write("name: a\nplugins: [acme]\ntools: [{name: knock, type: ping, ping: {host: x}}]\n")
    said = f"pegboard.yaml:2:11: plugins[0]: the plugin 'acme' cannot be {FAULTS[source, point]}"
    assert folder.said() == [said]


def test_a_plugin_that_is_not_installed_is_refused_with_the_near_one(folder: Project, install: Install) -> None:
    install("acme-ping", PING, "acme = acme_ping:register")
    folder.write("plugins: [amce]")
    assert folder.said() == [
        "pegboard.yaml:1:11: plugins[0]: no installed package brings the plugin 'amce'. Did you mean 'acme'?"
    ]


def test_two_packages_with_one_plugin_are_refused(folder: Project, install: Install) -> None:
    install("acme-ping", PING, "acme = acme_ping:register")
    install("evil-ping", PING, "acme = evil_ping:register")
    folder.write("plugins: [acme]")
    assert folder.said() == [
        "pegboard.yaml:1:11: plugins[0]: several installed packages bring the plugin 'acme': acme-ping, evil-ping. "
        "Keep one"
    ]


UNFIT = {
    "ping: {}": "6: tools[0].ping.host: the key 'host' is missing",
    "ping: {host: ''}": "6: tools[0].ping.host: may not be empty",
    "ping: {host: x, times: many}": "6: tools[0].ping.times: Input should be a valid integer, unable to parse string "
    'as an integer, not "many"',
    "internal_only: false": "4: tools[0].ping: the key 'ping' is missing: The settings of ping, as the plugin 'acme' "
    "describes them",
    "ping: {host: raise}": "6: tools[0].ping: the plugin 'acme' failed on this tool: RuntimeError: no such host",
    "ping: {host: nothing}": "6: tools[0].ping: the plugin 'acme' returned a NoneType, which is neither a tool nor a "
    "source",
}


@pytest.mark.parametrize("keys", UNFIT)
def test_settings_that_a_plugin_cannot_use_are_refused_at_their_place(
    folder: Project, install: Install, keys: str
) -> None:
    install("acme-ping", PING, "acme = acme_ping:register")
    folder.write(f"plugins: [acme]\n\ntools:\n  - name: knock\n    type: ping\n    {keys}\n")
    problem = folder.problems()[0]
    assert f"{problem.where.split(':')[1]}: {problem.path}: {problem.message}" == UNFIT[keys]


def test_the_schema_for_editors_knows_the_key() -> None:
    assert json_schema()["properties"]["plugins"]["type"] == "array"
