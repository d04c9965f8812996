"""The pages of documents, connections, agents, usage and results in a real browser, with something on each of them."""

from __future__ import annotations

import struct
import wave
import zlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

from pegboard import Catalog, Profile, Workspace, agent_tool
from pegboard.auth.keys import KeyStore
from pegboard.config import Config, load_catalog
from pegboard.connections.connection_records import Person
from pegboard.model.agent import AgentBudgets, ModelSpec
from pegboard.model.error import CallError
from pegboard.model.result import AudioContent, ImageContent, ResourceContent, ResourceLink, TextContent, ToolResult
from pegboard.server.app import AppOptions, app_of
from tests.agents.team import agent, playing
from tests.auth.parts import bearer
from tests.connections.agreeing import connect, connections_in, settings_of
from tests.connections.toy_issuer import ToyIssuer
from tests.connections.toy_upstreams import McpUpstream
from tests.e2e.test_console import pictures, walked
from tests.security.test_console import HIDING, MARKUP
from tests.server.doors import listening

pytestmark = pytest.mark.e2e
CONFIG = """
audit: {store: "sqlite:./audit.db"}
workspace: {store: "sqlite:./documents.db"}
profiles: {all: {include: [core, navigation, search, document]}}
identity:
  api_keys: {store: "sqlite:./keys.db"}
  map: [{when: {key: olga}, user: olga, space: kitchen, roles: [operator], profiles: [all]}]
"""
DIFF = "--- a/order\n+++ b/order\n@@ -1,3 +1,3 @@\n state: open\n-cents: 5\n+cents: 6\n customer: ann"
MODEL = ModelSpec(provider="openai_compatible", name="counter", base_url="http://127.0.0.1:9/v1")


