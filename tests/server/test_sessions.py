"""Sessions: what clients of the revisions before 2026-07-28 have between their requests."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from pegboard import CallContext, Catalog, Profile, http_app
from pegboard.server.mcp.sessions.session_endpoint import INITIALIZE_BYTES
from tests.server.doors import JSON_HEADERS, answer_of, served
from tests.timing import PATIENCE_S

VERSION = "2025-11-25"
HELLO = {"protocolVersion": VERSION, "capabilities": {"elicitation": {}}, "clientInfo": {"name": "x", "version": "1"}}
EVENTS = {"accept": "text/event-stream", "mcp-protocol-version": VERSION}


class Holding:
    """A tool that waits until told, and what became of its calls."""

    def __init__(self) -> None:
        self.began, self.go, self.ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.outcomes: list[str] = []
        self.catalog = Catalog("holding")
        self.catalog.tool(groups="core")(self.hold)
        self.catalog.tool(groups="core")(self.ask)
        self.catalog.profile(Profile(name="chat", include=("core",)))
        self.catalog.observe(self)

    async def hold(self, ctx: CallContext) -> str:
        """Wait."""
        self.began.set()
        await self.go.wait()
        await ctx.progress(0.5, "on its way")
        return "held"

    async def ask(self, ctx: CallContext) -> str:
        """Ask."""
        assert ctx.client is not None
        return str(await ctx.client.elicit("Name?", {"type": "string"}))

    def on_tool_result(self, event: Any) -> None:
        self.outcomes.append(event.payload["kind"])
        self.ended.set()


class EarlierClient:
    """One session."""

    def __init__(self, http: httpx2.AsyncClient, session: str) -> None:
        self.http, self.headers = http, {"mcp-session-id": session, "mcp-protocol-version": VERSION}

    async def post(self, message: dict[str, Any]) -> httpx2.Response:
        return await self.http.post(
            "/mcp", headers={**JSON_HEADERS, **self.headers}, json={"jsonrpc": "2.0", **message}
        )

    def call(self, name: str, request_id: int = 1) -> Any:
        """Return the stream of a call."""
        params = {"name": name, "arguments": {}, "_meta": {"progressToken": 1}}
        message = {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params}
        return self.http.stream("POST", "/mcp", headers={**JSON_HEADERS, **self.headers}, json=message)

    def follow(self, last_event_id: str = "") -> Any:
        """Return the stream that begins after an event, or that of the session."""
        last = {"last-event-id": last_event_id} if last_event_id else {}
        return self.http.stream("GET", "/mcp", headers={**EVENTS, **self.headers, **last})


@asynccontextmanager
async def clients(catalog: Catalog, count: int = 1) -> AsyncGenerator[list[EarlierClient]]:
    async with served(http_app(catalog)) as url, httpx2.AsyncClient(base_url=url, timeout=20) as http:
        yield [await begun(http) for _ in range(count)]


async def begun(http: httpx2.AsyncClient) -> EarlierClient:
    message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": HELLO}
    response = await http.post("/mcp", headers=JSON_HEADERS, json=message)
    assert response.json()["result"]["protocolVersion"] == VERSION
    client = EarlierClient(http, response.headers["mcp-session-id"])
    assert (await client.post({"method": "notifications/initialized"})).status_code == 202
    return client


async def field_of(stream: httpx2.Response, name: str, *, lines: Any = None) -> str:
    """Return the next value of a field of a stream's events that says something."""
    async for line in lines or stream.aiter_lines():
        if line.startswith(f"{name}: ") and line[len(name) + 2 :].strip():
            return line[len(name) + 2 :]
    raise EOFError


async def test_a_client_that_lost_its_connection_comes_back_for_the_answer() -> None:
    holding = Holding()
    async with clients(holding.catalog) as (client,):
        async with client.call("hold") as stream:
            last = await field_of(stream, "id")
        holding.go.set()
        await asyncio.wait_for(holding.ended.wait(), PATIENCE_S)
        async with client.follow(last) as stream:
            events = [json.loads(line[6:]) async for line in stream.aiter_lines() if line.startswith("data: {")]
        assert [event.get("method", "answer") for event in events] == ["notifications/progress", "answer"]
        assert events[-1]["result"]["content"] == [{"type": "text", "text": "held"}]
    assert holding.outcomes == ["ok"]


async def test_a_client_that_comes_back_while_the_call_runs_hears_the_rest_as_it_is_said() -> None:
    holding = Holding()
    async with clients(holding.catalog) as (client,):
        async with client.call("hold") as stream:
            last = await field_of(stream, "id")
        async with client.follow(last) as stream:
            assert stream.headers["mcp-session-id"] == client.headers["mcp-session-id"]
            holding.go.set()
            events = [json.loads(line[6:]) async for line in stream.aiter_lines() if line.startswith("data: {")]
        assert [event.get("method", "answer") for event in events] == ["notifications/progress", "answer"]


