"""Doors: a small catalog behind a real server on loopback, and plain JSON-RPC to talk to it."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, nullcontext
from typing import Any

import httpx2
import uvicorn
from starlette.applications import Starlette

from pegboard import Bounds, CallContext, Catalog, Policy, Profile
from pegboard.model.bounds import DEFAULT_BOUNDS
from pegboard.server.http_connection import KEEP_ALIVE_S
from pegboard.server.listener import Listener, address_of, bound_to

VERSION = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientCapabilities": {},
}
JSON_HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
_ids = itertools.count(1)


class Seen:
    """What the tools of a workshop did."""

    def __init__(self) -> None:
        self.runs: list[str] = []
        self.results: list[tuple[str, str]] = []
        self.began = asyncio.Event()
        self.ended = asyncio.Event()

    def on_tool_result(self, event: Any) -> None:
        self.results.append((event.tool, event.payload["kind"]))
        self.ended.set()


def _declare_trouble(catalog: Catalog, seen: Seen) -> None:
    @catalog.tool(groups="core")
    async def broken() -> str:
        """Fail with a secret in the text."""
        raise RuntimeError("password=hunter2 at /srv/app.py")

    @catalog.tool(groups="admin", consent="always")
    async def wipe(what: str) -> str:
        """Wipe something."""
        seen.runs.append(f"wipe {what}")
        return f"wiped {what}"

    @catalog.tool(groups="core", internal_only=True)
    async def inner() -> str:
        """Used by other code only."""
        return "inner"


def workshop(*, bounds: Bounds | None = None) -> tuple[Catalog, Seen]:
    """Return a catalog with two profiles, and what its tools did."""
    catalog, seen = Catalog("workshop", bounds=bounds or Bounds()), Seen()
    catalog.observe(seen)

    @catalog.tool(groups="core", read_only=True)
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        seen.runs.append("add")
        return a + b

    @catalog.tool(groups="core")
    async def echo(text: str) -> str:
        """Say it again."""
        return text

    @catalog.tool(groups="core")
    async def count(to: int) -> dict[str, object]:
        """Count."""
        return {"numbers": list(range(to))}

    @catalog.tool(groups="core")
    async def wait(ctx: CallContext) -> str:
        """Wait until told to stop; cleaning up takes a turn of the loop."""
        seen.runs.append("wait")
        seen.began.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            seen.runs.append("cleaned")
        return "never"

    @catalog.tool(groups="core")
    async def steps(ctx: CallContext, of: int = 3) -> str:
        """Report progress."""
        for step in range(of):
            await ctx.progress(step / of, f"step {step}")
        return "done"

    @catalog.tool(groups="core")
    async def greet(ctx: CallContext) -> str:
        """Ask for a name, then greet."""
        answer = await ctx.ask("What is your name?", schema=FORM)
        assert isinstance(answer, dict)
        seen.runs.append("greet")
        return f"Hello {answer['name']}"

    _declare_trouble(catalog, seen)
    catalog.profile(Profile(name="chat", include=("core",)))
    catalog.profile(Profile(name="admin", include=("core", "admin"), policy=Policy(deny=("echo",))))
    return catalog, seen


@asynccontextmanager
async def served(app: Starlette, *, port: int = 0) -> AsyncGenerator[str]:
    """Serve an app on loopback for the time of the block, with uvicorn; gives `http://127.0.0.1:PORT`."""
    config = uvicorn.Config(
        app, port=port, log_level="error", ws="none", timeout_graceful_shutdown=5, timeout_keep_alive=KEEP_ALIVE_S
    )
    server = uvicorn.Server(config)
    running = asyncio.create_task(server._serve())
    try:
        while not server.started:
            if running.done():
                running.result()
            await asyncio.sleep(0.01)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        app.state.end_streams()
        server.should_exit = True
        await running


@asynccontextmanager
async def listening(
    app: Any, *, starts: Starlette | None = None, header_s: float = DEFAULT_BOUNDS.header_s
) -> AsyncGenerator[str]:
    """Serve an app as `pegboard serve` does; `starts` is one inside it that must be started. Gives the address."""
    ready, ending = asyncio.Event(), asyncio.Event()
    lifespan = nullcontext() if starts is None else starts.router.lifespan_context(starts)
    bound = bound_to("127.0.0.1", 0)
    address = address_of(bound).removesuffix("/mcp")
    listener = Listener(
        app, listening=bound, lifespan=lifespan, on_ready=ready.set, grace_s=5.0, header_s=header_s
    )  # fmt: skip
    running = asyncio.create_task(listener.serve(ending))
    await asyncio.wait({running, asyncio.ensure_future(ready.wait())}, return_when="FIRST_COMPLETED")
    try:
        yield address
    finally:
        if starts is not None:
            starts.state.end_streams()
        ending.set()
        await running


@asynccontextmanager
async def inside(app: Starlette) -> AsyncGenerator[httpx2.AsyncClient]:
    """Run an app without a socket; gives a client for it."""
    async with app.router.lifespan_context(app):
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8420") as client:
            yield client


async def post(
    client: httpx2.AsyncClient,
    method: str,
    params: Mapping[str, Any] | None = None,
    *,
    path: str = "/mcp",
    headers: Mapping[str, str] | None = None,
    meta: Mapping[str, Any] | None = None,
    request_id: int | None = None,
    timeout: float = 20,
) -> httpx2.Response:
    """Send one request of 2026-07-28."""
    body = {
        "jsonrpc": "2.0",
        "id": request_id or next(_ids),
        "method": method,
        "params": {**(params or {}), "_meta": {**META, **(meta or {})}},
    }
    sent = {**JSON_HEADERS, "mcp-protocol-version": VERSION, "mcp-method": method, **(headers or {})}
    if params and "name" in params:
        sent.setdefault("mcp-name", str(params["name"]))
    return await client.post(path, headers=sent, content=json.dumps(body), timeout=timeout)


async def call(client: httpx2.AsyncClient, name: str, arguments: Any = None, **options: Any) -> dict[str, Any]:
    """Call a tool; return the JSON-RPC answer."""
    response = await post(client, "tools/call", {"name": name, "arguments": arguments or {}}, **options)
    return answer_of(response)


def answer_of(response: httpx2.Response) -> dict[str, Any]:
    """Return the last JSON-RPC message of a response, plain or as an event stream."""
    if "event-stream" in response.headers.get("content-type", ""):
        lines = [line[5:] for line in response.text.splitlines() if line.startswith("data:") and line[5:].strip()]
        return json.loads(lines[-1])
    return response.json()


async def names(client: httpx2.AsyncClient, path: str = "/mcp") -> list[str]:
    """Return the names of the listed tools."""
    listed = answer_of(await post(client, "tools/list", path=path))
    return [tool["name"] for tool in listed["result"]["tools"]]
