"""Connect an account in a real browser: a call, its link, our page, the issuer's page, and the same call answers."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult

from pegboard import CallContext, Catalog, http_app
from pegboard.auth.keys import KeyStore
from pegboard.auth.rules import IdentityRules
from pegboard.connections.connection_records import person_of
from tests.auth.parts import bearer, rule
from tests.connections.agreeing import connections_in, settings_of
from tests.connections.toy_issuer import ToyIssuer
from tests.connections.toy_upstreams import McpUpstream
from tests.e2e.test_real_clients import CLIENTS
from tests.ports import free_port
from tests.server.doors import served
from tests.timing import PATIENCE_S

pytestmark = pytest.mark.e2e


async def browsed(**told: str) -> dict[str, Any]:
    """Let a person connect in a browser; return what it saw, see `connect_page.mjs`."""
    pipe = asyncio.subprocess.PIPE
    words = ("node", "connect_page.mjs", json.dumps(told))
    process = await asyncio.create_subprocess_exec(*words, stdout=pipe, stderr=pipe, cwd=CLIENTS)
    printed, errors = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    assert process.returncode == 0, errors.decode()
    return json.loads(printed)


async def test_a_call_its_link_our_page_the_issuer_and_the_same_call_answers(tmp_path: Path) -> None:
    port = free_port()
    async with ToyIssuer(path="/tenant").running() as issuer, McpUpstream(issuer).running() as upstream:
        issuer.switches.asks = True
        catalog = Catalog("desk")
        connections = connections_in(tmp_path / "connections.db", public_url=f"http://127.0.0.1:{port}")
        connections.add(settings_of(issuer, upstream))
        catalog.connections = connections

        @catalog.tool
        async def whoami(ctx: CallContext) -> str:
            """Say whose account this is."""
            person = person_of(ctx.caller)
            assert person is not None
            token = await connections.token(person, "mail")
            known = issuer.good(token.value.reveal())
            return f"You are {'nobody' if known is None else known.user}."

        store = KeyStore(tmp_path / "keys.db")
        key = store.add("ann")[0]
        catalog.identity = IdentityRules(key_store=tmp_path / "keys.db", map=(rule(key="ann", user="ann"),))
        seen: list[dict[str, Any]] = []
        visits: list[asyncio.Task[None]] = []

        async def visit(link: str) -> None:
            seen.append(await browsed(link=link, key=key, issuer=issuer.url, who="ann"))

        async def answer(context: Any, params: Any) -> ElicitResult:
            assert context is not None
            visits.append(asyncio.create_task(visit(params.url)))
            return ElicitResult(action="accept")

        async with (
            served(http_app(catalog), port=port) as url,
            httpx2.AsyncClient(headers=bearer(key), timeout=PATIENCE_S) as http,
            Client(
                streamable_http_client(f"{url}/mcp", http_client=http), mode="2026-07-28", elicitation_callback=answer
            ) as client,
        ):
            result = await client.call_tool("whoami", {})
            await asyncio.gather(*visits)
        assert result.content[0].text == "You are ann."  # type: ignore[union-attr]
        [page] = seen
        assert "for ann" in " ".join(page["asked"].split())
        assert (page["scripts"], page["cookies"], page["framed"]) == (0, "", "refused")
        assert page["done"] == "Connected"
        # The link is a secret of the person: the issuer does not learn it.
        assert not any("/connections/" in referrer for referrer in page["referrers"])
        assert "ticket" not in page["address"]
