"""Log in to the console at the issuer of `identity.jwt`, with nothing that belongs to another login."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest

from pegboard import Catalog, Profile
from pegboard.auth.keys import KeyStore
from pegboard.auth.rules import ConsoleRules, IdentityRules, TokenRules
from pegboard.connections.connection_records import Challenge, Person
from pegboard.model.secret import Secret
from pegboard.server.app import AppOptions, app_of
from pegboard.server.console.issuer_login import IssuerLogin
from pegboard.server.sealing import sealing_with
from tests.auth.parts import rule
from tests.connections.agreeing import connections_in, settings_of
from tests.connections.toy_issuer import ToyIssuer
from tests.connections.toy_upstreams import McpUpstream
from tests.server.console.browsing import ADDRESS, Browser, opened, text_of

AUDIENCE = "https://tools.example.com/mcp"
BACK = f"{ADDRESS}/console/login/callback"


def office(issuer: ToyIssuer, **rules: Any) -> Catalog:
    """Return a catalog whose callers have tokens of this issuer: ann operates, bob has one profile, no one else."""
    catalog = Catalog("office")
    catalog.tool(name="greet", groups="core")(lambda: "hello")
    catalog.profile(Profile(name="desk", include=("core",)))
    catalog.identity = IdentityRules(
        tokens=TokenRules(issuer=issuer.url, audience=AUDIENCE, jwks_url=f"{issuer.url}/jwks"),
        map=(
            rule(claim={"sub": "ann"}, user="{sub}", roles=("operator",), profiles=("desk",)),
            rule(claim={"sub": "bob"}, user="{sub}", profiles=("desk",)),
        ),
        **rules,
    )
    return catalog


@asynccontextmanager
async def console_with(issuer: ToyIssuer, *, catalog: Catalog | None = None, **rules: Any) -> AsyncGenerator[Browser]:
    """Give a browser of a console whose client is registered at a running issuer."""
    issuer.switches.jwts_for = AUDIENCE
    issuer.resources.add(AUDIENCE)
    secret = rules.get("client_secret")
    issuer.add_client("console", redirects=(BACK,), secret=None if secret is None else secret.reveal())
    app = app_of(
        office(issuer) if catalog is None else catalog,
        AppOptions(console=ConsoleRules(client_id="console", **rules)),
    )
    async with app.router.lifespan_context(app), opened(app) as browser:
        yield browser


@pytest.fixture
async def issuer() -> AsyncGenerator[ToyIssuer]:
    issuer = ToyIssuer(scopes=("openid", "tools"))
    async with issuer.running():
        yield issuer


async def sent_back(browser: Browser, path: str = "/login/start") -> str:
    """Go to the issuer, where the person is logged in; returns the address to which it sends the browser back."""
    away = await browser.get(path)
    assert away.status_code == 303, away.text
    async with httpx2.AsyncClient() as client:
        answer = await client.get(away.headers["location"], follow_redirects=False)
    assert answer.headers["location"].startswith(BACK), answer.text
    return answer.headers["location"]


async def came_back(browser: Browser, address: str, **changed: str | None) -> httpx2.Response:
    """Open the address of the issuer's answer, with some of its fields changed or left out."""
    query: dict[str, str | None] = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
    query.update(changed)
    sent = {name: value for name, value in query.items() if value is not None}
    return await browser.client.get(BACK, params=sent, follow_redirects=False)


