"""Fuzz: whatever bytes are posted, the answer is a typed one, soon, and the server lives on."""

import asyncio
import json
import logging
import random
import time
from collections.abc import Iterator
from typing import Any

import pytest

from pegboard import Bounds
from pegboard.serve import http_app
from tests.serve.asgi import ask, send_raw
from tests.serve.doors import JSON_HEADERS, META, VERSION, workshop
from tests.timing import SLACK

METHODS = [
    "tools/list", "tools/call", "initialize", "ping", "server/discover", "resources/list", "resources/read",
    "prompts/get", "completion/complete", "logging/setLevel", "notifications/initialized", "notifications/cancelled",
    "nope", "", "\u0000",
]  # fmt: skip
TYPED = {200, 202, 400, 404, 405, 406, 413, 415, 421}
ERRORS = {-32700, -32600, -32601, -32602, -32603, -32000, -32020, -32021, -32022}


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.CRITICAL):
        yield


def value(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.randrange(11 if depth < 4 else 8)
    plain: list[Any] = [None, True, rng.randrange(-5, 5), 2**63, -1.5, "", "add", "é\u2028\ud7ff"]
    if kind < 8:
        return plain[kind]
    if kind == 8:
        return [value(rng, depth + 1) for _ in range(rng.randrange(4))]
    keys = ["a", "b", "name", "arguments", "_meta", "uri", "cursor", "text", "$ref", "__class__", ""]
    return {rng.choice(keys): value(rng, depth + 1) for _ in range(rng.randrange(4))}


def body(rng: random.Random) -> bytes:
    calling = {"name": rng.choice(["add", "echo", "count", "nope"]), "arguments": value(rng)}
    params: Any = rng.choice([value(rng), calling, {**calling, "_meta": META}, {"_meta": META}])
    message: Any = {
        "jsonrpc": "2.0",
        "id": rng.choice([1, "x", value(rng)]),
        "method": rng.choice(METHODS),
        "params": params,
    }
    if rng.random() < 0.2:
        message = value(rng)
    if isinstance(message, dict) and rng.random() < 0.1:
        message.pop(rng.choice([*message, None]), None)
    raw = bytearray(json.dumps(message, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass"))
    for _ in range(rng.choice([0, 0, 0, 1, 3, 20])):
        place = rng.randrange(len(raw) + 1)
        # One byte more, or another in its place.
        raw[place : place + rng.randrange(2)] = bytes([rng.randrange(256)])
    return bytes(raw[: rng.randrange(len(raw) + 1)] if rng.random() < 0.05 else raw)


def heads(rng: random.Random, session: str) -> list[tuple[bytes, bytes]]:
    said: dict[str, str] = {"host": "127.0.0.1:8420", **JSON_HEADERS}
    if rng.random() < 0.6:
        said |= {"mcp-protocol-version": VERSION, "mcp-method": rng.choice(METHODS[:2]), "mcp-name": "add"}
    else:
        said |= {"mcp-session-id": session if rng.random() < 0.8 else "x" * 32}
        said["mcp-protocol-version"] = rng.choice(["2025-11-25", "2025-06-18", "2024-11-05", "1", ""])
    if rng.random() < 0.1:
        del said[rng.choice(list(said))]
    return [(name.encode(), text.replace("\u0000", "").encode()) for name, text in said.items()]


async def storm(count: int, seed: int) -> set[int]:
    rng, met = random.Random(seed), set[int]()
    app = http_app(workshop(bounds=Bounds(invalid_calls_per_minute=10**9))[0])
    async with app.router.lifespan_context(app):
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
        begin = json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}).encode()
        plain = [(name.encode(), text.encode()) for name, text in {"host": "127.0.0.1:1", **JSON_HEADERS}.items()]
        told: dict[str, str] = {}
        await send_raw(app, begin, plain, told=told)
        for _ in range(count):
            sent, said = body(rng), heads(rng, told["mcp-session-id"])
            started = time.perf_counter()
            status, kind, answer = await asyncio.wait_for(send_raw(app, sent, said), 5)
            assert time.perf_counter() - started < 1 * SLACK, (sent, said)
            assert status in TYPED, (status, answer, sent, said)
            met.add(status)
            if "json" in kind and answer:
                error = json.loads(answer).get("error")
                assert error is None or (error["code"] in ERRORS and error["message"]), (answer, sent)
        result = await ask(app, "tools/call", {"name": "add", "arguments": {"a": 1, "b": 1}})
        assert result["result"]["structuredContent"] == 2
    return met


async def test_every_body_has_a_typed_answer() -> None:
    assert {200, 400} <= await storm(2_000, seed=1)


@pytest.mark.soak
async def test_every_body_of_a_million_has_a_typed_answer() -> None:
    for seed in range(100):
        await storm(10_000, seed)
