"""The door and the SDK: whatever is sent, our door answers exactly as the SDK alone would."""

import json
import os
import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from pegboard import Bounds, Catalog, ImageContent, ToolSpec, http_app
from tests.server.asgi import send_raw
from tests.server.doors import META, workshop

KEY = "io.modelcontextprotocol/"
ATOMS: list[Any] = [None, True, 0, 2**70, 1.5, "", "x", "é", [], {}, {"a": 1}]
METAS: list[Any] = [
    META,
    {**META, KEY + "clientInfo": {"name": "x", "version": "1"}},
    {**META, KEY + "clientInfo": {"name": "x", "version": "1", "title": "X", "icons": []}},
    {**META, KEY + "clientInfo": {"name": "x", "version": "1", "websiteUrl": "no address"}},
    {**META, KEY + "clientInfo": {"name": 1}},
    {**META, KEY + "clientInfo": None},
    {**META, KEY + "clientCapabilities": {"sampling": {}}},
    {**META, KEY + "clientCapabilities": {"elicitation": {}}},
    {**META, KEY + "clientCapabilities": {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}}},
    {**META, KEY + "clientCapabilities": {"elicitation": {"form": 3}}},
    {**META, KEY + "clientCapabilities": {"roots": {"listChanged": True}}},
    {**META, KEY + "clientCapabilities": {"unheard": {"of": 1}}},
    {**META, KEY + "clientCapabilities": None},
    {**META, KEY + "clientCapabilities": {"roots": 3}},
    {**META, KEY + "protocolVersion": "2025-11-25"},
    {**META, KEY + "protocolVersion": 7},
    {**META, "progressToken": 1},
    {**META, "progressToken": True},
    {**META, KEY + "logLevel": "info"},
    {**META, KEY + "logLevel": "bad"},
    {**META, KEY + "unknown": 3},
    {**META, "traceparent": "00-x"},
    {**META, "example.com/own": {"deep": [1]}},
    {},
    None,
    [],
    3,
]
NAMES = [
    "add",
    "echo",
    "count",
    "greet",
    "wipe",
    "inner",
    "picture",
    "given",
    "mirrored",
    "main.add",
    "nope",
    "é",
    "=?base64?YQ==?=",
]
ARGUMENTS: list[Any] = [
    {}, {"text": "hi"}, {"text": "é"}, {"text": 2**70}, {"a": 1, "b": 2}, {"a": 2**60, "b": 1}, {"to": 3},
    {"region": "a"}, None, [],
]  # fmt: skip
CONTENT_TYPES = ["text/plain", "application/json; charset=utf-8", "APPLICATION/JSON"]
ACCEPTS = ["*/*", "application/json", "text/event-stream", "application/*;q=1, text/*"]
VERSIONS = ["2025-11-25", " 2026-07-28 ", "2027-01-01", ""]


def everything() -> Catalog:
    catalog = workshop(bounds=Bounds(invalid_calls_per_minute=10**9))[0]
    catalog.tool(groups="core", name="picture", output=Any)(lambda: ImageContent(b"\x89PNG", "image/png"))

    async def given(_ctx: Any, args: dict[str, Any]) -> Any:
        return {"given": args, "list": [1, 2.5, None, "é"]}

    catalog.register(ToolSpec(name="given", allow_unknown=True), given)
    schema = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
    catalog.register(ToolSpec(name="mirrored", input_schema=schema), given)
    return catalog


