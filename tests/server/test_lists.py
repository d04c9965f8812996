"""Lists: each profile has its own, the same for the same caller, and nothing shows what is hidden."""

import json
from typing import Any

import anyio
import httpx2
import pytest

from pegboard import Catalog, DefinitionError, Profile, ToolContext, http_app
from tests.server.doors import JSON_HEADERS, answer_of, call, inside, names, post, served, workshop

EARLIER = "2025-11-25"
CHAT = ["add", "echo", "count", "wait", "steps", "greet", "broken"]
ADMIN = ["add", "count", "wait", "steps", "greet", "broken", "wipe"]


async def test_each_profile_has_its_own_list() -> None:
    async with inside(http_app(workshop()[0])) as client:
        assert await names(client, "/mcp/chat") == CHAT
        assert await names(client, "/mcp/admin") == ADMIN


async def test_the_first_profile_stands_behind_the_bare_path_unless_one_is_named() -> None:
    async with inside(http_app(workshop()[0])) as client:
        assert await names(client) == CHAT
    async with inside(http_app(workshop()[0], profile="admin")) as client:
        assert await names(client) == ADMIN


async def test_a_profile_called_default_comes_before_the_first() -> None:
    catalog = workshop()[0]
    catalog.profile(Profile(name="default", include=("admin",)))
    async with inside(http_app(catalog)) as client:
        assert await names(client) == ["wipe"]


async def test_a_catalog_without_profiles_serves_all_its_groups_but_nothing_internal() -> None:
    catalog = Catalog()
    catalog.tool(groups="a", name="one")(lambda: 1)
    catalog.tool(groups="b", name="two")(lambda: 2)
    catalog.tool(groups="a", name="three", internal_only=True)(lambda: 3)
    async with inside(http_app(catalog)) as client:
        assert await names(client) == ["one", "two"]
        assert (await post(client, "tools/list", path="/mcp/anything")).status_code == 404


def test_an_unknown_profile_is_refused_before_anything_is_served() -> None:
    with pytest.raises(DefinitionError, match="Unknown profile 'chatt'"):
        http_app(workshop()[0], profile="chatt")


async def test_a_profile_that_is_not_there_is_not_found() -> None:
    async with inside(http_app(workshop()[0])) as client:
        response = await post(client, "tools/list", path="/mcp/nobody")
        assert (response.status_code, response.json()["error"]["message"]) == (404, "Not found")


async def test_a_list_is_the_same_bytes_each_time_and_says_how_long_it_holds_and_for_whom() -> None:
    async with inside(http_app(workshop()[0])) as client:
        bodies = {json.dumps(answer_of(await post(client, "tools/list"))["result"]) for _ in range(3)}
        assert len(bodies) == 1
        result = json.loads(bodies.pop())
        assert (result["ttlMs"], result["cacheScope"]) == (60_000, "private")
        assert result["_meta"] == {"io.modelcontextprotocol/serverInfo": {"name": "workshop", "version": "0.1.0"}}


async def test_hidden_denied_internal_and_unknown_tools_are_refused_alike() -> None:
    async with inside(http_app(workshop()[0])) as client:
        asked = [("/mcp/chat", "wipe"), ("/mcp/admin", "echo"), ("/mcp/chat", "inner"), ("/mcp/chat", "zzzz")]
        told = [await post(client, "tools/call", {"name": name}, path=path) for path, name in asked]
        assert {response.status_code for response in told} == {400}
        errors = [response.json()["error"] for response in told]
        assert {error["code"] for error in errors} == {-32602}
        texts = {error["message"].replace(repr(name), "NAME") for error, (_, name) in zip(errors, asked, strict=True)}
        assert texts == {"No tool named NAME is available to this caller. List the tools to see what is available."}


async def test_a_tool_declared_while_serving_is_listed_and_called() -> None:
    catalog = workshop()[0]
    async with inside(http_app(catalog)) as client:
        catalog.tool(name="late", groups="core")(lambda: "here")
        assert "late" in await names(client)
        assert (await call(client, "late"))["result"]["content"] == [{"type": "text", "text": "here"}]


@pytest.mark.parametrize("door", ["2026-07-28", EARLIER, "/v1/tools"])
async def test_a_list_whose_predicate_waits_is_whole_whatever_is_declared_meanwhile(door: str) -> None:
    catalog = Catalog()

    @catalog.predicate
    async def is_awake(_ctx: ToolContext) -> bool:
        if "late" not in catalog.snapshot().by_wire_name:
            catalog.predicate(name="is_late")(is_late)
            catalog.tool(name="late", groups="core", available="is_late")(lambda: 1)
        await anyio.lowlevel.checkpoint()
        return True

    async def is_late(_ctx: ToolContext) -> bool:
        await anyio.lowlevel.checkpoint()
        return True

    catalog.tool(name="early", groups="core", available="is_awake")(lambda: 1)

    async def listed(client: httpx2.AsyncClient) -> list[str]:
        if door == "/v1/tools":
            return [tool["name"] for tool in (await client.get(door)).json()["tools"]]
        return [tool["name"] for tool in await earlier_tools(client)] if door == EARLIER else await names(client)

    async with inside(http_app(catalog)) as client:
        assert await listed(client) == ["early"]
        assert await listed(client) == ["early", "late"]