def picture() -> bytes:
    """Return a small PNG."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    rows = b"".join(b"\0" + bytes([40 + row, 90, 160] * 200) for row in range(100))
    head = struct.pack(">IIBBBBB", 200, 100, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def sound() -> bytes:
    file = BytesIO()
    with wave.open(file, "wb") as written:
        written.setnchannels(1)
        written.setsampwidth(1)
        written.setframerate(8_000)
        written.writeframes(bytes(128 + number % 60 for number in range(4_000)))
    return file.getvalue()


def kitchen(folder: Path) -> tuple[Catalog, Config]:
    (folder / "pegboard.yaml").write_text(CONFIG)
    catalog, config = load_catalog(folder / "pegboard.yaml")

    @catalog.tool(groups=("core", "math"))
    def order_status(order: str) -> dict[str, Any]:
        """Return where an order is."""
        return {"order": order, "state": "sent", "lines": [{"sku": "a", "tags": ["x", MARKUP]}, {"sku": HIDING}]}

    @catalog.tool
    def find_orders(customer: str) -> list[dict[str, Any]]:
        """Find the orders of a customer."""
        if customer == "nobody":
            raise CallError("not_found", "No such customer.")
        return [{"order": f"A-{number}", "customer": customer, "cents": 199 * number} for number in range(3)]

    parts = (
        TextContent("Two weeks of orders."), ImageContent(picture()), AudioContent(sound()), TextContent(DIFF),
        ResourceContent(uri="orders://report", text="All fine."), ResourceContent(uri="orders://zip", blob=b"abc"),
        ResourceLink(uri=f"https://elsewhere.example/{'x' * 400}", name="archive", description="All orders."),
    )  # fmt: skip
    catalog.tool(name="chart")(lambda: ToolResult(parts))
    catalog.tool(name="never_used")(lambda: "x")
    catalog.profile(Profile(name="few", include=("math",), exposure="search"))
    catalog.agent(agent("counter", groups=("math",), description="Counts orders.", model=MODEL))
    write = agent_tool("count", agent="counter", description="Have orders counted.")
    budgets = AgentBudgets(tool_calls=20)
    catalog.agent(agent("lead", groups=("core",), budgets=budgets, model=MODEL), tools=[write])
    catalog.register(agent_tool("ask_counter", agent="counter", description="Have orders counted."))
    catalog.runtime.agents.make_model = playing({"counter": [[("order_status", {"order": "A-1"})], "five"]})
    return catalog, config


async def fill(catalog: Catalog) -> None:
    workspace = Workspace(catalog.registry.declarations.documents)  # type: ignore[arg-type] - that of the config
    await workspace.grant("user:olga", "kitchen", "write")
    for number in range(6):
        text = f"# Recipe {number}\n\nBoil the carrots for {number} minutes. Add salt.\n\n{MARKUP}\n".encode()
        await workspace.upload(text, space="kitchen", path=f"recipes/{'soups' if number % 2 else 'stews'}/{number}.md")
    await workspace.upload(b"name,price\ncarrot,2\nsalt,1\n", space="kitchen", path="prices.csv", source="handbook")


async def call(url: str, key: str) -> None:
    async with httpx2.AsyncClient(base_url=url, headers=bearer(key)) as client:
        for number in range(20):
            await client.post("/v1/tools/order_status/call?profile=all", json={"order": f"A-{number}"})
            who = "nobody" if number % 4 == 0 else "ann"
            await client.post("/v1/tools/find_orders/call?profile=all", json={"customer": who})
        await client.post("/v1/tools/ask_counter/call?profile=all", json={"query": "count"})
        await client.post("/v1/tools/delete_everything/call?profile=all", json={})


@asynccontextmanager
async def served(folder: Path) -> AsyncGenerator[tuple[str, str]]:
    """Give the address of a full kitchen, and the key of an operator with documents and connections."""
    folder.chmod(0o700)
    key = KeyStore(folder / "keys.db").add("olga")[0]
    async with ToyIssuer(path="/tenant").running() as issuer, McpUpstream(issuer).running() as upstream:
        catalog, config = kitchen(folder)
        await fill(catalog)
        connections = connections_in(folder / "connections.db")
        for source in ("mail", "notes"):
            connections.add(settings_of(issuer, upstream, source=source))
        catalog.connections = connections
        await connect(connections, issuer, Person(user_id="olga", space_id="kitchen"))
        await connect(connections, issuer, Person(user_id="ann", space_id="kitchen"), source="notes")
        app = app_of(catalog, AppOptions(console=True, config=config))
        async with listening(app, starts=app) as url:
            await call(url, key)
            yield url, key


async def test_the_pages_of_documents_agents_usage_and_results_have_no_fault(tmp_path: Path) -> None:
    async with served(tmp_path) as (url, key):
        async with httpx2.AsyncClient(base_url=url, headers=bearer(key)) as client:
            items = (await client.get("/v1/documents?profile=all")).json()["items"]
        text, table = (
            next(one["document_id"] for one in items if one["path"].endswith(end)) for end in ("5.md", "csv")
        )
        pages = [
            ["documents", "/documents"], ["folder", "/documents?d_space=kitchen&source=uploads&folder=recipes/soups"],
            ["passages", f"/documents?q={quote('boiling carrots')}"], ["text", f"/documents/{text}?q=carrots"],
            ["table", f"/documents/{table}"], ["connections", "/connections"], ["agents", "/agents"],
            ["agent", "/agents/lead"], ["runs", "/agents/counter"], ["usage", "/usage?since=1h"],
            ["by-user", "/usage?by=user"], ["tree", "/tools/order_status", ".try button.main"],
            ["parts", "/tools/chart", ".try button.main"], ["audit", "/audit"],
        ]  # fmt: skip
        told = await walked(
            base=f"{url}/console", key=key, pages=pages, pictures=pictures("kitchen"),
            drop={"path": "/documents?d_space=kitchen", "name": "tea.md", "text": "# Tea"},
        )  # fmt: skip
    assert told["faults"] == []
    assert {name for name, length in told["texts"].items() if length < 100} == set()
    assert "Stored 1 document." in told["dropped"]
    assert "tea.md" in told["dropped"]
