"""The shared permission cases at the doors of a server, named after their ids: what is hidden leaves no trace there."""

import json
import re
from typing import Any

import httpx2

from pegboard import Catalog, Policy, Profile, http_app
from tests.server.doors import JSON_HEADERS, inside, post

HIDDEN = ("by_group", "by_policy", "by_internal", "by_predicate", "by_factory")
CALL_ID = re.compile(r"\b[0-9a-f]{32}\b")
EARLIER = "2025-11-25"


def catalog_with(hidden: bool) -> tuple[Catalog, list[str]]:
    """Return a catalog for one caller, with or without what that caller must not see, and what ran of that."""
    catalog, ran = Catalog("shop"), list[str]()
    catalog.predicate(name="never")(lambda _ctx: False)

    @catalog.tool(groups="core")
    async def note(text: str) -> str:
        """Write a note."""
        return text

    catalog.tool(groups="core", name="read_only_note", read_only=True)(lambda: "note")
    catalog.resource("notes://today", name="today", groups="core")(lambda: "today")
    catalog.resource("notes://day/{day}", name="day", groups="core")(lambda day: day)
    catalog.prompt(name="review", groups="core")(lambda: "review")
    if hidden:
        declare_hidden(catalog, ran)
    policy = Policy(deny=("by_policy", "*_denied"))
    exposures: dict[str, Any] = {"chat": "direct", "few": "two_tool", "find": "search"}
    for name, exposure in exposures.items():
        catalog.profile(Profile(name=name, include=("core",), policy=policy, exposure=exposure))
    return catalog, ran


def declare_hidden(catalog: Catalog, ran: list[str]) -> None:
    options: dict[str, dict[str, Any]] = {
        "by_group": {"groups": "admin"},
        "by_policy": {"groups": "core"},
        "by_internal": {"groups": "core", "internal_only": True},
        "by_predicate": {"groups": "core", "available": "never"},
        "by_factory": {"groups": "core", "factory": "mailer"},
    }
    for name, said in options.items():

        async def run(text: str = "", name: str = name) -> str:
            """Write a secret note of the vault."""
            ran.append(name)
            return name

        catalog.tool(name=name, renamed_from=(f"old_{name}",), **said)(run)
    catalog.resource("vault://keys", name="keys_denied", groups="core")(lambda: ran.append("resource") or "keys")
    catalog.resource("notes://secret", name="secret", groups="admin")(lambda: ran.append("resource") or "secret")
    catalog.resource("notes://day/secret", name="day_secret", groups="admin")(lambda: ran.append("resource") or "no")
    catalog.prompt(name="prompt_denied", groups="core")(lambda: ran.append("prompt") or "x")
    catalog.prompt(name="admin_prompt", groups="admin")(lambda: ran.append("prompt") or "x")


def questions() -> list[tuple[str, str, dict[str, Any]]]:
    """Return (path, method, params) of what a curious caller asks over MCP."""
    asked: list[tuple[str, str, dict[str, Any]]] = [
        (path, method, {})
        for path in ("/mcp/chat", "/mcp/few", "/mcp/find")
        for method in ("server/discover", "tools/list", "resources/list", "resources/templates/list", "prompts/list")
    ]
    for name in (*HIDDEN, *(f"old_{name}" for name in HIDDEN), "main.by_group", "main__by_policy", "by_polic"):
        for said in ({}, {"text": 1, "other": []}):
            asked += [(path, "tools/call", {"name": name, "arguments": said}) for path in ("/mcp/chat", "/mcp/few")]
        asked += [
            (
                "/mcp/few",
                "tools/call",
                {"name": "getTools", "arguments": {"request": [{"agent": "main", "tools": [name, "note"]}]}},
            )
        ]
        calls = [{"name": name, "arguments": {}}, {"name": "note", "arguments": {"text": "x"}}]
        asked += [
            ("/mcp/few", "tools/call", {"name": "useTools", "arguments": {"calls": calls, "strategy": "parallel"}})
        ]
    for query in ("secret note of the vault", "vault", "by_policy"):
        asked += [("/mcp/find", "tools/call", {"name": "searchTools", "arguments": {"queries": [query]}})]
    for uri in ("vault://keys", "notes://secret", "notes://day/secret", "notes://day/monday"):
        asked += [("/mcp/chat", "resources/read", {"uri": uri})]
    for name in ("prompt_denied", "admin_prompt", "review"):
        ref = {"ref": {"type": "ref/prompt", "name": name}, "argument": {"name": "a", "value": ""}}
        asked += [("/mcp/chat", "prompts/get", {"name": name}), ("/mcp/chat", "completion/complete", ref)]
    return asked


