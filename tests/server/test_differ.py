"""The door and the SDK: whatever is sent, our door answers exactly as the SDK alone would."""

import json
import os
import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from pegboard import Bounds, CallContext, Catalog, ImageContent, ToolSpec, http_app
from pegboard.server.mcp.asking.notifications import LEVELS
from pegboard.server.mcp.fast_path import FastPath
from pegboard.server.mcp.sdk_handlers import Principals
from pegboard.server.mcp.sessions.session_endpoint import Exchange, SessionEndpoint
from pegboard.server.mcp.sessions.session_ids import Client
from pegboard.server.mcp.sessions.sessions import Sessions
from pegboard.server.principal import Identity, Principal
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
    {**META, "claudecode/toolUseId": "toolu_01"},
    {**META, "claudecode/toolUseId": "toolu_02", "progressToken": 3},
    {**META, "progressToken": "é", KEY + "logLevel": "warning"},
    {**META, "progressToken": 2**70, "own": None},
    {**META, "progressToken": None, KEY + "logLevel": None},
    {**META, "progressToken": 1.5},
    {**META, "progressToken": []},
    {**META, KEY + "logLevel": ["info"]},
    {**META, "progress_token": [], "io_modelcontextprotocol_log_level": 7},
    {**META, KEY + "relatedTask": {"taskId": 1}, "": "", "a b": 2**70},
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
    "steps",
    "talk",
    "mirrored",
    "main.add",
    "nope",
    "é",
    "=?base64?YQ==?=",
]
SPEAKING = ("steps", "talk")
HEARING = {**META, "progressToken": 5, KEY + "logLevel": "notice"}
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

    @catalog.tool(groups="core")
    async def talk(ctx: CallContext) -> str:
        channel = ctx.client
        assert channel is not None
        for level in LEVELS:
            await channel.log({"é": [level, 1, None]}, level=level)
            await ctx.progress(LEVELS.index(level) / 8, "" if level == "info" else level)
        await ctx.emit({"progress": 7, "total": None})
        return "told"

    schema = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
    catalog.register(ToolSpec(name="mirrored", input_schema=schema), given)
    return catalog


def random_request(rng: random.Random) -> tuple[bytes, list[tuple[bytes, bytes]], str]:
    maybe = rng.random
    method, name = rng.choice(["tools/call", "tools/list"]), rng.choice(NAMES)
    usual = HEARING if name in SPEAKING and maybe() < 0.5 else META
    params: dict[str, Any] = {"_meta": usual if maybe() < 0.6 else rng.choice(METAS)}
    if method == "tools/call" or maybe() < 0.05:
        params["name"] = name if maybe() < 0.95 else rng.choice(ATOMS)
        if maybe() < (0.3 if name in SPEAKING else 0.8):
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
    async with app.router.lifespan_context(app):
        endpoints = {route.endpoint for route in app.routes if isinstance(route, Route) and route.path == "/mcp"}
        for endpoint in endpoints:
            assert isinstance(vars(endpoint)["_fast_path"], FastPath)
            if not with_door:
                vars(endpoint)["_fast_path"] = SimpleNamespace(plan=lambda *_, **_words: None)
        yield app


def comparable(kind: str, body: bytes) -> tuple[str, Any]:
    """Return what must be equal: every message, without the state, which is sealed anew each time."""
    text = body.decode()
    if "event-stream" in kind:
        events = [without_state(json.loads(line[6:])) for line in text.splitlines() if line.startswith("data: ")]
        return kind, events
    return kind.partition(";")[0], without_state(json.loads(text)) if "json" in kind else text


def without_state(value: Any) -> Any:
    if isinstance(value, dict) and isinstance(value.get("result"), dict):
        value["result"].pop("requestState", None)
    return value


async def compare(count: int, seed: int) -> dict[tuple[Any, Any], int]:
    rng, met = random.Random(seed), {}
    async with running(with_door=False) as sdk, running(with_door=True) as door:
        for number in range(count):
            body, heads, path = random_request(rng)
            method = "PUT" if number % 50 == 0 else "POST"
            answers = [await send_raw(app, body, heads, path=path, method=method) for app in (sdk, door)]
            alone, through = ((status, *comparable(kind, answer)) for status, kind, answer in answers)
            assert alone == through, (body, heads)
            status, _, value = alone
            if isinstance(value, list):
                value, status = value[-1], "stream"
            key = (status, value.get("error", {}).get("code", "result") if isinstance(value, dict) else None)
            met[key] = met.get(key, 0) + 1
    return met


async def test_the_door_answers_as_the_sdk_alone_does() -> None:
    met = await compare(700, seed=int(os.environ.get("PEGBOARD_SEED", "7")))
    # The comparison is worth something only if it met answers of every kind.
    assert {(200, "result"), (400, -32602), (400, -32600), (400, -32020), ("stream", "result")} <= met.keys()


@pytest.mark.soak
async def test_the_door_answers_as_the_sdk_alone_does_for_long() -> None:
    for seed in range(100):
        await compare(1_000, seed=seed)


# -- sessions of the earlier revisions

EARLIER = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]
HELLO: dict[str, Any] = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "x", "version": "1"},
}
HELLOS: list[Any] = [
    HELLO,
    {**HELLO, "protocolVersion": "2024-11-05"},
    {**HELLO, "protocolVersion": "1999-01-01"},
    {**HELLO, "capabilities": {"sampling": {}, "roots": {"listChanged": True}, "experimental": {"x": {}}}},
    {**HELLO, "clientInfo": {"name": 3}},
    {**HELLO, "capabilities": None},
    {**HELLO, "more": 1},
    {},
    None,
]
EARLIER_METAS: list[Any] = [
    {}, {"progressToken": 5}, {"progressToken": "é"}, {"claudecode/toolUseId": "t", "progressToken": 2**70},
    {"progressToken": None}, {"progressToken": True}, {"progressToken": 1.5}, {"progress_token": []}, None, [], 3,
]  # fmt: skip
METHODS = ["tools/call"] * 6 + ["tools/list"] * 3 + ["ping", "logging/setLevel", "resources/list", "nope", "initialize"]


