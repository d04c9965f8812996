"""Who gets into the console: by key, by the link of the terminal, by the host's own login; and how it ends."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from pegboard import Catalog, Profile, http_app
from pegboard.auth.keys import KeyStore
from pegboard.auth.rules import IdentityRules
from pegboard.limits.memory import MemoryLimitStore
from pegboard.model.record import replace
from pegboard.server.console.login_session import SESSION_S, Sessions
from pegboard.server.identify import Identified
from pegboard.server.sealing import sealing_with
from tests.auth.parts import bearer, rule
from tests.server.console.browsing import LINK, Browser, console, opened, text_of


class Office:
    """A server with an operator, and a person with one profile of two."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.keys = KeyStore(folder / "keys.db")
        self.key = {name: self.keys.add(name)[0] for name in ("olga", "paul", "nobody")}
        self.catalog = catalog = Catalog("office", **options)
        catalog.tool(name="greet", groups="core")(lambda: "hello")
        catalog.tool(name="open_vault", groups="secret")(lambda: "gold")
        catalog.profile(Profile(name="desk", include=("core",)))
        catalog.profile(Profile(name="vault", include=("core", "secret")))
        self.allow("olga", "paul")

    def allow(self, *names: str) -> None:
        """Give rights to these keys alone."""
        rights = {
            "olga": rule(key="olga", user="olga", roles=("operator",), profiles=("desk",)),
            "paul": rule(key="paul", user="paul", profiles=("desk",)),
        }
        self.catalog.identity = IdentityRules(key_store=self.keys.path, map=tuple(rights[name] for name in names))


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path)


async def test_a_key_logs_in_and_the_cookie_is_only_for_this_console(office: Office) -> None:
    async with console(office.catalog) as browser:
        away = await browser.get("")
        assert (away.status_code, away.headers["location"]) == (303, "/console/login")
        answer = await browser.log_in(office.key["olga"])
        assert (answer.status_code, answer.headers["location"]) == (303, "/console")
        cookie = answer.headers["set-cookie"]
        assert re.match(r"pegboard-console-\d+=v1\.", cookie)
        assert {part.strip().lower() for part in cookie.split(";")[1:]} == {
            "httponly", "path=/console", "samesite=strict", f"max-age={int(SESSION_S)}",
        }  # fmt: skip
        assert office.key["olga"] not in cookie
        assert "greet" in (await browser.get("")).text


async def test_after_the_login_comes_the_page_that_was_asked_for_and_no_other_site(office: Office) -> None:
    async with console(office.catalog) as browser:
        away = await browser.get("/tools/greet?profile=desk")
        assert away.headers["location"] == "/console/login?next=%2Ftools%2Fgreet%3Fprofile%3Ddesk"
        for wanted, place in {
            "/tools/greet?profile=desk": "/console/tools/greet?profile=desk",
            "https://elsewhere.example": "/console",
            "//elsewhere.example": "/console",
            "/\r\nset-cookie: a=b": "/console",
        }.items():
            assert (await browser.log_in(office.key["olga"], next=wanted)).headers["location"] == place
            await browser.get("")
            await browser.post("/logout")


async def test_an_address_with_a_slash_at_its_end_leads_to_the_page_without_it(office: Office) -> None:
    async with console(office.catalog) as browser:
        for path, target in (("/", ""), ("/audit/?a_kind=ok", "/audit?a_kind=ok"), ("//example.com/", "//example.com")):
            answer = await browser.get(path)
            assert (answer.status_code, answer.headers["location"]) == (308, f"/console{target}")


async def test_a_wrong_key_is_refused_in_the_words_of_an_unknown_one(office: Office) -> None:
    async with console(office.catalog) as browser:
        wrong = office.key["olga"][:-1] + ("A" if office.key["olga"][-1] != "A" else "B")
        for key in (wrong, "pgb_0123456789abcdef_" + "x" * 43, "abc", office.key["nobody"]):
            answer = await browser.log_in(key)
            assert answer.status_code == 403
            assert "This key is not valid here." in answer.text
        for key in ("", "two words", "ä"):
            assert "Type in an API key" in (await browser.post("/login", key=key)).text
        assert (await browser.get("")).status_code == 303


async def test_a_revoked_key_and_a_changed_rule_end_the_session_with_the_next_request(office: Office) -> None:
    async with console(office.catalog) as browser:
        await browser.log_in(office.key["paul"])
        assert (await browser.get("")).status_code == 200
        office.keys.revoke("paul")
        assert (await browser.get("")).headers["location"] == "/console/login"
        assert "Your session is over" in (await browser.get("/login")).text
        await browser.log_in(office.key["olga"])
        assert (await browser.get("")).status_code == 200
        office.allow("paul")
        assert (await browser.get("")).status_code == 303


async def test_logging_out_removes_the_cookie(office: Office) -> None:
    async with console(office.catalog) as browser:
        await browser.log_in(office.key["olga"])
        await browser.get("")
        assert (await browser.post("/logout")).status_code == 303
        assert (await browser.get("")).status_code == 303