async def test_a_link_to_connect_an_account_counts_only_for_the_person_who_is_logged_in(
    issuer: ToyIssuer, tmp_path: Path
) -> None:
    catalog = office(issuer)
    async with McpUpstream(issuer).running() as upstream:
        catalog.connections = connections = connections_in(tmp_path / "connections.db", public_url=ADDRESS)
        connections.add(settings_of(issuer, upstream))
        async with console_with(issuer, catalog=catalog) as browser:
            more = Challenge(error="insufficient_scope", scopes=("write", "delete"))
            of_ann, of_bob = [
                (await connections.begin(Person(user_id=user), "mail", more)).url for user in ("ann", "bob")
            ]
            unknown = await browser.client.get(of_ann)
            assert (unknown.status_code, "Log in first" in unknown.text) == (401, True)
            assert f'href="{urlsplit(ADDRESS).path}/console/connections"' in unknown.text
            assert (await came_back(browser, await sent_back(browser))).status_code == 200
            await browser.get("/connections")
            link = (await browser.post("/connections/connect", source="mail")).headers["location"]
            asked = await browser.client.get(link)
            assert (asked.status_code, "Connect mail?" in asked.text, "password" in asked.text) == (200, True, False)
            # A call waits for these rights.
            assert "write, delete" in asked.text
            # The link of somebody else, in the browser of a person who is logged in.
            lure = await browser.client.get(of_bob)
            assert (lure.status_code, "Log in first" in lure.text) == (401, True)


async def test_a_person_logs_in_at_the_issuer_and_gets_to_the_page_that_they_wanted(issuer: ToyIssuer) -> None:
    async with console_with(issuer) as browser:
        away = await browser.get("/tools/greet?profile=desk")
        page = await browser.get(away.headers["location"].removeprefix("/console"))
        place = urlsplit(issuer.url).netloc
        assert f"Log in at {place}" in text_of(page.text)
        assert "API key" not in page.text
        back = await sent_back(browser, "/login/start?next=%2Ftools%2Fgreet%3Fprofile%3Ddesk")
        done = await came_back(browser, back)
        # A page and no redirect: a browser would not send a strict cookie after one that began at the issuer.
        assert done.status_code == 200
        assert 'content="0;url=/console/tools/greet?profile=desk"' in done.text
        session, login = done.headers.get_list("set-cookie")
        assert "SameSite=strict" in session
        assert issuer.tokens[-1].access not in session
        assert login.startswith("pegboard-console-8420-login=") or "-login=" in login
        assert "Operator ann" in text_of((await browser.get("")).text)
        [asked] = issuer.seen["authorize"]
        assert (asked["code_challenge_method"], asked["scope"], asked["resource"]) == ("S256", "openid", AUDIENCE)
        assert asked["nonce"]


async def test_another_person_has_their_own_rights_and_one_without_a_rule_none(issuer: ToyIssuer) -> None:
    async with console_with(issuer) as browser:
        issuer.user = "bob"
        await came_back(browser, await sent_back(browser))
        assert "Person bob" in text_of((await browser.get("")).text)
        assert (await browser.get("/matrix")).status_code == 404
        browser.client.cookies.clear()
        issuer.user = "eve"
        refused = await came_back(browser, await sent_back(browser))
        assert (refused.status_code, "no rule of this server names you" in refused.text) == (403, True)
        assert (await browser.get("")).status_code == 303


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"state": "another"}, "belongs to another login"),
        ({"state": None}, "belongs to another login"),
        ({"iss": "https://evil.example"}, "another issuer"),
        ({"iss": None}, "another issuer"),
        ({"error": "access_denied", "code": None}, "access_denied"),
        ({"code": None}, "it sent no code"),
        ({"code": "guessed"}, "invalid_grant"),
    ],
)
async def test_an_answer_that_is_not_of_this_login_is_refused(
    issuer: ToyIssuer, changed: dict[str, str | None], said: str
) -> None:
    async with console_with(issuer) as browser:
        refused = await came_back(browser, await sent_back(browser), **changed)
        assert (refused.status_code, said in text_of(refused.text)) == (403, True)
        assert (await browser.get("")).status_code == 303


async def test_an_answer_logs_in_one_browser_once(issuer: ToyIssuer) -> None:
    async with console_with(issuer) as browser:
        back = await sent_back(browser)
        kept = dict(browser.client.cookies)
        browser.client.cookies.clear()
        refused = await came_back(browser, back)
        assert (refused.status_code, "did not begin this login" in refused.text) == (403, True)
        browser.client.cookies.update(kept)
        assert (await came_back(browser, back)).status_code == 200
        browser.client.cookies.clear()
        browser.client.cookies.update(kept)
        again = await came_back(browser, back)
        assert (again.status_code, "This login was used" in again.text) == (403, True)


