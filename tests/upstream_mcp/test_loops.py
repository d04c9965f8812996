"""Loops: Pegboards that are each other's source do not grow, and no call goes round between them."""

import asyncio
import itertools
import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from pegboard import CallContext, Catalog, Tasks, http_app
from pegboard.config import load_catalog
from pegboard.config.reload import Reloader
from pegboard.model.bounds import Bounds
from pegboard.model.hops import HOPS, HOPS_HEADER, HOPS_KEY
from pegboard.sources.mcp.definitions import Rejected
from pegboard.sources.mcp.listing import Listing
from pegboard.sources.mcp.server_settings import ServerSettings
from pegboard.sources.mcp.servers_behind import ServersBehind
from pegboard.sources.mcp.supervised_source import McpSource
from tests.server.doors import JSON_HEADERS, META, served
from tests.server.processes import PEGBOARD
from tests.timing import PATIENCE_S
from tests.upstream_mcp.parts import free_port, until, view_of


class Gate:
    """One Pegboard on loopback: its catalog, its address, and how often its own tool ran."""

    def __init__(self, name: str, port: int, **options: Any) -> None:
        self.name, self.port, self.url, self.runs = name, port, f"http://127.0.0.1:{port}", 0
        self.catalog = Catalog(name, **options)

        @self.catalog.tool(name=f"of_{name}")
        async def own() -> str:
            """Say who runs."""
            self.runs += 1
            return f"{name} ran"

    def take(self, other: "Gate") -> McpSource:
        source = McpSource(ServerSettings(name=other.name, transport="http", url=f"{other.url}/mcp", trust="any"))
        self.catalog.add_source(source)
        return source

    @property
    def tools(self) -> set[str]:
        return {entry.qualified_id for entry in view_of(self.catalog).tools()}

    async def relist(self) -> None:
        """List every source anew, and wait until that is done."""
        for source in self.catalog.registry.sources.values():
            assert isinstance(source, McpSource)
            if source.state().is_up:
                await source.refresh()


@asynccontextmanager
async def serving(*gates: Gate) -> AsyncGenerator[None]:
    async with AsyncExitStack() as stack:
        for gate in gates:
            await stack.enter_async_context(served(http_app(gate.catalog), port=gate.port))
        for gate in gates:
            for source in gate.catalog.registry.sources.values():
                assert isinstance(source, McpSource)
                if source.settings.url != f"{gate.url}/mcp":
                    await until(lambda source=source: source.state().status == "ok")
        yield


def gates(*names: str) -> list[Gate]:
    return [Gate(name, free_port()) for name in names]


NULL = object()


async def mcp(
    gate: Gate, method: str, params: dict[str, Any], hops: object = None, *, headers: dict[str, str] | None = None
) -> dict[str, Any]:
    meta = META if hops is None else {**META, HOPS_KEY: None if hops is NULL else hops}
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    headers = {**JSON_HEADERS, "mcp-protocol-version": "2026-07-28", "mcp-method": method, **(headers or {})}
    if "name" in params:
        headers["mcp-name"] = params["name"]
    async with httpx2.AsyncClient(verify=False) as client:
        answer = await client.post(f"{gate.url}/mcp", json=message, headers=headers)
    text = answer.text
    if answer.headers["content-type"].startswith("text/event-stream"):
        text = next(line for line in text.splitlines() if line.startswith("data: {"))[6:]
    return json.loads(text)


async def test_the_tools_of_two_that_are_each_others_source_do_not_grow() -> None:
    a, b = gates("a", "b")
    a.take(b)
    b.take(a)
    async with serving(a, b):
        for _ in range(6):
            await a.relist()
            await b.relist()
        assert a.tools == {"main.of_a", "b.of_b"}
        assert b.tools == {"main.of_b", "a.of_a"}
        assert (await view_of(a.catalog).call("b.of_b")).text == "b ran"
        assert a.runs == 0


async def test_the_tools_of_a_ring_of_three_do_not_grow_and_each_has_all_of_the_others() -> None:
    a, b, c = gates("a", "b", "c")
    a.take(b)
    b.take(c)
    c.take(a)
    async with serving(a, b, c):
        for _ in range(6):
            for gate in (a, b, c):
                await gate.relist()
        assert a.tools == {"main.of_a", "b.of_b", "b.c__of_c"}
        assert b.tools == {"main.of_b", "c.of_c", "c.a__of_a"}
        assert c.tools == {"main.of_c", "a.of_a", "a.b__of_b"}


