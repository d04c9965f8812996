"""Connections in the console: everybody their own accounts; operators see that others exist, and never a token."""

from __future__ import annotations

import csv
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import apsw
import pytest

from pegboard import Catalog
from pegboard.auth.rules import IdentityRules
from pegboard.connections.connection_records import Person
from pegboard.connections.connections import Connections
from pegboard.connections.upstream_credentials import PersonalCredentials
from pegboard.core.view import View
from pegboard.model.record import replace
from pegboard.sources.mcp.personal_source import PersonalMcpSource
from pegboard.sources.mcp.server_settings import ServerSettings
from tests.auth.parts import bearer, rule
from tests.connections.agreeing import connect, connections_in, settings_of
from tests.connections.toy_issuer import ToyIssuer
from tests.connections.toy_upstreams import McpUpstream
from tests.server.console.browsing import ADDRESS, Browser, console, opened, text_of
from tests.server.console.test_console_login import Office


@asynccontextmanager
async def desk(folder: Path, *, public_url: str = ADDRESS) -> AsyncGenerator[tuple[Office, Connections, ToyIssuer]]:
    """An office in which people connect to the source `mail`."""
    async with ToyIssuer(path="/tenant").running() as issuer, McpUpstream(issuer).running() as upstream:
        office, connections = Office(folder), connections_in(folder / "connections.db", public_url=public_url)
        connections.add(settings_of(issuer, upstream))
        office.catalog.connections = connections
        yield office, connections, issuer


def field_of(page: str, name: str) -> str:
    """Return the value of a hidden field."""
    return unescape(re.search(rf'name="{name}" value="([^"]+)"', page)[1])  # type: ignore[index] - it is there


async def log_in(browser: Browser, office: Office, name: str) -> None:
    if browser.page:
        await browser.get("")
        await browser.post("/logout")
    await browser.log_in(office.key[name])


async def test_a_person_begins_to_connect_and_disconnects_on_one_page(tmp_path: Path) -> None:
    async with desk(tmp_path) as (office, connections, issuer), console(office.catalog) as browser:
        await log_in(browser, office, "paul")
        assert "mail not connected" in text_of((await browser.get("/connections")).text)
        away = await browser.post("/connections/connect", source="mail")
        assert away.status_code == 303
        assert away.headers["location"].startswith(f"{ADDRESS}/connections/")
        # The page behind the link asks first; who agrees there is connected.
        made = await connect(connections, issuer, Person(user_id="paul"))
        page = (await browser.get("/connections")).text
        assert "mail connected" in text_of(page)
        assert not any(secret in page for secret in issuer.secrets)
        gone = await browser.post(f"/connections/{made.id}/disconnect")
        assert gone.headers["location"].endswith("done=revoked&of=mail")
        assert "mail not connected" in text_of((await browser.get("/connections?done=revoked&of=mail")).text)
        assert (await browser.post(f"/connections/{made.id}/disconnect")).status_code == 404
        assert (await browser.post("/connections/connect", source="none")).status_code == 404


async def test_the_page_after_connecting_has_the_tools_of_the_account_and_the_board_agrees_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lists, atools = list[View](), View.atools

    async def counted(view: View) -> Any:
        lists.append(view)
        return await atools(view)

    monkeypatch.setattr(View, "atools", counted)
    async with ToyIssuer(path="/tenant").running() as issuer, McpUpstream(issuer).running() as upstream:
        office, connections = Office(tmp_path), connections_in(tmp_path / "connections.db", public_url=ADDRESS)
        settings = ServerSettings(name="mail", transport="http", url=upstream.resource)
        credentials = PersonalCredentials(connections, settings_of(issuer, upstream))
        office.catalog.add_source(PersonalMcpSource(settings, credentials=credentials, lock=None))
        office.catalog.connections = connections
        async with console(office.catalog) as browser:
            await log_in(browser, office, "olga")
            assert "mail__connect" in text_of((await browser.get()).text)
            await connect(connections, issuer, Person(user_id="olga"))
            page = text_of((await browser.get("/connections")).text)
            assert "the service does not name the account; one of its tools may show it" in page
            tools = "mail__only_for_olga , mail__read_mail , mail__wait , mail__whoami , mail__write"
            assert f"tools {tools} logged in at" in page
            board = (await browser.get()).text
            assert ("mail__connect" in board, "mail__whoami" in board) == (True, True)
            assert 'class="peg v" href="/console/tools/mail__connect' not in board
            # Only the first page after connecting lists a second time.
            lists.clear()
            assert f"tools {tools} logged in at" in text_of((await browser.get("/connections")).text)
            assert len(lists) == 1