async def test_a_client_that_comes_back_by_a_second_connection_leaves_the_first() -> None:
    holding = Holding()
    async with clients(holding.catalog) as (client,), client.call("hold") as first:
        lines = first.aiter_lines()
        last = await field_of(first, "id", lines=lines)
        async with client.follow(last) as second:
            assert [line async for line in lines if line.startswith("data: {")] == []
            holding.go.set()
            events = [line async for line in second.aiter_lines() if line.startswith("data: {")]
        assert len(events) == 2


async def test_a_client_that_comes_back_to_a_call_that_the_server_lost_hears_of_it() -> None:
    holding = Holding()
    tasks = list[Any]()

    @holding.catalog.tool(groups="core")
    async def lose() -> None:
        """Wait in a task that something else in the process cancels."""
        tasks.append(asyncio.current_task())
        await asyncio.Event().wait()

    async with clients(holding.catalog) as (client,):
        async with client.call("lose") as stream:
            last = await field_of(stream, "id")
        tasks[0].cancel()
        async with client.follow(last) as stream:
            answer = json.loads(await asyncio.wait_for(field_of(stream, "data"), PATIENCE_S))
        assert (answer["id"], answer["error"]["code"]) == (1, -32603)


async def test_a_cancelled_call_ends_and_is_answered_as_cancelled() -> None:
    holding = Holding()
    async with clients(holding.catalog) as (client,):
        asked = asyncio.create_task(client.post({"id": 5, "method": "tools/call", "params": {"name": "hold"}}))
        await holding.began.wait()
        await client.post({"method": "notifications/cancelled", "params": {"requestId": 5}})
        assert answer_of(await asked)["error"] == {"code": -32800, "message": "Request cancelled"}
        assert holding.outcomes == ["cancelled"]


async def test_a_call_ends_with_its_session_which_is_unknown_from_then_on() -> None:
    holding = Holding()
    async with clients(holding.catalog) as (client,):
        asked = asyncio.create_task(client.post({"id": 5, "method": "tools/call", "params": {"name": "hold"}}))
        await holding.began.wait()
        deleted = await client.http.delete("/mcp", headers={**JSON_HEADERS, **client.headers})
        assert deleted.status_code == 200
        await asyncio.wait_for(asked, PATIENCE_S)
        assert holding.outcomes == ["cancelled"]
        assert (await client.post({"id": 6, "method": "ping"})).status_code == 404


async def test_a_question_is_answered_by_the_session_that_was_asked_and_by_no_other() -> None:
    async with clients(Holding().catalog, 2) as (mine, other):
        async with mine.call("ask") as stream:
            lines = stream.aiter_lines()
            question = json.loads(await field_of(stream, "data", lines=lines))
            assert (question["method"], question["params"]["message"]) == ("elicitation/create", "Name?")
            for client, name in ((other, "Mallory"), (mine, "Ann")):
                result = {"action": "accept", "content": {"answer": name}}
                assert (await client.post({"id": question["id"], "result": result})).status_code == 202
            answer = json.loads(await field_of(stream, "data", lines=lines))
        assert answer["result"]["content"] == [{"type": "text", "text": "Ann"}]


@pytest.mark.parametrize("result", [{"action": "perhaps"}, {"action": "accept", "content": {"answer": 3}}, {}])
async def test_an_answer_that_is_none_is_told_to_the_model(result: dict[str, Any]) -> None:
    async with clients(Holding().catalog) as (client,):
        async with client.call("ask") as stream:
            lines = stream.aiter_lines()
            question = json.loads(await field_of(stream, "data", lines=lines))
            await client.post({"id": question["id"], "result": result})
            answer = json.loads(await field_of(stream, "data", lines=lines))
        assert answer["result"]["isError"] is True
        assert "does not fit the question" in answer["result"]["content"][0]["text"]


async def test_a_session_has_one_stream_of_its_own() -> None:
    async with clients(Holding().catalog) as (client,), client.follow() as first:
        assert first.status_code == 200
        async with client.follow() as second:
            assert second.status_code == 409


async def test_a_first_message_that_is_huge_opens_nothing_and_changes_nothing() -> None:
    async with served(http_app(Holding().catalog)) as url, httpx2.AsyncClient(base_url=url) as http:

        async def begin(size: int, **session: str) -> httpx2.Response:
            hello = {**HELLO, "capabilities": {"experimental": {"padding": {"x": "y" * size}}}}
            message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}
            return await http.post("/mcp", headers={**JSON_HEADERS, **session}, json=message)

        refused = await begin(INITIALIZE_BYTES)
        assert (refused.status_code, "mcp-session-id" in refused.headers) == (413, False)
        assert f"{INITIALIZE_BYTES} is the most" in refused.json()["error"]["message"]
        opened = await begin(1_000)
        session = opened.headers["mcp-session-id"]
        # Nor when it is said again, in a session that is open.
        again = await begin(INITIALIZE_BYTES, **{"mcp-session-id": session, "mcp-protocol-version": VERSION})
        assert again.status_code == 413
        assert (await EarlierClient(http, session).post({"id": 2, "method": "tools/list"})).status_code == 200
