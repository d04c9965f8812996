"""What `getTools` says of agents: those that its caller may use, and no others."""

from __future__ import annotations

from pegboard import Catalog, Policy, Profile, ToolContext
from pegboard.model.tool import ToolSpec
from pegboard.sources.agent_tool import agent_tool
from tests.agents.team import agent
from tests.core.parts import echo


def digest(catalog: Catalog, profile: str = "p") -> str:
    view = catalog.exposed(catalog.view(ToolContext(), profile=profile))
    return next(entry for entry in view.tools() if entry.spec.name == "getTools").spec.description


def test_the_digest_ends_with_the_agents_that_the_caller_may_use() -> None:
    catalog = Catalog()
    catalog.profile(Profile(name="p", exposure="two_tool"))
    catalog.profile(Profile(name="q", exposure="two_tool", policy=Policy(deny=("ask_*",))))
    catalog.registry.add(ToolSpec(name="plain", description="x").bind(echo))
    assert "Custom Agents" not in digest(catalog)
    catalog.agent(agent("writer", description="Writes.\nAt length."))
    catalog.agent(agent("critic"))
    catalog.agent(agent("hidden", description="Nobody runs it."))
    catalog.agent(agent("helper"))
    catalog.registry.add(agent_tool("ask_writer", agent="writer", description="Have it written"))
    catalog.registry.add(agent_tool("ask_critic", agent="critic"))
    catalog.registry.add(agent_tool("ask_helper", agent="helper", description='Help with "things"'))
    wanted = 'Custom Agents:\n- "critic": No description\n- "helper": Help with "things"\n- "writer": Writes.'
    assert digest(catalog).endswith(f"\n\n{wanted}")
    assert digest(catalog) == digest(catalog)
    assert "Custom Agents" not in digest(catalog, "q")
