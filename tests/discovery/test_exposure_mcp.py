"""Exposure over MCP: a real client works through hundreds of tools with nothing but the meta tools."""

from typing import Any

import pytest
from mcp import Client

from pegboard.serve import http_app
from tests.discovery.shops import THINGS, shop
from tests.serve.doors import served


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