@pytest.mark.parametrize("store", ["memory", "sqlite"])
async def test_a_call_that_goes_on_as_a_task_does_not_forget_which_servers_it_has_passed(
    store: str, tmp_path: Path
) -> None:
    (a,), kinds = gates("a"), asyncio.Queue[str]()
    b = Gate("b", free_port(), tasks=Tasks(store if store == "memory" else f"sqlite:{tmp_path}/tasks.db"))

    @b.catalog.tool(task="required")
    async def later(ctx: CallContext) -> None:
        """Go on later, at the other server."""
        result = await b.catalog.view(ctx.plain()).call("a.of_a")
        kinds.put_nowait("ok" if result.error is None else result.error.kind)

    b.take(a)
    async with serving(a, b), httpx2.AsyncClient(verify=False, timeout=PATIENCE_S) as client:
        for hops, ended in (
            (a.catalog.registry.server_id, "recursion_limit"),
            ("w,x,y,z", "recursion_limit"),
            ("w", "ok"),
        ):
            answer = await client.post(f"{b.url}/v1/tools/later/call", json={}, headers={HOPS_HEADER: hops})
            assert "task" in answer.text, answer.text
            async with asyncio.timeout(PATIENCE_S):
                assert await kinds.get() == ended
    assert a.runs == 1


async def test_the_resources_and_prompts_of_a_ring_do_not_grow_where_it_has_no_tools() -> None:
    a, b, c = ring = gates("a", "b", "c")
    for gate, following in zip(ring, (b, c, a), strict=True):
        gate.catalog = Catalog(gate.name)
        gate.catalog.resource(f"note://{gate.name}", name="note")(lambda: "a note")
        gate.catalog.resource(f"note://{gate.name}/{{day}}", name="day")(lambda day: f"of {day}")
        gate.catalog.prompt(name=f"ask_{gate.name}")(lambda: "a question")
        gate.take(following)
    async with serving(*ring):
        for _ in range(5):
            for gate in reversed(ring):
                await gate.relist()
        for kind, word in (("resources", "uri"), ("resources/templates", "uriTemplate"), ("prompts", "name")):
            wire_key = {"resources/templates": "resourceTemplates"}.get(kind, kind)
            offered = (await mcp(a, f"{kind}/list", {}))["result"][wire_key]
            assert len(offered) == 3, offered
            # To one who is behind it, a gateway lists nothing that leads back there.
            asking = b.catalog.registry.server_id
            assert len((await mcp(a, f"{kind}/list", {}, [asking]))["result"][wire_key]) == 1
            assert all("pegboard/hops" not in json.dumps(item) for item in offered), word


async def test_a_source_that_comes_with_a_reload_knows_the_server_by_its_keys(tmp_path: Path) -> None:
    a, b = gates("a", "b")
    config = _config(tmp_path, "one")
    a.catalog, settings = load_catalog(config, env={})
    app = http_app(a.catalog, keys=(b"k" * 32,))
    b.take(a)
    reloader = Reloader(config, {}, a.catalog, config=settings)

    @a.catalog.tool(name="of_a")
    async def own() -> str:
        return "a ran"

    async with served(app, port=a.port), serving(b):
        mcp_server = {"transport": "http", "url": f"{b.url}/mcp", "trust": "any"}
        config.write_text(json.dumps({"tools": [{"name": "b", "type": "mcp", "mcp": mcp_server}]}))
        assert await reloader.reload()
        await until(lambda: "b.of_b" in a.tools)
        for _ in range(4):
            await b.relist()
            await a.relist()
        assert {name for name in a.tools if name.startswith("b.")} == {"b.of_b"}


async def test_a_tool_that_leads_back_is_named_once_and_not_with_each_list(caplog: pytest.LogCaptureFixture) -> None:
    a, b = gates("a", "b")
    source = a.take(b)
    meta = {HOPS_KEY: {"server": "b", "tools": {"own": [a.catalog.registry.server_id], "far": ["x"] * 4}}}
    connection = ServersBehind(a.catalog.registry.server_id)
    connection.take(meta)
    left_out = tuple(Rejected(name, connection.fault_of(name) or "") for name in ("own", "far"))
    for rejected in (left_out[:1], left_out[:1], left_out):
        source._adopt(Listing(rejected=rejected))
    named = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert named == [
        "MCP server 'b': tool 'own' was left out: it leads back to this server.",
        "MCP server 'b': tool 'far' was left out: more than 4 servers are behind it.",
    ]


