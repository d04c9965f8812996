"""Two workers behind a round-robin proxy, with a Redis between them: real clients, and what one tells the other."""

import asyncio
import contextlib
import json
import re
import signal
import time
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult

from tests import forking
from tests.config.project import Project
from tests.limits.server import RedisServer, redis_server
from tests.server.doors import JSON_HEADERS, answer_of
from tests.server.patient_bus import PATIENT_BUS
from tests.server.round_robin import proxied
from tests.timing import PATIENCE_S

REVISION = "2025-11-25"
CONFIG = """\
name: pair
consents: {{store: "sqlite:answers.db"}}
server: {{keys: [{key}], bus: "{uri}"}}
tools:
  - {{name: who, type: internal, handler: "python:mine:who"}}
  - {{name: ask, type: internal, handler: "python:mine:ask"}}
  - {{name: hold, type: internal, handler: "python:mine:hold"}}
  - {{name: steps, type: internal, handler: "python:mine:steps"}}
  - {{name: speak, type: internal, handler: "python:mine:speak"}}
  - {{name: agree, type: internal, handler: "python:mine:agree", consent: always}}
"""
MODULE = """
import asyncio, os
from pathlib import Path
from pegboard import CallContext

HERE = Path(__file__).parent

async def who() -> int:
    return os.getpid()

async def ask(ctx: CallContext) -> dict:
    return {"said": await ctx.client.elicit("Name?", {"type": "string"}), "pid": os.getpid()}

async def agree(what: str) -> str:
    return f"did {what}"

async def hold(ctx: CallContext, name: str) -> str:
    (HERE / f"began-{name}").write_text(str(os.getpid()))
    try:
        while not (HERE / f"go-{name}").exists():
            await asyncio.sleep(0.01)
        await ctx.progress(0.5, "on its way")
        return f"held {name}"
    except asyncio.CancelledError:
        (HERE / f"cancelled-{name}").touch()
        raise

async def steps(ctx: CallContext) -> str:
    for number in range(3):
        await ctx.progress(number / 3, f"step {number}")
    return "done"

async def speak(ctx: CallContext) -> str:
    await ctx.client.log("a detail", level="debug")
    await ctx.client.log("a failure", level="error")
    return "spoken"
"""


class Pair(NamedTuple):
    """Two running workers."""

    folder: Path
    urls: list[str]
    redis: RedisServer


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Generator[Pair]:
    folder = tmp_path_factory.mktemp("pair")
    with redis_server(folder) as redis, contextlib.ExitStack() as stack:
        Project(folder).write(CONFIG.format(key="k" * 32, uri=redis.uri), mine=PATIENT_BUS + MODULE)
        said = [started(folder, f"said-{number}", stack) for number in range(2)]
        yield Pair(folder, [address(path) for path in said], redis)


def started(folder: Path, name: str, stack: contextlib.ExitStack) -> Path:
    """Start a worker; return the file in which it says where it is."""
    path = folder / name
    file = stack.enter_context(path.open("wb")).fileno()
    words = ["pegboard", "serve", "--port", "0", "--reload"]
    server = forking.fork(words, files=(file, file, file), cwd=folder)
    stack.callback(server.wait)
    stack.callback(server.send_signal, signal.SIGTERM)
    return path


def address(said: Path) -> str:
    deadline = time.monotonic() + PATIENCE_S
    while not (match := re.search(r"Serving MCP on (http\S+)/mcp\b", said.read_text())):
        assert time.monotonic() < deadline, said.read_text()
        time.sleep(0.02)
    return match[1]


OPENED: list[httpx2.AsyncClient] = []


@pytest.fixture(autouse=True)
async def closing() -> AsyncGenerator[None]:
    yield
    while OPENED:
        await OPENED.pop().aclose()


async def until(holds: Any) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(0.01)


