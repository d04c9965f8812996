"""The cache of ready bytes: real clients see no difference when it is switched off, and are served by it when on."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION, MODERN_PROTOCOL_VERSIONS
from starlette.applications import Starlette

from pegboard import http_app
from pegboard.server.mcp.dispatcher import Dispatcher
from pegboard.server.mcp.protocol.revisions import EARLIER_VERSIONS, LATEST_EARLIER, VERSION
from pegboard.server.mcp.ready_bytes import SWITCH
from pegboard.server.mcp.sessions import session_endpoint
from tests.server.asgi import send_raw
from tests.server.test_differ import everything, messages_of, raw
from tests.timing import PATIENCE_S

RECORDED = Path(__file__).parents[2] / "bench/requests/clients.jsonl"
CLIENTS = [json.loads(line) for line in RECORDED.read_text(encoding="utf-8").splitlines()]
HOST = {"host": "127.0.0.1:8420"}
OTHERS: list[tuple[str, dict[str, Any]]] = [
    ("resources/read", {"uri": "x://text"}),
    ("prompts/get", {"name": "review", "arguments": {"style": "long"}}),
    ("resources/list", {}),
    ("completion/complete", {"ref": {"type": "ref/prompt", "name": "review"}, "argument": {"name": "s", "value": ""}}),
]


@asynccontextmanager
async def app(monkeypatch: pytest.MonkeyPatch, switch: str) -> AsyncGenerator[Starlette]:
    monkeypatch.setenv(SWITCH, switch)
    served = http_app(everything())
    async with served.router.lifespan_context(served):
        yield served


async def exchanged(served: Starlette, client: dict[str, Any]) -> list[Any]:
    """Return what a recorded client is answered: to its first message, its list, its call, and to the other methods."""
    heads, answers = {**HOST, **client["headers"]}, list[Any]()

    async def send(message: dict[str, Any], **more: str) -> None:
        told: dict[str, str] = {}
        status, kind, body = await send_raw(served, json.dumps(message).encode(), raw({**heads, **more}), told=told)
        answers.append((status, kind.partition(";")[0], messages_of(kind, body)))
        if "mcp-session-id" in told:
            heads["mcp-session-id"] = told["mcp-session-id"]

    meta = client["call"]["params"].get("_meta", {})
    named = {method: next(iter(params.values()), "") for method, params in OTHERS}
    others = [
        {"jsonrpc": "2.0", "id": 8, "method": method, "params": {**params, "_meta": meta}} for method, params in OTHERS
    ]
    if client["initialize"] is not None:
        await send(client["initialize"])
        await send({"jsonrpc": "2.0", "method": "notifications/initialized"})
    for message in (client["list"], client["call"], *others):
        method = message["method"]
        target = message["params"]["name"] if method == "tools/call" else named.get(method, "")
        await send(message, **{"mcp-method": method}, **({"mcp-name": target} if isinstance(target, str) else {}))
    return answers


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: f"{client['client']} {client['initialize'] is None}")
async def test_a_recorded_client_sees_no_difference(client: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[str] = []
    real = Dispatcher.dispatch

    def counted(self: Dispatcher, message: Any, *rest: Any) -> Any:
        checked.append(message["method"])
        return real(self, message, *rest)

    monkeypatch.setattr(Dispatcher, "dispatch", counted)
    # An answer that takes longer than this is a stream, with the cache or without.
    monkeypatch.setattr(session_endpoint, "WATCHED_AFTER_S", PATIENCE_S)
    async with app(monkeypatch, "on") as cached:
        with_cache = await exchanged(cached, client)
    seen_with, checked = checked, []
    async with app(monkeypatch, "off") as plain:
        without = await exchanged(plain, client)
    assert with_cache == without
    assert all("result" in messages[-1] for _, _, messages in with_cache if messages)
    # The first of a kind may be checked; the usual methods are not.
    assert {"tools/list", "tools/call", "resources/read", "prompts/get"}.isdisjoint(seen_with)
    assert {"tools/list", "tools/call", "resources/read", "prompts/get"} <= set(checked)


def test_the_revisions_are_those_of_the_sdk() -> None:
    assert list(HANDSHAKE_PROTOCOL_VERSIONS) == list(EARLIER_VERSIONS)
    assert (LATEST_HANDSHAKE_VERSION, VERSION in MODERN_PROTOCOL_VERSIONS) == (LATEST_EARLIER, True)