async def test_one_that_is_its_own_source_has_only_its_own_tools() -> None:
    (a,) = gates("a")
    source = a.take(a)
    async with serving(a):
        await until(lambda: source.state().status == "unreachable")
        assert a.tools == {"main.of_a"}
        assert "passed this server before" in source.state().reason


async def test_a_chain_of_four_hops_works_and_the_fifth_is_refused() -> None:
    chain = gates("a", "b", "c", "d", "e", "f")
    for gate, following in itertools.pairwise(chain):
        gate.take(following)
    async with serving(*chain):
        for _ in range(len(chain)):
            for gate in reversed(chain):
                await gate.relist()
        a, *_, e, f = chain
        assert (await mcp(a, "tools/call", {"name": "b__c__d__e__of_e", "arguments": {}}))["result"]["isError"] is False
        assert e.runs == 1
        assert not any("of_f" in name for name in a.tools)
        # Asked with a path as if it had come on: the last server refuses before its neighbour hears of it.
        answer = await mcp(e, "tools/call", {"name": "f__of_f", "arguments": {}}, ["w", "x", "y", "z"])
        assert answer["result"]["_meta"]["pegboard/error"]["kind"] == "recursion_limit"
        assert f.runs == 0
        answer = await mcp(e, "tools/call", {"name": "f__of_f", "arguments": {}}, ["x", "y", "z"])
        assert answer["result"]["isError"] is False
        assert f.runs == 1


HOSTILE: list[object] = [
    NULL, False, 0, "text", 7, {}, {"a": "b"}, [], [None], [7], [""], ["a" * 65], ["a\r\nb"], ["é"], [["a"]], ["a"] * 5,
    ["a"] * 10_000,
]  # fmt: skip


async def test_a_path_that_cannot_be_read_runs_nothing_and_lists_nothing() -> None:
    (a,) = gates("a")
    async with serving(a):
        for said in HOSTILE:
            answer = await mcp(a, "tools/call", {"name": "of_a", "arguments": {}}, said)
            assert answer["result"]["_meta"]["pegboard/error"]["kind"] == "recursion_limit", said
            for kind in ("tools", "resources", "resources/templates", "prompts"):
                assert "error" in await mcp(a, f"{kind}/list", {}, said), (kind, said)
        assert a.runs == 0


async def test_a_request_in_the_words_of_mcp_may_say_its_path_in_a_header() -> None:
    (a,) = gates("a")
    call = {"name": "of_a", "arguments": {}}
    async with serving(a):
        for said in (a.catalog.registry.server_id, "a,b,c,d,e", "", "a b"):
            answer = await mcp(a, "tools/call", call, headers={HOPS_HEADER: said})
            assert answer["result"]["_meta"]["pegboard/error"]["kind"] == "recursion_limit", said
            # Whatever the body says: a template may say anything.
            assert (await mcp(a, "tools/call", call, ["x"], headers={HOPS_HEADER: said}))["result"]["isError"], said
        assert a.runs == 0
        assert not (await mcp(a, "tools/call", call, headers={HOPS_HEADER: "w, x"}))["result"]["isError"]
        assert a.runs == 1


async def test_a_call_that_has_been_here_is_refused_at_the_door_of_http() -> None:
    (a,) = gates("a")
    own = a.catalog.registry.server_id
    async with serving(a), httpx2.AsyncClient() as client:
        for said in (own, f"x, {own}", "a,b,c,d,e", "", "a b", "x" * 10_000, ","):
            answer = await client.post(f"{a.url}/v1/tools/of_a/call", json={}, headers={HOPS_HEADER: said})
            assert (answer.status_code, answer.json()["kind"]) == (403, "recursion_limit")
        assert a.runs == 0
        ids = ",".join("wxyz"[:HOPS])
        assert (await client.post(f"{a.url}/v1/tools/of_a/call", json={}, headers={HOPS_HEADER: ids})).is_success
        assert a.runs == 1


