"""Tasks over MCP: what each kind of client of either era is answered, beside what the conformance suite asks."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp_types import HEADER_MISMATCH

from pegboard import CallContext, Catalog, Tasks, http_app
from tests.conformance.fixtures import conformance_catalog
from tests.server.doors import served
from tests.timing import PATIENCE_S

CLIENT = Path(__file__).parents[1] / "conformance/tasks_client.mjs"
EXTENSION = "io.modelcontextprotocol/tasks"


def declared() -> Catalog:
    catalog = Catalog("tasks", tasks=Tasks())

    @catalog.tool
    async def plain() -> str:
        """Answer at once."""
        return "plain"

    @catalog.tool(task="optional")
    async def either(text: str = "x") -> dict[str, str]:
        """Answer at once, or as a task."""
        return {"text": text}

    @catalog.tool(task="required")
    async def ask(ctx: CallContext) -> object:
        """Ask a person."""
        return {"answer": await ctx.ask("Which one?", schema={"type": "string"})}

    return catalog


@pytest.fixture(scope="module")
async def url() -> AsyncGenerator[str]:
    async with served(http_app(declared())) as address:
        yield f"{address}/mcp"


class Earlier:
    """A client of 2025-11-25, by hand."""

    def __init__(self, url: str, client: httpx2.AsyncClient) -> None:
        self.url, self.client, self.number = url, client, 0
        self.headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-11-25"}

    async def begin(self, capabilities: Any) -> Any:
        asked = {
            "protocolVersion": "2025-11-25",
            "capabilities": capabilities,
            "clientInfo": {"name": "c", "version": "1"},
        }
        answer = await self.client.post(self.url, headers=self.headers, json=self.message("initialize", asked))
        self.headers["mcp-session-id"] = answer.headers["mcp-session-id"]
        told = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        await self.client.post(self.url, headers=self.headers, json=told)
        return read(answer)["result"]

    def message(self, method: str, params: Any) -> Any:
        self.number += 1
        return {"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}

    async def ask(self, method: str, **params: Any) -> Any:
        return read(await self.client.post(self.url, headers=self.headers, json=self.message(method, params)))


def read(answer: httpx2.Response) -> Any:
    """Return the last message of an answer, a stream or not."""
    if not answer.headers["content-type"].startswith("text/event-stream"):
        return answer.json()
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: {")]
    return httpx2.Response(200, text=lines[-1]).json()


async def modern(
    client: httpx2.AsyncClient,
    url: str,
    method: str,
    *,
    extensions: Any = None,
    header: str | None = None,
    **params: Any,
) -> Any:
    """Send one request of 2026-07-28; its header names what its body does, unless it is to be another."""
    own = {} if extensions is None else {"extensions": extensions}
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}, **own},
        "io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"},
    }
    named = params.get("name", params.get("taskId", "")) if header is None else header
    headers = {
        "accept": "application/json, text/event-stream", "mcp-protocol-version": "2026-07-28", "mcp-method": method,
        "mcp-name": named,
    }  # fmt: skip
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    return read(await client.post(url, headers=headers, json=body))


@pytest.mark.parametrize("capabilities", [{}, {"tasks": {"list": {}, "cancel": {}}}])
async def test_a_client_of_2025_follows_a_task_whatever_it_declared(url: str, capabilities: Any) -> None:
    async with httpx2.AsyncClient(timeout=PATIENCE_S) as client:
        earlier = Earlier(url, client)
        announced = await earlier.begin(capabilities)
        wanted = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
        assert announced["capabilities"]["tasks"] == wanted
        tools = {tool["name"]: tool.get("execution") for tool in (await earlier.ask("tools/list"))["result"]["tools"]}
        assert tools == {"plain": None, "either": {"taskSupport": "optional"}, "ask": {"taskSupport": "required"}}
        made = (await earlier.ask("tools/call", name="either", arguments={"text": "t"}, task={}))["result"]["task"]
        assert (made["ttl"], made["pollInterval"] > 0) == (86_400_000, True)
        # Some repeat the word in what they ask of it.
        await earlier.ask("tasks/get", taskId=made["taskId"], task={"ttl": 1})
        result = (await earlier.ask("tasks/result", taskId=made["taskId"]))["result"]
        assert result["structuredContent"] == {"text": "t"}
        assert result["_meta"]["io.modelcontextprotocol/related-task"] == {"taskId": made["taskId"]}
        state = (await earlier.ask("tasks/get", taskId=made["taskId"]))["result"]
        assert (state["status"], set(state) & {"ttlMs", "result"}) == ("completed", set())
        # Without the word it is a call as any other; a ttl that is asked for is kept to.
        direct = (await earlier.ask("tools/call", name="either", arguments={}))["result"]
        assert direct["structuredContent"] == {"text": "x"}
        short = await earlier.ask("tools/call", name="either", arguments={}, task={"ttl": 60_000})
        assert short["result"]["task"]["ttl"] == 60_000
        # Never longer than the server keeps them, nor so short that nobody could look.
        for asked, kept in ((10**30, 86_400_000), (10**400, 86_400_000), (0, 1_000), (-(10**400), 1_000)):
            other = await earlier.ask("tools/call", name="either", arguments={}, task={"ttl": asked})
            assert other["result"]["task"]["ttl"] == kept
        refused = [
            await earlier.ask("tools/call", name="plain", arguments={}, task={}),
            await earlier.ask("tools/call", name="ask", arguments={}),
            await earlier.ask("tasks/update", taskId=made["taskId"], inputResponses={}),
            await earlier.ask("tasks/get", taskId="f" * 32),
            await earlier.ask("tasks/result", taskId="f" * 32),
            await earlier.ask("tasks/cancel", taskId=made["taskId"]),
        ]
        assert [answer["error"]["code"] for answer in refused] == [-32601, -32601, -32601, -32602, -32602, -32602]


async def test_who_waits_for_the_result_in_2025_is_asked_what_the_task_asks(url: str) -> None:
    async with httpx2.AsyncClient(timeout=PATIENCE_S) as client:
        earlier = Earlier(url, client)
        await earlier.begin({"elicitation": {}})
        made = (await earlier.ask("tools/call", name="ask", arguments={}, task={}))["result"]["task"]
        asked = earlier.message("tasks/result", {"taskId": made["taskId"]})
        async with client.stream("POST", url, headers=earlier.headers, json=asked) as stream:
            async for line in stream.aiter_lines():
                if not line.startswith("data: {"):
                    continue
                message = httpx2.Response(200, text=line.removeprefix("data: ")).json()
                if message.get("method") == "elicitation/create":
                    related = message["params"]["_meta"]["io.modelcontextprotocol/related-task"]
                    assert related == {"taskId": made["taskId"]}
                    answer = {"action": "accept", "content": {"answer": "this"}}
                    told = {"jsonrpc": "2.0", "id": message["id"], "result": answer}
                    await client.post(url, headers=earlier.headers, json=told)
                elif message.get("id") == asked["id"]:
                    assert message["result"]["structuredContent"] == {"answer": "this"}
                    return
    raise AssertionError("the stream ended without the result")


UNFIT: list[Any] = [
    ({"error": {"code": -32603, "message": "no window"}}, "The client could not be asked: no window"),
    ({"result": {"action": "accept", "content": {"answer": 3}}}, "does not fit the question"),
]


@pytest.mark.parametrize(("unfit", "reason"), UNFIT)
async def test_an_unfit_answer_of_2025_ends_the_wait_with_the_reason_and_the_task_can_still_be_answered(
    url: str, unfit: Any, reason: str
) -> None:
    async with httpx2.AsyncClient(timeout=PATIENCE_S) as client:
        earlier = Earlier(url, client)
        await earlier.begin({"elicitation": {}})
        made = (await earlier.ask("tools/call", name="ask", arguments={}, task={}))["result"]["task"]
        ends: list[Any] = []
        for answer in (unfit, {"result": {"action": "accept", "content": {"answer": "this"}}}):
            asked = earlier.message("tasks/result", {"taskId": made["taskId"]})
            async with client.stream("POST", url, headers=earlier.headers, json=asked) as stream:
                async for line in stream.aiter_lines():
                    if not line.startswith("data: {"):
                        continue
                    message = httpx2.Response(200, text=line.removeprefix("data: ")).json()
                    if message.get("method") == "elicitation/create":
                        told = {"jsonrpc": "2.0", "id": message["id"], **answer}
                        await client.post(url, headers=earlier.headers, json=told)
                    elif message.get("id") == asked["id"]:
                        ends.append(message)
        assert reason in ends[0]["error"]["message"]
        assert "The task still waits for an answer" in ends[0]["error"]["message"]
        assert ends[1]["result"]["structuredContent"] == {"answer": "this"}


async def test_a_client_of_2026_is_told_of_a_task_only_where_this_request_declares_it(url: str) -> None:
    async with httpx2.AsyncClient(timeout=PATIENCE_S) as client:
        ask = lambda method, **params: modern(client, url, method, **params)  # noqa: E731 - short
        found = (await ask("server/discover"))["result"]["capabilities"]
        assert (found["extensions"][EXTENSION], "tasks" in found) == ({}, False)
        assert (await ask("tools/call", name="either", arguments={}))["result"]["resultType"] == "complete"
        refused = (await ask("tools/call", name="ask", arguments={}))["error"]
        assert (refused["code"], refused["data"]) == (-32021, {"requiredCapabilities": {"extensions": {EXTENSION: {}}}})
        with_tasks: Any = {EXTENSION: {}}
        made = (await ask("tools/call", name="ask", arguments={}, extensions=with_tasks))["result"]
        assert (made["resultType"], made["ttlMs"]) == ("task", 86_400_000)
        async with asyncio.timeout(PATIENCE_S):
            while True:
                state = (await ask("tasks/get", taskId=made["taskId"], extensions=with_tasks))["result"]
                if state["status"] == "input_required":
                    break
        [key] = state["inputRequests"]
        unfit = {key: {"action": "accept", "content": {"answer": 3}}}
        refused = await ask("tasks/update", taskId=made["taskId"], inputResponses=unfit, extensions=with_tasks)
        assert refused["error"]["code"] == -32602
        fit = {key: {"action": "accept", "content": {"answer": "this"}}}
        told = await ask("tasks/update", taskId=made["taskId"], inputResponses=fit, extensions=with_tasks)
        assert told["result"]["resultType"] == "complete"
        async with asyncio.timeout(PATIENCE_S):
            while state["status"] != "completed":
                state = (await ask("tasks/get", taskId=made["taskId"], extensions=with_tasks))["result"]
        assert state["result"]["structuredContent"] == {"answer": "this"}
        # What stands between reads the header alone: it must not let through what the body says of another task.
        for method, more in (("tasks/get", {}), ("tasks/cancel", {}), ("tasks/update", {"inputResponses": {}})):
            for header in ("", "f" * 32):
                other = await ask(method, taskId=made["taskId"], extensions=with_tasks, header=header, **more)
                assert other["error"]["code"] == HEADER_MISMATCH
        unknown = [
            await ask(method, taskId="f" * 32, extensions=with_tasks, **more)
            for method, more in (("tasks/get", {}), ("tasks/cancel", {}), ("tasks/update", {"inputResponses": {}}))
        ]
        assert {answer["error"]["code"] for answer in unknown} == {-32602}


@pytest.mark.slow
async def test_the_typescript_sdk_and_ext_tasks_complete_tasks_and_approvals() -> None:
    if not CLIENT.with_name("node_modules").exists():
        pytest.skip("the clients are not installed: make setup")
    catalog, paid = conformance_catalog(), list[str]()

    @catalog.tool(consent="always", task="optional")
    async def pay(to: str) -> str:
        """Pay somebody."""
        paid.append(to)
        return f"paid {to}"

    async with served(http_app(catalog)) as address:
        process = await asyncio.create_subprocess_exec(
            str(Path(sys.executable).with_name("node")), str(CLIENT), f"{address}/mcp", stdout=asyncio.subprocess.PIPE
        )
        out, _ = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    assert json.loads(out) == {
        "slow_compute": "computed  in 0.0 s", "slow_compute ended": "result",
        "confirm_delete": "deleted a", "confirm_delete ended": "result",
        "pay": "paid ts", "ext": "computed ext in 0.0 s", "pay ext": "paid ext",
    }  # fmt: skip
    assert paid == ["ts", "ext"]
