"""Orders: what a client reads is the same in whatever order sources are declared, connect, drop and come back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest

from pegboard import Catalog, Profile, ToolContext, ToolSpec, http_app
from pegboard.model.record import replace
from pegboard.model.source_state import SourceState
from pegboard.model.tool import ToolEntry
from pegboard.sources.mcp.server_settings import ServerSettings
from pegboard.sources.mcp.supervised_source import McpSource
from tests.core.parts import FakeSource, echo, foreign
from tests.discovery.calling import say, view_of
from tests.evil.faults import Faults, fault_proxy
from tests.server.asgi import ask
from tests.sizes import examples
from tests.timing import PATIENCE_S
from tests.upstream_mcp.parts import EVIL, free_port, http_server, on_stdio, until

ORDERS = examples(1_000, few=30)
REAL_ORDERS = 5
CONNECTING = SourceState(status="connecting", is_up=False)
UP = SourceState()

# Names and words that meet across sources, so that who came first could show.
TOOLS = {
    "mail": {"send": "Send a message.", "list_folders": "List the folders of the mailbox.", "search": "Search it."},
    "chat": {"send": "Send a message.", "List_Folders": "List channels.", "search": "Search it."},
    "files": {"list_folders": "List folders below a path.", "read": "Read a file.", "search": "Search it."},
    "Mail2": {"send": "Send a message.", "read": "Read a message.", "search": "Search it."},
    "quiet": {"send": "Send a message.", "get__all": "Search it.", "a" * 60: "Read a message with a very long name."},
}
# Our own, by namespace.
OWN = {"main": "send", "zoo": "search", "alpha": "mail__search"}
# These list one tool under the same id: the first by name has it, whichever connects first.
SHARED = ("files", "chat")
QUERIES = ["send a message", "list folders", "search", "no such thing at all"]
ASKED = [
    *({"agent": source} for source in TOOLS),
    {"agent": "mail", "tools": ["send", "list_folder", "search"]},
    {"agent": "quiet", "tools": ["*"]},
    {"agent": "nobody", "tools": ["x"]},
]


@dataclass(frozen=True, kw_only=True)
class Read:
    """What a client read."""

    lists: tuple[bytes, ...]
    found: str
    shown: str


async def read(catalog: Catalog, session: str = "last") -> Read:
    ctx = ToolContext(session_id=session)  # a session that asks the same thrice is told so
    lists = [catalog.exposed(view_of(catalog, profile=name)).export_bytes("mcp") for name in ("direct", "two", "all")]
    found = await say(catalog, "searchTools", ctx=ctx, queries=QUERIES, detail="full", limit=50)
    shown = await say(catalog, "getTools", ctx=ctx, request=ASKED)
    return Read(lists=tuple(lists), found=json.dumps(found), shown=json.dumps(shown))


def declare(catalog: Catalog) -> None:
    catalog.profile(Profile(name="direct", exposure="direct"))
    catalog.profile(Profile(name="two", exposure="two_tool"))
    catalog.profile(Profile(name="all", exposure="search", pinned=("*send",)))


def shuffled(draw: Random, items: Any) -> list[Any]:
    mixed = list(items)
    draw.shuffle(mixed)
    return mixed


class Switchboard:
    """A catalog whose fake sources are declared, connect and drop in the order that `draw` gives.

    With `mixes` they list their tools in any order too.
    """

    def __init__(self, draw: Random, *, mixes: bool) -> None:
        self.draw, self.mixes, self.catalog = draw, mixes, Catalog()
        self.sources = {name: FakeSource(name=name, now=CONNECTING) for name in TOOLS}
        for step in shuffled(draw, [*OWN, *TOOLS]):
            if step in OWN:
                self.catalog.register(ToolSpec(name=OWN[step], namespace=step, description="Search it."), echo)
            else:
                self.catalog.add_source(self.sources[step])
        declare(self.catalog)

    def _mixed(self, names: Iterable[str]) -> list[str]:
        return shuffled(self.draw, names) if self.mixes else list(names)

    def connect(self, name: str) -> None:
        source = self.sources[name]
        source.now = UP
        source.relist([entry_of(name, tool) for tool in self._mixed(TOOLS[name])] + shared_by(name))

    def drop(self, name: str, *, forget: bool) -> None:
        source = self.sources[name]
        source.now = SourceState(status="unreachable", is_up=False)
        source.relist([] if forget else source.listed)

    async def play(self) -> None:
        """Bring all sources up, with drops and questions of clients in between."""
        for name in shuffled(self.draw, TOOLS):
            self.connect(name)
            if self.draw.random() < 0.1:
                await read(self.catalog, session=name)
            if self.draw.random() < 0.3:
                gone = self.draw.choice([name, *TOOLS])
                self.drop(gone, forget=self.draw.random() < 0.5)
        for name in shuffled(self.draw, TOOLS):
            if self.sources[name].now is not UP:
                self.connect(name)


def shared_by(source: str) -> list[ToolEntry]:
    if source not in SHARED:
        return []
    entry = foreign(source, "search", description=f"Search what {source} knows.")
    return [replace(entry, spec=replace(entry.spec, namespace="shared"))]


def entry_of(source: str, tool: str) -> ToolEntry:
    return foreign(source, tool, description=TOOLS[source][tool])


async def test_the_bytes_are_the_same_over_hundreds_of_orders_of_declaration_and_connection() -> None:
    reads = set[Read]()
    for seed in range(ORDERS):
        board = Switchboard(Random(seed), mixes=False)
        await board.play()
        reads.add(await read(board.catalog))
    assert len(reads) == 1


@pytest.fixture(scope="module")
async def ports() -> AsyncGenerator[dict[str, int]]:
    """The ports of three MCP servers on loopback."""
    async with AsyncExitStack() as stack:
        found = {name: free_port() for name in ("mail", "chat", "files")}
        for name, port in found.items():
            await stack.enter_async_context(http_server("sse" if name == "files" else "http", port))
        yield found


@pytest.mark.parametrize("together", [False, True])
async def test_real_servers_that_connect_in_any_order_and_after_any_delay_give_the_same_bytes(
    ports: dict[str, int], together: bool
) -> None:
    reads = set[tuple[Read, str]]()
    for seed in range(REAL_ORDERS):
        reads.add(await connected(ports, Random(seed), together=together))
    assert len(reads) == 1


async def connected(ports: dict[str, int], draw: Random, *, together: bool) -> tuple[Read, str]:
    """Connect to servers one after the other, or all at once over ways of several latencies; return what is read."""
    catalog = Catalog()
    async with AsyncExitStack() as stack:
        settings = [on_stdio(EVIL, name="disk", trust="any")]
        for name, port in ports.items():
            way = Faults(latency_s=draw.choice((0.0, 0.01, 0.03)) if together else 0.0)
            await stack.enter_async_context(fault_proxy(port, way))
            path, transport = ("sse", "sse") if name == "files" else ("mcp", "http")
            url = f"http://127.0.0.1:{way.port}/{path}"
            settings.append(ServerSettings(name=name, transport=transport, url=url, trust="any"))
        sources = {said.name: McpSource(said) for said in shuffled(draw, settings)}
        for source in sources.values():
            catalog.add_source(source)
        declare(catalog)
        stack.push_async_callback(catalog.close, grace_s=0)
        async with asyncio.timeout(PATIENCE_S):
            if together:
                await catalog.start()
            for name in shuffled(draw, sources):
                await catalog.start(only=() if together else [name])
                await sources[name].listed()
                await read(catalog, session=name)
            # Beside its tools a server has resources and prompts; until they are there too, a list may be kept shorter.
            await until(lambda: not any(source.is_starting() for source in sources.values()), within_s=PATIENCE_S)
        last, app = await read(catalog), http_app(catalog)
        async with app.router.lifespan_context(app):
            return last, json.dumps(await ask(app, "tools/list", {}, path="/mcp/all"))


async def test_what_the_meta_tools_say_is_the_same_in_whatever_order_each_source_lists_its_tools() -> None:
    """A flat list has the tools of a namespace as they were declared, so it is left out."""
    reads = set[Read]()
    for seed in range(ORDERS // 10):
        board = Switchboard(Random(seed), mixes=True)
        await board.play()
        last = await read(board.catalog)
        reads.add(replace(last, lists=last.lists[1:]))
    assert len(reads) == 1