def webhook(folder: Path, name: str, url: str) -> Catalog:
    (folder / name).mkdir()
    config = folder / name / "pegboard.yaml"
    tool = f"{{type: webhook, name: ping, description: Go on., webhook: {{url: '{url}'}}}}"
    config.write_text(f"name: {name}\ntools:\n  - {tool}\n")
    return load_catalog(config, env={})[0]


SPEC: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "t", "version": "1"},
    "paths": {"/items": {"get": {"operationId": "items", "responses": {"200": {"description": "ok"}}}}},
}


async def test_webhook_and_openapi_tools_send_the_path_on(tmp_path: Path) -> None:
    paths: list[str | None] = []

    async def record(request: Request) -> Response:
        paths.append(request.headers.get(HOPS_HEADER))
        return JSONResponse({})

    service = Starlette(routes=[Route("/items", record, methods=["GET", "POST"])])
    service.state.end_streams = list
    async with served(service) as there:
        (tmp_path / "api.json").write_text(json.dumps(SPEC))
        hook = {"url": f"{there}/items"}
        tools = [
            {"type": "webhook", "name": "ping", "description": "Go on.", "webhook": hook},
            {"type": "openapi", "name": "api", "openapi": {"spec": "api.json", "base_url": there}},
        ]
        (tmp_path / "pegboard.yaml").write_text(json.dumps({"tools": tools}))
        catalog, _ = load_catalog(tmp_path / "pegboard.yaml", env={})
        own = catalog.registry.server_id
        async with served(http_app(catalog)) as here, httpx2.AsyncClient() as client:
            for tool in ("ping", "api__items"):
                for said in ({}, {HOPS_HEADER: "w, x"}, {HOPS_HEADER: "w,x,y,z"}):
                    answer = await client.post(f"{here}/v1/tools/{tool}/call", json={}, headers=said)
                    assert answer.is_success is (len(said.get(HOPS_HEADER, "")) < 7), (tool, said, answer.text)
    assert paths == [own, f"w,x,{own}"] * 2


async def test_webhooks_that_call_each_other_end_at_the_first_server_passed_twice(tmp_path: Path) -> None:
    ports = free_port(), free_port()
    calls = 0
    catalogs = [
        webhook(tmp_path, name, f"http://127.0.0.1:{port}/v1/tools/ping/call")
        for name, port in zip("ab", reversed(ports), strict=True)
    ]

    class Counter:
        def on_tool_result(self, _event: object) -> None:
            nonlocal calls
            calls += 1

    for catalog in catalogs:
        catalog.observe(Counter())
    async with (
        served(http_app(catalogs[0]), port=ports[0]),
        served(http_app(catalogs[1]), port=ports[1]),
        httpx2.AsyncClient() as client,
        asyncio.timeout(60),
    ):
        answer = await client.post(f"http://127.0.0.1:{ports[0]}/v1/tools/ping/call", json={})
    assert answer.json()["kind"] == "recursion_limit"
    assert calls == 2


async def test_a_ring_with_a_proxy_that_drops_the_path_ends_at_the_share_of_the_one_who_called() -> None:
    two = [Gate(name, free_port(), bounds=Bounds(calls_in_flight=8)) for name in "ab"]

    def go_round(here: Gate, there: Gate) -> None:
        @here.catalog.tool(name="go")
        async def go() -> str:
            """Ask the other one, as through a proxy that drops what it does not know."""
            here.runs += 1
            async with httpx2.AsyncClient() as client:
                answer = await client.post(f"{there.url}/v1/tools/go/call", json={})
            return answer.text

    for here, there in itertools.permutations(two):
        go_round(here, there)
    async with serving(*two), httpx2.AsyncClient() as client, asyncio.timeout(PATIENCE_S):
        answer = await client.post(f"{two[0].url}/v1/tools/go/call", json={})
        assert "busy" in answer.text
        assert [gate.runs for gate in two] == [6, 6]
        # All places are free again.
        again = await client.post(f"{two[0].url}/v1/tools/of_a/call", json={})
        assert again.is_success


