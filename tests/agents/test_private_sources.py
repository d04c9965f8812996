"""A source whose tools one agent alone has lives as any other, and lists nothing for anybody else."""

from __future__ import annotations

from typing import Any

import pytest

from pegboard import Catalog, DefinitionError, Policy, Secret, ToolContext
from pegboard.core.declarations import PrivateSource
from pegboard.model.agent import AgentEntry
from pegboard.model.record import replace
from pegboard.model.source_state import SourceState
from pegboard.model.tool import ToolSpec
from pegboard.sources.agent_tool import agent_tool
from tests.agents.team import agent, catalog_of
from tests.core.parts import FakeSource, echo, foreign, kind_of


async def test_the_tools_of_a_private_source_are_in_its_agents_view_and_in_no_other() -> None:
    catalog = Catalog()
    shared = FakeSource(name="fs", listed=[foreign("fs", "read")])
    source = FakeSource(name="fs", listed=[foreign("fs", "read"), foreign("fs", "write")])
    catalog.add_source(shared)
    catalog.registry.add_source(PrivateSource(source, "a.fs"))
    catalog.registry.add_agent(AgentEntry(spec=agent("a", shared=("fs.read",)), sources=("a.fs", "a.gone")))
    catalog.agent(agent("b", shared=("fs.read",)))
    await catalog.start()
    assert catalog.agents.view("a").names() == ["fs__read", "fs__write"]
    assert catalog.agents.view("b").names() == catalog.view(ToolContext()).names() == ["fs__read"]
    assert catalog.agents.view("a")["fs__read"].source == "a.fs"
    source.relist([foreign("fs", "delete")])
    assert sorted(catalog.agents.view("a").names()) == ["fs__delete", "fs__read"]
    await catalog.close()


def test_an_agent_is_declared_once_and_runs_agents_that_there_are() -> None:
    catalog = Catalog()
    catalog.agent(agent("a"))
    with pytest.raises(DefinitionError, match="There is an agent 'a' already"):
        catalog.agent(agent("a"))
    with pytest.raises(DefinitionError, match="no agent 'nobody'"):
        catalog.agent(agent("b"), tools=[agent_tool("ask", agent="nobody")])
    assert catalog.agents.names() == ["a"]


async def test_a_tool_that_runs_an_agent_says_so_where_nothing_runs_agents() -> None:
    catalog = Catalog()
    catalog.agent(agent("a"))
    catalog.registry.add(agent_tool("ask", agent="a"))
    catalog.executor.swap(replace(catalog.executor.ports, agents=None))
    assert kind_of(await catalog.view(ToolContext()).call("ask", {"query": "q"})) == "tool_error"


def test_own_tools_have_their_names_before_those_of_the_catalog_whatever_these_are_called() -> None:
    catalog = Catalog()
    catalog.registry.add(ToolSpec(name="look", description="shared").bind(echo))
    catalog.registry.add(ToolSpec(name="main__look", description="odd").bind(echo))
    catalog.registry.add(ToolSpec(name="other", description="shared").bind(echo))

    def look() -> str:
        return "own"

    catalog.agent(agent("a", groups=("core",)), tools=[look])
    view = catalog.agents.view("a")
    assert view["look"].qualified_id == "a.look"
    assert sorted(entry.qualified_id for entry in view.tools()) == [
        "a.look",
        "main.look",
        "main.main__look",
        "main.other",
    ]
    assert len(set(view.names())) == 4


NAMES_OF_OTHERS = (
    "getTools", "SEARCHTOOLS", "useTools", "main__x", "mcp__x__y", "crm__lookup", "pegboard__meta__x", "__x",
    "main", "MCP",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES_OF_OTHERS)
def test_an_own_tool_cannot_be_called_like_a_tool_of_somebody_else(name: str) -> None:
    catalog = Catalog()
    with pytest.raises(DefinitionError, match="Agent 'a': "):
        catalog.agent(agent("a"), tools=[ToolSpec(name=name, description="x").bind(echo)])
    assert catalog.agents.names() == []