@pytest.mark.parametrize("kind", ["resources", "prompts"])
async def test_a_list_of_what_is_beside_tools_is_whole_too_whatever_is_declared_meanwhile(kind: str) -> None:
    catalog = Catalog()

    def declare(name: str, available: str) -> None:
        if kind == "prompts":
            catalog.prompt(name=name, groups="core", available=available)(lambda: "text")
        else:
            catalog.resource(f"note://{name}", name=name, groups="core", available=available)(lambda: "text")

    async def is_late(_ctx: ToolContext) -> bool:
        await anyio.lowlevel.checkpoint()
        return True

    @catalog.predicate
    async def is_awake(_ctx: ToolContext) -> bool:
        if len(list(catalog.resources.specs)) == 1:
            catalog.predicate(name="is_late")(is_late)
            declare("late", "is_late")
        await anyio.lowlevel.checkpoint()
        return True

    declare("early", "is_awake")
    async with inside(http_app(catalog)) as client:
        for listed in (["early"], ["early", "late"]):
            result = answer_of(await post(client, f"{kind}/list"))["result"]
            assert [item["name"] for item in result[kind]] == listed


async def test_a_long_list_comes_in_pages_whose_cursors_belong_to_one_caller_and_one_state() -> None:
    catalog = Catalog()
    for number in range(2_001):
        catalog.tool(name=f"tool_{number}", groups="core")(lambda: "here")
    catalog.profile(Profile(name="chat", include=("core",), exposure="direct"))
    catalog.profile(Profile(name="other", include=("core",), exposure="direct"))
    async with inside(http_app(catalog)) as client:
        first = answer_of(await post(client, "tools/list"))["result"]
        assert len(first["tools"]) == 2_000
        second = answer_of(await post(client, "tools/list", {"cursor": first["nextCursor"]}))["result"]
        assert [tool["name"] for tool in second["tools"]] == ["tool_2000"]
        assert "nextCursor" not in second
        foreign = await post(client, "tools/list", {"cursor": first["nextCursor"]}, path="/mcp/other")
        assert foreign.json()["error"]["code"] == -32602
        catalog.unregister("tool_5")
        catalog.tool(name="tool_5", groups="core")(lambda: "changed")
        late = await post(client, "tools/list", {"cursor": first["nextCursor"]})
        made_up = await post(client, "tools/list", {"cursor": "2000"})
        assert foreign.json()["error"] == late.json()["error"] == made_up.json()["error"]


async def earlier_tools(client: httpx2.AsyncClient) -> list[dict[str, Any]]:
    """Return the tools as a session of an earlier revision is told of them."""
    headers = {**JSON_HEADERS, "mcp-protocol-version": EARLIER}
    hello = {"protocolVersion": EARLIER, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    begin = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    opened = await client.post("/mcp", headers=headers, json=begin)
    headers["mcp-session-id"] = opened.headers["mcp-session-id"]
    await client.post("/mcp", headers=headers, json={"jsonrpc": "2.0", "method": "notifications/initialized"})
    listed = await client.post("/mcp", headers=headers, json={"jsonrpc": "2.0", "id": 2, "method": "tools/list"})
    return answer_of(listed)["result"]["tools"]


async def test_title_annotations_icons_and_meta_of_a_tool_stand_on_the_wire_in_both_eras() -> None:
    catalog = Catalog()
    icons = [
        {"src": "https://example.com/i.svg", "mimeType": "image/svg+xml", "sizes": ["any"]},
        {"src": "data:image/png;base64,AA==", "theme": "dark"},
    ]

    @catalog.tool(
        title="Find things", read_only=True, destructive=False, idempotent=True, open_world=False,
        icons=icons, meta={"example.com/team": "search"},
    )  # fmt: skip
    async def find(word: str) -> dict[str, Any]:
        """Find things that have a word."""
        return {"found": word}

    async with served(http_app(catalog)) as url, httpx2.AsyncClient(base_url=url) as client:
        (plain,) = answer_of(await post(client, "tools/list"))["result"]["tools"]
        (by_sdk,) = answer_of(await post(client, "tools/list", meta={"progressToken": 1}))["result"]["tools"]
        (earlier,) = await earlier_tools(client)
    assert plain == by_sdk == earlier
    told = {key: plain[key] for key in ("name", "title", "description", "annotations", "icons", "_meta")}
    assert told == {
        "name": "find",
        "title": "Find things",
        "description": "Find things that have a word.",
        "annotations": {
            "title": "Find things",
            "readOnlyHint": True,
            "destructiveHint": False,
            "idempotentHint": True,
            "openWorldHint": False,
        },
        "icons": icons,
        "_meta": {"example.com/team": "search"},
    }
