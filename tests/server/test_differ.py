"""Our server and the SDK's: whatever is sent, ours answers as the SDK's does, with its cache and without."""

import json
import os
import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.applications import Starlette

from pegboard import Bounds, CallContext, Catalog, ImageContent, ToolSpec, http_app
from pegboard.server.mcp.asking.notifications import LEVELS
from pegboard.server.mcp.protocol.jsonrpc import NO_ID
from pegboard.server.mcp.ready_bytes import SWITCH, ReadyBytes
from tests.server.asgi import send_raw
from tests.server.doors import META, workshop
from tests.server.sdk_reference import answered_by_the_sdk, endpoint_of

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
    offer(catalog)
    return catalog


def offer(catalog: Catalog) -> None:
    """Declare what MCP has beside tools."""
    offers = catalog.resources
    offers.resource("x://text", name="text", groups="core")(lambda: "text")
    offers.resource("x://bytes", name="bytes", groups="core", mime_type="image/png")(
        lambda: ImageContent(b"\x89PNG", "image/png")
    )
    offers.resource("x://{id}/part", name="part", groups="core")(lambda id: {"id": id})  # noqa: A006

    @offers.prompt(groups="core")
    def review(style: str = "short") -> str:
        """Ask for a review."""
        return f"Review it: {style}"

    @offers.completion("style", prompt="review", groups="core")
    def styles(value: str) -> list[str]:
        return [style for style in ("short", "long") if style.startswith(value)]


def random_params(rng: random.Random, method: str) -> dict[str, Any]:
    """Return params of a method other than tools/call, in order as a rule."""
    texts = ["x://text", "x://bytes", "x://7/part", "x://none", "review", "nope", "style", "sh", ""]

    def text() -> Any:
        return rng.choice(texts) if rng.random() < 0.93 else rng.choice(ATOMS)

    match method:
        case "resources/read" | "resources/subscribe" | "resources/unsubscribe":
            return {"uri": text() if rng.random() < 0.97 else 3}
        case "prompts/get":
            given = rng.choice([{}, None, {"style": "long"}, {"style": 3}, {"more": "x"}, []])
            return {"name": "review" if rng.random() < 0.6 else text(), "arguments": given}
        case "completion/complete":
            refs: list[Any] = [
                {"type": "ref/prompt", "name": "review"},
                {"type": "ref/resource", "uri": "x://text"},
                {"type": "ref/prompt", "name": text()},
                {"type": "ref/other", "name": "review"},
                3,
            ]
            return {"ref": rng.choice(refs), "argument": {"name": "style", "value": text()}}
        case "tasks/get" | "tasks/cancel" | "tasks/result":
            return {"taskId": text()}
        case "logging/setLevel":
            return {"level": rng.choice(["debug", "emergency", "loud", 3])}
        case "initialize":
            return rng.choice(HELLOS)
        case _:
            return {}


OTHERS = [
    "resources/read", "prompts/get", "completion/complete", "resources/list", "resources/templates/list",
    "prompts/list", "skills/list", "tasks/get", "tasks/list", "tasks/result", "resources/subscribe", "ping",
    "logging/setLevel", "server/discover", "nope",
]  # fmt: skip
TARGETS = {"resources/read": "uri", "prompts/get": "name", "tasks/get": "taskId"}


def random_request(rng: random.Random) -> tuple[bytes, list[tuple[bytes, bytes]], str]:
    maybe = rng.random
    method, name = rng.choice(["tools/call", "tools/call", "tools/list", rng.choice(OTHERS)]), rng.choice(NAMES)
    usual = HEARING if name in SPEAKING and maybe() < 0.5 else META
    params: dict[str, Any] = {
        **random_params(rng, method), "_meta": usual if maybe() < 0.6 else rng.choice(METAS)
    }  # fmt: skip
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
    target = params.get(TARGETS[method]) if method in TARGETS else name
    said = str(target).encode().decode("latin-1")
    heads = [
        ("host", "127.0.0.1:8420"),
        ("content-type", "application/json" if maybe() < 0.95 else rng.choice(CONTENT_TYPES)),
        ("accept", "application/json, text/event-stream" if maybe() < 0.93 else rng.choice(ACCEPTS)),
        ("mcp-protocol-version", "2026-07-28" if maybe() < 0.96 else rng.choice(VERSIONS)),
    ]
    if maybe() < 0.97:
        wrong = ["tools/List", "tools/list", "tools/call", f" {method} "]
        heads.append(("mcp-method", method if maybe() < 0.95 else rng.choice(wrong)))
    if (method == "tools/call" or method in TARGETS) and maybe() < 0.95:
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


@pytest.fixture(params=["with ready bytes", "without ready bytes"])
def with_ready_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setenv(SWITCH, "on" if request.param == "with ready bytes" else "off")
    return request.param == "with ready bytes"


@asynccontextmanager
async def ours(*, with_ready_bytes: bool) -> AsyncGenerator[Starlette]:
    app = http_app(everything())
    async with app.router.lifespan_context(app):
        assert isinstance(vars(endpoint_of(app))["_ready"], ReadyBytes) is with_ready_bytes
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


