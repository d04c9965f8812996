"""Connections: what a call over a person's own account executes, against the same call with a fixed header.

User-space instructions of one call in this process, counted by callgrind as in the bench `instructions`: a new view for
each call, the guarded call, the request to a service in another process, and its answer. The person is connected, and
their token is valid. `at once` is a call within a second after another one of the same person and source, for which a
worker keeps the token; `later` is one after that, which asks the store, here SQLite, whether it has changed; `changed`
is one that reads the token from it. A few calls are counted of each, so figures differ by some 3 % between runs.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.http import SDK, serve_app, serving
from bench.instructions import ROOT, Program, Simulator
from bench.measure import THOROUGH, Effort

PROGRAM = ("-m", "bench.connections")
HOLD = 1.1
PATIENCE_S = 300  # a simulated program takes long for everything
SHARE = 0.2
"""The share of the requests of the bench `instructions`: each of these calls is several times as long."""
FIXED, OWN = "fixed", "own"
KEPT, LATER, CHANGED = "at once", "later", "changed"
TOOLS = {"MCP": "mcp_{}__add", "OpenAPI": "api_{}__read_me", "webhook": "hook_{}"}
ARGUMENTS: dict[str, dict[str, object]] = {"MCP": {"a": 1, "b": 2, "text": "hey"}, "OpenAPI": {}, "webhook": {}}


def lines(effort: Effort = THOROUGH) -> Iterator[str]:
    """Yield the table."""
    if shutil.which("valgrind") is None:
        yield "Skipped: valgrind is not installed (`apt-get install valgrind`)."
        return
    yield "| one call | fixed header | own account | ratio | hold | |"
    yield "|---|---:|---:|---:|---:|---|"
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="pegboard-bench-")))
        simulator = Simulator(Effort(share=effort.share * SHARE), folder, ROOT / "src")
        mcp = stack.enter_context(serving(SDK))
        api = stack.enter_context(serving("upstream", module="bench.connections"))
        words = (str(folder), f"http://127.0.0.1:{mcp.port}/mcp", f"http://127.0.0.1:{api.port}")
        with simulator.running(*PROGRAM, "calls", *words, folder=ROOT) as program:
            assert program.read() == "ready"
            for kind in TOOLS:
                fixed = _count(program, kind, FIXED)
                for when in (KEPT, LATER, CHANGED):
                    own = _count(program, kind, OWN, when)
                    verdict = "PASS" if own <= HOLD * fixed else "short"
                    cells = (
                        f"{kind}, {when}",
                        f"{fixed:,}",
                        f"{own:,}",
                        f"{own / fixed:.2f}×",
                        f"≤ {HOLD:g}×",
                        verdict,
                    )
                    yield f"| {' | '.join(cells)} |"


def _count(program: Program, kind: str, whose: str, when: str = KEPT) -> int:
    def call(times: int) -> None:
        program.write(json.dumps([TOOLS[kind].format(whose), ARGUMENTS[kind], when, times]))
        assert program.read() == "done"

    return program.median(call)


# ---- this module run as a program ------------------------------------------------------------------------------------


def serve_upstream() -> None:
    """Serve an API with its description, and a webhook, to everybody."""
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    answer = {"200": {"description": "it", "content": {"application/json": {"schema": {"type": "object"}}}}}
    document = {
        "openapi": "3.1.0",
        "info": {"title": "Bench", "version": "1"},
        "paths": {"/me": {"get": {"operationId": "read_me", "summary": "Say who calls", "responses": answer}}},
    }

    async def describe(_request: Request) -> JSONResponse:
        return JSONResponse(document)

    async def me(_request: Request) -> JSONResponse:
        return JSONResponse({"user": "ann"})

    serve_app(Starlette(routes=[Route("/openapi.json", describe), Route("/me", me)]))


def config_of(mcp_url: str, api_url: str) -> dict[str, Any]:
    """Return a config with each kind of source twice: with a fixed header, and with the account of the person."""
    tools: list[dict[str, Any]] = []
    for name, auth in (
        (FIXED, {"mode": "static", "bearer": "the-token-of-ann"}),
        (OWN, {"mode": "user", "issuer": "https://login.example.com"}),
    ):
        tools += [
            {"name": f"mcp_{name}", "type": "mcp", "auth": auth,
             "mcp": {"transport": "http", "url": mcp_url, "timeout": PATIENCE_S}},
            {"name": f"api_{name}", "type": "openapi", "auth": auth,
             "openapi": {"spec": f"{api_url}/openapi.json", "base_url": api_url}},
            {"name": f"hook_{name}", "type": "webhook", "description": "Say who calls.", "auth": auth,
             "webhook": {"url": f"{api_url}/me", "method": "GET"}},
        ]  # fmt: skip
    return {"name": "bench", "connections": {"key": "${BENCH_KEY}", "store": "sqlite:./c.db"}, "tools": tools}


def make_calls(folder: str, mcp_url: str, api_url: str) -> None:
    """Make as many calls of a tool as each line of standard input says."""
    from pegboard import ToolContext, load_catalog
    from pegboard.connections.connection_records import NO_CHALLENGE, Person
    from pegboard.connections.connection_store import Flow
    from pegboard.connections.issuers import Issuer, OAuthClient, TokenAnswer
    from pegboard.model.secret import Secret

    path = Path(folder) / "pegboard.yaml"
    path.write_text(json.dumps(config_of(mcp_url, api_url)), encoding="utf-8")
    catalog, _ = load_catalog(path, env={"BENCH_KEY": "a-key-of-the-bench-that-is-long-enough-0123456789"})
    connections: Any = catalog.connections
    now_s = [0.0]
    connections._clock = lambda: now_s[0]  # a simulated call takes long
    issuer = Issuer(issuer="https://login.example.com", token_url="https://login.example.com/token")

    def person() -> ToolContext:
        return ToolContext(user_id="ann", space_id="s1")

    async def names() -> tuple[str, ...]:
        return tuple((await catalog.aview(person())).names())

    async def start() -> None:
        await catalog.start()
        for source, settings in connections.sources.items():
            flow = Flow(
                ticket=source, person=Person(user_id="ann", space_id="s1"), source=source, server=settings.server_url,
                challenge=NO_CHALLENGE, redirect_uri="", expires_at=0.0, issuer=issuer, resource=settings.server_url,
                client=OAuthClient(client_id="bench"),
            )  # fmt: skip
            # As if a person had agreed: there is no issuer.
            await connections._store.save(flow, TokenAnswer(access=Secret("the-token-of-ann")), renew_early_s=30.0)
        # A simulated start takes long. The first list of a person finds out what their account offers.
        wanted = {tool.format(whose) for tool in TOOLS.values() for whose in (FIXED, OWN)}
        async with asyncio.timeout(PATIENCE_S):
            while not wanted.issubset(await names()):
                await asyncio.sleep(0.05)

    async def calls(tool: str, arguments: Any, when: str, times: int) -> None:
        for _ in range(times):
            if when == LATER:
                now_s[0] += 2.0 * connections._token_kept_s
            if when == CHANGED:
                connections._kept.clear()
            result = await catalog.view(person()).call(tool, arguments)
            assert not result.is_error, result

    with asyncio.Runner() as runner:
        runner.run(start())
        print("ready", flush=True)
        for line in sys.stdin:
            runner.run(calls(*json.loads(line)))
            print("done", flush=True)
        runner.run(catalog.close())


def main(name: str, *words: str) -> None:
    match name:
        case "upstream":
            serve_upstream()
        case _:
            make_calls(*words)


if __name__ == "__main__":
    main(*sys.argv[1:])