def paths() -> list[str]:
    """Return what the same caller asks over plain HTTP."""
    names = [*HIDDEN, "old_by_group", "by_polic", "note"]
    shown = [f"/v1/tools/{name}{more}" for name in names for more in ("", "/why")]
    found = [f"/v1/search?q={query}" for query in ("secret%20note%20of%20the%20vault", "vault", "by_policy")]
    return ["/v1/tools", "/v1/tools?limit=1", "/openapi.json", "/v1/tools/none", *shown, *found]


def plain(response: httpx2.Response) -> tuple[int, dict[str, str], str]:
    """Return all of an answer but what is random in every answer."""
    text = CALL_ID.sub("CALL", response.text)
    text = re.sub(r'"nextCursor":"[^"]+"', '"nextCursor":"…"', text)
    heads = {name: value for name, value in response.headers.items() if name not in ("date", "content-length")}
    return response.status_code, {name: CALL_ID.sub("CALL", value) for name, value in heads.items()}, text


async def answers(catalog: Catalog) -> dict[str, Any]:
    """Return the answer to every question."""
    told: dict[str, Any] = {}
    async with inside(http_app(catalog)) as client:
        for path, method, params in questions():
            heads = {"mcp-name": str(params["uri"])} if "uri" in params else {}
            for meta in ({}, {"progressToken": 1}):
                response = await post(client, method, params, path=path, headers=heads, meta=meta, request_id=1)
                told[f"{path} {method} {json.dumps(params)} {meta}"] = plain(response)
        hello = {"protocolVersion": EARLIER, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
        begin = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}
        opened = await client.post("/mcp/chat", headers=JSON_HEADERS, json=begin)
        session = {"mcp-session-id": opened.headers["mcp-session-id"], "mcp-protocol-version": EARLIER}
        told["initialize"] = opened.text
        for path, method, params in questions():
            if path == "/mcp/chat" and method != "server/discover":
                message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
                response = await client.post(path, headers={**JSON_HEADERS, **session}, json=message)
                text = CALL_ID.sub("CALL", response.text)
                # An answer that takes a while, on a busy machine that is any, comes as an event.
                lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: {")]
                told[f"earlier {method} {json.dumps(params)}"] = [response.status_code, *(lines or [text])]
        for path in paths():
            told[path] = plain(await client.get(path))
        for name in (*HIDDEN, "old_by_policy", "by_polic"):
            called = await client.post(f"/v1/tools/{name}/call", json={})
            told[f"call {name}"] = plain(called)
    return told


async def test_perm_01_perm_08_perm_09_with_or_without_what_is_hidden_every_door_answers_alike() -> None:
    (full, ran), (bare, _) = catalog_with(hidden=True), catalog_with(hidden=False)
    told, expected = await answers(full), await answers(bare)
    assert told.keys() == expected.keys()
    differing = [key for key in told if told[key] != expected[key]]
    assert differing == [], "\n".join(f"{key}\n{told[key]}\n{expected[key]}" for key in differing[:3])
    assert ran == []
    for key, answer in told.items():
        assert answer[0] == 200 or not re.search(r'"(getTools|useTools|searchTools)"', key), (key, answer)
