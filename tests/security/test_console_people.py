"""The console: a stolen cookie changes nothing in any form, and no page of one person shows another's space.

Forms and pages are found by walking the routes, so that a new one is held, too.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from pegboard import CallContext, Catalog, Profile, Workspace
from pegboard.auth.keys import KeyStore
from pegboard.auth.rules import IdentityRules
from pegboard.config import load_catalog
from pegboard.connections.connection_records import Person
from pegboard.server.app import AppOptions, app_of
from tests.agents.team import agent
from tests.auth.parts import bearer, rule
from tests.connections.agreeing import connect, connections_in, settings_of
from tests.connections.toy_issuer import ToyIssuer
from tests.connections.toy_upstreams import McpUpstream
from tests.security.test_console import HOSTILE, assert_is_only_text
from tests.server.console.browsing import ADDRESS, Browser, opened, text_of
from tests.timing import PATIENCE_S

CANARY = "of-bob-alone"
SPACE = f"space-{CANARY}"
PLACE = re.compile(r"{(\w+)}")
CONFIG = """
audit: {store: "sqlite:./audit.db", bodies: redacted}
consents: {store: "sqlite:./consents.db"}
tasks: {store: memory}
"""
STREAMS = ("/live/events",)  # never end; tests/server/console/test_console_operating.py reads them


class House:
    """Ann and bob live in different spaces. Everything of bob contains `CANARY`; olga operates.

    A bot asks in bob's space for a decision, which is bob's to make. The audit is that of the whole house.
    """

    def __init__(self, folder: Path) -> None:
        keys = KeyStore(folder / "keys.db")
        self.key = {name: keys.add(name)[0] for name in ("ann", "bob", "bot", "olga")}
        self.ran: list[str] = []
        (folder / "pegboard.yaml").write_text(CONFIG)
        self.catalog, self.config = catalog, _ = load_catalog(folder / "pegboard.yaml")

        @catalog.tool(groups="core", consent="always", destructive=True)
        def pay(whom: str) -> str:
            self.ran.append(whom)
            return "paid"

        @catalog.tool(groups="core", task="optional")
        async def wait(ctx: CallContext, note: str) -> str:
            await ctx.step(note, lambda: None)
            await asyncio.Event().wait()
            return ""

        @catalog.tool(
            groups="core", name=f"mine_{CANARY.replace('-', '_')}", available=lambda ctx: ctx.user_id == "bob"
        )
        def mine() -> str:
            return ""

        catalog.identity = IdentityRules(
            key_store=keys.path,
            map=(
                rule(key="ann", user="ann", space="s1", roles=("approver",), profiles=("all",)),
                rule(key="bob", user="bob", space=SPACE, roles=("approver",), profiles=("all",)),
                rule(key="bot", user=f"bot-{CANARY}", space=SPACE, profiles=("all",)),
                rule(key="olga", user="olga", roles=("operator",), profiles=("all",)),
            ),
        )
        self.workspace = Workspace(f"sqlite:{folder}/documents.db")
        catalog.use_documents(self.workspace.store)
        catalog.profile(Profile(name="all", include=("core", "navigation", "search", "document")))
        catalog.agent(agent("writer"))
        self.app = app_of(catalog, AppOptions(console=True, config=self.config))
        self.ids: dict[str, str] = {}

    async def fill(self, browser: Browser) -> None:
        """Leave a question, a task, a document and past calls of bob's space, and note their ids."""
        await self.workspace.grant("user:bob", SPACE, "write")
        text = f"# {CANARY}\n\nCarrots.".encode()
        await self.workspace.upload(text, space=SPACE, path=f"{CANARY}.md")
        post = browser.client.post
        asked = await post("/v1/tools/pay/call", json={"whom": CANARY}, headers=bearer(self.key["bot"]))
        assert asked.status_code == 403, asked.text
        for name in ("bob", "bot"):
            begun = await post(
                "/v1/tools/wait/call?as_task=true", json={"note": CANARY}, headers=bearer(self.key[name])
            )
            assert "taskId" in begun.text, begun.text
            self.ids.setdefault("tasks", begun.json()["taskId"])
            self.ids.setdefault("audit", begun.json()["callId"])
        items = (await browser.client.get("/v1/documents", headers=bearer(self.key["bob"]))).json()["items"]
        self.ids["documents"] = items[0]["document_id"]
        await browser.log_in(self.key["bob"])
        [self.ids["consents"]] = re.findall(
            r'action="/console/consents/([0-9a-f]+)/approve', (await browser.get("/consents")).text
        )

    def routes(self, method: str) -> list[str]:
        """Return the paths of the console that answer a method, with the ids of what belongs to bob.

        Names of tools and agents are those that ann has as well.
        """
        door = next(route.endpoint for route in self.app.routes if getattr(route, "path", "") == "/console")
        answered = [route.path for route, answers in door._app._routes if method in answers]  # type: ignore[attr-defined] - that of the console
        return [self._filled(path.removeprefix("/console")) for path in answered]

    def _filled(self, path: str) -> str:
        before, place, after = PLACE.split(path) if PLACE.search(path) else (path, "", "")
        own = {**self.ids, "tools": "pay", "agents": "writer", "sources": "mail"}
        return before + own[before.strip("/")] + after if place else path