class SdkAlone:
    """Stands where our own sessions stand: the SDK opens its own, answers all, and ends them."""

    def __init__(self, to_sdk: Any) -> None:
        self._to_sdk = to_sdk
        self._session = Sessions().open(Principal(identity=Identity(), profile="chat"), Client("", {}))

    async def post(self, exchange: Exchange, _message: Any) -> None:
        await self.answer(exchange._replace(receive=exchange.unread))

    async def answer(self, exchange: Exchange) -> None:
        exchange.scope[Principals.SESSION] = self._session
        await self._to_sdk(exchange.scope, exchange.receive, exchange.send, exchange.principal)

    def end_streams(self) -> None:
        pass


def random_message(rng: random.Random) -> Any:
    maybe = rng.random
    method, name = rng.choice(METHODS), rng.choice(NAMES)
    params: Any = {}
    if method == "tools/call":
        params = {"name": name if maybe() < 0.95 else rng.choice(ATOMS)}
        if maybe() < (0.3 if name in SPEAKING else 0.8):
            params["arguments"] = rng.choice(ARGUMENTS)
    elif method == "logging/setLevel":
        params = {"level": rng.choice(["debug", "emergency", "loud", 3])}
    elif method == "initialize":
        params = rng.choice(HELLOS)
    if maybe() < 0.5 and isinstance(params, dict):
        params = {**params, "_meta": rng.choice(EARLIER_METAS)}
    if maybe() < 0.05 and isinstance(params, dict):
        params = {**params, rng.choice(["cursor", "extra", "task"]): rng.choice(ATOMS)}
    message = {"jsonrpc": "2.0", "id": rng.choice([1, 1, "a", 2**60, "é"]), "method": method, "params": params}
    if method in ("tools/list", "ping") and maybe() < 0.4:
        del message["params"]
    if maybe() < 0.05:
        message[rng.choice(["id", "jsonrpc", "params", "method", "extra"])] = rng.choice(ATOMS)
    if maybe() < 0.05:
        del message[rng.choice(list(message))]
    return [message] if maybe() < 0.02 else message


def messages_of(kind: str, body: bytes) -> Any:
    """Return what was said, as JSON or as events: which of the two it is the server may choose."""
    text = body.decode()
    if "event-stream" in kind:
        return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ") and line[6:]]
    return [json.loads(text)] if text else []


async def compare_sessions(count: int, seed: int) -> dict[tuple[Any, Any], int]:
    rng, met = random.Random(seed), dict[tuple[Any, Any], int]()
    async with running(with_door=True) as sdk, running(with_door=True) as ours:
        for route in sdk.routes:
            if isinstance(route, Route) and route.path == "/mcp":
                endpoint: Any = route.endpoint
                assert isinstance(vars(endpoint)["_with_sessions"], SessionEndpoint)
                vars(endpoint)["_with_sessions"] = SdkAlone(endpoint._to_sdk)
        version = rng.choice(EARLIER)
        heads = {
            "host": "127.0.0.1:8420",
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
        }
        first = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {**HELLO, "protocolVersion": version}}
        sessions = [await opened(app, first, heads) for app in (sdk, ours)]
        assert all(sessions)
        heads |= {"mcp-protocol-version": version}
        for _ in range(count):
            body = json.dumps(random_message(rng)).encode()
            sent = {**heads, **({"accept": rng.choice(ACCEPTS)} if rng.random() < 0.03 else {})}
            named = rng.random() < 0.97
            answers = []
            for app, session in zip((sdk, ours), sessions, strict=True):
                told: dict[str, str] = {}
                with_session = {**sent, **({"mcp-session-id": session} if named else {})}
                status, kind, answer = await send_raw(app, body, raw(with_session), told=told)
                answers.append((status, "mcp-session-id" in told, messages_of(kind, answer)))
            assert answers[0] == answers[1], (body, sent)
            status, _, said = answers[0]
            key = (status, said[-1].get("error", {}).get("code", "result") if said else None)
            met[key] = met.get(key, 0) + 1
            met["stream", key] = met.get(("stream", key), 0) + (len(said) > 1)
    return met


def raw(heads: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode("latin-1")) for name, value in heads.items()]


async def opened(app: Starlette, first: Any, heads: dict[str, str]) -> str:
    told: dict[str, str] = {}
    await send_raw(app, json.dumps(first).encode(), raw(heads), told=told)
    session = {**heads, "mcp-session-id": told["mcp-session-id"]}
    await send_raw(app, b'{"jsonrpc":"2.0","method":"notifications/initialized"}', raw(session))
    return told["mcp-session-id"]


async def test_a_session_is_answered_as_the_sdk_alone_answers_it() -> None:
    met = await compare_sessions(400, seed=int(os.environ.get("PEGBOARD_SEED", "7")))
    assert {(200, "result"), (200, -32602), (200, -32601), (202, None), (400, -32602)} <= met.keys()
    assert met["stream", (200, "result")] > 0


@pytest.mark.soak
async def test_a_session_is_answered_as_the_sdk_alone_answers_it_for_long() -> None:
    for seed in range(50):
        await compare_sessions(1_000, seed=seed)
