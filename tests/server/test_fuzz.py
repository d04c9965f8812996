"""Fuzz: whatever bytes are posted, the answer is a typed one, soon, and the server lives on."""

import asyncio
import json
import logging
import random
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from pegboard import Bounds, Catalog, http_app
from tests.server.asgi import ask, send_raw
from tests.server.doors import JSON_HEADERS, META, VERSION, workshop
from tests.timing import CPU, is_within

METHODS = [
    "tools/list", "tools/call", "tools/call", "tools/call", "initialize", "ping", "server/discover", "resources/list",
    "resources/templates/list", "resources/read", "resources/subscribe", "resources/unsubscribe", "prompts/list",
    "prompts/get", "completion/complete", "logging/setLevel", "notifications/initialized", "notifications/cancelled",
    "notifications/progress", "tasks/get", "nope", "", "\u0000",
]  # fmt: skip
TYPED = {200, 202, 400, 404, 405, 406, 413, 415, 421}
ERRORS = {-32700, -32600, -32601, -32602, -32603, -32000, -32020, -32021, -32022}
CAN_ASK = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
PARTS: dict[str, Any] = {
    "name": ["add", "echo", "count", "steps", "greet", "review", "nope", "main.add", "ADD", "a" * 300],
    "arguments": [{"a": 1, "b": 2}, {"text": "x"}, {"to": 3}, {"to": -1}, {"style": "kind"}, "{}", None],
    "uri": ["notes://today", "notes://by-day/1", "notes://by-day/..%2F", "x://", "%"],
    "ref": [{"type": "ref/prompt", "name": "review"}, {"type": "ref/resource", "uri": "notes://by-day/{day}"}, {}],
    "argument": [{"name": "style", "value": "k"}, {"name": "day", "value": ""}, {"name": 1}],
    "level": ["debug", "loud", 3],
    "cursor": ["", "2000", "é"],
    "requestId": [1, "x", None],
    "inputResponses": [{}, {"pegboard.consent": {"action": "accept", "content": {}}}, {"a": 1}, []],
    "requestState": ["", "v1.abc"],
    "protocolVersion": ["2025-11-25", "1", VERSION],
    "capabilities": [{}, {"elicitation": {}}, {"roots": 1}],
    "clientInfo": [{"name": "x", "version": "1"}, {"name": 1}, {}],
}
GOOD: dict[str, Any] = {
    "tools/call": {"name": "add", "arguments": {"a": 1, "b": 2}},
    "resources/read": {"uri": "notes://by-day/1"},
    "resources/subscribe": {"uri": "notes://today"},
    "prompts/get": {"name": "review", "arguments": {"style": "kind"}},
    "completion/complete": {"ref": PARTS["ref"][0], "argument": PARTS["argument"][0]},
    "logging/setLevel": {"level": "debug"},
    "initialize": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": PARTS["clientInfo"][0]},
}
METAS: list[Any] = [META, META, META, {**META, **CAN_ASK}, {**META, "progressToken": 1}, {}, None, "x"]


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.CRITICAL):
        yield


def offering() -> Catalog:
    catalog = workshop(bounds=Bounds(invalid_calls_per_minute=10**9))[0]
    catalog.resource("notes://today", name="today")(lambda: "# Today")
    catalog.resource("notes://by-day/{day}", name="by_day")(lambda day: day)
    catalog.prompt(name="review")(_review)
    catalog.completion("style", prompt="review")(lambda value: ["kind"])
    return catalog


def _review(style: str = "kind") -> str:
    return f"Review in a {style} way."


