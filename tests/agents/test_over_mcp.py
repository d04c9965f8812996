"""An agent as a tool over MCP: the client that asks for progress hears everything below its call."""

from __future__ import annotations

from typing import Any

from mcp import Client

from pegboard import CallContext, http_app
from pegboard.model.agent import AgentMemory
from pegboard.model.tool import ToolSpec
from pegboard.sources.agent_tool import agent_tool
from tests.agents.team import agent, asked, catalog_of, returned
from tests.agents.test_runs import crm_lookup
from tests.server.doors import answer_of, inside, post, served
from tests.server.test_consent import CAN_ASK


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


async def test_callers_whom_nobody_knows_share_no_conversation() -> None:
    seen: dict[str, list[Any]] = {}
    catalog = catalog_of({"a": ["end"]}, seen=seen)
    catalog.agent(agent("a"))
    catalog.registry.add(agent_tool("ask_a", agent="a"))
    for query in ("my secret is canary-77", "what was said before?"):
        async with inside(http_app(catalog)) as client:
            await post(client, "tools/call", {"name": "ask_a", "arguments": {"query": query}})
    assert [asked(messages) for messages, _ in seen["a"]] == [["my secret is canary-77"], ["what was said before?"]]
    await catalog.close()


async def test_a_question_inside_a_sub_agent_is_asked_of_the_client_and_its_yes_serves_the_run_that_begins_again() -> (
    None
):
    seen: dict[str, list[Any]] = {}
    wiped: list[str] = []

    def wipe(ctx: CallContext, args: Any) -> str:
        wiped.append("disk")
        return "wiped"

    catalog = catalog_of({"a": [[("wipe", {})], "done"]}, seen=seen)
    spec = agent("a", memory=AgentMemory(conversation=False))
    catalog.agent(spec, tools=[ToolSpec(name="wipe", consent="always").bind(wipe)])
    catalog.registry.add(agent_tool("ask_a", agent="a"))
    params: dict[str, Any] = {"name": "ask_a", "arguments": {"query": "q"}}
    for action, told, count in (("accept", "wiped", 1), ("decline", "Error (consent_declined)", 1)):
        async with inside(http_app(catalog)) as client:
            first = answer_of(await post(client, "tools/call", params, meta=CAN_ASK))["result"]
            assert first["resultType"] == "input_required"
            [(key, question)] = first["inputRequests"].items()
            assert "'a.wipe'" in question["params"]["message"]
            answers = {key: {"action": action, "content": {}}}
            again = params | {"inputResponses": answers, "requestState": first["requestState"]}
            second = answer_of(await post(client, "tools/call", again, meta=CAN_ASK))["result"]
        assert (second["content"][0]["text"], len(wiped)) == ("done", count)
        assert str(returned(seen["a"][-1][0])[0]).startswith(told)
    await catalog.close()