async def test_the_account_at_the_service_is_shown_as_its_issuer_names_it(tmp_path: Path) -> None:
    async with (
        ToyIssuer(scopes=("openid", "read")).running() as issuer, McpUpstream(issuer).running() as upstream,
    ):  # fmt: skip
        office = Office(tmp_path)
        office.catalog.connections = connections = connections_in(tmp_path / "connections.db", public_url=ADDRESS)
        connections.add(settings_of(issuer, upstream, scopes=("openid", "read")))
        issuer.switches.jwts_for, issuer.switches.account = upstream.resource, "<i>paul.home\u202e"
        made = await connect(connections, issuer, Person(user_id="paul"))
        assert made.account == "<i>paul.home\u202e"
        async with console(office.catalog) as browser:
            await log_in(browser, office, "paul")
            page = (await browser.get("/connections")).text
            assert "account <i>paul.home\\u202e logged in at" in text_of(page)
            assert "<i>paul" not in page
            listed = await browser.client.get("/v1/connections", headers=bearer(office.key["paul"]))
            assert [one["account"] for one in listed.json()["connections"]] == [made.account]
            await log_in(browser, office, "olga")
            assert "mail as <i>paul.home\\u202e" in text_of((await browser.get("/connections")).text)
            # A file from before names were kept loses nothing.
            with apsw.Connection(str(tmp_path / "connections.db")) as earlier:
                earlier.execute("alter table connections drop column account")
                earlier.execute("update pegboard_schema_versions set version = 1 where store = 'connections'")
            [kept] = await connections_in(tmp_path / "connections.db").listed()
            assert replace(kept, account=made.account) == made


async def test_the_page_that_asks_knows_who_came_from_the_console_and_asks_others_for_their_key(tmp_path: Path) -> None:
    async with desk(tmp_path) as (office, connections, issuer), console(office.catalog) as browser:
        await log_in(browser, office, "paul")
        await browser.get("/connections")
        link = (await browser.post("/connections/connect", source="mail")).headers["location"]
        page = await browser.client.get(link)
        assert "Connect mail?" in page.text
        assert 'name="key"' not in page.text
        # The cookie counts for this link alone, and in the browser that made it.
        theirs = await connections.begin(Person(user_id="olga"), "mail")
        assert 'name="key"' in (await browser.client.get(theirs.url)).text
        async with opened(browser.client._transport.app) as other:  # type: ignore[attr-defined] - the same server
            stolen = await other.client.get(link)
            assert 'name="key"' in stolen.text
            form = {"check": field_of(stolen.text, "check"), "answer": "connect"}
            refused = await other.client.post(link, data=form, headers={"origin": ADDRESS})
            assert (refused.status_code, "Enter your key first" in refused.text) == (401, True)
        # A log-in as somebody else does not help with a link of this person.
        form = {"check": field_of(page.text, "check"), "answer": "connect"}
        away = await browser.client.post(link, data=form, headers={"origin": ADDRESS})
        assert (away.status_code, urlsplit(issuer.url).netloc in away.text) == (200, True)
        assert await connections.listed() == []


async def test_nobody_sees_or_ends_a_connection_of_somebody_else_but_operators(tmp_path: Path) -> None:
    async with desk(tmp_path) as (office, connections, issuer), console(office.catalog) as browser:
        made = await connect(connections, issuer, Person(user_id="olga"))
        await log_in(browser, office, "paul")
        assert "olga" not in (await browser.get("/connections")).text
        assert (await browser.post(f"/connections/{made.id}/disconnect")).status_code == 404
        other = await connect(connections, issuer, Person(user_id="paul"))
        await log_in(browser, office, "olga")
        # Looking through somebody's eyes changes nothing here.
        for path in ("/connections", "/connections?user=paul"):
            page = (await browser.get(path)).text
            assert "Of other people" in page
            assert "paul mail read, offline_access connected" in text_of(page)
            assert not any(secret in page for secret in issuer.secrets)
        assert (await browser.post(f"/connections/{other.id}/disconnect")).status_code == 303
        assert [one.person.user_id for one in await connections.listed()] == ["olga"]