def test_an_own_tool_cannot_be_in_the_namespace_of_the_catalog() -> None:
    for namespace in ("main", "mcp"):
        with pytest.raises(DefinitionError, match=f"'{namespace}' is the name of tools of the catalog"):
            Catalog().agent(agent("a", namespace=namespace), tools=[ToolSpec(name="x", description="x").bind(echo)])


@pytest.mark.parametrize(
    "denial", ["main.crm_lookup", "main__crm_lookup", "MAIN.crm_*", "crm_lookup", "main.*", "old_lookup"]
)
@pytest.mark.parametrize("of", ["the agent", "the caller"])
async def test_an_own_tool_does_not_run_where_the_tool_that_it_hides_is_denied(denial: str, of: str) -> None:
    catalog = Catalog()
    shared = ToolSpec(name="crm_lookup", description="shared", renamed_from=("old_lookup",))
    catalog.registry.add(shared.bind(echo))
    ran: list[str] = []

    def crm_lookup() -> str:
        ran.append("crm_lookup")
        return "own"

    def another() -> str:
        return "own"

    denied = Policy(deny=(denial,))
    catalog.agent(agent("a", policy=denied if of == "the agent" else Policy()), tools=[crm_lookup, another])
    view = catalog.agents.view("a", ToolContext(policy=denied) if of == "the caller" else None)
    assert view.names() == ["another"]
    assert kind_of(await view.call("crm_lookup", {})) == "not_found"
    assert not ran
    assert "denied by" in view.why("crm_lookup").reason


async def test_a_rule_that_allows_the_tool_of_the_catalog_allows_no_own_tool_that_hides_it() -> None:
    catalog = Catalog()
    catalog.registry.add(ToolSpec(name="crm_lookup", description="shared").bind(echo))
    own = ToolSpec(name="crm_lookup", description="own").bind(echo)
    catalog.agent(agent("a", policy=Policy(allow=("main.crm_lookup",))), tools=[own])
    assert catalog.agents.view("a").names() == []


GONE = SourceState(status="unreachable", is_up=False, reason="it was stopped")


async def test_an_agent_whose_tools_are_all_away_fails_and_names_the_source() -> None:
    catalog = catalog_of({"a": ["I made this up"]})
    source = FakeSource(name="fs", listed=[foreign("fs", "read")], now=GONE)
    catalog.registry.add_source(PrivateSource(source, "a.fs"))
    catalog.registry.add_agent(AgentEntry(spec=agent("a"), sources=("a.fs",)))
    result = await catalog.agents.run("a", "What is in it?")
    assert result.status == "failed"
    assert result.error is not None
    assert result.error.kind == "upstream_unavailable"
    assert "'a.fs' (unreachable: it was stopped)" in result.error.message
    assert result.usage.requests == 0
    source.now = SourceState()
    again = await catalog.agents.run("a", "What is in it?")
    assert (again.status, again.away_sources) == ("completed", ())
    await catalog.close()


@pytest.mark.parametrize("takes", [{"groups": ("files",)}, {"shared": ("fs.read",)}])
async def test_an_agent_that_lacks_some_tools_runs_and_says_which_source_is_away(
    takes: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    catalog = catalog_of({"a": ["done"]})
    catalog.add_secrets(Secret("canary-of-a-program"))
    gone = SourceState(status="unreachable", is_up=False, reason="it was stopped: canary-of-a-program")
    catalog.add_source(FakeSource(name="fs", listed=[foreign("fs", "read", groups=("files",))], now=gone,
                                  declared=frozenset({"files"})))  # fmt: skip
    catalog.add_source(FakeSource(name="web", listed=[foreign("web", "get")], now=GONE))
    catalog.agent(agent("a", **takes), tools=[own])
    result = await catalog.agents.run("a", "Read it.")
    assert (result.status, result.away_sources) == ("completed", ("'fs' (unreachable: it was stopped: [redacted])",))
    assert "Agent 'a' runs without the tools of these sources: 'fs'" in caplog.text
    # Each door explains a hidden tool by this decision.
    assert "canary" not in (await catalog.view(ToolContext()).awhy("fs__read")).reason
    await catalog.close()


def own() -> str:
    """Answer by itself."""
    return "yes"
