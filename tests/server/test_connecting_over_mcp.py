"""A call that needs an account: its person gets a page to open, agrees there, and the same call answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitCompleteNotification, ElicitResult

from pegboard import CallContext, Catalog, http_app
from pegboard.auth.keys import KeyStore
from pegboard.auth.rules import IdentityRules
from pegboard.connections.connection_records import Person, person_of
from pegboard.connections.connections import Connections
from pegboard.connections.upstream_credentials import PersonalCredentials
from pegboard.sources.mcp.personal_source import PersonalMcpSource
from pegboard.sources.mcp.server_settings import ServerSettings
from tests.auth.parts import bearer, rule
from tests.connections.agreeing import connections_in, settings_of
from tests.connections.browser import Browser
from tests.connections.toy_issuer import ToyIssuer
from tests.connections.toy_upstreams import McpUpstream, mail_of
from tests.server.doors import served
from tests.timing import PATIENCE_S

Answer = Any  # of a context and parameters, an `ElicitResult`; the SDK's type also names the two


@dataclass
class Desk:
    app: Any
    url: str
    keys: dict[str, str]
    issuer: ToyIssuer
    upstream: McpUpstream
    connections: Connections

    @asynccontextmanager
    async def client(self, who: str, era: Any, answer: Answer | None, on_message: Any = None) -> AsyncGenerator[Client]:
        async with (
            httpx2.AsyncClient(headers=bearer(self.keys[who]), timeout=60) as http,
            Client(
                streamable_http_client(f"{self.url}/mcp", http_client=http),
                mode=era,
                elicitation_callback=answer,
                message_handler=on_message,
            ) as client,
        ):
            yield client

    async def connect(self, who: str, url: str, *, answer: str = "connect") -> None:
        """Do as a person does with a link."""
        self.issuer.user = who
        async with Browser(self.app) as browser:
            page = await browser.press(await browser.go(url), answer, key=self.keys[who])
            assert page.status_code == 200, page.text


@asynccontextmanager
async def desk(folder: Path) -> AsyncGenerator[Desk]:
    async with ToyIssuer(path="/tenant").running() as issuer, McpUpstream(issuer).running() as upstream:
        catalog, connections = Catalog("desk"), connections_in(folder / "connections.db")
        catalog.connections = connections
        settings = ServerSettings(name="mail", transport="http", url=upstream.resource)
        credentials = PersonalCredentials(connections, settings_of(issuer, upstream))
        catalog.add_source(PersonalMcpSource(settings, credentials=credentials))

        @catalog.tool
        async def whoami(ctx: CallContext) -> str:
            """Say whose account this is."""
            person = person_of(ctx.caller)
            if person is None:
                raise await connections.required(None, "mail")
            token = await connections.token(person, "mail")
            known = issuer.good(token.value.reveal())
            return f"You are {'nobody' if known is None else known.user}."

        store = KeyStore(folder / "keys.db")
        keys = {name: store.add(name)[0] for name in ("ann", "bob")}
        catalog.identity = IdentityRules(
            key_store=folder / "keys.db", map=tuple(rule(key=name, user=name) for name in keys)
        )
        app = http_app(catalog)
        async with served(app) as url:
            yield Desk(app, url, keys, issuer, upstream, connections)


async def test_the_same_call_answers_once_its_person_has_agreed_at_the_page(tmp_path: Path) -> None:
    async with desk(tmp_path) as here:
        asked: list[Any] = []
        visits: list[asyncio.Task[None]] = []

        async def answer(_context: Any, params: Any) -> ElicitResult:
            asked.append(params)
            # As a client does: it opens the browser, and says so at once. The person is slower.
            visits.append(asyncio.create_task(here.connect("ann", params.url)))
            return ElicitResult(action="accept")

        async with here.client("ann", "2026-07-28", answer) as client:
            result = await client.call_tool("whoami", {})
            assert result.content[0].text == "You are ann."  # type: ignore[union-attr]
            assert [params.mode for params in asked] == ["url"]
            assert "'mail'" in asked[0].message
            again = await client.call_tool("whoami", {})
            assert again.content[0].text == "You are ann."  # type: ignore[union-attr]
        assert len(asked) == 1
        await asyncio.gather(*visits)


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_person_who_does_not_open_the_page_is_not_asked_again_in_the_call(action: Any, tmp_path: Path) -> None:
    async with desk(tmp_path) as here:
        asked: list[Any] = []

        async def answer(_context: Any, params: Any) -> ElicitResult:
            asked.append(params)
            return ElicitResult(action=action)

        async with here.client("ann", "2026-07-28", answer) as client:
            result = await client.call_tool("whoami", {})
        assert result.is_error
        assert (result.meta or {})["pegboard/error"]["kind"] == "connection_required"
        assert len(asked) == 1


async def test_a_person_who_says_no_at_the_page_ends_the_wait(tmp_path: Path) -> None:
    async with desk(tmp_path) as here:
        asked: list[Any] = []
        visits: list[asyncio.Task[None]] = []

        async def answer(_context: Any, params: Any) -> ElicitResult:
            asked.append(params)
            if len(asked) > 1:
                return ElicitResult(action="decline")
            visits.append(asyncio.create_task(here.connect("ann", params.url, answer="no")))
            return ElicitResult(action="accept")

        async with here.client("ann", "2026-07-28", answer) as client:
            result = await client.call_tool("whoami", {})
        await asyncio.gather(*visits)
        assert result.is_error
        assert len({params.url for params in asked}) == 2


async def test_an_earlier_client_gets_the_page_with_the_error_that_its_revision_has_for_it(tmp_path: Path) -> None:
    async with desk(tmp_path) as here:

        async def answer(_context: Any, _params: Any) -> ElicitResult:
            raise AssertionError("the error has the page already")

        async with here.client("ann", "legacy", answer) as client:
            with pytest.raises(MCPError) as refused:
                await client.call_tool("whoami", {})
            assert refused.value.error.code == -32042
            [asked] = refused.value.error.data["elicitations"]
            assert (asked["mode"], bool(asked["elicitationId"]), bool(asked["message"])) == ("url", True, True)
            await here.connect("ann", asked["url"])
            result = await client.call_tool("whoami", {})
            assert result.content[0].text == "You are ann."  # type: ignore[union-attr]


async def test_an_earlier_client_is_told_once_when_its_own_user_has_connected(tmp_path: Path) -> None:
    async with desk(tmp_path) as here:
        told = dict[str, list[str]](ann=[], bob=[])
        is_told = asyncio.Event()

        async def answer(_context: Any, _params: Any) -> ElicitResult:
            raise AssertionError("the error has the page already")

        def listening(who: str) -> Any:
            async def on_message(message: Any) -> None:
                if isinstance(message, ElicitCompleteNotification):
                    told[who].append(message.params.elicitation_id)
                    is_told.set()

            return on_message

        async with (
            here.client("ann", "legacy", answer, listening("ann")) as ann,
            here.client("bob", "legacy", answer, listening("bob")) as bob,
        ):
            asked = dict[str, Any]()
            for who, client in (("ann", ann), ("ann", ann), ("bob", bob)):
                with pytest.raises(MCPError) as refused:
                    await client.call_tool("whoami", {})
                [asked[who]] = refused.value.error.data["elicitations"]
            for who in ("bob", "ann"):
                is_told.clear()
                await here.connect(who, asked[who]["url"])
                async with asyncio.timeout(PATIENCE_S):
                    await is_told.wait()
        assert told == {who: [asked[who]["elicitationId"]] for who in ("ann", "bob")}


@pytest.mark.parametrize("era", ["2026-07-28", "legacy"])
async def test_a_client_that_opens_no_pages_reads_the_link_in_the_refusal(era: Any, tmp_path: Path) -> None:
    async with desk(tmp_path) as here, here.client("bob", era, None) as client:
        refused = await client.call_tool("whoami", {})
        shown = (refused.meta or {})["pegboard/error"]
        assert shown["kind"] == "connection_required"
        link = shown["details"]["url"]
        assert link in refused.content[0].text  # type: ignore[union-attr]
        await here.connect("bob", link)
        result = await client.call_tool("whoami", {})
        assert result.content[0].text == "You are bob."  # type: ignore[union-attr]


async def test_plain_http_answers_with_the_link_and_then_with_the_result(tmp_path: Path) -> None:
    async with desk(tmp_path) as here, httpx2.AsyncClient(base_url=here.url, headers=bearer(here.keys["ann"])) as http:
        refused = await http.post("/v1/tools/whoami/call", json={})
        assert (refused.status_code, refused.json()["kind"]) == (403, "connection_required")
        await here.connect("ann", refused.json()["details"]["url"])
        assert "You are ann." in (await http.post("/v1/tools/whoami/call", json={})).text


async def test_a_person_whose_key_is_rotated_stays_connected(tmp_path: Path) -> None:
    async with desk(tmp_path) as here, httpx2.AsyncClient(base_url=here.url) as http:
        await here.connect("ann", (await here.connections.begin(Person(user_id="ann"), "mail")).url)

        async def answered(key: str) -> tuple[int, bool]:
            answer = await http.post("/v1/tools/whoami/call", json={}, headers=bearer(key))
            return answer.status_code, "You are ann." in answer.text

        assert await answered(here.keys["ann"]) == (200, True)
        rotated, _ = KeyStore(tmp_path / "keys.db").rotate("ann", overlap_s=0)
        async with asyncio.timeout(PATIENCE_S):
            while (await answered(here.keys["ann"]))[0] != 401:
                await asyncio.sleep(0.02)
        assert await answered(rotated) == (200, True)
        listed = (await http.get("/v1/connections", headers=bearer(rotated))).json()["connections"]
        assert [(one["user"], one["state"]) for one in listed] == [("ann", "connected")]


async def test_two_people_connect_a_server_at_its_own_tool_and_read_their_own_mail(tmp_path: Path) -> None:
    async with desk(tmp_path) as here:
        for who in ("ann", "bob"):
            visits: list[asyncio.Task[None]] = []

            async def answer(
                _context: Any, params: Any, who: str = who, visits: list[asyncio.Task[None]] = visits
            ) -> ElicitResult:
                visits.append(asyncio.create_task(here.connect(who, params.url)))
                return ElicitResult(action="accept")

            async with here.client(who, "2026-07-28", answer) as client:
                listed = await client.list_tools()
                assert {tool.name for tool in listed.tools} == {"whoami", "mail__connect"}
                # A client may keep a list so long; that of somebody who is about to connect is short-lived.
                assert listed.ttl_ms == 1_000
                connected = await client.call_tool("mail__connect", {})
                assert not connected.is_error, connected
                listed = await client.list_tools(cache_mode="refresh")
                after = {tool.name for tool in listed.tools}
                assert listed.ttl_ms is not None
                assert listed.ttl_ms > 1_000
                assert f"mail__only_for_{who}" in after
                assert not any("only_for" in name and who not in name for name in after)
                result = await client.call_tool("mail__read_mail", {})
                assert result.content[0].text == mail_of(who)  # type: ignore[union-attr]
            await asyncio.gather(*visits)
        assert here.upstream.crossed == []


async def test_a_call_that_needs_more_rights_asks_again_with_the_scopes_that_it_needs(tmp_path: Path) -> None:
    async with desk(tmp_path) as here:
        asked: list[str] = []
        visits: list[asyncio.Task[None]] = []

        async def answer(_context: Any, params: Any) -> ElicitResult:
            asked.append(params.url)
            visits.append(asyncio.create_task(here.connect("ann", params.url)))
            return ElicitResult(action="accept")

        async with here.client("ann", "2026-07-28", answer) as client:
            await client.call_tool("mail__connect", {})
            await client.list_tools()
            result = await client.call_tool("mail__write", {"text": "hello"})
            assert result.content[0].text == "You are ann."  # type: ignore[union-attr]
        await asyncio.gather(*visits)
        assert here.upstream.said == [("ann", "hello")]
        assert len(asked) == 2
        assert "write" in here.issuer.seen["authorize"][-1]["scope"].split()
