"""Two people at a server: calls, lists, searches, refreshes and disconnections, in any order and through every door.

Every byte that one of them receives is searched for what belongs to the other: mail, tools, tokens and links.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import time
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from pegboard import ToolContext, load_catalog
from pegboard.auth.keys import KeyStore
from pegboard.connections.limits import FRESH_TOKEN_S
from tests.auth.parts import bearer
from tests.connections.agreeing import ANN, BOB, connect
from tests.connections.stores import fresh_database
from tests.connections.toy_issuer import ToyIssuer
from tests.connections.toy_upstreams import ApiUpstream, McpUpstream, mail_of
from tests.limits.server import redis_server
from tests.server.doors import post
from tests.server.processes import serving
from tests.sizes import IS_SOAK
from tests.timing import PATIENCE_S

PEOPLE = {"ann": ANN, "bob": BOB}
OTHER = {"ann": "bob", "bob": "ann"}
DOORS = ("v1", "2026-07-28", "2025-11-25", "python")
SOURCES = ("mail", "post", "me")
CALLS = ("mail__read_mail", "mail__whoami", "post__readMail", "me")
OPS = (
    *CALLS,
    *CALLS,
    *CALLS,
    "list",
    "list",
    "search",
    "why",
    "resources",
    "other's tool",
    "refresh",
    "disconnect",
    "connect",
)
STEPS = 10_000 if IS_SOAK else 32
LANES = 8  # steps at the same time
TOKEN = re.compile(r"(?:access|refresh)-\w+-[0-9a-f]{8}")
INBOX = "pegboard://mail/mail://inbox"
LINK = re.compile(r"/connections/([\w-]{20,})")
ENV = {"CONNECTIONS_KEY": "a-key-of-connections-that-is-long-enough-0123456789"}


@dataclass
class Two:
    """A server with one or more workers, a process of its own that shares its store (this one), and two people."""

    issuer: ToyIssuer
    mcp: McpUpstream
    catalog: Any
    http: dict[str, httpx2.AsyncClient]
    clients: dict[str, Client]
    at_issuer: asyncio.Lock = field(default_factory=asyncio.Lock)
    links: dict[str, set[str]] = field(default_factory=lambda: {user: set[str]() for user in PEOPLE})
    done: Counter[str] = field(default_factory=Counter[str])

    async def step(self, user: str, door: str, op: str) -> None:
        said = await self._said(user, door, op)
        other = OTHER[user]
        named = {f"only_for_{other}"} if op == "other's tool" else set[str]()  # as the caller named it
        for canary in {mail_of(other), f"only_for_{other}"} - named:
            assert canary not in said, (user, door, op, canary, said[-2_000:])
        assert TOKEN.search(said) is None, (user, door, op, said[-2_000:])
        self.links[user].update(LINK.findall(said))
        self.done[op] += 1
        if op in CALLS and (mail_of(user) in said or f"You are {user}" in said):
            self.done[f"answers at {door}"] += 1
        if op == "resources" and said.count(mail_of(user)) > 1:
            self.done[f"resources at {door}"] += 1

    async def _said(self, user: str, door: str, op: str) -> str:
        connections, person = self.catalog.connections, PEOPLE[user]
        match op:
            case "connect":
                async with self.at_issuer:  # whose browser is one at a time
                    held = {each.source for each in await connections.listed(person=person) if each.is_live}
                    for source in [name for name in SOURCES if name not in held][:1]:
                        await connect(connections, self.issuer, person, source=source)
                return ""
            case "disconnect":
                listed = (await self.http[user].get("/v1/connections")).json()["connections"]
                return "".join(
                    [(await self.http[user].delete(f"/v1/connections/{listed[0]['id']}")).text] if listed else []
                )
            case "refresh":
                for token in self.issuer.tokens:
                    # A service that refuses a token which was just refreshed asks for another agreement.
                    if token.expires_at < time.time() + 3_600 - FRESH_TOKEN_S - 1:
                        token.expires_at = 0.0
                return ""
            case _:
                name = f"mail__only_for_{OTHER[user]}" if op == "other's tool" else op
                return await getattr(self, f"_over_{door.partition('-')[0]}")(user, name)

    async def _over_v1(self, user: str, op: str) -> str:
        http = self.http[user]
        if op in ("list", "resources"):  # this door has no resources
            return (await http.get("/v1/tools")).text
        if op == "search":
            return (await http.get("/v1/search", params={"q": f"a tool of {user} alone, mail"})).text
        if op == "why":
            return (await http.get("/v1/tools/mail__whoami/why")).text
        return (await http.post(f"/v1/tools/{op}/call", json={})).text

    async def _over_2026(self, user: str, op: str) -> str:
        http, path = self.http[user], "/mcp/all"
        if op == "resources":
            lists = [await post(http, f"{what}/list", path=path) for what in ("resources", "prompts")]
            read = await post(http, "resources/read", {"uri": INBOX}, path=path, headers={"mcp-name": INBOX})
            return "".join(answer.text for answer in (*lists, read))
        if op == "list":
            return (await post(http, "tools/list", path=path)).text
        if op in ("search", "why"):
            sought = {"queries": [f"a tool of {user} alone, mail"]}
            return (
                await post(http, "tools/call", {"name": "searchTools", "arguments": sought}, path="/mcp/short")
            ).text
        return (await post(http, "tools/call", {"name": op, "arguments": {}}, path=path)).text

    async def _over_2025(self, user: str, op: str) -> str:
        client = self.clients[user]
        try:
            if op == "resources":
                lists = (await client.list_resources(), await client.list_prompts())
                return repr((*lists, await client.get_prompt("mail__answer", {"topic": "rent"})))
            if op in ("list", "search", "why"):
                return repr(await client.list_tools())
            return repr(await client.call_tool(op, {}))
        except MCPError as error:
            return repr((error, error.error))

    async def _over_python(self, user: str, op: str) -> str:
        view = await self.catalog.aview(ToolContext(user_id=user, space_id="acme"))
        if op == "resources":
            resources = await self.catalog.resources.view(view.ctx).prepare()
            return repr([self.catalog.resources.spec(entry) for entry in resources.tools()])
        if op == "list":
            return json.dumps([view.export("mcp"), view.names()], default=repr)
        if op == "search":
            return repr(await self.catalog.search(view, f"a tool of {user} alone, mail"))
        if op == "why":
            return repr([await view.awhy(name) for name in (*view.names(), "mail__whoami")])
        return repr(await view.call(op, {}))


def config_of(mcp: McpUpstream, api: ApiUpstream, issuer: ToyIssuer, *, store: str, bus: str | None) -> dict[str, Any]:
    auth = {"mode": "user", "issuer": issuer.url}
    return {
        "name": "acme",
        "connections": {"key": "${CONNECTIONS_KEY}", "store": store, "public_url": "http://127.0.0.1:8420"},
        "limits": {"invalid_calls_per_minute": 1_000_000},
        "profiles": {"all": {}, "short": {"exposure": "search"}},
        "tools": [
            {"name": "mail", "type": "mcp", "mcp": {"transport": "http", "url": mcp.resource}, "auth": auth},
            {"name": "post", "type": "openapi", "auth": auth,
             "openapi": {"spec": f"{api.origin}/openapi.json", "base_url": api.origin}},
            {"name": "me", "type": "webhook", "description": "Read the mail of who calls.", "auth": auth,
             "webhook": {"url": f"{api.origin}/mail", "method": "GET"}},
        ],
        "identity": {
            "api_keys": {"store": "sqlite:./keys.db"},
            "map": [{"when": {"key": user}, "user": user, "space": "acme", "profiles": ["all", "short"]}
                    for user in PEOPLE],
        },
        **({} if bus is None else {"server": {"bus": bus, "keys": ["k" * 32]}}),
    }  # fmt: skip


@asynccontextmanager
async def two(folder: Path, *, workers: int, store: str) -> AsyncGenerator[Two]:
    async with AsyncExitStack() as stack:
        issuer = await stack.enter_async_context(ToyIssuer().running())
        mcp = await stack.enter_async_context(McpUpstream(issuer).running())
        api = await stack.enter_async_context(ApiUpstream(issuer).running())
        bus = stack.enter_context(redis_server(folder)).uri if workers > 1 else None
        path = folder / "pegboard.yaml"
        path.write_text(json.dumps(config_of(mcp, api, issuer, store=store, bus=bus)))
        keys = {user: KeyStore(folder / "keys.db").add(user)[0] for user in PEOPLE}
        server = await stack.enter_async_context(serving(folder, "--workers", str(workers), env=ENV))
        catalog, _ = load_catalog(path, env=ENV)
        await stack.enter_async_context(catalog)
        http = {
            user: await stack.enter_async_context(
                httpx2.AsyncClient(base_url=server.url, headers=bearer(key), timeout=PATIENCE_S)
            )
            for user, key in keys.items()
        }
        assert catalog.connections is not None
        for person in PEOPLE.values():
            for source in SOURCES:
                await connect(catalog.connections, issuer, person, source=source)
        clients = {
            user: await stack.enter_async_context(
                Client(streamable_http_client(f"{server.url}/mcp/all", http_client=client), mode="legacy")
            )
            for user, client in http.items()
        }
        yield Two(issuer, mcp, catalog, http, clients)
        assert mcp.crossed == []


async def interleave(here: Two, chance: random.Random, steps: int) -> None:
    """Make steps of both people through all doors, several at the same time."""
    left = steps

    async def lane() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            if left % 1_000 == 0:
                print(f"{left} steps left: {dict(here.done)}", flush=True)
            await here.step(chance.choice(sorted(PEOPLE)), chance.choice(DOORS), chance.choice(OPS))

    async with asyncio.TaskGroup() as lanes:
        for _ in range(LANES):
            lanes.create_task(lane())
    # Both can still do everything: what was refused was refused for a reason.
    for user in PEOPLE:
        for _ in SOURCES:
            await here.step(user, "python", "connect")
        for door in DOORS:
            before = here.done[f"answers at {door}"]
            for op in ("list", "list", "mail__read_mail", "post__readMail", "me"):
                await here.step(user, door, op)
            assert here.done[f"answers at {door}"] == before + 3, (user, door)
            if door != "v1":
                before = here.done[f"resources at {door}"]
                await here.step(user, door, "resources")
                assert here.done[f"resources at {door}"] == before + 1, (user, door)
    assert here.links["ann"].isdisjoint(here.links["bob"])


@pytest.mark.hypothesis  # its property is an inner function, which `make soak` would not find
# Each of two workers serves both people, so it shares among them whatever a single one would.
@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.soak), 2])
@pytest.mark.parametrize("store", ["sqlite", pytest.param("postgres", marks=pytest.mark.soak)])
def test_nothing_of_one_person_reaches_the_other_through_any_door(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, store: str, workers: int
) -> None:
    url = request.getfixturevalue("postgres_url") if store == "postgres" else ""

    @settings(max_examples=1, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.randoms(use_true_random=False))
    def people(chance: random.Random) -> None:
        async def run() -> None:
            folder = tmp_path_factory.mktemp("people")
            place = fresh_database(url, f"two_{folder.name.replace('-', '_')}_{workers}") if url else "sqlite:./c.db"
            async with two(folder, workers=workers, store=place) as here:
                await interleave(here, random.Random(chance.getrandbits(64)), STEPS)
                print(f"{workers} workers, {store}: {dict(here.done)}")

        asyncio.run(run())

    people()
