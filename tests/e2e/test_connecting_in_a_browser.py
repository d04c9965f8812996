"""Connect an account in a real browser: a call, its link, our page, the issuer's page, and the same call answers."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult

from pegboard import CallContext, Catalog, http_app
from pegboard.auth.keys import KeyStore
from pegboard.auth.rules import IdentityRules
from pegboard.connections.connection_records import person_of
from pegboard.testing import CallsTool, ModelRequest, ModelServer
from tests.auth.parts import bearer, rule
from tests.connections.agreeing import connections_in, settings_of
from tests.connections.toy_issuer import ToyIssuer
from tests.connections.toy_upstreams import McpUpstream
from tests.e2e.test_real_clients import CLIENTS
from tests.ports import free_port
from tests.server.doors import served
from tests.timing import PATIENCE_S

pytestmark = pytest.mark.e2e


class Desk(NamedTuple):
    """A server with a tool that needs Ann's account with an issuer."""

    url: str
    key: str
    issuer: ToyIssuer

    async def browsed(self, link: str) -> dict[str, Any]:
        """Let Ann connect in a browser; return what it saw, see `connect_page.mjs`."""
        told = {"link": link, "key": self.key, "issuer": self.issuer.url, "who": "ann"}
        pipe = asyncio.subprocess.PIPE
        words = ("node", "connect_page.mjs", json.dumps(told))
        process = await asyncio.create_subprocess_exec(*words, stdout=pipe, stderr=pipe, cwd=CLIENTS)
        printed, errors = await asyncio.wait_for(process.communicate(), PATIENCE_S)
        assert process.returncode == 0, errors.decode()
        return json.loads(printed)


@asynccontextmanager
async def desk(folder: Path) -> AsyncGenerator[Desk]:
    port = free_port()
    async with ToyIssuer(path="/tenant").running() as issuer, McpUpstream(issuer).running() as upstream:
        issuer.switches.asks = True
        catalog = Catalog("desk")
        connections = connections_in(folder / "connections.db", public_url=f"http://127.0.0.1:{port}")
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

        store = KeyStore(folder / "keys.db")
        key = store.add("ann")[0]
        catalog.identity = IdentityRules(key_store=folder / "keys.db", map=(rule(key="ann", user="ann"),))
        async with served(http_app(catalog), port=port) as url:
            yield Desk(url, key, issuer)


async def test_a_call_its_link_our_page_the_issuer_and_the_same_call_answers(tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []
    visits: list[asyncio.Task[None]] = []
    async with desk(tmp_path) as place:

        async def visit(link: str) -> None:
            seen.append(await place.browsed(link))

        async def answer(context: Any, params: Any) -> ElicitResult:
            assert context is not None
            visits.append(asyncio.create_task(visit(params.url)))
            return ElicitResult(action="accept")

        async with (
            httpx2.AsyncClient(headers=bearer(place.key), timeout=PATIENCE_S) as http,
            Client(
                streamable_http_client(f"{place.url}/mcp", http_client=http),
                mode="2026-07-28",
                elicitation_callback=answer,
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


async def test_claude_code_gets_the_link_as_text_and_its_next_call_answers(tmp_path: Path) -> None:
    outcomes, pages = list[str](), list[dict[str, Any]]()
    async with desk(tmp_path) as place:
        loop = asyncio.get_running_loop()

        def answer(request: ModelRequest) -> Any:
            if not request.tools:
                return "done"
            outcomes[:] = [outcome.text for message in request.messages for outcome in message.outcomes]
            if len(outcomes) == 1 and (
                link := re.search(r"http://127\.0\.0\.1:\d+/connections/[\w./?=&-]+", outcomes[0])
            ):
                visit = asyncio.run_coroutine_threadsafe(place.browsed(link[0].rstrip(".")), loop)
                pages.append(visit.result(PATIENCE_S))
            return [CallsTool("mcp__desk__whoami")] if len(outcomes) < 2 else "done"

        # Its program, as it also lies in the wheel of `claude-agent-sdk`.
        (program,) = CLIENTS.glob("node_modules/@anthropic-ai/claude-code-*/claude")
        config = tmp_path / "mcp.json"
        entry = {"type": "http", "url": f"{place.url}/mcp", "headers": bearer(place.key)}
        config.write_text(json.dumps({"mcpServers": {"desk": entry}}))
        with ModelServer(answer) as model:
            env = {**os.environ, "HOME": str(tmp_path), "ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "sk-x",
                   "ENABLE_TOOL_SEARCH": "false", "DISABLE_AUTOUPDATER": "1",
                   "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}  # fmt: skip
            process = await asyncio.create_subprocess_exec(
                program, "-p", "Who am I?", "--mcp-config", str(config), "--strict-mcp-config",
                "--allowedTools", "mcp__desk__whoami", "--output-format", "json",
                cwd=tmp_path, env=env, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            )  # fmt: skip
            out, _ = await asyncio.wait_for(process.communicate(), 4 * PATIENCE_S)
    assert (process.returncode, json.loads(out)["result"]) == (0, "done"), out
    assert [page["done"] for page in pages] == ["Connected"], outcomes
    assert outcomes[-1] == "You are ann.", outcomes
