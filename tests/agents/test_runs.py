"""An agent runs on its own tools, and every call goes through the one door."""

from __future__ import annotations

from typing import Any

from pegboard.model.tool import ToolSpec
from pegboard.sources.agent_tool import QUERY, agent_entry
from tests.agents.team import Recorder, agent, catalog_of, returned


def crm_lookup(company: str) -> str:
    """Look a company up."""
    return f"{company}: 40 people"


async def test_an_agent_calls_its_own_tool_and_answers() -> None:
    seen: dict[str, list[Any]] = {}
    catalog = catalog_of({"sales": [[("crm_lookup", {"company": "Acme"})], "Acme has 40 people"]}, seen=seen)
    prompt = "You qualify {{ context.company }}, that is {{ company }}."
    catalog.agent(agent("sales", prompt=prompt), tools=[crm_lookup])
    recorder = Recorder()
    heard: list[str] = []
    result = await catalog.agents.run(
        "sales", "How large?", context={"company": "Acme"}, callbacks=recorder, on_text=heard.append
    )
    assert (result.status, result.output, result.error) == ("completed", "Acme has 40 people", None)
    assert heard == ["Acme", " has", " 40", " people"]
    assert recorder.told() == [("tool_call", "crm_lookup"), ("tool_result", "crm_lookup")]
    messages, info = seen["sales"][-1]
    assert returned(messages) == ["Acme: 40 people"]
    assert info.instructions == "You qualify Acme, that is Acme."
    assert (result.usage.requests, result.usage.tool_calls) == (2, 1)
    await catalog.close()


async def test_an_agent_runs_another_as_a_tool_whose_events_arrive_below_its_call() -> None:
    catalog = catalog_of(
        {
            "lead": [[("ask", {"query": "What is it?"})], "It is large"],
            "helper": [[("crm_lookup", {"company": "Acme"})], "40 people"],
        }
    )
    catalog.agent(agent("helper"), tools=[crm_lookup])
    catalog.agent(agent("lead"), tools=[agent_entry(ToolSpec(name="ask", input_schema=QUERY), agent="helper")])
    recorder, everywhere = Recorder(), Recorder()
    catalog.observe(everywhere)
    result = await catalog.agents.run("lead", "Go", callbacks=recorder)
    assert result.output == "It is large"
    assert recorder.told() == [
        ("tool_call", "ask"), ("sub_agent_start", "ask"), ("sub_agent_tool_call", "crm_lookup"),
        ("sub_agent_tool_result", "crm_lookup"), ("sub_agent_chunk", "ask"), ("sub_agent_chunk", "ask"),
        ("sub_agent_end", "ask"), ("tool_result", "ask"),
    ]  # fmt: skip
    assert everywhere.told() == recorder.told()
    await catalog.close()
