"""A tool for interfaces alone is in nothing that a model reads, and in the list of a client that shows interfaces."""

import json
from collections.abc import AsyncGenerator
from typing import Any

import httpx2
import pytest

from pegboard import CallContext, Catalog, DefinitionError, Profile, ToolContext, http_app
from pegboard.providers import EXPORTERS
from tests.discovery.calling import say, use
from tests.server.doors import JSON_HEADERS, answer_of, call, inside, post

UI = {"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}}
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
WITHOUT: list[Any] = [
    {},
    {"extensions": {}},
    {"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/plain"]}}},
    {"extensions": {"com.example/ui": {}}},
    {"experimental": {"io.modelcontextprotocol/ui": {}}},
]


def catalog_of() -> Catalog:
    catalog = Catalog("apps")

    @catalog.tool(groups="core", ui="ui://board/app.html", ui_visibility=("app",))
    def move_card(card: str) -> str:
        """Move a card of the board."""
        return f"moved {card}"

    @catalog.tool(groups="core", ui="ui://board/app.html", ui_visibility=("app", "model"))
    async def show_board(ctx: CallContext) -> dict[str, object]:
        """Show the board."""
        return {"ui": ctx.client is not None and ctx.client.supports_ui}

    @catalog.tool(groups="admin", ui="ui://board/app.html", ui_visibility=("app",))
    def wipe_board() -> str:
        """Wipe the board."""
        return "wiped"

    catalog.profile(Profile(name="all", include=("core",), exposure="two_tool"))
    catalog.profile(Profile(name="chat", include=("core",)))
    return catalog


@pytest.fixture
async def client() -> AsyncGenerator[httpx2.AsyncClient]:
    async with inside(http_app(catalog_of())) as client:
        yield client


async def listed(client: httpx2.AsyncClient, capabilities: Any, path: str = "/mcp/chat") -> list[str]:
    answer = answer_of(await post(client, "tools/list", path=path, meta={CAPABILITIES: capabilities}))
    return [tool["name"] for tool in answer["result"]["tools"]]


async def test_no_list_export_or_search_for_a_model_has_it() -> None:
    catalog = catalog_of()
    view = catalog.view(ToolContext(budget=None), profile="chat")
    assert view.names() == [tool.wire_name for tool in view.tools()] == ["show_board"]
    for target in EXPORTERS:
        assert "move_card" not in json.dumps(view.export(target))
    found = await say(catalog, "getTools", ctx=ToolContext(budget=None), tools=[{"agent": "main", "tool": "move_card"}])
    assert "Move a card" not in json.dumps(found)
    used = await use(catalog, {"agent": "main", "tool": "move_card", "params": {"card": "a"}})
    assert "moved a" not in json.dumps(used)
    assert "move_card" not in json.dumps(await say(catalog, "getTools"))
    assert "move_card" not in (await view.call("move_cart", {"card": "a"})).text


async def test_only_a_client_that_shows_interfaces_is_listed_it_marked_as_such(client: httpx2.AsyncClient) -> None:
    for capabilities in WITHOUT:
        assert await listed(client, capabilities) == ["show_board"]
    assert await listed(client, UI) == ["show_board", "move_card"]
    assert await listed(client, {"extensions": {"io.modelcontextprotocol/ui": {}}}) == ["show_board", "move_card"]
    assert (await listed(client, UI, "/mcp/all"))[-1] == "move_card"
    answer = answer_of(await post(client, "tools/list", path="/mcp/chat", meta={CAPABILITIES: UI}))
    assert answer["result"]["tools"][1]["_meta"] == {
        "ui": {"resourceUri": "ui://board/app.html", "visibility": ["app"]}
    }


@pytest.mark.parametrize(("capabilities", "names"), [({}, ["show_board"]), (UI, ["show_board", "move_card"])])
async def test_so_it_is_for_the_client_of_an_earlier_session(
    client: httpx2.AsyncClient, capabilities: Any, names: list[str]
) -> None:
    hello = {"protocolVersion": "2025-06-18", "capabilities": capabilities, "clientInfo": {"name": "t", "version": "1"}}
    begin = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    began = await client.post("/mcp/chat", headers=JSON_HEADERS, json=begin)
    headers = {**JSON_HEADERS, "mcp-session-id": began.headers["mcp-session-id"]}
    await client.post("/mcp/chat", headers=headers, json={"jsonrpc": "2.0", "method": "notifications/initialized"})
    asked = {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}}
    answer = answer_of(await client.post("/mcp/chat", headers=headers, json=asked))
    assert [tool["name"] for tool in answer["result"]["tools"]] == names
    asked = {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "show_board", "arguments": {}}}
    answer = answer_of(await client.post("/mcp/chat", headers=headers, json=asked))
    assert answer["result"]["structuredContent"] == {"ui": bool(capabilities)}


