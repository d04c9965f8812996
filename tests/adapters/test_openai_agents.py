"""OpenAI Agents SDK: its runner with the tools of a View, and nothing between them and the door."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from openai import AsyncOpenAI

from agents import Agent, OpenAIResponsesModel, Runner, RunState, Tool, set_tracing_disabled
from pegboard import Verdict
from pegboard.adapters.openai_agents import tools
from pegboard.testing import CallsTool, ModelServer
from tests.adapters.shop import RecordingView, Shop, open_shop

set_tracing_disabled(True)


@asynccontextmanager
async def agent_of(script: Any, given: list[Tool]) -> AsyncIterator[tuple[Agent[Any], ModelServer]]:
    """Give an agent whose model follows a script, and the server that plays the model."""
    async with ModelServer(script) as server:
        http = httpx2.AsyncClient(verify=False)
        async with AsyncOpenAI(base_url=server.openai_url, api_key="any", http_client=http) as client:
            yield Agent("shop", tools=given, model=OpenAIResponsesModel("m", client)), server


async def test_an_agent_lists_what_the_view_lists_with_strict_schemas_and_calls_through_it() -> None:
    shop = open_shop()
    view = RecordingView(shop.view())
    tags = {"tags": [{"key": "a", "value": "1"}], "note": None}
    script = [[CallsTool("price", {"item": "tea", "count": None}), CallsTool("label", tags)], "It costs 3."]
    async with agent_of(script, tools(view)) as (agent, server):
        result = await Runner.run(agent, "What is tea?")
    assert result.final_output == "It costs 3."
    assert set(server.requests[0].tools) == set(view.names())
    assert "raid" not in server.requests[0].tools
    listed = {tool["name"]: tool for tool in server.requests[0].body["tools"]}
    assert listed["price"]["strict"] is True
    assert listed["price"]["parameters"] == view.export("openai_strict")[0]["function"]["parameters"]
    assert sorted(shop.ran) == [("label", {"a": "1"}), ("price", ("tea", 1))]
    assert sorted(view.calls) == [("label", {"tags": {"a": "1"}}), ("price", {"item": "tea"})]
    assert '"total":3' in server.requests[1].outcomes[0].text.replace(" ", "")


async def test_a_run_goes_on_after_arguments_to_mend_and_a_refusal() -> None:
    shop = open_shop()
    shop.catalog.before("label")(lambda call: Verdict.deny("closed on Sundays"))
    label = CallsTool("label", {"tags": [], "note": None})
    script = [[CallsTool("price", {"item": "tea", "count": "x"}), label], CallsTool("price", {"item": "tea"}), "3."]
    async with agent_of(script, tools(shop.view())) as (agent, server):
        assert (await Runner.run(agent, "?")).final_output == "3."
    wrong, refused = server.requests[1].outcomes
    assert "$.count" in wrong.text
    assert "closed on Sundays" in refused.text
    assert shop.ran == [("price", ("tea", 1))]


async def test_a_tool_that_is_hidden_amid_the_run_is_gone_from_the_next_list_and_cannot_be_called() -> None:
    shop = open_shop()
    given = tools(shop.view())
    shop.catalog.unregister("label")
    take = shop.catalog.tool(name="label", groups="owners", description="Take a label.")
    take(lambda: shop.ran.append(("label", "other")))
    async with agent_of(["hello"], given) as (agent, server):
        await Runner.run(agent, "?")
    assert "label" not in server.requests[0].tools
    hidden = next(tool for tool in given if tool.name == "label")
    assert "No tool named 'label'" in await hidden.on_invoke_tool(_call("label"), "{}")  # type: ignore[attr-defined] - a function tool
    assert shop.ran == []


def _call(name: str) -> Any:
    from agents.tool_context import ToolContext

    return ToolContext(None, tool_name=name, tool_call_id="c1", tool_arguments="{}")


async def _refund(shop: Shop, given: list[Tool], answer: str) -> tuple[Any, ModelServer]:
    """Have an agent refund, keep the interrupted run as text, and go on with the person's answer."""
    async with agent_of([CallsTool("refund", {"order": "A1"}), "Done."], given) as (agent, server):
        first = await Runner.run(agent, "Refund A1.")
        assert [item.tool_name for item in first.interruptions] == ["refund"]
        assert shop.ran == []
        state = await RunState.from_string(agent, first.to_state().to_string())
        item = state.get_interruptions()[0]
        state.approve(item) if answer == "yes" else state.reject(item)
        return await Runner.run(agent, state), server


