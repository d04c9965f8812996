"""A client of 2026-07-28 that listens hears of its own tasks, each as tasks/get shows it, and of nobody else's."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from pegboard import CallContext, Catalog, Tasks, http_app
from pegboard.auth.keys import KeyStore
from pegboard.auth.rules import AnonymousRule, IdentityRules
from pegboard.server.mcp.handlers.task_notifications import MCP_LISTENING_TASKS
from tests.auth.parts import bearer, rule
from tests.server.doors import served
from tests.timing import PATIENCE_S

EXTENSION = "io.modelcontextprotocol/tasks"
FIT = {"action": "accept", "content": {"answer": "this"}}


@pytest.fixture
def keys(tmp_path: Path) -> KeyStore:
    return KeyStore(tmp_path / "keys.db")


@pytest.fixture(params=["memory"])
async def url(request: pytest.FixtureRequest, tmp_path: Path, keys: KeyStore) -> AsyncGenerator[str]:
    store = "memory" if request.param == "memory" else f"sqlite:{tmp_path}/tasks.db"
    catalog = Catalog("tasks", tasks=Tasks(store))
    catalog.identity = IdentityRules(
        key_store=keys.path, map=(rule(key="ann", user="ann"), rule(key="bob", user="bob")), anonymous=AnonymousRule()
    )

    @catalog.tool(task="required")
    async def ask(ctx: CallContext) -> dict[str, object]:
        """Ask a person."""
        return {"answer": await ctx.ask("Which one?", schema={"type": "string"})}

    async with served(http_app(catalog)) as address:
        yield f"{address}/mcp"


class Client:
    """A client of 2026-07-28, by hand."""

    def __init__(self, url: str, http: httpx2.AsyncClient, key: str) -> None:
        self.url, self.http, self.key = url, http, key

    def request(self, method: str, params: Any, *, follows: bool = True) -> dict[str, Any]:
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {"extensions": {EXTENSION: {}}} if follows else {},
            "io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"},
        }
        headers = {
            "accept": "application/json, text/event-stream", "mcp-protocol-version": "2026-07-28",
            "mcp-method": method, "mcp-name": params.get("name", params.get("taskId", "")), **bearer(self.key),
        }  # fmt: skip
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
        return {"headers": headers, "json": body}

    async def ask(self, method: str, **params: Any) -> Any:
        answer = await self.http.post(self.url, **self.request(method, params))
        if answer.headers["content-type"].startswith("text/event-stream"):
            return [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")][-1]
        return answer.json()

    async def begun(self) -> str:
        return (await self.ask("tools/call", name="ask", arguments={}))["result"]["taskId"]

    async def listen(self, ids: Any, *, follows: bool = True) -> AsyncGenerator[Any]:
        request = self.request("subscriptions/listen", {"notifications": {"taskIds": ids}}, follows=follows)
        async with self.http.stream("POST", self.url, **request) as answer:
            if not answer.headers["content-type"].startswith("text/event-stream"):
                yield json.loads(await answer.aread())
                return
            async for line in answer.aiter_lines():
                if line.startswith("data: {"):
                    yield json.loads(line[6:])


@asynccontextmanager
async def clients(url: str, keys: KeyStore, *names: str) -> AsyncGenerator[list[Client]]:
    async with httpx2.AsyncClient(timeout=PATIENCE_S) as http:
        yield [Client(url, http, keys.add(name)[0]) for name in names]


@pytest.mark.parametrize("url", ["memory", "sqlite"], indirect=True)
async def test_a_client_hears_each_state_of_its_tasks_as_it_would_be_shown_it(url: str, keys: KeyStore) -> None:
    async with asyncio.timeout(PATIENCE_S), clients(url, keys, "ann") as [ann]:
        first, second = await ann.begun(), await ann.begun()
        states = dict[str, list[str]]()
        async with aclosing(ann.listen([first, second, "f" * 32])) as stream:
            acknowledged = await anext(stream)
            assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
            assert acknowledged["params"]["notifications"] == {"taskIds": [first, second]}
            subscription = acknowledged["params"]["_meta"]
            async for message in stream:
                assert message["method"] == "notifications/tasks"
                params = message["params"]
                assert params.pop("_meta") == subscription
                states.setdefault(params["taskId"], []).append(params["status"])
                if params["status"] == "input_required":
                    [key] = params["inputRequests"]
                    if params["taskId"] == first:
                        await ann.ask("tasks/update", taskId=first, inputResponses={key: FIT})
                    else:
                        await ann.ask("tasks/cancel", taskId=second)
                shown = (await ann.ask("tasks/get", taskId=params["taskId"]))["result"]
                shown.pop("_meta")
                if params["status"] in ("completed", "cancelled"):
                    # Whole, result and all: nobody need ask any more.
                    assert {"resultType": "complete", **params} == shown
                if {"completed", "cancelled"} <= {history[-1] for history in states.values()}:
                    break
        assert states[first][-2:] == ["input_required", "completed"] or states[first][-1] == "completed"
        assert states[second][-1] == "cancelled"


async def test_the_task_of_another_is_listened_to_as_one_that_does_not_exist(url: str, keys: KeyStore) -> None:
    async with asyncio.timeout(PATIENCE_S), clients(url, keys, "ann", "bob") as [ann, bob]:
        hers, his = await ann.begun(), await bob.begun()
        heard = list[str]()
        for ids in ([hers], ["f" * len(hers)], [hers, his]):
            async with aclosing(bob.listen(ids)) as stream:
                heard.append(json.dumps(await anext(stream)))
                if his in ids:
                    await ann.ask("tasks/cancel", taskId=hers)
                    assert (await anext(stream))["params"]["taskId"] == his
                    await bob.ask("tasks/cancel", taskId=his)
                    async for message in stream:
                        assert message["params"]["taskId"] == his
                        if message["params"]["status"] == "cancelled":
                            break
        assert heard[0] == heard[1]
        assert (hers in heard[2], his in heard[2]) == (False, True)


async def test_what_cannot_be_listened_to_is_refused(url: str, keys: KeyStore) -> None:
    async with asyncio.timeout(PATIENCE_S), clients(url, keys, "ann") as [ann]:
        task_id = await ann.begun()
        refused = [await anext(ann.listen([task_id], follows=False))]
        refused += [await anext(ann.listen(ids)) for ids in ("x", [3], ["x"] * (MCP_LISTENING_TASKS + 1))]
        assert [answer["error"]["code"] for answer in refused] == [-32021, -32602, -32602, -32602]
        assert refused[0]["error"]["data"] == {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}


async def test_a_stream_tells_nothing_more_to_a_credential_that_was_taken_back(
    url: str, keys: KeyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The check that ends such a stream comes later: it is to be silent while it is open, too.
    monkeypatch.setattr("pegboard.server.credential_watch.CREDENTIAL_CHECK_S", 2 * PATIENCE_S)
    async with asyncio.timeout(PATIENCE_S), clients(url, keys, "ann", "bob") as [ann, bob]:
        hers, his = await ann.begun(), await bob.begun()
        async with aclosing(ann.listen([hers])) as stream, aclosing(bob.listen([his])) as control:
            for one, task_id in ((stream, hers), (control, his)):
                async for message in one:
                    if message["params"].get("status") == "input_required":
                        assert message["params"]["taskId"] == task_id
                        break
            keys.revoke("ann")
            await bob.ask("tasks/cancel", taskId=his)
            assert (await anext(control))["params"]["status"] == "cancelled"
            nothing = asyncio.ensure_future(anext(stream))
            assert await asyncio.wait([nothing], timeout=0.5) == (set(), {nothing})
            nothing.cancel()
            await asyncio.gather(nothing, return_exceptions=True)