class Session:
    """A session of an earlier revision, whose every request names the worker that it goes to."""

    def __init__(self, pair: Pair, session: str) -> None:
        self.pair, self.heads = pair, {"mcp-session-id": session, "mcp-protocol-version": REVISION}
        self.clients = [httpx2.AsyncClient(base_url=url, verify=False, timeout=PATIENCE_S) for url in pair.urls]
        OPENED.extend(self.clients)

    @classmethod
    async def begun(cls, pair: Pair) -> "Session":
        session = cls(pair, "")
        who = {"name": "c", "version": "1"}
        hello = {"protocolVersion": REVISION, "capabilities": {"elicitation": {}}, "clientInfo": who}
        del session.heads["mcp-session-id"]
        answer = await session.post(0, {"id": 0, "method": "initialize", "params": hello})
        session.heads["mcp-session-id"] = answer.headers["mcp-session-id"]
        await session.post(0, {"method": "notifications/initialized"})
        return session

    async def post(self, worker: int, message: dict[str, Any]) -> httpx2.Response:
        heads = {**JSON_HEADERS, **self.heads}
        return await self.clients[worker].post("/mcp", headers=heads, json={"jsonrpc": "2.0", **message})

    def call(self, worker: int, tool: str, request_id: int, **arguments: Any) -> Any:
        params = {"name": tool, "arguments": arguments, "_meta": {"progressToken": 1}}
        return self.stream(worker, {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params})

    def stream(self, worker: int, message: dict[str, Any]) -> Any:
        return self.clients[worker].stream("POST", "/mcp", headers={**JSON_HEADERS, **self.heads}, json=message)

    def follow(self, worker: int, last: str = "") -> Any:
        heads = {**self.heads, "accept": "text/event-stream", **({"last-event-id": last} if last else {})}
        return self.clients[worker].stream("GET", "/mcp", headers=heads)


async def messages(lines: Any) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) async for line in lines if line.startswith("data: {")]


async def next_field(lines: Any, name: str) -> str:
    async for line in lines:
        if line.startswith(f"{name}: ") and line[len(name) + 2 :].strip():
            return line[len(name) + 2 :]
    raise EOFError


# -- real clients


def text_of(result: Any) -> str:
    return result.content[0].text


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_a_client_lists_calls_hears_progress_is_asked_and_hears_of_changes_through_a_proxy(
    mode: str, pair: Pair
) -> None:
    async with proxied(pair.urls) as url:
        await all_goes_well_for_a_client(url, pair.folder, mode)


async def all_goes_well_for_a_client(url: str, folder: Path, mode: str) -> None:
    """Do with the SDK's client what clients do, where each request of it goes to the next of two servers."""
    heard: list[str] = []

    async def on_message(message: Any) -> None:
        heard.append(str(getattr(message, "method", "")))

    async def on_question(context: Any, params: Any) -> ElicitResult:
        return ElicitResult(action="accept", content={"answer": "Ann"})

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        told.append(progress)

    told: list[float] = []
    async with asyncio.timeout(PATIENCE_S):
        async with (
            httpx2.AsyncClient(verify=False, timeout=PATIENCE_S) as http,
            Client(
                streamable_http_client(f"{url}/mcp", http_client=http),
                mode=mode, elicitation_callback=on_question, message_handler=on_message, cache=None,
            ) as client,
        ):  # fmt: skip
            for _ in range(2):
                assert "ask" in {tool.name for tool in (await client.list_tools()).tools}
            pids = {text_of(await client.call_tool("who", {})) for _ in range(6)}
            assert len(pids) == 2
            for _ in range(4):
                asked = await client.call_tool("ask", {})
                assert json.loads(text_of(asked))["said"] == "Ann"
            await client.call_tool("steps", {}, progress_callback=on_progress)
            assert told == [0.0, pytest.approx(1 / 3), pytest.approx(2 / 3)]
            agreed = await client.call_tool("agree", {"what": "it"})
            assert (agreed.is_error, text_of(agreed)) == (False, "did it")
            held = asyncio.create_task(client.call_tool("hold", {"name": mode}))
            await until((folder / f"began-{mode}").exists)
            held.cancel()
            await asyncio.gather(held, return_exceptions=True)
            await until((folder / f"cancelled-{mode}").exists)
            if mode == "legacy":
                path = folder / "pegboard.yaml"
                before = path.read_text()
                path.write_text(before.replace("{name: who,", '{name: who, description: "Tell.",'))
                await until(lambda: any("tools/list_changed" in method for method in heard))
                path.write_text(before)


