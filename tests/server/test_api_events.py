"""The event stream of a caller: its own calls through every door, changes of its own list, and nobody else's."""

import asyncio
from typing import Any

import httpx2

from pegboard import CallContext, Policy, Profile, http_app
from pegboard.server.event_hub import Outbox, frame
from tests.server.doors import call, served, workshop
from tests.server.http_callers import context_of_user, heard, heard_until, known_callers


async def test_a_caller_hears_of_its_own_calls_through_every_door_and_of_no_others() -> None:
    app = known_callers(http_app(workshop()[0], config=context_of_user))
    async with served(app) as url:
        ann = httpx2.AsyncClient(base_url=url, headers={"x-user": "ann"})
        bob = httpx2.AsyncClient(base_url=url, headers={"x-user": "bob"})
        async with ann, bob, ann.stream("GET", "/v1/events") as stream:
            assert stream.headers["content-type"] == "text/event-stream"
            await bob.post("/v1/tools/echo/call", json={"text": "canary"})
            await call(bob, "echo", {"text": "canary"})
            mine = (await ann.post("/v1/tools/echo/call", json={"text": "mine"})).json()
            events = await heard_until(stream, "on_tool_result")
            await call(ann, "echo", {"text": "by MCP"})
    assert [(event.name, event.data["callId"]) for event in events] == [
        ("on_tool_call", mine["callId"]),
        ("on_tool_result", mine["callId"]),
    ]
    assert events[0].data["payload"] == {"arguments": {"text": "mine"}}
    assert events[1].data["ok"] is True
    assert events[1].data["payload"]["result"] == {"content": mine["content"]}
    assert "canary" not in str(events)


async def test_a_call_over_mcp_is_heard_of_and_can_be_cancelled_over_http() -> None:
    catalog, seen = workshop()
    app = known_callers(http_app(catalog, config=context_of_user))
    async with served(app) as url, httpx2.AsyncClient(base_url=url, headers={"x-user": "ann"}) as ann:
        async with ann.stream("GET", "/v1/events") as stream:
            events = heard(stream)
            calling = asyncio.create_task(call(ann, "wait"))
            told = await anext(events)
            assert (told.name, told.data["tool"]) == ("on_tool_call", "wait")
            await seen.began.wait()
            path = f"/v1/calls/{told.data['callId']}/cancel"
            assert (await ann.post(path, headers={"x-user": "bob"})).status_code == 404
            assert (await ann.post(path)).status_code == 200
            assert (await anext(events)).data["payload"]["kind"] == "cancelled"
            assert (await calling)["result"]["isError"] is True


async def test_what_a_call_calls_is_heard_of_with_its_parent() -> None:
    catalog, _ = workshop()

    @catalog.tool(groups="core")
    async def outer(ctx: CallContext) -> str:
        """Call on."""
        async with ctx.sub_agent("writer"):
            inner = await catalog.view(ctx.child(), profile="chat").call("echo", {"text": "x"})
        return inner.text

    async with served(http_app(catalog)) as url, httpx2.AsyncClient(base_url=url) as client:
        response = await client.post("/v1/tools/outer/call", headers={"accept": "text/event-stream"})
        events = await heard_until(response, "result")
    told = [(event.name, event.data.get("tool")) for event in events]
    assert told == [
        ("on_tool_call", "outer"), ("on_sub_agent_start", "outer"), ("on_tool_call", "echo"),
        ("on_tool_result", "echo"), ("on_sub_agent_end", "outer"), ("result", None),
    ]  # fmt: skip
    assert events[2].data["parentCallId"] == events[0].data["callId"]


async def test_a_caller_hears_when_its_own_list_changes() -> None:
    catalog, _ = workshop()
    async with served(http_app(catalog)) as url, httpx2.AsyncClient(base_url=url) as client:
        async with client.stream("GET", "/v1/events?profile=chat") as stream:
            events = heard(stream)

            @catalog.tool(groups="admin")
            async def others() -> str:
                """Not theirs."""
                return ""

            # A whole round through the door, and longer than changes are gathered: nothing may have been said.
            await client.post("/v1/tools/echo/call", json={"text": "x"})
            assert [(await anext(events)).name for _ in range(2)] == ["on_tool_call", "on_tool_result"]

            @catalog.tool(groups="core")
            async def theirs() -> str:
                """Theirs."""
                return ""

            told = await anext(events)
            assert (told.name, told.data) == ("list_changed", {"what": "tools", "profile": "chat"})
            catalog.profile(Profile(name="chat", include=("core",), policy=Policy(deny=("echo",))))
            catalog.unregister("others")
            assert (await anext(events)).name == "list_changed"


async def test_streams_end_when_the_server_does_and_are_limited_for_each_caller() -> None:
    catalog, _ = workshop()
    app = known_callers(http_app(catalog, config=context_of_user))
    async with served(app) as url, httpx2.AsyncClient(base_url=url, limits=httpx2.Limits()) as client:
        open_ones: list[Any] = []
        for _ in range(20):
            stream = client.stream("GET", "/v1/events", headers={"x-user": "ann"})
            assert (await stream.__aenter__()).status_code == 200
            open_ones.append(stream)
        refused = await client.get("/v1/events", headers={"x-user": "ann"})
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "5")
        async with client.stream("GET", "/v1/events", headers={"x-user": "bob"}) as response:
            assert response.status_code == 200
            app.state.end_streams()
            assert [event async for event in heard(response)] == []
        for stream in open_ones:
            await stream.__aexit__(None, None, None)


async def test_asked_for_its_headers_only_a_stream_ends_at_once() -> None:
    async with served(http_app(workshop()[0])) as url, httpx2.AsyncClient(base_url=url) as client:
        async with asyncio.timeout(60):
            told = await client.head("/v1/events")
            # On the same connection: nothing is still being written on it.
            assert (await client.get("/metrics")).text.count("pegboard_event_streams 0.0") == 1
        assert (told.status_code, told.headers["content-type"]) == (200, "text/event-stream")


def test_what_nobody_reads_is_dropped_oldest_first_and_counted() -> None:
    outbox = Outbox()
    for number in range(1_500):
        outbox.put(frame("on_progress", {"number": number}))
    text = outbox.take().decode()
    assert text.startswith('event: dropped\ndata: {"events":500}\n\n')
    assert text.count("on_progress") == 1_000
    assert '"number":1499' in text
    big = frame("on_tool_result", {"text": "x" * 3_000_000})
    for _ in range(3):
        outbox.put(big)
    assert len(outbox.take()) < 4_000_000
    assert outbox.take() == b""
