"""FastMCP: its servers as sources, and Views as providers of them, both ways with its own client."""

import asyncio
from typing import Any

import pytest
from fastmcp import Client, Context, FastMCP
from fastmcp.client.elicitation import ElicitResult
from fastmcp.exceptions import ToolError

from pegboard import Catalog, Profile, ToolContext
from pegboard.adapters.fastmcp import FastMCPSource, ViewProvider
from pegboard.model.policy import Policy
from pegboard.testing import EventRecorder
from tests.adapters.shop import RecordingView, open_shop
from tests.timing import PATIENCE_S


def kitchen() -> tuple[FastMCP[Any], list[str]]:
    server, ran = FastMCP("kitchen"), list[str]()

    @server.tool
    async def boil(litres: int, ctx: Context) -> dict[str, int]:
        """Boil water."""
        ran.append(f"boil {litres}")
        await ctx.report_progress(1, 2, "warm")
        return {"litres": litres}

    @server.tool
    def burn(down: str) -> str:
        """Burn something."""
        ran.append(f"burn {down}")
        raise ToolError("no fire")

    @server.tool
    async def simmer() -> str:
        """Wait."""
        ran.append("simmer")
        try:
            await asyncio.Event().wait()
        finally:
            ran.append("stopped")
        return "never"

    return server, ran


async def test_a_server_in_this_process_is_a_source_whose_tools_are_judged_and_guarded() -> None:
    server, ran = kitchen()
    catalog, events = Catalog("house"), EventRecorder()
    catalog.add_source(FastMCPSource(server, name="kitchen"))
    catalog.profile(Profile(name="cook", include=("core",), policy=Policy(deny=("kitchen.burn",))))
    await catalog.start()
    view = catalog.view(ToolContext(user_id="ann"), profile="cook")
    assert sorted(view.names()) == ["kitchen__boil", "kitchen__simmer"]
    result = await view.call("kitchen.boil", {"litres": 2}, callbacks=events)
    assert result.structured == {"litres": 2}
    assert events.types == ["on_tool_call", "on_progress", "on_tool_result"]
    wrong = await view.call("kitchen__boil", {"litres": "x"})
    assert wrong.error is not None
    assert wrong.error.kind == "invalid_arguments"
    hidden = await view.call("kitchen__burn", {"down": "house"})
    assert hidden.error is not None
    assert hidden.error.kind == "not_found"
    assert ran == ["boil 2"]
    await catalog.close()
    assert view.names() == []


async def test_an_error_of_the_server_is_told_and_a_cancelled_call_is_cancelled_there() -> None:
    server, ran = kitchen()
    catalog = Catalog("house")
    catalog.add_source(FastMCPSource(server, name="kitchen"))
    await catalog.start()
    view = catalog.view(ToolContext(user_id="ann"))
    failed = await view.call("kitchen__burn", {"down": "house"})
    assert failed.is_error
    assert "no fire" in failed.text
    call = asyncio.create_task(view.call("kitchen__simmer"))
    while "simmer" not in ran:
        await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    while "stopped" not in ran:
        await asyncio.sleep(0)
    await catalog.close()


async def test_a_tool_that_the_server_gets_later_is_listed_when_it_says_so_and_a_bad_one_is_left_out() -> None:
    server, _ = kitchen()
    source, changed = FastMCPSource(server, name="kitchen"), asyncio.Event()
    catalog = Catalog("house")
    catalog.add_source(source)
    await catalog.start()
    source.subscribe(changed.set)

    @server.tool
    async def grow(ctx: Context) -> str:
        """Add a tool."""
        server.tool(lambda: "new", name="fresh")
        server.tool(lambda: "bad", name="ba\u200bd")
        await ctx.send_notification(_list_changed())
        return "grown"

    await source._refresh()
    changed.clear()
    view = catalog.view(ToolContext(user_id="ann"))
    await view.call("kitchen__grow")
    await asyncio.wait_for(changed.wait(), PATIENCE_S)
    assert "kitchen__fresh" in view.names()
    assert len(source.rejected) == 1
    await catalog.close()


def _list_changed() -> Any:
    from mcp.types import ToolListChangedNotification

    return ToolListChangedNotification()


def text_of(result: Any) -> str:
    return result.content[0].text


async def refusal(client: Client[Any], name: str) -> str:
    """Return what a client is told of a tool that is not there for it."""
    with pytest.raises(Exception, match=name) as refused:
        await client.call_tool(name, {"amount": 1})
    return str(refused.value)


async def test_a_view_is_a_provider_whose_tools_go_through_the_door() -> None:
    shop = open_shop()
    view = RecordingView(shop.view())
    async with Client(FastMCP("shop", providers=[ViewProvider(view)])) as client:
        assert [tool.name for tool in await client.list_tools()] == view.names()
        called = await client.call_tool("price", {"item": "tea", "count": 2})
        assert called.structured_content == {"item": "tea", "total": 6}
        picture = await client.call_tool("photo")
        assert picture.content[0].type == "image"
        wrong = await client.call_tool("price", {"item": "tea", "count": "2"}, raise_on_error=False)
        hidden, absent = [await refusal(client, name) for name in ("raid", "nothing")]
        asked = await client.call_tool("refund", {"order": "A1"}, raise_on_error=False)
    assert "$.count" in text_of(wrong)
    assert hidden.replace("raid", "NAME") == absent.replace("nothing", "NAME")
    assert "a person must agree first" in text_of(asked)
    assert shop.ran == [("price", ("tea", 2))]
    assert [name for name, _ in view.calls] == ["price", "photo", "price", "refund"]
    assert shop.finished[0] == ("price", "ann", "ok", "")


@pytest.mark.parametrize("answer", ["accept", "decline"])
async def test_the_user_of_the_client_is_asked_for_a_yes(answer: Any) -> None:
    shop, asked = open_shop(), list[str]()

    async def elicited(message: str, response_type: Any, params: Any, context: Any) -> Any:
        asked.append(message)
        return ElicitResult(action=answer, content={"value": True} if answer == "accept" else None)

    server = FastMCP("shop", providers=[ViewProvider(shop.view())])
    async with Client(server, elicitation_handler=elicited, mode="legacy") as client:
        await client.call_tool("refund", {"order": "A1"}, raise_on_error=False)
    assert "A1" in asked[0]
    assert shop.ran == ([("refund", "A1")] if answer == "accept" else [])
    assert shop.finished[0][3] == ("yes" if answer == "accept" else "no")


async def test_two_callers_of_one_server_each_have_their_own_view() -> None:
    shop = open_shop()

    def view_of_caller(context: Any) -> Any:
        name = context.client_id or "nobody"
        return shop.view("bob", "guest") if name == "nobody" else shop.view("ann")

    server = FastMCP("shop", providers=[ViewProvider(view_of_caller)])
    async with Client(server) as client:
        assert {tool.name for tool in await client.list_tools()} == {"price", "whoami"}
        assert text_of(await client.call_tool("whoami")) == "bob"
        assert "refund" in await refusal(client, "refund")
    assert shop.names_run() == ["whoami"]


async def test_a_view_stands_beside_other_tools_of_the_server() -> None:
    shop = open_shop()
    server = FastMCP("shop", providers=[ViewProvider(shop.view(profile="guest"))])
    server.mount(kitchen()[0], "kitchen")
    async with Client(server) as client:
        assert {"price", "kitchen_boil"} <= {tool.name for tool in await client.list_tools()}
        assert (await client.call_tool("kitchen_boil", {"litres": 1})).structured_content == {"litres": 1}
        assert (await client.call_tool("price", {"item": "tea"})).structured_content == {"item": "tea", "total": 3}