# -- what each tells the other


async def test_an_answer_that_comes_to_the_other_worker_reaches_the_one_that_asked(pair: Pair) -> None:
    session, stranger = await Session.begun(pair), await Session.begun(pair)
    for asking, answering in ((0, 1), (1, 0)):
        async with session.call(asking, "ask", 10 + asking) as stream:
            lines = stream.aiter_lines()
            question = json.loads(await next_field(lines, "data"))
            for whose, name in ((stranger, "Mallory"), (session, "Ann")):
                result = {"action": "accept", "content": {"answer": name}}
                said = await whose.post(answering, {"id": question["id"], "result": result})
                assert said.status_code == 202
            (answer,) = await messages(lines)
            assert answer["result"]["structuredContent"]["said"] == "Ann"


async def test_a_call_is_cancelled_by_a_word_to_the_other_worker_and_by_no_other_session(pair: Pair) -> None:
    session, stranger = await Session.begun(pair), await Session.begun(pair)
    held = asyncio.create_task(
        session.post(0, {"id": 5, "method": "tools/call", "params": {"name": "hold", "arguments": {"name": "a"}}})
    )
    await until((pair.folder / "began-a").exists)
    stop = {"method": "notifications/cancelled", "params": {"requestId": 5}}
    assert (await stranger.post(1, stop)).status_code == 202
    assert (await session.post(1, stop)).status_code == 202
    assert answer_of(await held)["error"]["message"] == "Request cancelled"
    assert (pair.folder / "cancelled-a").exists()


async def test_an_id_that_is_open_at_both_workers_has_each_answer_on_the_stream_of_its_own_request(pair: Pair) -> None:
    session = await Session.begun(pair)

    def held(worker: int, name: str) -> Any:
        call = {"name": "hold", "arguments": {"name": name}}
        return session.post(worker, {"id": 7, "method": "tools/call", "params": call})

    calls = [asyncio.create_task(held(worker, name)) for worker, name in ((0, "first"), (1, "second"))]
    await until(lambda: all((pair.folder / f"began-{name}").exists() for name in ("first", "second")))
    # One worker holds both there, and refuses the one that came later.
    assert [(await held(worker, "third")).status_code for worker in (0, 1)] == [400, 400]
    assert not (pair.folder / "began-third").exists()
    for name in ("second", "first"):
        (pair.folder / f"go-{name}").touch()
    assert [answer_of(await call)["result"]["content"][0]["text"] for call in calls] == ["held first", "held second"]


async def test_a_session_that_was_deleted_at_one_worker_is_gone_at_the_other_with_its_calls(pair: Pair) -> None:
    session = await Session.begun(pair)
    held = asyncio.create_task(
        session.post(1, {"id": 5, "method": "tools/call", "params": {"name": "hold", "arguments": {"name": "b"}}})
    )
    await until((pair.folder / "began-b").exists)
    assert (await session.clients[0].delete("/mcp", headers={**JSON_HEADERS, **session.heads})).status_code == 200
    assert answer_of(await held)["error"]["message"] == "Request cancelled"
    assert [(await session.post(worker, {"id": 6, "method": "ping"})).status_code for worker in (0, 1)] == [404, 404]