async def test_the_rows_of_a_page_are_files_that_no_spreadsheet_runs_and_with_the_rights_of_the_page(
    tmp_path: Path,
) -> None:
    async with desk(tmp_path) as (office, connections, issuer), console(office.catalog) as browser:
        for name in ('=1+1,"x', "paul"):
            await connect(connections, issuer, Person(user_id=name))
        await log_in(browser, office, "olga")
        page = (await browser.get("/connections")).text
        json_path, csv_path = re.findall(r'href="/console(/connections[?]format=[a-z]+)"', page)
        table = await browser.get(csv_path)
        assert (table.headers["content-type"], table.headers["content-disposition"]) == (
            "text/csv; charset=utf-8", 'attachment; filename="connections.csv"',
        )  # fmt: skip
        assert table.headers["content-security-policy"].startswith("default-src 'none'")
        rows = list(csv.DictReader(table.text.splitlines()))
        assert {row["person"] for row in rows} == {"paul", "'=1+1,\"x"}
        listed = (await browser.get(json_path)).json()
        assert {row["person"] for row in listed} == {"paul", '=1+1,"x'}
        assert not any(secret in table.text for secret in issuer.secrets)
        assert (await browser.get("/matrix?format=csv")).text.startswith("tool,namespace,")
        assert (await browser.get("/connections?format=exe")).status_code == 404
        # A person gets their own rows, whoever they look through, and none of the pages for operators.
        await log_in(browser, office, "paul")
        for path in ("/connections?format=csv", "/connections?format=json&user=olga&role=operator"):
            own = (await browser.get(path)).text
            assert ("paul" in own, "=1+1" in own) == (True, False)
        for path in ("/matrix", "/audit"):
            assert (await browser.get(f"{path}?format=csv")).status_code == 404
        await browser.get("")
        await browser.post("/logout")
        assert (await browser.get("/connections?format=csv")).status_code == 303


async def test_a_link_at_another_address_is_shown_instead_of_followed(tmp_path: Path) -> None:
    async with desk(tmp_path, public_url="https://tools.example.com") as (office, _, _), console(office.catalog) as one:
        await log_in(one, office, "paul")
        await one.get("/connections")
        answer = await one.post("/connections/connect", source="mail")
        assert answer.status_code == 200
        assert 'href="https://tools.example.com/connections/' in answer.text


async def test_a_server_without_a_public_address_says_why_it_connects_nobody(tmp_path: Path) -> None:
    async with desk(tmp_path) as (office, connections, _), console(office.catalog) as browser:
        connections.public_url = None
        await log_in(browser, office, "paul")
        await browser.get("/connections")
        answer = await browser.post("/connections/connect", source="mail")
        assert (answer.status_code, "no `public_url`" in answer.text) == (422, True)


async def test_the_page_says_what_to_do_where_nobody_connects(tmp_path: Path) -> None:
    async with console(Catalog("bare")) as browser:
        await browser.log_in()
        assert "auth: {mode: user}" in (await browser.get("/connections")).text
        assert (await browser.post("/connections/connect", source="mail")).status_code == 403
    async with desk(tmp_path) as (office, _, _), console(office.catalog) as browser:
        rules = (rule(key="olga", roles=("operator",), profiles=("desk",)), rule(key="paul", profiles=("desk",)))
        office.catalog.identity = IdentityRules(key_store=office.keys.path, map=rules)
        for name, words in (("olga", "Nobody has connected an account yet"), ("paul", "your credential names none")):
            await log_in(browser, office, name)
            assert words in text_of((await browser.get("/connections")).text)
            assert (await browser.post("/connections/connect", source="mail")).status_code == 403