def value(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.randrange(12 if depth < 4 else 9)
    plain: list[Any] = [None, True, rng.randrange(-5, 5), 2**63, -1.5, "", "add", "é\u2028\ud7ff", "\ud800"]
    if kind < 9:
        return plain[kind]
    if kind == 9:
        return [value(rng, depth + 1) for _ in range(rng.randrange(4))]
    keys = ["a", "b", "name", "arguments", "_meta", "uri", "cursor", "text", "$ref", "__class__", ""]
    return {rng.choice(keys): value(rng, depth + 1) for _ in range(rng.randrange(4))}


def params(rng: random.Random, method: str, kept: list[str]) -> Any:
    """Return what a request says: mostly words of the protocol, with values that fit, or nearly, or not at all."""
    if rng.random() < 0.1:
        return value(rng)
    said: dict[str, Any] = {"_meta": rng.choice(METAS)}
    if rng.random() < 0.5:
        said |= GOOD.get(method, {})
        if rng.random() < 0.4:
            return said
        said[rng.choice(list(said))] = value(rng)
        return said
    for word in rng.sample(list(PARTS), rng.randrange(4)):
        said[word] = rng.choice(PARTS[word]) if rng.random() < 0.85 else value(rng)
    if rng.random() < 0.5:
        said |= {"name": rng.choice(PARTS["name"]), "arguments": rng.choice(PARTS["arguments"])}
    if kept and rng.random() < 0.1:
        said[rng.choice(["requestState", "cursor"])] = rng.choice(kept)
    return said


def message(rng: random.Random, kept: list[str]) -> Any:
    if rng.random() < 0.1:
        return value(rng)
    method = rng.choice(METHODS)
    said: dict[str, Any] = {
        "jsonrpc": "2.0",
        "id": rng.choice([1, 1, "x", value(rng)]),
        "method": method,
        "params": params(rng, method, kept),
    }
    if rng.random() < 0.1:
        said.pop(rng.choice(list(said)))
    return [said] if rng.random() < 0.02 else said


def body(rng: random.Random, said: Any) -> bytes:
    raw = bytearray(json.dumps(said, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass"))
    for _ in range(rng.choice([0] * 12 + [1, 3, 20])):
        place = rng.randrange(len(raw) + 1)
        # One byte more, or another in its place.
        raw[place : place + rng.randrange(2)] = bytes([rng.randrange(256)])
    return bytes(raw[: rng.randrange(len(raw) + 1)] if rng.random() < 0.05 else raw)


def heads(rng: random.Random, said: Any, session: str) -> list[tuple[bytes, bytes]]:
    """Return headers that say what the message says, in most cases; a server refuses the others before it reads on."""
    told: dict[str, str] = {"host": "127.0.0.1:8420", **JSON_HEADERS}
    if rng.random() < 0.6:
        told |= {"mcp-protocol-version": VERSION, "mcp-method": "tools/call", "mcp-name": "add"}
        if isinstance(said, dict) and rng.random() < 0.9:
            within: Any = said.get("params")
            within = within if isinstance(within, dict) else {}
            told["mcp-method"] = str(said.get("method", ""))
            told["mcp-name"] = str(within.get("name", within.get("uri", "add")))
    else:
        told |= {"mcp-session-id": session if rng.random() < 0.8 else "x" * 32}
        told["mcp-protocol-version"] = rng.choice(["2025-11-25", "2025-11-25", "2025-06-18", "2024-11-05", "1", ""])
    if rng.random() < 0.1:
        del told[rng.choice(list(told))]
    return [(name.encode(), text.encode("latin-1", "replace").replace(b"\0", b"")) for name, text in told.items()]


def judged(status: int, kind: str, answer: bytes) -> list[dict[str, Any]]:
    """Return the messages of an answer; each is a result, a notification or a typed error."""
    assert status in TYPED
    if not answer:
        return []
    lines = answer.decode().split("\n") if "event-stream" in kind else [f"data: {answer.decode()}"]
    told = [json.loads(line[5:]) for line in lines if line.startswith("data:") and line[5:].strip()]
    for one in told:
        error = one.get("error")
        assert error is None or (error["code"] in ERRORS and error["message"])
        assert error is not None or "result" in one or "method" in one
    return told


async def soon(app: Any, sent: bytes, with_heads: list[tuple[bytes, bytes]]) -> tuple[int, str, bytes]:
    """Return the answer, which takes less than a second, of CPU and by the clock."""
    started, cpu = time.perf_counter(), time.process_time()
    answer = await asyncio.wait_for(send_raw(app, sent, with_heads), 60)
    assert is_within(time.process_time() - cpu, 1, CPU), (sent, with_heads)
    assert is_within(time.perf_counter() - started, 1), (sent, with_heads)
    return answer


async def storm(count: int, seed: int) -> tuple[Counter[int], set[str]]:
    """Post so many bodies; return how often each status came, and the methods that had a result."""
    rng, met, answered, kept = random.Random(seed), Counter[int](), set[str](), list[str]()
    app = http_app(offering())
    async with app.router.lifespan_context(app):
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
        begin = json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}).encode()
        plain = [(name.encode(), text.encode()) for name, text in {"host": "127.0.0.1:1", **JSON_HEADERS}.items()]
        told: dict[str, str] = {}
        await send_raw(app, begin, plain, told=told)
        for _ in range(count):
            said = message(rng, kept)
            sent, with_heads = body(rng, said), heads(rng, said, told["mcp-session-id"])
            status, kind, answer = await soon(app, sent, with_heads)
            try:
                messages = judged(status, kind, answer)
            except (AssertionError, ValueError, KeyError) as error:
                raise AssertionError((status, kind, answer, sent, with_heads)) from error
            met[status] += 1
            for one in messages:
                if "result" in one and isinstance(said, dict):
                    answered.add(str(said.get("method")))
                if "requestState" in one.get("result", {}):
                    kept[:] = [*kept[-9:], one["result"]["requestState"]]
        result = await ask(app, "tools/call", {"name": "add", "arguments": {"a": 1, "b": 1}})
        assert result["result"]["structuredContent"] == 2
    return met, answered


async def test_every_body_has_a_typed_answer() -> None:
    met, answered = await storm(1_200, seed=1)
    assert {200, 202, 400, 404} <= met.keys()
    # The storm gets as far as the handlers.
    assert answered >= {"tools/list", "tools/call", "resources/list", "prompts/list", "server/discover"}


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100))
async def test_every_body_of_a_million_has_a_typed_answer(seed: int) -> None:
    await storm(10_000, seed)