async def test_the_host_may_call_it_and_guards_hold_for_it_as_for_any_other(client: httpx2.AsyncClient) -> None:
    called = await call(client, "move_card", {"card": "a"}, path="/mcp/chat", meta={CAPABILITIES: UI})
    assert called["result"]["content"][0]["text"] == "moved a"
    refused = await call(client, "wipe_board", {}, path="/mcp/chat", meta={CAPABILITIES: UI})
    assert "wiped" not in json.dumps(refused)
    shown = await call(client, "show_board", {}, path="/mcp/chat", meta={CAPABILITIES: UI})
    assert shown["result"]["structuredContent"] == {"ui": True}
    shown = await call(client, "show_board", {}, path="/mcp/chat")
    assert shown["result"]["structuredContent"] == {"ui": False}


async def test_a_client_without_interfaces_cannot_call_it_and_reads_that_it_does_not_exist(
    client: httpx2.AsyncClient,
) -> None:
    for path in ("/mcp/chat", "/mcp/all"):
        for capabilities in WITHOUT:
            called = await call(client, "move_card", {"card": "a"}, path=path, meta={CAPABILITIES: capabilities})
            absent = await call(client, "nothing", {"card": "a"}, path=path, meta={CAPABILITIES: capabilities})
            assert called["error"]["code"] == absent["error"]["code"]
            assert "moved" not in json.dumps(called)
    params = {"profile": "chat"}
    for method, path in (("POST", "/call"), ("GET", "")):
        answers = [
            await client.request(method, f"/v1/tools/{name}{path}", params=params, json={"card": "a"})
            for name in ("move_card", "nothing")
        ]
        assert [answer.status_code for answer in answers] == [404, 404]
        hidden, absent = (answer.json()["detail"] for answer in answers)
        assert hidden.replace("move_card", "nothing") == absent
    assert (await client.get("/v1/tools/move_card/why", params=params)).json()["code"] == "unknown"


async def test_code_of_the_server_may_call_it_for_a_client_without_interfaces() -> None:
    catalog = catalog_of()

    @catalog.tool(groups="core")
    async def tidy(ctx: CallContext) -> str:
        """Tidy the board."""
        texts = [(await catalog.view(one).call("move_card", {"card": "b"})).text for one in (ctx, ctx.child())]
        return " ".join(texts)

    assert (await catalog.view(ToolContext()).call("move_card", {"card": "a"})).text == "moved a"
    async with inside(http_app(catalog)) as client:
        tidied = await call(client, "tidy", {}, path="/mcp/chat")
        assert tidied["result"]["content"][0]["text"] == "moved b moved b"
        why = (await client.get("/v1/tools/show_board/why", params={"profile": "chat"})).json()
        assert why["callable"] is True


async def test_the_lists_of_plain_http_are_for_models(client: httpx2.AsyncClient) -> None:
    tools = (await client.get("/v1/tools", params={"profile": "chat"})).json()["tools"]
    assert [tool["name"] for tool in tools] == ["show_board"]
    assert "move_card" not in (await client.get("/openapi.json", params={"profile": "chat"})).text


async def test_a_tool_has_its_interface_only_for_a_client_that_shows_one(client: httpx2.AsyncClient) -> None:
    for capabilities in (*WITHOUT, UI):
        answer = answer_of(await post(client, "tools/list", path="/mcp/chat", meta={CAPABILITIES: capabilities}))
        shown = "ui://board/app.html" in json.dumps(answer["result"]["tools"][0])
        assert shown == (capabilities == UI)


async def test_an_interface_is_served_with_its_type_and_what_it_may_reach() -> None:
    catalog = catalog_of()
    csp = {"connect_domains": ["https://api.example.com", "wss://*.example.com:8443"], "resource_domains": []}

    @catalog.resources.resource("ui://board/app.html", name="board", groups="core", csp=csp)
    def board() -> str:
        return "<!doctype html><title>Board</title>"

    async with inside(http_app(catalog)) as client:
        read = {"uri": "ui://board/app.html"}
        answer = answer_of(
            await post(client, "resources/read", read, path="/mcp/chat", headers={"mcp-name": "ui://board/app.html"})
        )
        listed = answer_of(await post(client, "resources/list", path="/mcp/chat"))
    [contents], [shown] = answer["result"]["contents"], listed["result"]["resources"]
    reach = {"connectDomains": csp["connect_domains"], "resourceDomains": []}
    assert contents == {
        "uri": "ui://board/app.html", "mimeType": "text/html;profile=mcp-app",
        "text": "<!doctype html><title>Board</title>", "_meta": {"ui": {"csp": reach}},
    }  # fmt: skip
    assert (shown["mimeType"], shown["_meta"]) == ("text/html;profile=mcp-app", {"ui": {"csp": reach}})


@pytest.mark.parametrize(
    ("uri", "csp"),
    [
        ("file://board", {"connect_domains": []}),
        ("ui://board", {"connectDomains": []}),
        ("ui://board", {"connect_domains": "https://a.example"}),
        *(
            ("ui://board", {"resource_domains": [origin]})
            for origin in (
                "*", "https:", "https://*", "a.example", "https://a.example/path", "https://a.example; script-src *",
                "https://a.example 'unsafe-inline'", "data:", "javascript://a", "https://a.example\n", "",
            )
        ),
    ],
)  # fmt: skip
def test_an_interface_whose_reach_is_not_clear_is_refused(uri: str, csp: Any) -> None:
    with pytest.raises(DefinitionError, match="csp"):
        Catalog().resources.resource(uri, name="board", csp=csp)(lambda: "")