@asynccontextmanager
async def lived_in(folder: Path) -> AsyncGenerator[tuple[House, Browser, Browser]]:
    """Give a house, the browser of bob, who is logged in, and one of ann, who is not."""
    folder.chmod(0o700)
    house = House(folder)
    async with ToyIssuer(path="/tenant").running() as issuer, McpUpstream(issuer).running() as upstream:
        connections = connections_in(folder / "connections.db")
        connections.add(settings_of(issuer, upstream))
        house.catalog.connections = connections
        made = await connect(connections, issuer, Person(user_id="bob", space_id=SPACE))
        house.ids["connections"] = made.id
        async with house.app.router.lifespan_context(house.app), opened(house.app) as bob, opened(house.app) as ann:
            await house.fill(bob)
            yield house, bob, ann
    house.workspace.close()


async def state_of(browser: Browser) -> Mapping[str, str]:
    """Return the text of the pages on which a change shows, without times."""
    paths = ("/consents", "/tasks", "/documents", "/connections")
    pages = {path: text_of((await browser.get(path)).text) for path in paths}
    return {path: re.sub(r"(in )?\d+ (second|minute)s?( ago)?|just now|now", "", page) for path, page in pages.items()}


async def test_no_form_accepts_a_stolen_cookie_without_the_token_of_its_session(tmp_path: Path) -> None:
    async with lived_in(tmp_path) as (house, bob, ann):
        await ann.log_in(house.key["ann"])
        own = re.findall(r'form_token" value="([^"]+)', (await ann.get("")).text)[0]
        victims = re.findall(r'form_token" value="([^"]+)', (await bob.get("")).text)[0]
        before = await state_of(bob)
        forms = [*house.routes("POST"), "/logout"]
        assert len(forms) >= 13
        fields = {"json": '{"whom": "eve"}', "source": "mail", "calls": "5", "hours": "5", "any_other": "on"}
        for form in forms:
            for token in ("", own, "v1.AAAA", victims[:-2] + "AA"):
                for content in ({"data": {"form_token": token, **fields}},
                                {"data": {"form_token": token}, "files": {"files": ("a.md", b"# A")}}):  # fmt: skip
                    answer = await bob.client.post(f"/console{form}", headers={"origin": ADDRESS}, **content)  # type: ignore[arg-type] - of httpx2
                    assert answer.status_code == 403, (form, token, answer.text)
            # With its token, a page of another site is refused.
            for heads in ({"origin": "https://elsewhere.example"}, {"origin": ADDRESS, "sec-fetch-site": "cross-site"}):
                answer = await bob.client.post(f"/console{form}", data={"form_token": victims, **fields}, headers=heads)
                assert answer.status_code == 403, (form, heads)
            # No address changes anything by being opened.
            opened_form = await bob.client.get(f"/console{form}", follow_redirects=False)
            above = f"/console{form}".startswith(f"{opened_form.headers.get('location', 'nowhere')}/")
            assert opened_form.status_code in (200, 404) or (opened_form.status_code == 303 and above), form
        assert await state_of(bob) == before
        assert house.ran == []
        # The same requests are accepted with the token of the session.
        for form in forms:
            answer = await bob.client.post(
                f"/console{form}", data={"form_token": victims, **fields}, headers={"origin": ADDRESS}
            )
            assert "of an earlier session" not in answer.text, form
        assert (await bob.get("")).status_code == 303


