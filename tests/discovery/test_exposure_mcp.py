"""Exposure over MCP: a real client works through hundreds of tools with nothing but the meta tools."""

from typing import Any

import mcp_types as types
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from pegboard import CallContext, Catalog, Profile, http_app
from tests.discovery.shops import THINGS, shop
from tests.server.doors import served


@pytest.mark.parametrize("era", ["2026-07-28", "legacy"])
async def test_a_client_finds_reads_and_runs_one_of_500_tools(era: Any) -> None:
    assert len(THINGS) * 10 == 500
    async with served(http_app(shop())) as url, Client(f"{url}/mcp/all", mode=era) as client:
        listed = (await client.list_tools()).tools
        assert [tool.name for tool in listed] == ["searchTools", "getTools", "useTools"]
        assert listed[1].description is not None
        assert listed[1].description.startswith("REQUIRED FIRST STEP: You MUST call getTools BEFORE calling useTools.")

        found = await said(client, "searchTools", queries=["refund the shipment of a telescope"])
        assert {hit["agent"] for hit in found["data"]["results"][0]["hits"]} <= {"refunds", "shipments", "telescopes"}
        found = await said(client, "searchTools", queries=["rename a lighthouse"])
        best = found["data"]["results"][0]["hits"][0]
        assert (best["agent"], best["tool"]) == ("lighthouses", "rename_lighthouse")

        shown = await said(client, "getTools", request=[{"agent": best["agent"], "tools": [best["tool"]]}])
        schema = shown["data"]["tools"][0]["inputSchema"]
        assert schema["required"] == ["name"]

        params = dict.fromkeys(schema["required"], "Alte Weser")
        used = await said(client, "useTools", calls=[{"agent": best["agent"], "tool": best["tool"], "params": params}])
        assert used["success"] is True
        assert used["data"]["results"][0]["data"] == {"tool": "rename_lighthouse", "name": "Alte Weser"}


async def said(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result
    assert isinstance(result.structured_content, dict)
    return result.structured_content


def asking_shop(ran: list[str]) -> Catalog:
    """Return a catalog with a tool that wants a yes and one that does not."""
    catalog = Catalog("asking")

    @catalog.tool(consent="always")
    async def wipe(what: str) -> str:
        """Wipe something."""
        ran.append(f"wipe {what}")
        return f"wiped {what}"

    @catalog.tool
    async def write(what: str) -> str:
        """Write something."""
        ran.append(f"write {what}")
        return f"wrote {what}"

    catalog.profile(Profile(name="all", exposure="search"))
    return catalog


def told(tool: str, what: str) -> dict[str, Any]:
    return {"agent": "main", "tool": tool, "params": {"what": what}, "continueOnFailure": True}


async def accept(context: Any, params: Any) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={})


@pytest.mark.parametrize("era", ["2026-07-28", "legacy"])
async def test_the_only_call_of_a_batch_can_ask_the_person(era: Any) -> None:
    ran: list[str] = []
    async with (
        served(http_app(asking_shop(ran))) as url,
        Client(f"{url}/mcp/all", mode=era, elicitation_callback=accept) as client,
    ):
        used = await said(client, "useTools", calls=[told("wipe", "disk")])
    assert used["data"]["results"][0]["data"] == "wiped disk"
    assert ran == ["wipe disk"]


async def test_no_call_of_a_batch_runs_twice_because_another_asks() -> None:
    ran: list[str] = []
    async with (
        served(http_app(asking_shop(ran))) as url,
        Client(f"{url}/mcp/all", mode="2026-07-28", elicitation_callback=accept) as client,
    ):
        used = await said(client, "useTools", calls=[told("write", "a"), told("wipe", "disk")])
    assert ran == ["write a"]
    error = used["data"]["results"][1]["error"]
    assert error["kind"] == "consent_required"
    assert "alone" in error["hint"]


async def test_progress_of_the_calls_is_progress_of_the_batch() -> None:
    catalog, heard = shop(things=("photo",)), list[tuple[float, str | None]]()

    @catalog.tool(namespace="slow")
    async def steps(ctx: CallContext) -> str:
        """Go on in steps."""
        await ctx.progress(0.5, "half")
        return "done"

    async def listen(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, message))

    calls = [{"agent": "slow", "tool": "steps", "params": {}}] * 2
    async with served(http_app(catalog)) as url, Client(f"{url}/mcp/all") as client:
        await client.call_tool("useTools", {"calls": calls}, progress_callback=listen)
    assert [progress for progress, _ in heard] == [0.25, 0.5, 0.75, 1.0]
    assert heard[0] == (0.25, "half")


async def test_a_tool_that_is_not_listed_can_be_called_by_its_name() -> None:
    async with served(http_app(shop(things=("photo",)))) as url, Client(f"{url}/mcp/all") as client:
        result = await client.call_tool("list_photo", {"name": "sea"})
        assert result.structured_content == {"tool": "list_photo", "name": "sea"}
        with pytest.raises(MCPError, match="Call getTools to see what is available"):
            await client.call_tool("no_such_thing_at_all", {})


async def test_renamed_meta_tools_go_by_their_new_names_only() -> None:
    catalog = shop(things=("photo",), rename={"getTools": "get_tools", "useTools": "use_tools"})
    async with served(http_app(catalog)) as url, Client(f"{url}/mcp/all") as client:
        tools = (await client.list_tools()).tools
        assert [tool.name for tool in tools] == ["searchTools", "get_tools", "use_tools"]
        assert "You MUST call get_tools BEFORE calling use_tools." in (tools[1].description or "")
        assert (await said(client, "get_tools", request=[{"agent": "photos"}]))["success"] is True
        with pytest.raises(MCPError, match="No tool named 'getTools'"):
            await client.call_tool("getTools", {})