def random_request(rng: random.Random) -> tuple[bytes, list[tuple[bytes, bytes]], str]:
    maybe = rng.random
    method, name = rng.choice(["tools/call", "tools/list"]), rng.choice(NAMES)
    params: dict[str, Any] = {"_meta": META if maybe() < 0.6 else rng.choice(METAS)}
    if method == "tools/call" or maybe() < 0.05:
        params["name"] = name if maybe() < 0.95 else rng.choice(ATOMS)
        if maybe() < 0.8:
            params["arguments"] = rng.choice(ARGUMENTS)
    for key in ("cursor", "requestState", "inputResponses", "extra"):
        if maybe() < 0.05:
            params[key] = rng.choice(ATOMS)
    body: dict[str, Any] = {
        "jsonrpc": "2.0",
        "id": 1 if maybe() < 0.7 else rng.choice(ATOMS),
        "method": method,
        "params": params,
    }
    for key in ("extra", "jsonrpc", "params", "method"):
        if maybe() < 0.04:
            body[key] = rng.choice(ATOMS)
    if maybe() < 0.05:
        del body[rng.choice(list(body))]
    raw = json.dumps([body] if maybe() < 0.02 else body).encode()
    said = name.encode().decode("latin-1")
    heads = [
        ("host", "127.0.0.1:8420"),
        ("content-type", "application/json" if maybe() < 0.95 else rng.choice(CONTENT_TYPES)),
        ("accept", "application/json, text/event-stream" if maybe() < 0.93 else rng.choice(ACCEPTS)),
        ("mcp-protocol-version", "2026-07-28" if maybe() < 0.96 else rng.choice(VERSIONS)),
    ]
    if maybe() < 0.97:
        wrong = ["tools/List", "tools/list", "tools/call", f" {method} "]
        heads.append(("mcp-method", method if maybe() < 0.95 else rng.choice(wrong)))
    if method == "tools/call" and maybe() < 0.95:
        heads.append(("mcp-name", said if maybe() < 0.9 else rng.choice(["x", f"  {said} ", "=?base64?YWRk?="])))
    if maybe() < 0.05:
        more = [
            ("mcp-name", said),
            ("mcp-method", method),
            ("mcp-param-region", "a"),
            ("mcp-param-region", "=?base64?YQ==?="),
        ]
        heads.append(
            rng.choice([*more, ("x-a", "b"), ("origin", "http://evil.example"), ("origin", "http://127.0.0.1:9")])
        )
    return (
        raw,
        [(key.encode(), value.encode("latin-1")) for key, value in heads],
        rng.choice(["/mcp", "/mcp", "/mcp/admin"]),
    )


@asynccontextmanager
async def running(*, with_door: bool) -> AsyncGenerator[Starlette]:
    app = http_app(everything())
    if not with_door:
        for route in app.routes:
            if isinstance(route, Route) and route.path.startswith("/mcp"):
                vars(route.endpoint)["_plan"] = lambda *_: None
    async with app.router.lifespan_context(app):
        yield app


def comparable(kind: str, body: bytes) -> tuple[str, Any]:
    """Return what must be equal: the JSON, without the state, which is sealed anew each time."""
    text = body.decode()
    if "json" not in kind and "event-stream" not in kind:
        return kind.partition(";")[0], text
    value = json.loads(text.rpartition("data: ")[2] if "event-stream" in kind else text)
    if isinstance(value, dict) and isinstance(value.get("result"), dict):
        value["result"].pop("requestState", None)
    return kind.partition(";")[0], value


async def compare(count: int, seed: int) -> dict[tuple[int, Any], int]:
    rng, met = random.Random(seed), {}
    async with running(with_door=False) as sdk, running(with_door=True) as door:
        for number in range(count):
            body, heads, path = random_request(rng)
            method = "PUT" if number % 50 == 0 else "POST"
            answers = [await send_raw(app, body, heads, path=path, method=method) for app in (sdk, door)]
            alone, through = ((status, *comparable(kind, answer)) for status, kind, answer in answers)
            assert alone == through, (body, heads)
            status, _, value = alone
            key = (status, value.get("error", {}).get("code", "result") if isinstance(value, dict) else None)
            met[key] = met.get(key, 0) + 1
    return met


async def test_the_door_answers_as_the_sdk_alone_does() -> None:
    met = await compare(1_500, seed=int(os.environ.get("PEGBOARD_SEED", "7")))
    # The comparison is worth something only if it met answers of every kind.
    assert {(200, "result"), (400, -32602), (400, -32600), (400, -32020)} <= met.keys()


@pytest.mark.soak
async def test_the_door_answers_as_the_sdk_alone_does_for_long() -> None:
    for seed in range(100):
        await compare(1_000, seed=seed)
