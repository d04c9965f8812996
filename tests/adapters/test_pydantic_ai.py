"""Pydantic AI: its agents with the tools of a View, and nothing between them and the door."""

import asyncio
from typing import Any

import pytest
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, ModelRetry, ToolDenied, capture_run_messages
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pegboard.adapters.pydantic_ai import PegboardToolset
from tests.adapters.shop import PICTURE, RecordingView, open_shop

Script = list[list[tuple[str, Any]]]


def scripted(script: Script, seen: list[AgentInfo] | None = None) -> FunctionModel:
    """Return a model that makes the calls of one step after the other, and then says what the last tool gave."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if seen is not None:
            seen.append(info)
        step = sum(isinstance(message, ModelResponse) for message in messages)
        if step < len(script):
            return ModelResponse(
                [ToolCallPart(name, args, f"c{step}-{i}") for i, (name, args) in enumerate(script[step])]
            )
        last = messages[-1].parts[-1]
        return ModelResponse([TextPart(str(getattr(last, "content", last)))])

    return FunctionModel(answer)


def parts_of(messages: list[ModelMessage], kind: type) -> list[Any]:
    return [part for message in messages for part in message.parts if isinstance(part, kind)]


async def test_an_agent_lists_what_the_view_lists_and_calls_through_it() -> None:
    shop, seen = open_shop(), list[AgentInfo]()
    view = RecordingView(shop.view())
    agent = Agent(scripted([[("price", {"item": "tea", "count": 2})]], seen), toolsets=[PegboardToolset(view)])
    result = await agent.run("What is tea?")
    listed = {tool.name: tool for tool in seen[0].function_tools}
    assert sorted(listed) == sorted(view.names())
    assert "raid" not in listed
    assert listed["price"].parameters_json_schema == view.schema("price")
    assert parts_of(result.all_messages(), ToolReturnPart)[0].content == {"item": "tea", "total": 6}
    assert view.calls == [("price", {"item": "tea", "count": 2})]
    assert shop.events.types == ["on_tool_call", "on_tool_result"]
    assert shop.finished == [("price", "ann", "ok", "")]


async def test_arguments_that_the_model_can_mend_come_back_to_it_in_the_doors_words() -> None:
    shop = open_shop()
    view = RecordingView(shop.view())
    model = scripted([[("price", {"item": "tea", "count": "many"})], [("price", {"item": "tea"})]])
    result = await Agent(model, toolsets=[PegboardToolset(view)]).run("What is tea?")
    said = str(parts_of(result.all_messages(), ToolReturnPart)[0].content)
    assert "$.count" in said
    assert "integer" in said
    assert [name for name, _ in view.calls] == ["price", "price"]
    assert shop.ran == [("price", ("tea", 1))]


async def test_a_hidden_tool_cannot_be_reached_by_any_name() -> None:
    shop = open_shop()
    names = ["raid", "main.raid", "main__raid", "RAID", "nothing"]
    for name in names:
        with capture_run_messages() as messages, pytest.raises(Exception, match=r"retries|limit"):
            await Agent(scripted([[(name, {"amount": 1})]] * 3), toolsets=[PegboardToolset(shop.view())]).run("raid")
        assert "CANARY" not in str(messages)
    assert shop.ran == []
    # A toolset that is asked past its list, as by a wrapper, gets the words of an unknown name.
    told = [await _told(shop, name) for name in ("raid", "nothing")]
    assert told[0].replace("raid", "") == told[1].replace("nothing", "")


async def _told(shop: Any, name: str) -> str:
    toolset = PegboardToolset(shop.view())
    asked: dict[str, Any] = {}

    def note(ctx: Any, tools: Any) -> Any:
        asked["ctx"] = ctx
        return tools

    await Agent(scripted([]), toolsets=[toolset.prepared(note)]).run("hello")
    with pytest.raises(ModelRetry) as refused:
        await toolset.call_tool(name, {"amount": 1}, asked["ctx"], None)  # type: ignore[arg-type] - nothing is listed
    return str(refused.value)


async def test_a_refusal_ends_no_run_and_costs_no_retry() -> None:
    shop = open_shop()
    shop.catalog.before("price")(_refuse)
    result = await Agent(scripted([[("price", {"item": "tea"})]] * 3), toolsets=[PegboardToolset(shop.view())]).run("?")
    assert "closed on Sundays" in result.output
    assert shop.ran == []


def _refuse(call: Any) -> Any:
    from pegboard import Verdict

    return Verdict.deny("closed on Sundays")


async def test_a_tool_that_asks_a_person_waits_for_the_yes_and_runs_once() -> None:
    shop = open_shop()
    view = RecordingView(shop.view())
    agent = Agent(
        scripted([[("refund", {"order": "A1"})]]),
        output_type=[str, DeferredToolRequests],
        toolsets=[PegboardToolset(view)],
    )
    first = await agent.run("Refund A1.")
    asked = first.output
    assert isinstance(asked, DeferredToolRequests)
    assert [call.tool_name for call in asked.approvals] == ["refund"]
    [question] = asked.metadata.values()
    assert "A1" in question["question"]
    assert shop.ran == []

    given = DeferredToolResults(approvals={asked.approvals[0].tool_call_id: True}, metadata=asked.metadata)
    second = await agent.run(message_history=first.all_messages(), deferred_tool_results=given)
    assert second.output == "A1 is paid back"
    assert shop.ran == [("refund", "A1")]
    assert shop.finished == [("refund", "ann", "consent_required", "nobody"), ("refund", "ann", "ok", "yes")]


@pytest.mark.parametrize("answer", [False, ToolDenied("no, thanks")])
async def test_a_no_runs_nothing(answer: Any) -> None:
    shop = open_shop()
    agent = Agent(
        scripted([[("refund", {"order": "A1"})]]),
        output_type=[str, DeferredToolRequests],
        toolsets=[PegboardToolset(shop.view())],
    )
    first = await agent.run("Refund A1.")
    assert isinstance(first.output, DeferredToolRequests)
    given = DeferredToolResults(approvals={first.output.approvals[0].tool_call_id: answer})
    await agent.run(message_history=first.all_messages(), deferred_tool_results=given)
    assert shop.ran == []


async def test_a_yes_does_not_hold_for_other_arguments_or_another_definition() -> None:
    shop = open_shop()
    agent = Agent(
        scripted([[("refund", {"order": "A1"})]]),
        output_type=[str, DeferredToolRequests],
        toolsets=[PegboardToolset(shop.view())],
    )
    first = await agent.run("Refund A1.")
    assert isinstance(first.output, DeferredToolRequests)
    call_id = first.output.approvals[0].tool_call_id

    @shop.catalog.tool(name="refund", groups="clerks", consent="always", replace=True)
    def refund_more(order: str) -> str:
        """Pay an order back, twice."""
        shop.ran.append(("refund_more", order))
        return "twice"

    given = DeferredToolResults(approvals={call_id: True}, metadata=first.output.metadata)
    again = await agent.run(message_history=first.all_messages(), deferred_tool_results=given)
    assert isinstance(again.output, DeferredToolRequests)
    assert shop.ran == []


async def test_two_callers_of_one_agent_each_have_their_own_tools() -> None:
    shop, seen = open_shop(), list[AgentInfo]()
    agent = Agent(
        scripted([[("whoami", {})]], seen),
        deps_type=tuple,
        toolsets=[PegboardToolset(lambda ctx: shop.view(*ctx.deps))],
    )
    both = await asyncio.gather(
        agent.run("Who?", deps=("ann", "clerk")), agent.run("Who?", deps=("bob", "guest")), return_exceptions=False
    )
    assert [result.output for result in both] == ["ann", "bob"]
    lists = {tuple(sorted(tool.name for tool in info.function_tools)) for info in seen}
    assert ("price", "whoami") in lists
    assert len(lists) == 2


async def test_a_cancelled_run_cancels_the_call() -> None:
    shop = open_shop()
    agent = Agent(scripted([[("wait_for_delivery", {})]]), toolsets=[PegboardToolset(shop.view())])
    run = asyncio.create_task(agent.run("wait"))
    await shop.started.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert shop.stopped == ["wait_for_delivery"]
    assert [kind for _, _, kind, _ in shop.finished] == ["cancelled"]


async def test_a_streamed_run_tells_of_each_call_and_carries_pictures() -> None:
    shop = open_shop()
    agent = Agent(scripted([[("photo", {}), ("price", {"item": "tea"})]]), toolsets=[PegboardToolset(shop.view())])
    events: list[Any] = []
    async with agent.iter("show me") as run:
        async for node in run:
            if Agent.is_call_tools_node(node):
                async with node.stream(run.ctx) as stream:
                    events += [event async for event in stream]
    kinds = [event.event_kind for event in events]
    assert kinds.count("function_tool_call") == kinds.count("function_tool_result") == 2
    assert PICTURE in [getattr(item, "data", None) for event in events for item in _contents(event)]


def _contents(event: Any) -> list[Any]:
    content = getattr(getattr(event, "part", None) or getattr(event, "result", None), "content", None)
    return content if isinstance(content, list) else [content]
