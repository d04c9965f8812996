"""What a server says beside text arrives at the clients behind us, cleaned and capped, and is pinned with the rest."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.client import Client, advertise
from mcp_types import EmbeddedResource, ResourceLink, TextContent, TextResourceContents

from pegboard import http_app
from pegboard.model.result import ResourceLink as OurLink
from pegboard.sources.mcp.lock_file import LockFile
from tests.server.doors import answer_of, inside, post, served
from tests.upstream_mcp.parts import on_stdio, running, until, view_of

TELLING = Path(__file__).parent / "telling_server.py"
UI = "ui://clock/app.html"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
SHOWS_INTERFACES = {"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}}
ICON = {"src": "https://example.com/i.png", "mimeType": "image/png", "sizes": ["48x48"]}
TOOL: dict[str, Any] = {
    "name": "clock",
    "title": "A clock",
    "description": "Tell the time.",
    "inputSchema": {"type": "object"},
    "annotations": {"readOnlyHint": True, "idempotentHint": True, "openWorldHint": False, "x": 1},
    "icons": [ICON, {"src": "javascript:alert(1)"}, {"src": "http://169.254.169.254/"}, 5],
    "_meta": {
        "ui": {"resourceUri": UI, "visibility": ["app"]},
        "example.com/note": "a\u200bb",
        "io.modelcontextprotocol/serverInfo": {"name": "pegboard"},
        "com.mcp.tools/x": 1,
        "pegboard/sources": {"up": "ok"},
        "pegboard.consent": "yes",
        "progressToken": 7,
        "bad key": 1,
    },
}
CONTENTS = {"uri": UI, "mimeType": "text/html;profile=mcp-app", "text": "<b>now</b>", "_meta": {"ui": {"csp": {}}}}
RESULT: dict[str, Any] = {
    "content": [
        {"type": "text", "text": "noon", "annotations": {"audience": ["user"], "priority": 0.5, "x": 1},
         "_meta": {"example.com/kind": "time", "mcp.dev/x": 1}},
        {"type": "resource_link", "uri": "note://today", "name": "today",
         "icons": [ICON, {"src": "javascript:1"}], "size": 5},
        {"type": "resource_link", "uri": "https://example.com/x", "name": "page"},
        {"type": "resource", "_meta": {"example.com/v": 1, "mcp.dev/x": 1},
         "resource": {"uri": "note://today", "text": "t", "_meta": {"example.com/v": 2, "mcp.dev/x": 1}}},
    ],
    "_meta": {
        "example.com/cost": 3, "pegboard/repaired": ["x"], "io.modelcontextprotocol/related-task": {"taskId": "1"},
    },
}  # fmt: skip
TOLD: dict[str, Any] = {
    "tools": [TOOL],
    "resources": [
        {"uri": UI, "name": "app", "mimeType": "text/html", "icons": [ICON], "_meta": {"ui": {"prefersBorder": True}}},
        {"uri": "note://today", "name": "today", "size": 5, "annotations": {"priority": 0.25, "x": 1}},
    ],
    "result": RESULT,
    "contents": [CONTENTS],
}


def telling(folder: Path, told: dict[str, Any]) -> Path:
    file = folder / "told.json"
    file.write_text(json.dumps(told))
    return file


@asynccontextmanager
async def reached(file: Path, *, lock: LockFile | None = None, **said: Any) -> AsyncGenerator[tuple[Client, Any, Any]]:
    async with running(on_stdio(TELLING, str(file), **said), lock=lock) as (catalog, source):
        await until(source.resource_entries)
        shows_interfaces = advertise(*next(iter(SHOWS_INTERFACES["extensions"].items())))
        async with (
            served(http_app(catalog)) as url,
            Client(f"{url}/mcp", cache=None, extensions=[shows_interfaces]) as client,
        ):
            yield client, catalog, source


async def test_what_a_tool_says_beside_its_text_arrives_without_what_speaks_in_our_name(tmp_path: Path) -> None:
    async with reached(telling(tmp_path, TOLD)) as (client, catalog, _):
        (tool,) = (await client.list_tools()).tools
        here = "ui://up/clock/app.html"
        assert tool.meta == {"ui": {"resourceUri": here, "visibility": ["app"]}, "example.com/note": "ab"}
        assert [icon.src for icon in tool.icons or ()] == [ICON["src"]]
        assert tool.title == "A clock"
        hints = tool.annotations
        assert hints is not None
        assert (hints.read_only_hint, hints.idempotent_hint, hints.open_world_hint) == (True, True, False)
        # The hints are the client's alone: what guards reads does not know them.
        (entry,) = catalog.snapshot().entries
        assert (entry.spec.annotations.read_only, entry.spec.annotations.idempotent) == (None, None)
        (part,) = (await client.read_resource(here)).contents
        assert isinstance(part, TextResourceContents)
        assert (part.uri, part.text, part.meta) == (here, "<b>now</b>", {"ui": {"csp": {}}})
        app, note = (await client.list_resources()).resources
        assert note.annotations is not None
        assert (note.size, note.annotations.model_dump(exclude_none=True)) == (5, {"priority": 0.25})
        assert (app.uri, app.meta, len(app.icons or ())) == (here, {"ui": {"prefersBorder": True}}, 1)


@pytest.mark.parametrize(
    ("visibility", "is_for_models"),
    [(["app"], False), (["model"], True), (["app", "model"], True), ([], True), ("app", True), (None, True)],
)
async def test_a_tool_for_its_interface_alone_is_kept_from_models_and_clients_that_show_no_interfaces(
    tmp_path: Path, visibility: Any, is_for_models: bool
) -> None:
    told = TOLD | {"tools": [TOOL | {"_meta": {"ui": {"resourceUri": UI, "visibility": visibility}}}]}
    async with running(on_stdio(TELLING, str(telling(tmp_path, told)))) as (catalog, _):
        view, names = view_of(catalog), ["up__clock"] if is_for_models else []
        assert view.names() == [tool.wire_name for tool in view.tools()] == names
        assert ("clock" in json.dumps(view.export("openai"))) is is_for_models
        assert (await view.call("up__clock", {})).error is None
        async with inside(http_app(catalog)) as client:
            for capabilities, shown in (({}, names), (SHOWS_INTERFACES, ["up__clock"])):
                answer = answer_of(await post(client, "tools/list", meta={CAPABILITIES: capabilities}))
                assert [tool["name"] for tool in answer["result"]["tools"]] == shown


async def test_what_a_result_says_beside_its_text_arrives_and_its_links_can_be_read_here(tmp_path: Path) -> None:
    async with reached(telling(tmp_path, TOLD)) as (client, _, _):
        result = await client.call_tool("up__clock", {})
        assert (result.meta or {})["example.com/cost"] == 3
        assert not {"pegboard/repaired", "io.modelcontextprotocol/related-task"} & set(result.meta or {})
        text, link, page, embedded = result.content
        assert isinstance(text, TextContent)
        assert text.meta == {"example.com/kind": "time"}
        assert text.annotations is not None
        assert (text.annotations.audience, text.annotations.priority) == (["user"], 0.5)
        assert isinstance(link, ResourceLink)
        assert isinstance(page, ResourceLink)
        assert isinstance(embedded, EmbeddedResource)
        assert (link.uri, page.uri, embedded.resource.uri) == (
            "pegboard://up/note://today", "https://example.com/x", "pegboard://up/note://today",
        )  # fmt: skip
        assert (embedded.meta, embedded.resource.meta) == ({"example.com/v": 1}, {"example.com/v": 2})
        assert (await client.read_resource(link.uri)).contents
        assert ([icon.src for icon in link.icons or ()], link.size, page.icons) == ([ICON["src"]], 5, None)


@pytest.mark.parametrize(
    ("structure", "details"),
    [
        ({"code": 7, "why": ["x"]}, {"structured_content": {"code": 7, "why": ["x"]}}),
        ({}, None),
        ({"deep": json.loads("[" * 200 + "]" * 200)}, None),
    ],
)
async def test_the_structure_of_an_error_arrives_with_its_text(tmp_path: Path, structure: Any, details: Any) -> None:
    answered = {"isError": True, "content": [{"type": "text", "text": "no"}], "structuredContent": structure}
    async with reached(telling(tmp_path, TOLD | {"result": answered})) as (client, _, _):
        result = await client.call_tool("up__clock", {})
        error = (result.meta or {})["pegboard/error"]
        assert (result.is_error, error["kind"], error.get("details")) == (True, "tool_error", details)


@pytest.mark.parametrize(
    ("content", "structured"),
    [
        ([{"type": "text", "text": '{"n": 1}', "_meta": {"example.com/k": 1}}], {"n": 1}),
        ([{"type": "text", "text": '{"n": "one"}'}], None),
        ([{"type": "text", "text": "one"}], None),
        ([{"type": "text", "text": '{"n": 1, "n": 2}'}], None),
        ([{"type": "text", "text": '{"n": 1}'}, {"type": "text", "text": "x"}], None),
    ],
)
async def test_a_structure_that_a_server_promised_and_sent_as_text_is_given_as_structure(
    tmp_path: Path, content: list[dict[str, Any]], structured: Any
) -> None:
    promise = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    told = TOLD | {"tools": [TOOL | {"_meta": {}, "outputSchema": promise}], "result": {"content": content}}
    async with reached(telling(tmp_path, told)) as (client, catalog, _):
        result = await view_of(catalog).call("up__clock", {})
        assert result.structured == structured
        assert (result.error is None) is (structured is not None)
        if structured is not None:
            seen = await client.call_tool("up__clock", {})
            assert (seen.structured_content, seen.content[0].meta) == (structured, {"example.com/k": 1})


@pytest.mark.parametrize(
    "meta",
    [{"a": "x" * 20_000}, {"a": {"b": [0] * 20_000}}, "text", [1], {"a": 10**30}],
)
async def test_a_meta_that_is_too_large_or_none_costs_no_tool(tmp_path: Path, meta: Any) -> None:
    told = TOLD | {"tools": [TOOL | {"_meta": meta, "icons": "x"}], "result": RESULT | {"_meta": {"a": "x" * 20_000}}}
    async with reached(telling(tmp_path, told)) as (client, _, _):
        (tool,) = (await client.list_tools()).tools
        assert (tool.meta, tool.icons) == (None, None)
        assert "a" not in ((await client.call_tool("up__clock", {})).meta or {})


@pytest.mark.parametrize("unfit", [{"priority": 7}, {"audience": "user", "lastModified": 5}, "important", [1]])
async def test_what_stands_beside_a_text_in_another_form_than_the_protocols_costs_no_result(
    tmp_path: Path, unfit: Any
) -> None:
    notes: dict[str, Any] = {"annotations": unfit, "_meta": "note"}
    link = {"type": "resource_link", "uri": "note://today", "name": "today", "icons": 5, "size": "5", **notes}
    embedded = {"type": "resource", "resource": {"uri": "note://today", "text": "t", "_meta": [1]}, **notes}
    said = [{"type": "text", "text": "noon", **notes}, link, embedded, {"type": "vi\u200bdeo", "data": "x"}]
    told = TOLD | {
        "result": {"content": said, "_meta": 7},
        "resources": [each | notes for each in TOLD["resources"]],
        "contents": [CONTENTS | {"_meta": "x"}],
    }
    async with reached(telling(tmp_path, told)) as (client, _, _):
        result = await client.call_tool("up__clock", {})
        assert [block.type for block in result.content] == ["text", "resource_link", "resource", "text"]
        assert not result.is_error
        text, unknown = result.content[0], result.content[3]
        assert isinstance(text, TextContent)
        assert isinstance(unknown, TextContent)
        assert (text.text, text.annotations and text.annotations.priority, text.meta) == ("noon", None, None)
        assert unknown.text == "[a block of type 'video', which cannot be shown here]"
        assert len((await client.list_resources()).resources) == 2
        (contents,) = (await client.read_resource(UI.replace("ui://", "ui://up/"))).contents
        assert (getattr(contents, "text", ""), contents.meta) == ("<b>now</b>", None)


async def test_a_hint_of_a_server_that_is_not_trusted_lowers_no_guard(tmp_path: Path) -> None:
    async with running(on_stdio(TELLING, str(telling(tmp_path, TOLD)), own={"consent": "destructive"})) as (catalog, _):
        result = await view_of(catalog).call("up__clock", {})
        assert result.error is not None
        assert result.error.kind in ("needs_consent", "consent_required", "consent_unavailable")


@pytest.mark.parametrize(
    ("key", "value", "change"),
    [
        ("_meta", {"ui": {"resourceUri": "ui://evil/app.html"}}, "meta"),
        ("icons", [{"src": "https://evil.example/i.png"}], "cosmetic"),
        ("title", "Another clock", "cosmetic"),
    ],
)
async def test_what_is_beside_the_text_is_pinned_too(tmp_path: Path, key: str, value: Any, change: str) -> None:
    lock = LockFile(tmp_path / "pegboard.lock")
    async with running(on_stdio(TELLING, str(telling(tmp_path, TOLD))), lock=lock) as (catalog, _):
        assert [tool.wire_name for tool in view_of(catalog).app_tools()] == ["up__clock"]
    file = telling(tmp_path, TOLD | {"tools": [TOOL | {key: value}]})
    async with reached(file, lock=LockFile(lock.path)) as (client, catalog, source):
        assert dict(source.reviewed.changed) == {"clock": (change,)}
        (tool,) = (await client.list_tools()).tools
        assert (tool.meta or {})["ui"]["resourceUri"] == "ui://up/clock/app.html"
        result = await view_of(catalog).call("up__clock", {})
        assert result.error is not None
        assert result.error.kind == "needs_review"


async def test_a_lock_of_the_first_version_holds_back_no_tool_for_what_it_did_not_pin(tmp_path: Path) -> None:
    first = tmp_path / "pegboard.lock"
    lock = LockFile(first)
    async with running(on_stdio(TELLING, str(telling(tmp_path, TOLD))), lock=lock):
        pass
    whole = json.loads(first.read_text())
    assert whole["version"] == 2
    pinned = whole["servers"]["up"]["clock"]["definition"]
    assert "_meta" in pinned
    old = LockFile()
    old.accept("up", {"clock": {key: value for key, value in pinned.items() if key not in ("_meta", "icons")}})
    old.path = first
    old.write()
    whole = json.loads(first.read_text())
    first.write_text(json.dumps(whole | {"version": 1}))

    async with running(on_stdio(TELLING, str(telling(tmp_path, TOLD))), lock=LockFile(first)) as (catalog, source):
        assert source.reviewed.changed == {}
        assert (await view_of(catalog).call("up__clock", {})).error is None
        # Another tool's acceptance writes the file anew, and this one stays as it was known.
        source.lock.accept("other", {})
    again = LockFile(first)
    assert again.fault == ""
    assert "_meta" not in again.comparable("up", {"name": "clock", "_meta": {}})
    # What is pinned now beside it is known whole.
    again.accept("up", {"second": {**pinned, "name": "second"}})
    assert "_meta" in LockFile(first).comparable("up", {"name": "second", "_meta": {}})
    again.accept("up", {"clock": pinned})
    assert "_meta" in LockFile(first).comparable("up", {"name": "clock", "_meta": {}})
    # What it did pin still counts.
    told = TOLD | {"tools": [TOOL | {"description": "Tell another time."}]}
    first.write_text(json.dumps(whole | {"version": 1}))
    async with running(on_stdio(TELLING, str(telling(tmp_path, told))), lock=LockFile(first)) as (_, source):
        assert dict(source.reviewed.changed) == {"clock": ("cosmetic",)}


def link_to(*uris: str) -> dict[str, Any]:
    return {"content": [{"type": "resource_link", "uri": uri, "name": "x"} for uri in uris]}


async def test_a_link_to_what_a_server_does_not_list_is_read_by_whom_it_was_given_to_and_by_nobody_else(
    tmp_path: Path,
) -> None:
    uris = ("note://log/7?a=b%20c#d", "file:///data/ü b.txt", "note://today")
    told = TOLD | {"contents": [], "result": link_to(*uris), "resources": [{"uri": "note://today", "name": "today"}]}
    async with running(on_stdio(TELLING, str(telling(tmp_path, told)))) as (catalog, source):
        await until(source.resource_entries)
        users = {"ann": {"x-user": "ann"}, "bob": {"x-user": "bob"}}
        async with inside(http_app(catalog, identify=lambda request: {"user": request.headers["x-user"]})) as client:

            async def asked(user: str, method: str, **params: Any) -> dict[str, Any]:
                named = {"mcp-name": params["uri"]} if "uri" in params else {}
                able = {CAPABILITIES: SHOWS_INTERFACES}
                return answer_of(await post(client, method, params, headers=users[user] | named, meta=able))

            given = (await asked("ann", "tools/call", name="up__clock", arguments={}))["result"]["content"]
            addresses = [block["uri"] for block in given]
            assert addresses[2] == "pegboard://up/note://today"
            for uri, address in zip(uris, addresses, strict=True):
                (part,) = (await asked("ann", "resources/read", uri=address))["result"]["contents"]
                assert (part["uri"], part["text"]) == (address, f"text of {uri}")
            # A link is its reader's own, to the letter; and nothing is read that was in no answer.
            refused = [addresses[0].replace("log/7", "log/8"), "pegboard://up/note://log/7", "pegboard://up/link/x/y"]
            for user, address in [("bob", addresses[0]), *(("ann", address) for address in refused)]:
                answer = await asked(user, "resources/read", uri=address)
                assert answer["error"]["message"] == f"No resource {address!r} is available to this caller."
            listed = (await asked("ann", "resources/templates/list"))["result"]["resourceTemplates"]
            assert listed == []


async def test_a_link_of_a_server_that_reads_no_resources_says_that_it_cannot_be_read(tmp_path: Path) -> None:
    told = TOLD | {"capabilities": {"tools": {}}, "result": link_to("note://x", "https://example.com/y")}
    async with running(on_stdio(TELLING, str(telling(tmp_path, told)))) as (catalog, _):
        note, page = (await view_of(catalog).call("up__clock", {})).content
        assert isinstance(note, OurLink)
        assert isinstance(page, OurLink)
        assert note.description == "x (It cannot be read here: the server 'up' reads no resources.)"
        assert page.description is None


async def test_a_link_stays_good_for_every_worker_that_has_the_same_keys(tmp_path: Path) -> None:
    told = TOLD | {"contents": [], "resources": [], "result": link_to("note://log")}
    settings, keys = on_stdio(TELLING, str(telling(tmp_path, told))), (b"k" * 32,)
    async with running(settings) as (first, one), running(settings) as (second, other):
        await until(lambda: one.resource_entries() and other.resource_entries())
        async with inside(http_app(first, keys=keys)) as client:
            able, clock = {CAPABILITIES: SHOWS_INTERFACES}, {"name": "up__clock", "arguments": {}}
            answer = answer_of(await post(client, "tools/call", clock, meta=able))
        (link,) = answer["result"]["content"]
        async with inside(http_app(second, keys=keys)) as client:
            named = {"mcp-name": link["uri"]}
            read = answer_of(await post(client, "resources/read", {"uri": link["uri"]}, headers=named))
        assert read["result"]["contents"][0]["text"] == "text of note://log"


async def test_a_link_that_hides_something_or_was_listed_since_is_not_read_by_its_mark(tmp_path: Path) -> None:
    told = TOLD | {"contents": [], "resources": [], "result": link_to("note://\u202elog", "note://log")}
    file = telling(tmp_path, told)
    async with running(on_stdio(TELLING, str(file))) as (catalog, source):
        await until(source.resource_entries)
        hidden, log = (await view_of(catalog).call("up__clock", {})).content
        assert isinstance(hidden, OurLink)
        assert isinstance(log, OurLink)
        assert "It cannot be read here" in (hidden.description or "")
        telling(tmp_path, told | {"resources": [{"uri": "note://log", "name": "log"}]})
        await source.refresh()
        assert len(source.resource_entries()) == 2
        async with inside(http_app(catalog)) as client:
            for address, is_read in ((log.uri, False), ("pegboard://up/note://log", True)):
                answer = answer_of(
                    await post(client, "resources/read", {"uri": address}, headers={"mcp-name": address})
                )
                assert ("result" in answer) is is_read