async def test_ten_tries_in_ten_minutes_for_an_address_and_for_a_key(office: Office) -> None:
    now = [1_000.0]
    executor = office.catalog.executor
    executor.swap(replace(executor.ports, limits=MemoryLimitStore(clock=lambda: now[0])))
    app = http_app(office.catalog, console=True)
    wrong = office.key["olga"][:-2] + "zz"
    async with app.router.lifespan_context(app):
        async with opened(app, address="192.0.2.1") as one, opened(app, address="192.0.2.2") as other:
            statuses = [(await one.log_in(wrong)).status_code for _ in range(11)]
            assert statuses == [403] * 10 + [429]
            # The key is used up for every address, and the address for every key.
            assert (await other.log_in(office.key["olga"])).status_code == 429
            refused = await one.log_in(office.key["paul"])
            assert (refused.status_code, int(refused.headers["retry-after"])) == (429, 601)
            assert (await other.log_in(office.key["paul"])).status_code == 303
            now[0] += 600.0
            assert (await one.log_in(office.key["olga"])).status_code == 303


async def test_tries_that_cannot_be_counted_are_refused(office: Office) -> None:
    class Away:
        def wait_s(self, hits: object, *, charge: bool) -> float:
            raise ConnectionError

    executor = office.catalog.executor
    executor.swap(replace(executor.ports, limits=Away()))
    async with console(office.catalog) as browser:
        assert (await browser.log_in(office.key["olga"])).status_code == 503


async def test_the_link_in_the_terminal_logs_in_one_browser_once() -> None:
    catalog = Catalog("open")
    catalog.tool(name="greet")(lambda: "hello")
    async with console(catalog) as browser:
        assert "Open the link that pegboard serve wrote" in text_of((await browser.get("/login")).text)
        # Looking at the link, as previews of links do, does not use it up.
        assert "Open the console" in (await browser.get(f"/login?link={LINK}")).text
        assert (await browser.post("/login", link="another")).status_code == 403
        assert (await browser.post("/login", link=LINK)).status_code == 303
        assert "Operator" in (await browser.get("")).text
        browser.client.cookies.clear()
        assert (await browser.log_in()).status_code == 403
        assert "the link in the terminal was used" in text_of((await browser.get("/login")).text)


async def test_the_link_is_for_this_machine_and_ends_when_callers_must_log_in(office: Office) -> None:
    rules, office.catalog.identity = office.catalog.identity, None
    app = http_app(office.catalog, console=True)
    async with app.router.lifespan_context(app), opened(app, address="192.0.2.1") as far:
        assert (await far.log_in()).status_code == 403
    async with console(office.catalog) as browser:
        await browser.log_in()
        assert (await browser.get("")).status_code == 200
        # A proxy on this machine forwards requests of others.
        assert (await browser.get("", **{"x-forwarded-for": "192.0.2.1"})).status_code == 303
        office.catalog.identity = rules
        assert (await browser.get("")).status_code == 303


async def test_the_login_of_the_host_is_the_login_of_the_console(office: Office) -> None:
    office.catalog.identity = None

    def identify(request: object) -> Identified | None:
        name = request.cookies.get("app")  # type: ignore[attr-defined] - a request
        return Identified(user=name, profiles=("desk",)) if name else None

    async with console(office.catalog, identify=identify) as browser:
        assert (await browser.get("")).status_code == 303
        assert (await browser.get("/login")).status_code == 401
        browser.client.cookies.set("app", "ann")
        page = await browser.get("")
        assert "greet" in page.text
        assert "Log out" not in page.text


async def test_a_session_is_over_after_eight_hours_and_is_nothing_to_another_server() -> None:
    now, key = [0.0], b"k" * 32
    mine, other = sealing_with((key,), audience="mine"), sealing_with((key,), audience="other")
    sessions = Sessions(mine, wall_clock=lambda: now[0])
    cookie = sessions.sealed(sessions.new(key="pgb_x"))
    assert (opened := sessions.open(cookie)) is not None
    assert opened.key == "pgb_x"
    assert "pgb_x" not in repr(opened)
    assert Sessions(other, wall_clock=lambda: now[0]).open(cookie) is None
    # Other state that the server seals for clients is not a session.
    for state in (b"12.binding", b'["console form", "mine", "x"]', b"7"):
        assert sessions.open(mine.codec.seal(state)) is None
    now[0] = SESSION_S
    assert sessions.open(cookie) is None
    with pytest.raises(ValueError, match="too long for the cookie"):
        sessions.sealed(sessions.new(key="x" * 4_000))


async def test_a_key_in_a_header_opens_no_page_and_a_cookie_calls_no_tool(office: Office) -> None:
    async with console(office.catalog) as browser:
        assert (await browser.get("", **bearer(office.key["olga"]))).status_code == 303
        await browser.log_in(office.key["olga"])
        assert (await browser.client.get("/v1/tools")).status_code == 401


async def test_without_the_option_there_is_no_console(office: Office) -> None:
    app = http_app(office.catalog)
    async with app.router.lifespan_context(app), opened(app) as browser:
        assert [(await browser.get(path)).status_code for path in ("", "/login", "/static/console.css")] == [404] * 3
        assert isinstance(browser, Browser)
