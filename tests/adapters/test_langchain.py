"""LangChain and LangGraph: their tools and graphs with a View, and nothing between them and the door."""

import asyncio
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, InjectedToolArg, tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command

from pegboard import Catalog, DefinitionError, ToolContext, Verdict
from pegboard.adapters.langchain import declared, tools
from tests.adapters.shop import RecordingView, open_shop

CONFIG: Any = {"configurable": {"thread_id": "t1"}}


def calls(*wanted: tuple[str, dict[str, Any]]) -> AIMessage:
    made: Any = [
        {"name": name, "args": args, "id": f"c{i}", "type": "tool_call"} for i, (name, args) in enumerate(wanted)
    ]
    return AIMessage("", tool_calls=made)


def graph_of(given: list[BaseTool], *turns: AIMessage) -> Any:
    """Return an agent of LangGraph: a scripted model, and a node that runs its calls."""
    script = iter([*turns, AIMessage("done")])

    async def think(state: MessagesState) -> Any:
        return {"messages": [next(script)]}

    graph = StateGraph(MessagesState)
    graph.add_node("agent", think)
    graph.add_node("tools", ToolNode(given))
    graph.add_edge(START, "agent")
    graph.add_conditional_edges("agent", tools_condition)
    graph.add_edge("tools", "agent")
    return graph.compile(checkpointer=InMemorySaver())


async def ask(graph: Any) -> list[ToolMessage]:
    state = await graph.ainvoke({"messages": [("user", "?")]}, CONFIG)
    return [message for message in state["messages"] if isinstance(message, ToolMessage)]


async def test_a_graph_lists_what_the_view_lists_and_calls_through_it() -> None:
    shop = open_shop()
    view = RecordingView(shop.view())
    given = tools(view)
    assert [tool.name for tool in given] == view.names()
    sent = convert_to_openai_tool(next(tool for tool in given if tool.name == "price"))["function"]["parameters"]
    assert sent["properties"] == view.schema("price")["properties"]
    [message] = await ask(graph_of(given, calls(("price", {"item": "tea", "count": 2}))))
    assert message.artifact["structuredContent"] == {"item": "tea", "total": 6}
    assert '"total":6' in str(message.content).replace(" ", "")
    assert view.calls == [("price", {"item": "tea", "count": 2})]
    assert shop.events.types == ["on_tool_call", "on_tool_result"]
    assert shop.finished == [("price", "ann", "ok", "")]


async def test_wrong_arguments_a_refusal_and_a_hidden_tool_are_told_as_errors_and_run_nothing() -> None:
    shop = open_shop()
    view = RecordingView(shop.view())
    shop.catalog.before("label")(lambda call: Verdict.deny("closed on Sundays"))
    wanted = [("price", {"itm": "tea"}), ("label", {"tags": {}}), ("raid", {"amount": 1})]
    wrong, refused, hidden = await ask(graph_of(tools(view), calls(*wanted)))
    assert {message.status for message in (wrong, refused, hidden)} == {"error"}
    assert "$.itm" in wrong.content
    assert "closed on Sundays" in refused.content
    assert shop.ran == []
    assert [name for name, _ in view.calls] == ["price", "label"]
    # The framework itself knows no tool of that name; one that is kept past its time is told so by the door.
    kept = next(tool for tool in tools(shop.view(profile="guest")) if tool.name == "whoami")
    kept.name = "raid"
    assert "No tool named 'raid'" in (await kept.ainvoke(calls(("raid", {"amount": 1})).tool_calls[0])).content


async def test_arguments_called_like_what_the_framework_fills_reach_the_tool() -> None:
    catalog, got = Catalog(), list[dict[str, Any]]()

    @catalog.tool
    def odd(config: str, run_manager: str, callbacks: str, state: str) -> str:
        """Take odd names."""
        got.append({"config": config, "run_manager": run_manager, "callbacks": callbacks, "state": state})
        return "ok"

    given: Any = {"config": "a", "run_manager": "b", "callbacks": "c", "state": "d"}
    [message] = await ask(graph_of(tools(catalog.view(ToolContext(user_id="ann"))), calls(("odd", given))))
    assert (message.content, got) == ("ok", [given])


