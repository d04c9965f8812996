"""Testing: the tools for users' tests do what they say, and leave nothing behind."""

from typing import Any

import pytest

from pegboard import CallContext, Catalog, Secret, Tool, ToolContext, ToolSpec, default_catalog
from pegboard.testing import (
    EventRecorder,
    assert_hidden,
    assert_visible,
    call_context,
    isolated_catalog,
    scripted_approver,
)


async def test_a_call_context_records_all_that_a_handler_tells() -> None:
    async def handler(ctx: CallContext) -> str:
        await ctx.progress(0.25, "a quarter")
        ctx.emit({"own": 1})
        async with ctx.sub_agent("cook") as sub:
            await sub.chunk("text")
            sub.tool_call("boil", {"litres": 1})
            sub.tool_result("boil", "hot", ok=False)
        ctx.log("nobody hears this")
        return await ctx.step("twice", lambda n: n * 2, 21)

    ctx = call_context(user_id="ann", space_id="s1", roles=["reader"], call_id="c1", tool="act")
    assert await handler(ctx) == 42
    assert [event.type for event in ctx.events] == [
        "on_progress", "on_progress", "on_sub_agent_start", "on_sub_agent_chunk", "on_sub_agent_tool_call",
        "on_sub_agent_tool_result", "on_sub_agent_end",
    ]  # fmt: skip
    assert [event.seq for event in ctx.events] == list(range(7))
    assert {(event.tool, event.call_id, event.request_id) for event in ctx.events} == {("act", "c1", ctx.request_id)}
    assert ctx.recorder.payloads("on_progress") == [{"fraction": 0.25, "message": "a quarter"}, {"own": 1}]
    assert (ctx.user_id, ctx.space_id, ctx.roles, ctx.plain().user_id) == ("ann", "s1", frozenset({"reader"}), "ann")


async def test_two_contexts_share_nothing_and_hide_secrets() -> None:
    first, second = call_context(secrets={"key": Secret("hunter2")}), call_context()
    await first.progress(1.0)
    assert (len(first.events), len(second.events)) == (1, 0)
    assert first.call_id != second.call_id
    assert "hunter2" not in repr(first)
    with pytest.raises(TypeError):
        call_context(no_such_field=1)


async def test_a_class_tool_is_performed_with_it() -> None:
    class Act(Tool, register=False):
        """Act."""

        how: str

        async def perform(self, ctx: CallContext) -> str:
            await ctx.progress(1.0, self.how)
            return f"{self.how} by {ctx.user_id}"

    ctx = call_context(user_id="ann")
    assert await Act(how="well").perform(ctx) == "well by ann"
    assert ctx.events[0].payload["message"] == "well"


def catalog_of_two() -> Catalog:
    catalog = Catalog()
    catalog.register(ToolSpec(name="seen"), lambda ctx, args: "x")
    catalog.register(ToolSpec(name="hidden", available=False, groups=("other",)), lambda ctx, args: "x")
    return catalog


def test_the_assertions_pass_and_fail_where_they_should() -> None:
    view = catalog_of_two().view(ToolContext())
    assert_visible(view, "seen")
    assert_visible(view, "main__seen")
    assert_hidden(view, "hidden")
    assert_hidden(view, "hidden", "available")
    assert_hidden(view, "nothing", "unknown")
    with pytest.raises(AssertionError, match="'hidden' is hidden, code 'available'"):
        assert_visible(view, "hidden")
    with pytest.raises(AssertionError, match=r"include 'other'"):
        assert_visible(catalog_of_two().view(ToolContext(), include=[]), "hidden")
    with pytest.raises(AssertionError, match="'seen' is visible"):
        assert_hidden(view, "seen")
    with pytest.raises(AssertionError, match="by code 'available', not 'group'"):
        assert_hidden(view, "hidden", "group")


def test_an_isolated_catalog_leaves_nothing_behind_even_after_a_failure() -> None:
    before = default_catalog.view(ToolContext()).names()
    with pytest.raises(RuntimeError, match="in the block"), isolated_catalog() as catalog:

        class Passing(Tool):
            """Pass."""

            def perform(self) -> str:
                return "x"

        default_catalog.tool(name="decorated")(lambda: "x")
        assert catalog.view(ToolContext()).names() == ["passing", "decorated"]
        Passing.rename("renamed")
        assert sorted(catalog.view(ToolContext()).names()) == ["decorated", "renamed"]
        raise RuntimeError("in the block")
    assert default_catalog.view(ToolContext()).names() == before


async def test_a_scripted_approver_answers_in_order_and_then_says_no() -> None:
    catalog = Catalog()
    ran: list[Any] = []

    @catalog.tool(consent="always")
    def act(number: int) -> str:
        """Act."""
        ran.append(number)
        return "done"

    person = scripted_approver(True, False, True)
    view = catalog.view(ToolContext(approve=person, budget=None))
    assert [(await view.call("act", {"number": n})).is_error for n in range(5)] == [False, True, False, True, True]
    assert ran == [0, 2]
    assert (len(person.requests), person.left, person.requests[1].tool) == (5, 0, "main.act")


async def test_a_recorder_hears_a_catalog_or_one_call() -> None:
    catalog, everything, one = catalog_of_two(), EventRecorder(), EventRecorder()
    catalog.observe(everything)
    view = catalog.view(ToolContext())
    await view.call("seen", {}, callbacks=one)
    await view.call("seen", {})
    assert one.types == ["on_tool_call", "on_tool_result"]
    assert len(everything.of("on_tool_result")) == 2
    with pytest.raises(AttributeError, match="on_toll_call"):
        _ = one.on_toll_call
