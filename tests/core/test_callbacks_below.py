"""Callbacks given to a call hear everything below it, and a pair of events names one tool."""

from typing import Any

import pytest

from pegboard import CallContext, Catalog, Policy, Profile, ToolContext
from pegboard.model.record import replace
from tests.core.parts import ANN, Recorder, kind_of


def nested() -> Catalog:
    catalog = Catalog()

    @catalog.tool
    async def read() -> str:
        """Read."""
        return "text"

    @catalog.tool
    async def by_call_context(ctx: CallContext) -> None:
        """Call with the context of the call."""
        await catalog.view(ctx).call("read")

    @catalog.tool
    async def by_tool_context(ctx: ToolContext) -> None:
        """Call with the context of the request."""
        await catalog.view(ctx).call("read")

    @catalog.tool
    async def by_child(ctx: CallContext) -> None:
        """Call as a sub-agent."""
        await catalog.view(ctx.child(agent="helper")).call("read")

    catalog.profile(Profile(name="chat", include=("core",), exposure="two_tool"))
    return catalog


@pytest.mark.parametrize("outer", ["by_call_context", "by_tool_context", "by_child"])
async def test_callbacks_of_a_call_hear_the_calls_that_its_tool_makes(outer: str) -> None:
    of_call, of_context = Recorder(), Recorder()
    view = nested().view(replace(ANN, callbacks=of_context))
    await view.call(outer, callbacks=[of_call])
    told = [(event.type, event.tool) for event in of_call.events]
    assert told == [
        ("on_tool_call", outer), ("on_tool_call", "read"), ("on_tool_result", "read"), ("on_tool_result", outer),
    ]  # fmt: skip
    assert told == [(event.type, event.tool) for event in of_context.events]
    # They were given to that call, and not to the next one on the same view.
    await view.call("read")
    assert (len(of_call.events), len(of_context.events)) == (4, 6)


async def test_callbacks_of_a_batch_hear_its_calls_which_carry_its_id() -> None:
    recorder, catalog = Recorder(), nested()
    view = catalog.exposed(catalog.view(ANN, profile="chat"))
    calls = [{"tool": "read"}, {"tool": "by_child"}]
    result = await view.call("useTools", {"calls": calls}, callbacks=recorder)
    assert kind_of(result) == "ok"
    began = {event.tool: event for event in recorder.events if event.type == "on_tool_call"}
    batch = began["useTools"].call_id
    [started] = [event for event in recorder.events if event.type == "on_batch_started"]
    assert (started.call_id, started.payload["batch_id"]) == (batch, batch)
    inner = [event for event in recorder.events if event.parent_call_id == batch and event.type == "on_tool_call"]
    assert [event.tool for event in inner] == ["read", "by_child"]
    ends = [event.tool for event in recorder.results()]
    assert sorted(ends) == ["by_child", "read", "read", "useTools"]


@pytest.mark.parametrize("asked", ["read", "main.read", "main__read"])
async def test_both_events_of_a_call_name_the_tool_as_the_list_does(asked: str) -> None:
    recorder = Recorder()
    await nested().view(ANN).call(asked, callbacks=recorder)
    assert [(event.type, event.tool) for event in recorder.events] == [
        ("on_tool_call", "read"), ("on_tool_result", "read"),
    ]  # fmt: skip


@pytest.mark.parametrize("asked", ["main.read", "main.nothing"])
async def test_the_events_of_a_hidden_tool_name_what_was_asked_as_those_of_an_unknown_one(asked: str) -> None:
    recorder = Recorder()
    view = nested().view(replace(ANN, policy=Policy(deny=("read",))))
    await view.call(asked, callbacks=recorder)
    assert [event.tool for event in recorder.events] == [asked, asked]


async def test_an_observer_that_wants_one_call_alone_hears_that_one() -> None:
    class Own(Recorder):
        own_call_only = True

    own: Any = Own()
    await nested().view(ANN).call("by_child", callbacks=own)
    assert [event.tool for event in own.events] == ["by_child", "by_child"]