async def test_a_client_that_lost_its_stream_has_the_rest_of_it_through_the_other_worker(pair: Pair) -> None:
    session, stranger = await Session.begun(pair), await Session.begun(pair)
    async with session.call(0, "hold", 7, name="c") as stream:
        last = await next_field(stream.aiter_lines(), "id")
    async with session.follow(1, last) as stream:
        assert stream.status_code == 200
        (pair.folder / "go-c").touch()
        told = await messages(stream.aiter_lines())
    assert [one.get("method", "answer") for one in told] == ["notifications/progress", "answer"]
    assert told[-1]["result"]["content"][0]["text"] == "held c"
    # Again, now that it is over; and another session has none of it.
    async with session.follow(1, last) as stream:
        assert len(await messages(stream.aiter_lines())) == 2
    async with stranger.follow(1, last) as stream:
        assert await messages(stream.aiter_lines()) == []


async def test_what_a_client_wants_to_hear_counts_at_the_other_worker_and_at_one_that_begins_later(pair: Pair) -> None:
    session = await Session.begun(pair)

    async def logged(worker: int, request_id: int) -> list[str]:
        async with session.call(worker, "speak", request_id) as stream:
            return [one["params"]["data"] for one in await messages(stream.aiter_lines()) if "params" in one]

    assert await logged(1, 1) == ["a detail", "a failure"]
    await session.post(0, {"id": 2, "method": "logging/setLevel", "params": {"level": "error"}})
    async with asyncio.timeout(PATIENCE_S):
        while (heard := await logged(1, 3)) != ["a failure"]:
            assert heard == ["a detail", "a failure"]
    with contextlib.ExitStack() as stack:
        url = address(started(pair.folder, "said-later", stack))
        session.clients.append(httpx2.AsyncClient(base_url=url, verify=False, timeout=PATIENCE_S))
        OPENED.append(session.clients[-1])
        async with asyncio.timeout(PATIENCE_S):
            while (heard := await logged(2, 4)) != ["a failure"]:
                assert heard == ["a detail", "a failure"]


async def test_events_and_ends_of_calls_go_to_the_other_worker_and_metrics_are_summed(pair: Pair) -> None:
    clients = [httpx2.AsyncClient(base_url=url, verify=False, timeout=PATIENCE_S) for url in pair.urls]
    OPENED.extend(clients)

    async def call_on() -> None:
        # Until the other worker knows that somebody listens here.
        while True:
            await clients[1].post("/v1/tools/who/call", json={})

    async with asyncio.timeout(PATIENCE_S):
        async with clients[0].stream("GET", "/v1/events") as stream:
            lines = stream.aiter_lines()
            calling = asyncio.create_task(call_on())
            assert json.loads(await next_field(lines, "data"))["tool"] == "who"
            calling.cancel()
            await asyncio.gather(calling, return_exceptions=True)
            held = asyncio.create_task(clients[1].post("/v1/tools/hold/call", json={"name": "d"}))
            while (event := json.loads(await next_field(lines, "data")))["tool"] != "hold":
                pass
        assert (await clients[0].post("/v1/calls/nothing/cancel")).status_code == 404
        ended = await clients[0].post(f"/v1/calls/{event['callId']}/cancel")
        assert (ended.status_code, ended.json()["cancelled"]) == (200, True)
        assert (await held).json()["kind"] == "cancelled"
        counts = [await _calls(client) for client in clients]
    assert counts[0] == counts[1] > 0


async def _calls(client: httpx2.AsyncClient) -> float:
    lines = (await client.get("/metrics")).text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("pegboard_calls_total{"))


# -- against it


