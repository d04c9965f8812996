"""Changes: clients of either era hear when their own lists change, and of nobody else's."""

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.server.subscriptions import ResourceUpdated

from pegboard import http_app
from tests.limits.server import redis_server
from tests.server.asgi import send_raw
from tests.server.doors import JSON_HEADERS, META, VERSION, served, workshop
from tests.server.patient_bus import patient_bus

__all__ = ["patient_bus"]


class Heard:
    def __init__(self) -> None:
        self.methods: list[str] = []
        self.something = asyncio.Event()

    async def __call__(self, message: Any) -> None:
        self.methods.append(getattr(message, "method", ""))
        self.something.set()


async def test_an_earlier_client_hears_of_its_own_profile_only() -> None:
    catalog, _ = workshop()
    chat, admin = Heard(), Heard()
    async with served(http_app(catalog)) as url:
        async with (
            Client(f"{url}/mcp/chat", mode="legacy", message_handler=chat) as one,
            Client(f"{url}/mcp/admin", mode="legacy", message_handler=admin) as two,
        ):
            await asyncio.gather(one.list_tools(), two.list_tools())
            # The clients open their streams beside their first requests; what is told before that is not heard.
            for number in range(100):
                catalog.tool(name=f"late_{number}", groups="admin")(lambda: "late")
                catalog.tool(name=f"hidden_{number}", groups="elsewhere")(lambda: "hidden")
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(admin.something.wait(), 0.1)
                    break
            assert "late_0" in {tool.name for tool in (await two.list_tools()).tools}
    assert set(admin.methods) == {"notifications/tools/list_changed"}
    assert chat.methods == []


@pytest.mark.usefixtures("patient_bus")
@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_a_tool_that_one_worker_adds_is_told_to_the_clients_of_another_in_its_profile_alone(
    mode: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with redis_server(tmp_path) as redis:
        ours, theirs = (workshop()[0] for _ in range(2))
        apps = [http_app(catalog, keys=(b"k" * 32,), bus=redis.uri) for catalog in (ours, theirs)]
        chat, admin = Heard(), Heard()
        async with served(apps[0]), served(apps[1]) as url, contextlib.AsyncExitStack() as stack:
            for profile, heard in (("chat", chat), ("admin", admin)):
                client = Client(f"{url}/mcp/{profile}", mode=mode, message_handler=heard)
                await stack.enter_async_context(client)
                if mode == "2026-07-28":
                    listening = await stack.enter_async_context(client.listen(tools_list_changed=True))
                    stack.callback(asyncio.create_task(hear(listening, heard)).cancel)
            for number in range(200):
                ours.tool(name=f"late_{number}", groups="admin")(lambda: "late")
                ours.tool(name=f"hidden_{number}", groups="elsewhere")(lambda: "hidden")
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(admin.something.wait(), 0.1)
                    break
            assert admin.something.is_set()
            assert not chat.something.is_set()
    assert caplog.text.count("Tool 'main.late_0' was added in this worker only") == 1


async def hear(listening: Any, heard: Heard) -> None:
    async for _ in listening:
        heard.something.set()


@pytest.mark.parametrize("what", ["tools", "prompts", "resources"])
async def test_a_client_of_2026_listens_to_what_it_asks_for(what: str) -> None:
    catalog, _ = workshop()
    offers = catalog.resources
    offers.prompt(name="first", groups="core")(lambda: "first")
    changes = {
        "tools": lambda: catalog.tool(name="late", groups="core")(lambda: "late"),
        "prompts": lambda: offers.prompt(name="late", groups="core")(lambda: "late"),
        "resources": lambda: offers.resource("x://late", name="late", groups="core")(lambda: "late"),
    }
    async with served(http_app(catalog)) as url, Client(f"{url}/mcp/chat", mode="2026-07-28") as client:
        flags: dict[str, Any] = {f"{what}_list_changed": True}
        async with client.listen(**flags) as events:
            for change in changes.values():
                change()
            event = await asyncio.wait_for(anext(aiter(events)), 60)
    assert type(event).__name__ == f"{what.capitalize()}ListChanged"


async def test_a_touched_resource_is_told_to_those_who_may_read_it() -> None:
    catalog, _ = workshop()
    offers = catalog.resources
    offers.resource("x://open", name="open", groups="core")(lambda: "open")
    offers.resource("x://secret", name="secret", groups="admin")(lambda: "secret")
    async with served(http_app(catalog)) as url, Client(f"{url}/mcp/chat", mode="2026-07-28") as client:
        async with client.listen(resource_subscriptions=["x://open", "x://secret"]) as events:
            offers.touch("x://secret")
            offers.touch("x://open")
            event = await asyncio.wait_for(anext(aiter(events)), 60)
    assert event.uri == "x://open"  # pyright: ignore[reportAttributeAccessIssue] - the only kind there is here


async def test_who_cannot_read_a_resource_listens_to_it_as_to_one_that_does_not_exist() -> None:
    catalog, _ = workshop()
    offers, may_read = catalog.resources, False
    catalog.predicate(name="may_read")(lambda _ctx: may_read)
    offers.resource("x://open", name="open", groups="core")(lambda: "open")
    offers.resource("x://private", name="private", groups="core", available="may_read")(lambda: "private")
    uris = ["x://private", "x://nowhere", "x://open"]
    async with served(http_app(catalog)) as url, Client(f"{url}/mcp/chat", mode="2026-07-28") as client:
        async with client.listen(resource_subscriptions=uris) as events:
            assert events.honored.resource_subscriptions == ["x://open"]
            offers.touch("x://private")
            offers.touch("x://open")
            assert await asyncio.wait_for(anext(aiter(events)), 60) == ResourceUpdated(uri="x://open")
        may_read = True
        async with client.listen(resource_subscriptions=uris) as events:
            offers.touch("x://private")
            assert await asyncio.wait_for(anext(aiter(events)), 60) == ResourceUpdated(uri="x://private")


async def test_a_caller_has_a_number_of_streams_and_another_one_its_own() -> None:
    app = http_app(workshop()[0])
    heads = {**JSON_HEADERS, "host": "127.0.0.1", "mcp-protocol-version": VERSION, "mcp-method": "subscriptions/listen"}
    sent = [(name.encode(), value.encode()) for name, value in heads.items()]
    params = {"notifications": {"toolsListChanged": True}, "_meta": META}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params}).encode()

    opened = asyncio.Semaphore(0)

    def heard(part: bytes) -> None:
        if b"subscriptions/acknowledged" in part:
            opened.release()

    async def listening(times: int, path: str) -> list[asyncio.Task[tuple[int, str, bytes]]]:
        """Return the requests whose streams have been opened."""
        streams = [asyncio.create_task(send_raw(app, body, sent, path=path, heard=heard)) for _ in range(times)]
        for _ in streams:
            await asyncio.wait_for(opened.acquire(), 60)
        return streams

    async with app.router.lifespan_context(app):
        for _ in range(2):  # those that have ended count no more
            hers = await listening(100, "/mcp/chat")
            _, _, refused = await send_raw(app, body, sent, path="/mcp/chat")
            assert b"A caller may listen 100 times." in refused
            his = await listening(1, "/mcp/admin")
            app.state.end_streams()
            answers = await asyncio.wait_for(asyncio.gather(*hers, *his), 60)
            assert all(b'"result"' in answer for _, _, answer in answers)
