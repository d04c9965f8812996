"""An agent as a tool over MCP: the client that asks for progress hears everything below its call."""

from __future__ import annotations

from mcp import Client

from pegboard import http_app
from pegboard.sources.agent_tool import agent_tool
from tests.agents.team import agent, catalog_of
from tests.agents.test_runs import crm_lookup
from tests.server.doors import served


async def test_progress_tells_each_step_of_the_agents_below_and_goes_up() -> None:
    catalog = catalog_of({
        "lead": [[("ask", {"query": "q"})], "It is large"],
        "helper": [[("crm_lookup", {"company": "Acme"})], "forty people"],
    })  # fmt: skip
    catalog.agent(agent("helper"), tools=[crm_lookup])
    catalog.agent(agent("lead"), tools=[agent_tool("ask", agent="helper")])
    catalog.registry.add(agent_tool("lead", agent="lead"))
    heard: list[tuple[float, str | None]] = []

    async def listen(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, message))

    async with served(http_app(catalog)) as url, Client(f"{url}/mcp") as client:
        result = await client.call_tool("lead", {"query": "How large?"}, progress_callback=listen)
    assert (result.is_error, result.content[0].text) == (False, "It is large")  # type: ignore[union-attr] - a text
    assert [message for _, message in heard] == [
        "lead: started", "lead: calls ask", "  helper: started", "  helper: calls crm_lookup",
        "  helper: crm_lookup answered", "forty", " people", "  helper: completed", "lead: ask answered", "It", " is",
        " large", "lead: completed",
    ]  # fmt: skip
    assert [step for step, _ in heard] == sorted({step for step, _ in heard})