async def test_what_somebody_else_writes_onto_the_bus_is_not_heard(pair: Pair) -> None:
    session = await Session.begun(pair)
    seen = pair.redis.client.pubsub(ignore_subscribe_messages=True)
    seen.psubscribe("*")
    async with session.call(0, "ask", 20) as stream:
        lines = stream.aiter_lines()
        question = json.loads(await next_field(lines, "data"))
        forged = {"id": question["id"], "result": {"action": "accept", "content": {"answer": "Mallory"}}}
        body = json.dumps(["bus", "pair", "0" * 16, "session.answer", {"session": "0" * 32, "response": forged}])
        for channel in pair.redis.client.pubsub_channels("*"):
            of_another_use = session.heads["mcp-session-id"].encode()
            for message in (body.encode(), b"", b"\xff\x00", b"v1." + b"A" * 400, of_another_use):
                pair.redis.client.publish(channel, message)
        await session.post(1, {"id": question["id"], "result": {"action": "accept", "content": {"answer": "Ann"}}})
        (answer,) = await messages(lines)
    assert answer["result"]["structuredContent"]["said"] == "Ann"
    # Nobody who only reads there learns what was said, either.
    read: list[bytes] = []
    seen.get_message(timeout=0.1)
    while (message := seen.get_message(timeout=0.1)) is not None:
        read.append(message["data"])
    seen.close()
    assert len(read) > 5
    assert not any(b"Ann" in message for message in read)


async def test_while_the_bus_is_away_an_answer_is_refused_with_what_to_do_and_taken_afterwards(pair: Pair) -> None:
    session = await Session.begun(pair)
    async with session.call(0, "ask", 30) as stream:
        lines = stream.aiter_lines()
        question = json.loads(await next_field(lines, "data"))
        answer = {"id": question["id"], "result": {"action": "accept", "content": {"answer": "Ann"}}}
        pair.redis.stop()
        try:
            refused = await session.post(1, answer)
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
            assert "Send the answer again" in refused.json()["error"]["message"]
            # What needs nobody else goes on.
            assert (await session.post(1, {"id": 31, "method": "tools/list"})).status_code == 200
        finally:
            pair.redis.start()
        told = asyncio.create_task(messages(lines))
        async with asyncio.timeout(PATIENCE_S):
            while not told.done():
                await session.post(1, answer)
                await asyncio.wait({told}, timeout=0.1)
        assert told.result()[-1]["result"]["structuredContent"]["said"] == "Ann"


async def test_metrics_answer_while_the_bus_is_away_with_the_counters_of_the_worker_that_is_asked(
    tmp_path: Path,
) -> None:
    with redis_server(tmp_path) as redis, contextlib.ExitStack() as stack:
        Project(tmp_path).write(CONFIG.format(key="k" * 32, uri=redis.uri), mine=PATIENT_BUS + MODULE)
        said = [started(tmp_path, f"said-{number}", stack) for number in range(2)]
        async with contextlib.AsyncExitStack() as clients, asyncio.timeout(PATIENCE_S):
            pair = [
                await clients.enter_async_context(httpx2.AsyncClient(base_url=address(path), timeout=PATIENCE_S))
                for path in said
            ]
            for client, calls in zip(pair, (3, 2), strict=True):
                for _ in range(calls):
                    await client.post("/v1/tools/who/call", json={})
            while "pegboard_workers_heard 2.0" not in (whole := await pair[0].get("/metrics")).text:
                pass
            assert 'pegboard_calls_total{outcome="ok",tool="who"} 5.0' in whole.text
            redis.stop()
            for client, calls in zip(pair, (3, 2), strict=True):
                alone = await client.get("/metrics")
                [line] = [line for line in alone.text.splitlines() if line.startswith("pegboard_calls_total{")]
                assert (alone.status_code, line.endswith(f"}} {calls}.0"), 'worker="' in line) == (200, True, True)
                assert "pegboard_workers_heard 1.0" in alone.text
                assert "pegboard_metrics_partial 1.0" in alone.text
            redis.start()
            while "pegboard_metrics_partial 0.0" not in (whole := await pair[1].get("/metrics")).text or (
                "pegboard_workers_heard 2.0" not in whole.text
            ):
                pass
            assert 'pegboard_calls_total{outcome="ok",tool="who"} 5.0' in whole.text