@pytest.mark.parametrize(("nonce", "said"), [("another", "is of another login"), ("", "no valid ID token")])
async def test_an_id_token_of_another_login_is_refused(issuer: ToyIssuer, nonce: str, said: str) -> None:
    issuer.switches.nonce = nonce
    async with console_with(issuer) as browser:
        refused = await came_back(browser, await sent_back(browser))
        assert (refused.status_code, said in text_of(refused.text)) == (403, True)


async def test_a_token_for_another_service_opens_nothing(issuer: ToyIssuer) -> None:
    async with console_with(issuer) as browser:
        issuer.switches.jwts_for = "https://another.example"
        refused = await came_back(browser, await sent_back(browser))
        assert refused.status_code == 403
        assert (await browser.get("")).status_code == 303


async def test_the_page_after_the_login_is_always_one_of_the_console(issuer: ToyIssuer) -> None:
    async with console_with(issuer) as browser:
        for wanted in ("//evil.example", "https://evil.example", "/\\evil.example", "javascript:x"):
            back = await sent_back(browser, f"/login/start?next={wanted}")
            assert 'content="0;url=/console"' in (await came_back(browser, back)).text
            browser.client.cookies.clear()


async def test_a_client_with_a_secret_and_without_openid_logs_in_too(issuer: ToyIssuer) -> None:
    async with console_with(issuer, client_secret=Secret("s" * 20), scopes=("tools",)) as browser:
        assert (await came_back(browser, await sent_back(browser))).status_code == 200
        [asked] = issuer.seen["authorize"]
        assert (asked["scope"], "nonce" in asked) == ("tools", False)
        assert issuer.seen["token"][-1]["authorization"].startswith("Basic ")


async def test_an_issuer_that_is_away_is_no_fault_of_the_person(issuer: ToyIssuer) -> None:
    async with console_with(issuer) as browser:
        back = await sent_back(browser)
        issuer.switches.statuses["token"] = 503
        assert (await came_back(browser, back)).status_code == 503
        issuer.switches.statuses["metadata"] = 503
        away = await browser.get("/login/start")
        assert (away.status_code, "cannot log in at the moment" in away.text) == (503, True)


async def test_ten_logins_in_ten_minutes_are_enough(issuer: ToyIssuer) -> None:
    async with console_with(issuer) as browser:
        assert [(await browser.get("/login/start")).status_code for _ in range(11)] == [303] * 10 + [429]


async def test_keys_work_next_to_the_issuer_and_without_a_client_there_is_only_the_key(
    issuer: ToyIssuer, tmp_path: Path
) -> None:
    keys = KeyStore(tmp_path / "keys.db")
    keys.add("olga")
    catalog = office(issuer, key_store=keys.path)
    async with console_with(issuer, catalog=catalog) as browser:
        page = text_of((await browser.get("/login")).text)
        assert "Or with an API key: Your API key" in page
    app = app_of(catalog, AppOptions(console=True))
    async with app.router.lifespan_context(app), opened(app) as browser:
        assert "or an access token of" in text_of((await browser.get("/login")).text)
        for path in ("/login/start", "/login/callback"):
            assert (await browser.get(path)).status_code == 404


async def test_a_login_takes_ten_minutes_at_most(issuer: ToyIssuer) -> None:
    now = [0.0]
    issuer.switches.jwts_for = AUDIENCE
    tokens = TokenRules(issuer=issuer.url, audience="tools", jwks_url=f"{issuer.url}/jwks")
    login = IssuerLogin(
        ConsoleRules(client_id="console"), tokens, sealing_with(audience="x"), wall_clock=lambda: now[0]
    )
    url, cookie = await login.begin(redirect_uri=BACK, wanted="")
    query = parse_qs(urlsplit(url).query)
    # A word is no resource that an issuer could know.
    assert "resource" not in query
    now[0] = 600.0
    with pytest.raises(Exception, match="longer than ten minutes"):
        await login.finish({"state": query["state"][0], "code": "x"}, cookie=cookie, redirect_uri=BACK)