async def test_a_ring_of_mcp_webhook_and_openapi_ends_where_it_began_wherever_that_is(tmp_path: Path) -> None:
    ports = {name: free_port() for name in "abc"}
    there = "http://127.0.0.1:{}"
    hook = {"url": f"{there}/v1/tools/api__go/call"}
    ways: dict[str, Any] = {
        "a": {"type": "mcp", "name": "on", "mcp": {"transport": "http", "url": f"{there}/mcp", "trust": "any"}},
        "b": {"type": "webhook", "name": "ping", "description": "Go on.", "webhook": hook},
        "c": {"type": "openapi", "name": "api", "openapi": {"spec": "api.json", "base_url": there}},
    }
    go = {"operationId": "go", "responses": {"200": {"description": "ok"}}}
    spec = {**SPEC, "paths": {"/v1/tools/on__ping/call": {"post": go}}}
    ran: list[str] = []

    class Ran:
        def __init__(self, name: str) -> None:
            self.name = name

        def on_tool_call(self, _event: object) -> None:
            ran.append(self.name)

    async with AsyncExitStack() as stack:
        catalogs = dict[str, Catalog]()
        for name, following in (("b", "c"), ("c", "a"), ("a", "b")):
            (tmp_path / name).mkdir()
            (tmp_path / name / "api.json").write_text(json.dumps(spec))
            text = json.dumps({"name": name, "tools": [ways[name]]}).replace(
                "127.0.0.1:{}", f"127.0.0.1:{ports[following]}"
            )
            (tmp_path / name / "pegboard.yaml").write_text(text)
            catalogs[name] = load_catalog(tmp_path / name / "pegboard.yaml", env={})[0]
            catalogs[name].observe(Ran(name))
            await stack.enter_async_context(served(http_app(catalogs[name]), port=ports[name]))
        await until(lambda: "on__ping" in view_of(catalogs["a"]).names())
        client = await stack.enter_async_context(httpx2.AsyncClient(timeout=PATIENCE_S))
        for start, tool, order in (("a", "on__ping", "abc"), ("b", "ping", "bca"), ("c", "api__go", "cab")):
            ran.clear()
            answer = await client.post(f"http://127.0.0.1:{ports[start]}/v1/tools/{tool}/call", json={})
            assert (answer.json()["kind"], "".join(ran)) == ("recursion_limit", order), answer.text


@pytest.mark.parametrize("revision", ["2026-07-28", "2025-11-25"])
async def test_a_path_is_read_over_stdio_in_both_eras(tmp_path: Path, revision: str) -> None:
    webhook(tmp_path, "a", "http://127.0.0.1:9/")
    said: dict[str, Any] = {HOPS_KEY: list("vwxyz")}
    opening: list[dict[str, Any]] = [{"jsonrpc": "2.0", "method": "notifications/initialized"}]
    if revision == "2026-07-28":
        said, opening = {**META, **said}, []
    else:
        client = {"protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
        opening.insert(0, {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client})
    params = {"name": "ping", "arguments": {}, "_meta": said}
    calls = [
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params},
        {"jsonrpc": "2.0", "id": 3, "method": "tools/list", "params": {"_meta": said}},
    ]
    process = await asyncio.create_subprocess_exec(
        str(PEGBOARD), "serve", "--stdio", cwd=tmp_path / "a",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    lines = b"".join(json.dumps(message).encode() + b"\n" for message in [*opening, *calls])
    async with asyncio.timeout(60):
        out, _ = await process.communicate(lines)
    answers = {message["id"]: message for message in map(json.loads, out.splitlines()) if "id" in message}
    assert answers[2]["result"]["_meta"]["pegboard/error"]["kind"] == "recursion_limit"
    assert answers[3]["error"]["data"]["kind"] == "recursion_limit"


def test_a_server_has_one_id_for_all_its_workers_and_another_server_has_another(tmp_path: Path) -> None:
    first, again = (load_catalog(_config(tmp_path, "one"), env={})[0] for _ in range(2))
    other, _ = load_catalog(_config(tmp_path, "two"), env={})
    assert first.registry.server_id == again.registry.server_id != other.registry.server_id
    keyed = [Catalog("same"), Catalog("same"), Catalog("other")]
    for catalog in keyed:
        http_app(catalog, keys=(b"k" * 32,))
    assert keyed[0].registry.server_id == keyed[1].registry.server_id != keyed[2].registry.server_id


def _config(folder: Path, name: str) -> Path:
    (folder / name).mkdir(exist_ok=True)
    config = folder / name / "pegboard.yaml"
    config.write_text("tools: []\n")
    return config