@pytest.mark.parametrize("answer", ["yes", "no", "bare", "other"])
async def test_a_graph_stops_for_a_yes_and_goes_on_with_the_answer_to_that_question(answer: str) -> None:
    shop = open_shop()
    graph = graph_of(tools(shop.view()), calls(("refund", {"order": "A1"})))
    stopped = await graph.ainvoke({"messages": [("user", "Refund A1.")]}, CONFIG)
    [asked] = stopped["__interrupt__"]
    assert "A1" in asked.value["question"]
    assert shop.ran == []
    resume = {
        "yes": {**asked.value, "approved": True},
        "no": {**asked.value, "approved": False},
        "bare": True,
        "other": {**asked.value, "args_digest": "0" * 64, "approved": True},
    }[answer]
    state = await graph.ainvoke(Command(resume=resume), CONFIG)
    assert shop.ran == ([("refund", "A1")] if answer == "yes" else [])
    assert state["messages"][-1].content == "done"
    consents = [consent for _, _, _, consent in shop.finished]
    assert consents[-1] == {"yes": "yes", "no": "no", "bare": "no", "other": "nobody"}[answer]


async def test_what_ran_beside_a_call_that_stopped_the_graph_does_not_run_again() -> None:
    shop = open_shop()
    wanted = calls(("label", {"tags": {"a": "1"}}), ("refund", {"order": "A1"}))
    graph = graph_of(tools(shop.view()), wanted)
    stopped = await graph.ainvoke({"messages": [("user", "?")]}, CONFIG)
    [asked] = stopped["__interrupt__"]
    state = await graph.ainvoke(Command(resume={**asked.value, "approved": True}), CONFIG)
    assert sorted(shop.ran) == [("label", {"a": "1"}), ("refund", "A1")]
    told = [message.content for message in state["messages"] if isinstance(message, ToolMessage)]
    assert told == ["a=1", "A1 is paid back"]


async def test_outside_of_a_graph_nobody_is_asked_and_nothing_runs() -> None:
    shop = open_shop()
    refund = next(tool for tool in tools(shop.view()) if tool.name == "refund")
    assert "a person must agree first" in await refund.ainvoke({"order": "A1"})
    assert shop.ran == []


async def test_a_stream_tells_of_each_call_with_pictures_and_a_cancelled_run_stops_it() -> None:
    shop = open_shop()
    graph = graph_of(tools(shop.view()), calls(("photo", {})))
    events = [
        event["event"] async for event in graph.astream_events({"messages": [("user", "?")]}, CONFIG, version="v2")
    ]
    assert {"on_tool_start", "on_tool_end"} <= set(events)
    photo = next(tool for tool in tools(shop.view()) if tool.name == "photo")
    assert (await photo.ainvoke({}))[0]["mime_type"] == "image/png"

    run = asyncio.create_task(ask(graph_of(tools(shop.view()), calls(("wait_for_delivery", {})))))
    await shop.started.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert shop.stopped == ["wait_for_delivery"]


async def test_two_callers_each_have_their_own_tools() -> None:
    shop = open_shop()
    both = await asyncio.gather(
        ask(graph_of(tools(shop.view("ann")), calls(("whoami", {})))),
        ask(graph_of(tools(shop.view("bob", "guest")), calls(("whoami", {})))),
    )
    assert [messages[0].content for messages in both] == ["ann", "bob"]


async def test_what_langchain_hides_from_the_model_comes_from_the_context_of_the_call() -> None:
    @tool
    def bookings(city: str, user: Annotated[str, InjectedToolArg], config: RunnableConfig) -> str:
        """List bookings."""
        return f"{user} in {city}, {config.get('configurable', {}).get('tenant')}"

    with pytest.raises(DefinitionError, match="needs \\['user'\\], which the model does not send: declared"):
        declared(bookings)

    catalog = Catalog()
    [entry] = declared(
        bookings,
        inject=lambda ctx: {"user": ctx.user_id, "unused": 1},
        config=lambda ctx: {"configurable": {"tenant": ctx.space_id}},
    )
    catalog.register(entry)
    view = catalog.view(ToolContext(user_id="ann", space_id="s1"))
    assert list(view.schema("bookings")["properties"]) == ["city"]
    assert (await view.call("bookings", {"city": "Oslo"})).text == "ann in Oslo, s1"
    refused = await view.call("bookings", {"city": "Oslo", "user": "bob"})
    assert refused.error is not None
    assert refused.error.kind == "invalid_arguments"
