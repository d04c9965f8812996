"""The page at which a person connects an account: it asks first, and a link that went elsewhere connects nobody."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from pegboard import Catalog, http_app
from pegboard.auth.keys import KeyStore
from pegboard.auth.rules import IdentityRules
from pegboard.connections.connection_records import Person
from pegboard.connections.connections import Connections
from pegboard.connections.limits import FLOW_S
from tests.auth.parts import bearer, rule
from tests.connections.agreeing import PUBLIC_URL, connections_in, settings_of
from tests.connections.browser import Browser
from tests.connections.toy_issuer import ToyIssuer
from tests.connections.toy_upstreams import McpUpstream

ANN, BOB = Person(user_id="ann"), Person(user_id="bob")


@dataclass
class Place:
    """A server with people who have keys, and a source that each may connect to."""

    app: Any
    issuer: ToyIssuer
    connections: Connections
    keys: dict[str, str]

    async def link(self, person: Person = ANN) -> str:
        return (await self.connections.begin(person, "mail")).url

    async def connected(self) -> list[tuple[str, str]]:
        """Return who is connected, with whose account at the issuer."""
        made: list[tuple[str, str]] = []
        for each in await self.connections.listed():
            token = await self.connections.token(each.person, each.source)
            known = self.issuer.good(token.value.reveal())
            made.append((each.person.user_id, "" if known is None else known.user))
        return made


@asynccontextmanager
async def place(folder: Path, *, has_keys: bool = True, console: bool = False) -> AsyncGenerator[Place]:
    async with ToyIssuer(path="/tenant").running() as issuer, McpUpstream(issuer).running() as upstream:
        catalog, connections = Catalog("desk"), connections_in(folder / "connections.db")
        connections.add(settings_of(issuer, upstream))
        catalog.connections = connections
        keys: dict[str, str] = {}
        if has_keys:
            store = KeyStore(folder / "keys.db")
            keys = {name: store.add(name)[0] for name in ("ann", "bob", "robot", "operator")}
            rules = (*(rule(key=name, user=name) for name in ("ann", "bob")), rule(key="robot"),
                     rule(key="operator", roles=("operator",)))  # fmt: skip
            catalog.identity = IdentityRules(key_store=folder / "keys.db", map=rules)
        app = http_app(catalog, console=console)
        async with app.router.lifespan_context(app):
            yield Place(app, issuer, connections, keys)


async def test_a_person_reads_what_will_be_connected_agrees_and_is_connected(tmp_path: Path) -> None:
    async with place(tmp_path) as here, Browser(here.app) as browser:
        page = await browser.go(await here.link())
        assert page.status_code == 200
        for word in ("<b>ann</b>", "mail", here.issuer.url, "read, offline_access"):
            assert word in page.text
        assert here.issuer.hits["authorize"] == 0
        done = await browser.press(page, "connect", key=here.keys["ann"])
        assert (done.status_code, "<h1>Connected</h1>" in done.text) == (200, True)
        assert "Back to the console" not in done.text  # this server has none
        assert await here.connected() == [("ann", "ann")]
        assert not any(secret in done.text for secret in here.issuer.secrets)


async def test_a_connected_person_finds_the_way_back_to_the_console(tmp_path: Path) -> None:
    async with place(tmp_path, console=True) as here, Browser(here.app) as browser:
        done = await browser.press(await browser.go(await here.link()), "connect", key=here.keys["ann"])
        back = f'<a href="{urlsplit(PUBLIC_URL).path}/console/connections">Back to the console</a>'
        assert ("<h1>Connected</h1>" in done.text, back in done.text) == (True, True)


async def test_the_page_has_no_script_is_framed_by_nobody_and_keeps_its_cookie_to_itself(tmp_path: Path) -> None:
    async with place(tmp_path) as here, Browser(here.app) as browser:
        page = await browser.go(await here.link())
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "script" not in page.text + policy
        assert page.headers["cache-control"] == "no-store"
        cookie = page.headers["set-cookie"].lower()
        assert all(word in cookie for word in ("httponly", "samesite=lax", "path=/connections", "max-age=600"))
        assert page.headers["referrer-policy"] == "same-origin"


async def test_over_https_no_neighbouring_host_can_set_the_cookie(tmp_path: Path) -> None:
    async with place(tmp_path, has_keys=False) as here, Browser(here.app) as browser:
        here.connections.public_url = "https://127.0.0.1:8420"
        page = await browser.go((await here.link()).replace("https://127.0.0.1:8420", PUBLIC_URL))
        [cookie] = page.headers.get_list("set-cookie")
        name, _, attributes = cookie.lower().partition("=")
        assert (name, "secure" in attributes, "; path=/;" in attributes) == ("__host-pegboard_connect", True, True)
        assert "domain" not in attributes
        # The name that a neighbour could set counts for nothing.
        browser.ours.cookies.clear()
        browser.ours.cookies.set("pegboard_connect", cookie.partition("=")[2].partition(";")[0])
        assert "did not send the cookie" in (await browser.send(page, "connect")).text


async def test_a_no_uses_up_the_link_and_sends_nobody_to_the_issuer(tmp_path: Path) -> None:
    async with place(tmp_path) as here, Browser(here.app) as browser:
        link = await here.link()
        answer = await browser.press(await browser.go(link), "no", key=here.keys["ann"])
        assert "Nothing was connected" in answer.text
        assert (await browser.go(link)).status_code == 404
        assert here.issuer.hits["authorize"] == 0


@pytest.mark.parametrize("key", ["bob", "robot", "", "wrong"])
async def test_a_stolen_link_connects_nobody_without_the_key_of_its_person(
    key: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with place(tmp_path) as here, Browser(here.app) as thief:
        here.issuer.user = "bob"
        answer = await thief.press(await thief.go(await here.link()), "connect", key=here.keys.get(key, key))
        assert answer.status_code in (401, 403)
        assert here.issuer.hits["authorize"] == 0
        assert await here.connected() == []
        assert "connect_refused" in caplog.text
        assert not any(each in caplog.text for each in here.keys.values())


async def test_a_login_in_front_of_the_page_needs_no_key_and_must_be_the_person_of_the_link(tmp_path: Path) -> None:
    async with place(tmp_path) as here:
        link = await here.link()
        async with Browser(here.app, bearer(here.keys["bob"])) as bob:
            page = await bob.go(link)
            assert (page.status_code, "you are &#x27;bob&#x27;" in page.text) == (403, True)
        async with Browser(here.app, bearer(here.keys["ann"])) as ann:
            page = await ann.go(link)
            assert 'name="key"' not in page.text
            assert (await ann.press(page, "connect")).status_code == 200
        assert await here.connected() == [("ann", "ann")]


async def test_another_browser_can_neither_agree_nor_finish_after_one_has_agreed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with place(tmp_path, has_keys=False) as here, Browser(here.app) as own, Browser(here.app) as other:
        link = await here.link()
        page, second = await own.go(link), await other.go(link)
        onward = await own.send(page, "connect")
        assert onward.status_code == 200
        refused = await other.send(second, "connect")
        assert (refused.status_code, "another browser" in refused.text) == (403, True)
        # The issuer's answer, in a browser that did not agree: with a cookie of its own, and without any.
        start = onward.text.partition('content="0;url=')[2].partition('"')[0].replace("&amp;", "&")
        back = (await own.elsewhere.get(start)).headers["location"]
        async with Browser(here.app) as third:
            for thief in (other, third):
                stolen = await thief.go(back)
                assert stolen.status_code == 403
                assert "browser" in stolen.text
        assert caplog.text.count("connect_refused: ") == 3
        assert await here.connected() == []
        assert (await own.go(back)).status_code == 200
        assert await here.connected() == [("ann", "ann")]


async def test_a_code_and_a_link_work_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with place(tmp_path, has_keys=False) as here, Browser(here.app) as browser:
        link = await here.link()
        done = await browser.press(await browser.go(link), "connect")
        assert done.status_code == 200
        for url in (link, str(done.url)):
            again = await browser.go(url)
            assert (again.status_code, "ask for a new link" in again.text) == (404, True)
        assert here.issuer.hits["replayed code"] == 0
        assert caplog.text.count("connect_refused") == 2


@pytest.mark.parametrize("iss", ["https://evil.example", None])
async def test_an_answer_of_another_issuer_is_refused_in_plain_words(
    iss: str | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with place(tmp_path, has_keys=False) as here, Browser(here.app) as browser:
        here.issuer.switches.sends_iss = iss
        answer = await browser.press(await browser.go(await here.link()), "connect")
        assert (answer.status_code, "Somebody may have tried" in answer.text) == (403, True)
        assert here.issuer.hits["token"] == 0
        assert "connect_refused: issuer_changed" in caplog.text


async def test_an_issuer_whose_metadata_name_another_is_refused_before_anybody_goes_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with place(tmp_path, has_keys=False) as here, Browser(here.app) as browser:
        here.issuer.switches.says_issuer = "https://evil.example"
        page = await browser.go(await here.link())
        assert page.status_code in (403, 502)
        assert "<h1>Not connected</h1>" in page.text
        assert here.issuer.hits["authorize"] == 0
        [refusal] = [line for line in caplog.messages if line.startswith("connect_refused: ")]
        assert "are those of 'https://evil.example'" in refusal


async def test_a_person_who_says_no_at_the_issuer_reads_that_nothing_was_connected(tmp_path: Path) -> None:
    async with place(tmp_path, has_keys=False) as here, Browser(here.app) as browser:
        here.issuer.switches.asks = True
        at_issuer = await browser.press(await browser.go(await here.link()), "connect")
        words = {name: values[0] for name, values in parse_qs(urlsplit(str(at_issuer.url)).query).items()}
        back = await browser.elsewhere.post(f"{here.issuer.url}/authorize", data={**words, "who": ""})
        answer = await browser.go(back.headers["location"])
        assert (answer.status_code, "access_denied" in answer.text) == (403, True)
        assert await here.connected() == []


async def test_a_form_of_another_page_or_without_the_cookie_is_refused(tmp_path: Path) -> None:
    async with place(tmp_path, has_keys=False) as here, Browser(here.app) as browser:
        link = await here.link()
        page = await browser.go(link)
        cases: list[dict[str, str]] = [
            {"sec-fetch-site": "cross-site"},
            {"sec-fetch-site": "same-site"},
            {"sec-fetch-site": "same-origin", "cookie": ""},
        ]
        for heads in cases:
            forged = await browser.ours.post(link, data={"answer": "connect", "check": "0" * 64}, headers=heads)
            assert forged.status_code == 403
        assert here.issuer.hits["authorize"] == 0
        assert (await browser.send(page, "connect")).status_code == 200


async def test_the_metadata_document_of_the_client_names_its_own_address_and_the_way_back(tmp_path: Path) -> None:
    async with place(tmp_path) as here, Browser(here.app) as browser:
        document = await browser.ours.get("/.well-known/pegboard-client.json")
        assert document.json()["client_id"] == f"{PUBLIC_URL}/.well-known/pegboard-client.json"
        assert document.json()["redirect_uris"] == [f"{PUBLIC_URL}/connections/callback"]
    app = http_app(Catalog("desk"))
    async with app.router.lifespan_context(app), Browser(app) as browser:
        assert (await browser.ours.get("/.well-known/pegboard-client.json")).status_code == 404
        assert (await browser.ours.get("/connections/some-ticket")).status_code == 404


async def test_people_list_and_end_their_own_connections_and_operators_everybodys(tmp_path: Path) -> None:
    async with place(tmp_path) as here, Browser(here.app) as browser:
        heads = {name: bearer(key) for name, key in here.keys.items()}
        ids: dict[str, str] = {}
        for name in ("ann", "bob"):
            begun = await browser.ours.post("/v1/connections", json={"source": "mail"}, headers=heads[name])
            assert begun.status_code == 201
            here.issuer.user = name
            await browser.press(await browser.go(begun.json()["url"]), "connect", key=here.keys[name])
            listed = (await browser.ours.get("/v1/connections", headers=heads[name])).json()
            assert [(one["user"], one["source"], one["state"]) for one in listed["connections"]] == [
                (name, "mail", "connected")
            ]
            assert listed["sources"] == [{"source": "mail", "connected": True}]
            ids[name] = listed["connections"][0]["id"]
        for_operator = await browser.ours.get("/v1/connections", headers=heads["operator"])
        assert {one["user"] for one in for_operator.json()["connections"]} == {"ann", "bob"}
        assert not any(secret in for_operator.text for secret in here.issuer.secrets)
        of_bob = f"/v1/connections/{ids['bob']}"
        for stranger, status in (("ann", 404), ("robot", 404)):
            assert (await browser.ours.get(of_bob, headers=heads[stranger])).status_code == status
            assert (await browser.ours.delete(of_bob, headers=heads[stranger])).status_code == status
        assert (await browser.ours.get("/v1/connections?user=bob", headers=heads["ann"])).status_code == 404
        ended = await browser.ours.delete(of_bob, headers=heads["operator"])
        assert (ended.json()["state"], ended.json()["revoked"]) == ("disconnected", True)
        assert await here.connected() == [("ann", "ann")]
        assert [token.user for token in here.issuer.tokens if token.is_good] == ["ann"]


async def test_begin_names_what_is_wrong(tmp_path: Path) -> None:
    async with place(tmp_path) as here, Browser(here.app) as browser:
        heads = {name: bearer(key) for name, key in here.keys.items()}

        async def status(who: str, body: object) -> int:
            return (await browser.ours.post("/v1/connections", json=body, headers=heads[who])).status_code

        assert await status("ann", {"source": "nothing"}) == 404
        assert await status("ann", {"source": 7}) == 422
        assert await status("ann", {"source": "mail", "user": "bob"}) == 422
        assert await status("operator", {"source": "mail"}) == 403
        assert await status("robot", {"source": "mail"}) == 404


async def test_pages_write_what_others_named_as_text(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    person = Person(user_id="<script>alert(1)</script>\u202e", space_id="<b>")
    async with place(tmp_path, has_keys=False) as here, Browser(here.app) as browser:
        page = await browser.go(await here.link(person))
        assert "<script" not in page.text
        assert "<b></b>" not in page.text
        assert ("\u202e" in page.text, "\\u202e" in page.text) == (False, True)
        here.issuer.switches.sends_iss = "<script>alert(2)</script>"
        assert "<script" not in (await browser.press(page, "connect")).text


async def test_the_inbox_has_an_account_to_connect_for_its_person_until_it_is_connected(tmp_path: Path) -> None:
    async with place(tmp_path) as here, Browser(here.app) as browser:
        heads = {name: bearer(key) for name, key in here.keys.items()}

        async def waiting(who: str) -> list[dict[str, Any]]:
            return (await browser.ours.get("/v1/consents", headers=heads[who])).json()["connections"]

        assert await waiting("ann") == []
        required = await here.connections.required(ANN, "mail")
        [entry] = await waiting("ann")
        assert (entry["source"], entry["user"], entry["url"]) == ("mail", "ann", required.error.details["url"])
        # A second call waits at the same entry.
        await here.connections.required(ANN, "mail")
        assert await waiting("ann") == [entry]
        for other in ("bob", "robot", "operator"):
            assert await waiting(other) == []
        await browser.press(await browser.go(entry["url"]), "connect", key=here.keys["ann"])
        assert await waiting("ann") == []
        assert await here.connected() == [("ann", "ann")]


async def test_an_entry_of_the_inbox_goes_when_it_expires_or_is_declined(tmp_path: Path) -> None:
    async with place(tmp_path) as here, Browser(here.app) as browser:
        link = await here.link()
        await browser.press(await browser.go(link), "no", key=here.keys["ann"])
        assert await here.connections.awaited(ANN) == []
        await here.link()
        assert [each.source for each in await here.connections.awaited()] == ["mail"]
        here.connections._store._clock = lambda: time.time() + FLOW_S + 1  # pyright: ignore[reportPrivateUsage]
        assert await here.connections.awaited() == []
        # The address of a command on loopback is nobody's to open.
        here.connections._store._clock = None  # pyright: ignore[reportPrivateUsage]
        await here.connections.begin(BOB, "mail", redirect_uri="http://127.0.0.1:1/back")
        assert [each.person for each in await here.connections.awaited()] == [ANN]


async def test_a_link_expires_after_ten_minutes_at_each_of_its_steps(tmp_path: Path) -> None:
    now = 1_800_000_000.0
    async with place(tmp_path, has_keys=False) as here, Browser(here.app) as browser:
        here.connections._store._clock = lambda: now  # pyright: ignore[reportPrivateUsage]
        for steps in range(3):
            link = await here.link()
            now += 599.0
            page = await browser.go(link)
            assert page.status_code == 200
            if steps == 1:
                onward = await browser.send(page, "connect")
                start = onward.text.partition('content="0;url=')[2].partition('"')[0].replace("&amp;", "&")
                link = (await browser.elsewhere.get(start)).headers["location"]
            now += 1.0
            late = await browser.send(page, "connect") if steps == 2 else await browser.go(link)
            assert (late.status_code, "older than ten minutes" in late.text) == (404, True)
        assert (here.issuer.hits["authorize"], here.issuer.hits["token"]) == (1, 0)
        assert (await browser.press(await browser.go(await here.link()), "connect")).status_code == 200
        assert await here.connected() == [("ann", "ann")]


async def test_an_answer_that_comes_to_another_address_connects_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with place(tmp_path, has_keys=False) as here, Browser(here.app) as browser:
        onward = await browser.send(await browser.go(await here.link()), "connect")
        start = onward.text.partition('content="0;url=')[2].partition('"')[0].replace("&amp;", "&")
        back = (await browser.elsewhere.get(start)).headers["location"]
        here.connections.public_url = "http://other.example"
        answer = await browser.go(back)
        assert answer.status_code == 403
        assert "you came to &#x27;http://other.example/connections/callback&#x27;" in answer.text
        assert "connect_refused: redirect_changed" in caplog.text
        assert here.issuer.hits["token"] == 0
        here.connections.public_url = PUBLIC_URL
        assert (await browser.go(back)).status_code == 404, "the attempt has used up the link"
        assert await here.connected() == []


async def test_the_issuer_sends_nobody_to_an_address_that_was_put_into_the_link(tmp_path: Path) -> None:
    async with place(tmp_path, has_keys=False) as here, Browser(here.app) as browser:
        onward = await browser.send(await browser.go(await here.link()), "connect")
        start = onward.text.partition('content="0;url=')[2].partition('"')[0].replace("&amp;", "&")
        other_port = start.replace("8420", "8421")
        assert other_port != start
        answer = await browser.elsewhere.get(other_port)
        assert (answer.status_code, "location" in answer.headers) == (400, False)
        assert await here.connected() == []
