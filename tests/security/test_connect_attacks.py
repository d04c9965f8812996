"""Attacks on connecting an account, at two workers with one store, as somebody with an HTTP client tries them."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx2
import pytest

from pegboard import http_app, load_catalog
from pegboard.auth.keys import KeyStore
from tests.auth.parts import bearer
from tests.connections.toy_issuer import ToyIssuer
from tests.connections.toy_upstreams import ApiUpstream, McpUpstream

PUBLIC = "http://127.0.0.1:8420"
ENV = {"CONNECTIONS_KEY": "a-key-of-connections-that-is-long-enough-0123456789"}


@dataclass
class Target:
    """A server, its issuer, and an issuer that an attacker runs behind a source of their own."""

    apps: list[Any]
    keys: dict[str, str]
    issuer: ToyIssuer
    evil: ToyIssuer

    def browser(self, worker: int = 0) -> httpx2.AsyncClient:
        transport = httpx2.ASGITransport(app=self.apps[worker])
        return httpx2.AsyncClient(transport=transport, base_url=PUBLIC, headers={"sec-fetch-site": "none"})

    async def link(self, user: str, source: str = "mail") -> str:
        """Return the path of a new link of a person."""
        async with self.browser() as http:
            begun = await http.post("/v1/connections", json={"source": source}, headers=bearer(self.keys[user]))
        return urlsplit(begun.json()["url"]).path

    async def connected(self) -> list[tuple[str, str]]:
        """Return who is connected to what, and disconnect them."""
        made: list[tuple[str, str]] = []
        async with self.browser() as http:
            for user, key in self.keys.items():
                for one in (await http.get("/v1/connections", headers=bearer(key))).json()["connections"]:
                    made.append((user, one["source"]))
                    await http.delete(f"/v1/connections/{one['id']}", headers=bearer(key))
        return made

    async def agreed(self, http: httpx2.AsyncClient, link: str, key: str) -> httpx2.Response:
        """Open a link, and agree with a key."""
        page = await http.get(link)
        fields = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)">', page.text))
        heads = {"origin": PUBLIC, "sec-fetch-site": "same-origin"}
        return await http.post(link, data={**fields, "key": key, "answer": "connect"}, headers=heads)

    async def sent_back(self, http: httpx2.AsyncClient, link: str, user: str) -> dict[str, str]:
        """Agree at the page and at the issuer. Return the fields of its answer, which nobody has used yet."""
        onward = await self.agreed(http, link, self.keys[user])
        found = re.search(r'content="0;url=([^"]+)"', onward.text)
        assert found is not None, onward.text
        self.issuer.user = user
        async with httpx2.AsyncClient() as elsewhere:
            answer = await elsewhere.get(unescape(found[1]))
        return {name: values[0] for name, values in parse_qs(urlsplit(answer.headers["location"]).query).items()}


@asynccontextmanager
async def target(folder: Path) -> AsyncGenerator[Target]:
    async with AsyncExitStack() as stack:
        issuer = await stack.enter_async_context(ToyIssuer(path="/tenant").running())
        evil = await stack.enter_async_context(ToyIssuer(path="/evil").running())
        mail = await stack.enter_async_context(McpUpstream(issuer).running())
        post = await stack.enter_async_context(ApiUpstream(issuer).running())
        trap = await stack.enter_async_context(McpUpstream(evil).running())
        hosts = [urlsplit(each.url).netloc for each in (issuer, evil)]
        auth = {"mode": "user", "hosts": hosts}
        config: dict[str, Any] = {
            "name": "desk",
            "connections": {"key": "${CONNECTIONS_KEY}", "public_url": PUBLIC},
            "server": {"keys": ["k" * 32]},
            "tools": [
                *({"name": name, "type": "mcp", "mcp": {"transport": "http", "url": each.resource}, "auth": auth}
                  for name, each in (("mail", mail), ("trap", trap))),
                {"name": "post", "type": "webhook", "description": "Say who calls.", "auth": auth,
                 "webhook": {"url": f"{post.origin}/me", "method": "GET"}},
            ],
            "identity": {
                "api_keys": {"store": "sqlite:./keys.db"},
                "map": [{"when": {"key": user}, "user": user} for user in ("ann", "mallory")],
            },
        }  # fmt: skip
        (folder / "pegboard.yaml").write_text(json.dumps(config))
        keys = {user: KeyStore(folder / "keys.db").add(user)[0] for user in ("ann", "mallory")}
        apps: list[Any] = []
        for _ in range(2):
            catalog, _ = load_catalog(folder / "pegboard.yaml", env=ENV)
            await stack.enter_async_context(catalog)
            apps.append(http_app(catalog))
            await stack.enter_async_context(apps[-1].router.lifespan_context(apps[-1]))
        yield Target(apps, keys, issuer, evil)


def callback(fields: dict[str, str] | list[tuple[str, str]]) -> str:
    return f"/connections/callback?{urlencode(fields)}"


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def here(tmp_path_factory: pytest.TempPathFactory, anyio_backend: object) -> AsyncGenerator[Target]:
    """The target that the tests share; each test leaves nobody connected."""
    async with target(tmp_path_factory.mktemp("target")) as made:
        yield made


async def assert_nothing_came_of_it(here: Target, caplog: pytest.LogCaptureFixture) -> None:
    assert await here.connected() == []
    assert not any(secret in caplog.text for secret in here.issuer.secrets)


async def test_an_answer_that_somebody_stole_or_changed_connects_nobody_and_the_right_one_connects_once(
    here: Target, caplog: pytest.LogCaptureFixture
) -> None:
    async with here.browser() as ann, here.browser() as mallory:
        # A program that previews links opens them, in every way, and uses nothing up.
        link = await here.link("ann")
        for method in ("HEAD", "GET", "OPTIONS", "PUT", "DELETE"):
            async with here.browser() as preview:
                await preview.request(method, link)
        answer = await here.sent_back(ann, link, "ann")

        # The answer of the issuer in another browser, in the name of another issuer, twice in one, and too long.
        for stolen in ({**answer, "iss": here.issuer.url + "/"}, answer):
            assert (await mallory.get(callback(stolen))).status_code == 403
        for broken in ([*answer.items(), ("code", "mine")], [*answer.items(), ("state", "mine")]):
            assert (await ann.get(callback(broken))).status_code == 400
        for name in ("state", "code", "iss", "error"):
            tried = await mallory.get(callback({**answer, name: "<script>" * 5_000}))
            assert 400 <= tried.status_code < 500
            assert "<script>" not in tried.text
        assert await here.connected() == []

        # Twenty times at once, at both workers: it connects once, and the issuer is asked once.
        before = here.issuer.hits["token"]
        async with here.browser(worker=1) as same:
            same.cookies = ann.cookies
            many = await asyncio.gather(*(each.get(callback(answer)) for each in [ann, same] * 10))
        assert sorted(each.status_code for each in many) == [200, *[404] * 19]
        assert (here.issuer.hits["token"] - before, await here.connected()) == (1, [("ann", "mail")])
    await assert_nothing_came_of_it(here, caplog)


async def test_an_answer_with_a_code_and_an_error_uses_the_link_up(
    here: Target, caplog: pytest.LogCaptureFixture
) -> None:
    async with here.browser() as ann:
        answer = await here.sent_back(ann, await here.link("ann"), "ann")
        assert (await ann.get(callback({**answer, "error": "access_denied"}))).status_code == 403
        assert (await ann.get(callback(answer))).status_code == 404
    await assert_nothing_came_of_it(here, caplog)


async def test_a_code_of_another_source_or_person_connects_nobody(
    here: Target, caplog: pytest.LogCaptureFixture
) -> None:
    async with here.browser() as ann, here.browser() as mallory:
        # The sources have the same issuer.
        of_mail = await here.sent_back(ann, await here.link("ann"), "ann")
        of_post = await here.sent_back(ann, await here.link("ann", "post"), "ann")
        mixed = await ann.get(callback({**of_post, "code": of_mail["code"]}))
        assert (mixed.status_code, "refused to complete the login" in mixed.text) == (502, True)
        of_mallory = await here.sent_back(mallory, await here.link("mallory"), "mallory")
        assert (await ann.get(callback({**of_mail, "code": of_mallory["code"]}))).status_code == 502
        assert (await ann.get(callback(of_mallory))).status_code == 403
    await assert_nothing_came_of_it(here, caplog)


async def test_a_link_of_another_person_a_frame_and_a_form_of_another_page_are_refused(
    here: Target, caplog: pytest.LogCaptureFixture
) -> None:
    async with here.browser() as ann:
        # Mallory's own link in Ann's browser, with Ann's key: the account would serve Mallory's agents.
        lure = await here.agreed(ann, await here.link("mallory"), here.keys["ann"])
        assert (lure.status_code, "you are &#x27;ann&#x27;" in lure.text) == (403, True)
        assert "frame-ancestors 'none'" in (await ann.get(await here.link("ann"))).headers["content-security-policy"]
        crossed = await ann.post(await here.link("ann"), data={"answer": "connect"}, headers={"origin": "https://evil"})
        assert crossed.status_code == 403
    await assert_nothing_came_of_it(here, caplog)


async def test_an_issuer_cannot_collect_the_codes_of_another_ones_login_page(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with target(tmp_path) as here, here.browser() as ann:
        # The honest issuer does not say in its answers who answers, as most do.
        for toy in (here.issuer, here.evil):
            toy.switches.sends_iss, toy.switches.says_iss = None, False
        here.evil.switches.authorization_endpoint = f"{here.issuer.url}/authorize"
        trap = await here.link("ann", "trap")
        page = await ann.get(trap)
        shown = f"{here.evil.url} (login page at {urlsplit(here.issuer.url).netloc})"
        assert (page.status_code, shown in page.text) == (200, True)
        answer = await here.sent_back(ann, await here.link("ann"), "ann")
        assert (await ann.get(callback(answer))).status_code == 200
        # From now on the login page is known. Links that were opened before end as well.
        for link in (trap, await here.link("ann", "trap")):
            page = await ann.get(link)
            assert (page.status_code, "sends people to the login page of" in page.text) == (403, True)
        assert (await here.agreed(ann, trap, here.keys["ann"])).status_code == 403
        assert await here.connected() == [("ann", "mail")]
        assert "connect_refused: issuer_changed" in caplog.text