async def test_no_page_of_one_person_shows_the_space_of_another(tmp_path: Path) -> None:
    async with lived_in(tmp_path) as (house, bob, ann):
        paths = [path for path in house.routes("GET") if path not in STREAMS]
        shown = [path for path in paths if CANARY in (await bob.get(path)).text]
        assert {"/consents", "/tasks", "/documents"} <= {*shown}
        await ann.log_in(house.key["ann"])
        eyes = {"user": "bob", "space": SPACE, "role": "operator", "key": "bob"}
        queries: list[dict[str, Any]] = [
            {}, eyes, {**eyes, "b_user": "bob", "b_space": SPACE}, {"find": "mine"}, {"q": "mine"},
            {"d_space": SPACE, "source": "uploads", "q": "carrots"}, {"find": "carrots"},
        ]  # fmt: skip
        for path in (*paths, f"/tools/mine_{CANARY.replace('-', '_')}"):
            for query in queries:
                answer = await ann.get(f"{path}?{urlencode(query)}" if query else path)
                # What was asked for may stand in the form again.
                page = re.sub(r'(value|href|action)="[^"]*"', "", answer.text)
                page = page.replace(f"{SPACE}", "") if query else page
                assert CANARY not in page, (path, query)
                assert CANARY.replace("-", "_") not in page or CANARY.replace("-", "_") in path, (path, query)
        token = re.findall(r'form_token" value="([^"]+)', (await ann.get("")).text)[0]
        before = await state_of(bob)
        for form in house.routes("POST"):
            if "upload" in form or form.startswith("/tools/") or form == "/connections/connect":
                continue  # those of ann's own things
            answer = await ann.client.post(
                f"/console{form}", data={"form_token": token, "json": "{}", "of": house.ids["consents"]},
                headers={"origin": ADDRESS},
            )  # fmt: skip
            assert answer.status_code in (403, 404), (form, answer.text)
            assert CANARY not in answer.text, form
        assert await state_of(bob) == before


async def test_hostile_names_of_past_calls_and_hostile_searches_are_text(tmp_path: Path) -> None:
    async with lived_in(tmp_path) as (house, _, browser):
        for name in (HOSTILE, "x" * 1_000_000):
            arguments = {"whom": name, name[:100_000]: name[:100_000]}
            await browser.client.post("/v1/tools/pay/call", json=arguments, headers=bearer(house.key["bot"]))
        house.catalog.tool(name="odd", groups="core", description=HOSTILE * 3_000, available=lambda ctx: 1 / 0 > 0)(
            lambda: ""
        )
        long = HOSTILE * 50
        await browser.log_in(house.key["olga"])
        async with asyncio.timeout(PATIENCE_S):
            while "pay" not in (await browser.get("/audit")).text:
                await asyncio.sleep(0.01)
        queries = [
            ("/find", {"find": HOSTILE}), ("/find", {"find": long}), ("/find", {"find": "odd"}),
            ("/find", {"find": "pay"}), ("/consents", {"done": HOSTILE}), ("/tasks", {"done": HOSTILE}),
            ("/compare", {"user": HOSTILE, "b_user": long, "b_space": HOSTILE, "role": HOSTILE, "b_role": long}),
            ("/compare", {"profile": HOSTILE, "b_profile": long}), ("/usage", {"by": HOSTILE, "since": long}),
            ("/usage", {"by": "user"}), ("/usage", {"by": "tool"}), ("/audit", {"a_tool": HOSTILE, "a_user": long}),
            ("/audit", {}), ("/matrix", {"differ": HOSTILE}), ("/connections", {"done": HOSTILE, "of": long}),
            ("/documents", {"q": long, "d_space": long, "source": HOSTILE, "folder": long}),
            ("/agents", {"user": HOSTILE}), ("/agents/writer", {"user": HOSTILE, "space": long}),
        ]  # fmt: skip
        for path, query in queries:
            answer = await browser.get(f"{path}?{urlencode(query, errors='replace')}")
            assert answer.status_code in (200, 400, 404, 414), (path, answer.status_code)
            assert_is_only_text(answer.text)
            assert len(answer.content) < 400_000, path


@pytest.mark.parametrize("path", ["/live/events"])
async def test_a_stream_needs_a_login(tmp_path: Path, path: str) -> None:
    app = app_of(Catalog("open"), AppOptions(console=True))
    async with app.router.lifespan_context(app), opened(app) as browser:
        assert (await browser.get(path)).status_code == 303