async def compare(count: int, seed: int, *, with_ready_bytes: bool) -> dict[tuple[Any, Any], int]:
    rng, met = random.Random(seed), {}
    async with answered_by_the_sdk(everything()) as sdk, ours(with_ready_bytes=with_ready_bytes) as door:
        for number in range(count):
            body, heads, path = random_request(rng)
            method = "PUT" if number % 50 == 0 else "POST"
            answers = [await send_raw(app, body, heads, path=path, method=method) for app in (sdk, door)]
            alone, through = ((status, *comparable(kind, answer)) for status, kind, answer in answers)
            status, kind, said = alone
            assert through == (status, kind, plain_words(said)), (body, heads)
            status, _, value = alone
            if isinstance(value, list):
                value, status = value[-1], "stream"
            key = (status, value.get("error", {}).get("code", "result") if isinstance(value, dict) else None)
            met[key] = met.get(key, 0) + 1
    return met


async def test_a_request_is_answered_as_the_sdk_answers_it(*, with_ready_bytes: bool) -> None:
    seed = int(os.environ.get("PEGBOARD_SEED", "7"))
    met = await compare(700, seed, with_ready_bytes=with_ready_bytes)
    # The comparison is worth something only if it met answers of every kind.
    assert {(200, "result"), (400, -32602), (400, -32600), (400, -32020), ("stream", "result")} <= met.keys()


@pytest.mark.soak
async def test_a_request_is_answered_as_the_sdk_answers_it_for_long(*, with_ready_bytes: bool) -> None:
    for seed in range(50):
        await compare(1_000, seed, with_ready_bytes=with_ready_bytes)


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
METHODS = ["tools/call"] * 8 + ["tools/list"] * 3 + ["initialize"] * 2 + OTHERS


def random_message(rng: random.Random) -> Any:
    maybe = rng.random
    method, name = rng.choice(METHODS), rng.choice(NAMES)
    params: Any = {}
    if method == "tools/call":
        params = {"name": name if maybe() < 0.95 else rng.choice(ATOMS)}
        if maybe() < (0.3 if name in SPEAKING else 0.8):
            params["arguments"] = rng.choice(ARGUMENTS)
    else:
        params = random_params(rng, method)
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


def plain_words(message: Any) -> Any:
    """Return an answer of the SDK without the words of pydantic, which repeat what was sent."""
    error = message.get("error") if isinstance(message, dict) else None
    if error is None or not error["message"].startswith("Validation error: "):
        return message
    return {**message, "error": {**error, "message": "Validation error: the body is not a JSON-RPC 2.0 message."}}


def wanted(message: Any, status: int, has_session: bool, said: Any, *, named: bool) -> tuple[int, bool, Any]:
    """Return the answer of the SDK, in our words where ours differ on purpose."""
    if not named:
        # The SDK names a session that it gives up at once.
        has_session = has_session and status == 200 and "result" in said[-1]
    said = [plain_words(one) for one in said]
    is_unanswerable = isinstance(message, dict) and "id" in message and type(message["id"]) not in (int, str)
    if is_unanswerable and named and status == 202:
        # The SDK takes a request whose id cannot be repeated for a notification, and its client waits for ever.
        return 400, True, [{"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": NO_ID}}]
    return status, has_session, said


async def compare_sessions(count: int, seed: int, *, with_ready_bytes: bool) -> dict[tuple[Any, Any], int]:
    rng, met = random.Random(seed), dict[tuple[Any, Any], int]()
    async with answered_by_the_sdk(everything()) as sdk, ours(with_ready_bytes=with_ready_bytes) as door:
        version = rng.choice(EARLIER)
        heads = {
            "host": "127.0.0.1:8420",
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
        }
        first = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {**HELLO, "protocolVersion": version}}
        sessions = [await opened(app, first, heads) for app in (sdk, door)]
        assert all(sessions)
        heads |= {"mcp-protocol-version": version}
        for _ in range(count):
            body = json.dumps(random_message(rng)).encode()
            sent = {**heads, **({"accept": rng.choice(ACCEPTS)} if rng.random() < 0.03 else {})}
            named = rng.random() < 0.97
            answers = []
            for app, session in zip((sdk, door), sessions, strict=True):
                told: dict[str, str] = {}
                with_session = {**sent, **({"mcp-session-id": session} if named else {})}
                status, kind, answer = await send_raw(app, body, raw(with_session), told=told)
                answers.append((status, "mcp-session-id" in told, messages_of(kind, answer)))
            assert answers[1] == wanted(json.loads(body), *answers[0], named=named), (body, sent)
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


async def test_a_session_is_answered_as_the_sdk_answers_it(*, with_ready_bytes: bool) -> None:
    seed = int(os.environ.get("PEGBOARD_SEED", "7"))
    met = await compare_sessions(400, seed, with_ready_bytes=with_ready_bytes)
    assert {(200, "result"), (200, -32602), (200, -32601), (202, None), (400, -32602)} <= met.keys()
    assert met["stream", (200, "result")] > 0


@pytest.mark.soak
async def test_a_session_is_answered_as_the_sdk_answers_it_for_long(*, with_ready_bytes: bool) -> None:
    for seed in range(25):
        await compare_sessions(1_000, seed, with_ready_bytes=with_ready_bytes)