async def test_an_interruption_that_is_approved_runs_the_call_once_and_is_recorded_as_a_yes() -> None:
    shop = open_shop()
    result, server = await _refund(shop, tools(RecordingView(shop.view())), "yes")
    assert result.final_output == "Done."
    assert shop.ran == [("refund", "A1")]
    assert server.requests[1].outcomes[0].text == "A1 is paid back"
    assert shop.finished == [("refund", "ann", "ok", "yes")]


async def test_an_interruption_that_is_rejected_runs_nothing() -> None:
    shop = open_shop()
    await _refund(shop, tools(shop.view()), "no")
    assert shop.ran == []
    assert shop.finished == []


async def test_a_yes_does_not_hold_for_a_definition_that_changed_meanwhile() -> None:
    shop = open_shop()
    script = [CallsTool("refund", {"order": "A1"}), "Not done."]
    async with agent_of(script, tools(shop.view())) as (agent, server):
        first = await Runner.run(agent, "Refund A1.")
        shop.catalog.unregister("refund")

        @shop.catalog.tool(name="refund", groups="clerks", consent="always")
        def refund_twice(order: str) -> str:
            """Pay an order back, twice."""
            shop.ran.append(("twice", order))
            return "twice"

        state = first.to_state()
        state.approve(state.get_interruptions()[0])
        await Runner.run(agent, state)
    assert shop.ran == []
    assert "a person must agree first" in server.requests[1].outcomes[0].text


async def test_what_a_hook_asks_for_interrupts_the_next_call_with_the_same_arguments() -> None:
    shop = open_shop()
    shop.catalog.before("price")(lambda call: Verdict.ask("it is expensive"))
    call = CallsTool("price", {"item": "tea", "count": None})
    async with agent_of([call, call, "3."], tools(shop.view())) as (agent, server):
        first = await Runner.run(agent, "?")
        assert shop.ran == []
        assert "it is expensive" in server.requests[1].outcomes[0].text
        state = first.to_state()
        state.approve(first.interruptions[0])
        assert (await Runner.run(agent, state)).final_output == "3."
    assert shop.ran == [("price", ("tea", 1))]


async def test_a_streamed_run_tells_of_calls_and_pictures_and_a_cancelled_one_stops_them() -> None:
    shop = open_shop()
    async with agent_of([CallsTool("photo", {}), "A shop."], tools(shop.view())) as (agent, server):
        streamed = Runner.run_streamed(agent, "show me")
        names = [event.name async for event in streamed.stream_events() if event.type == "run_item_stream_event"]
    assert names[:2] == ["tool_called", "tool_output"]
    assert "data:image/png;base64" in str(server.requests[1].body)

    async with agent_of([CallsTool("wait_for_delivery", {})], tools(shop.view())) as (agent, _):
        run = asyncio.create_task(Runner.run(agent, "wait"))
        await shop.started.wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
    assert shop.stopped == ["wait_for_delivery"]
    assert [kind for _, _, kind, _ in shop.finished] == ["ok", "cancelled"]


async def test_two_callers_each_have_their_own_tools() -> None:
    shop = open_shop()

    async def ask(user: str, profile: str) -> tuple[str, tuple[str, ...]]:
        async with agent_of([CallsTool("whoami", {}), "x"], tools(shop.view(user, profile))) as (agent, server):
            await Runner.run(agent, "who?")
            return server.requests[1].outcomes[0].text, server.requests[0].tools

    (ann, of_ann), (bob, of_bob) = await asyncio.gather(ask("ann", "clerk"), ask("bob", "guest"))
    assert (ann, bob) == ("ann", "bob")
    assert "refund" in of_ann
    assert set(of_bob) == {"price", "whoami"}
