"""The console: what is hostile stays text, a cookie alone changes nothing, and no other site or host reaches it."""

from __future__ import annotations

import json
import re
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlencode

import pytest

from pegboard import Catalog, Profile, ToolSpec, Workspace, http_app
from pegboard.auth.rules import IdentityRules
from pegboard.model.document import DocumentTable, NewDocument
from pegboard.model.result import AudioContent, ImageContent, ResourceContent, ResourceLink, TextContent, ToolResult
from pegboard.workspace.store.writing import prepared
from tests.agents.team import agent
from tests.auth.parts import rule
from tests.server.console.browsing import ADDRESS, LINK, Browser, console, opened
from tests.server.console.test_console_login import Office

MARKUP = "</p></a></textarea></script><script>window.pwned=1</script><img src=x onerror=window.pwned=2>\"'{{7*7}}{%x%}"
HIDING = "\u202eevil\u202c\x1b[2J\u2066\u200b\u2028\x00"
HOSTILE = MARKUP + HIDING
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; media-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)


class Elements(HTMLParser):
    """What a browser makes of a page: its elements with their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def assert_is_only_text(page: str) -> None:
    """Assert that none of the hostile text became markup, and that none of it hides or turns text around."""
    assert re.search(r"[\u202a-\u202e\u2066-\u2069\u200b\u2028\x00\x1b]", page) is None
    for tag, attributes in Elements(page).found:
        assert tag not in ("style", "iframe", "object")
        assert tag not in ("img", "audio") or re.match(r"data:(image|audio)/[a-z]+;base64,", attributes["src"] or "")
        assert not [name for name in attributes if name.startswith("on") or name == "style"]
        places = [attributes.get(name) or "/console" for name in ("href", "action")]
        assert all(place.startswith(("/console", "#")) for place in places), places
        assert tag != "script" or (attributes["src"] or "").startswith("/console/static/")


def hostile_catalog() -> Catalog:
    catalog = Catalog("shop" + MARKUP)
    schema = {
        "type": "object",
        "properties": {HOSTILE: {"type": "string", "description": HOSTILE, "default": HOSTILE, "enum": [HOSTILE]}},
        "required": [HOSTILE],
        "description": HOSTILE,
    }

    pay = ToolSpec(
        name="pay", description=HOSTILE, title=HOSTILE, input_schema=schema, examples=({HOSTILE: HOSTILE},),
        deprecated=None, meta={HOSTILE: HOSTILE}, origin=HOSTILE,
    )  # fmt: skip
    catalog.register(pay, lambda ctx, args: HOSTILE)

    @catalog.tool(description="long " * 200_000, groups="core")
    def talk() -> str:
        return "x"

    @catalog.tool(available=lambda ctx: (_ for _ in ()).throw(ValueError(HOSTILE)))
    def broken() -> str:
        return "x"

    catalog.profile(Profile(name="desk", include=("core",)))
    return catalog


async def test_hostile_names_and_descriptions_are_text_on_every_page() -> None:
    async with console(hostile_catalog()) as browser:
        await browser.log_in()
        queries = {"q": HOSTILE, "user": HOSTILE, "space": HOSTILE, "role": HOSTILE, "profile": "desk"}
        for path in ("", "/tools/pay", "/tools/broken", "/tools/talk", f"/tools/{MARKUP}", f"/{MARKUP}"):
            for query in ({}, queries):
                answer = await browser.client.get(f"/console{path}", params=query)
                assert_is_only_text(answer.text)
                assert len(answer.content) < 300_000, path
        assert_is_only_text((await browser.get(f"?profile={MARKUP}")).text)
        await browser.post("/logout")
        answer = await browser.client.get("/console/login", params={"next": HOSTILE, "link": HOSTILE})
        assert_is_only_text(answer.text)


async def test_a_cookie_without_the_token_of_its_own_session_changes_nothing(tmp_path: Path) -> None:
    office = Office(tmp_path)
    app = http_app(office.catalog, console=True)
    async with app.router.lifespan_context(app), opened(app) as victim, opened(app) as attacker:
        await victim.log_in(office.key["olga"])
        await victim.get("")
        own_page = victim.page
        await attacker.log_in(office.key["paul"])
        await attacker.get("")
        attacker.client.cookies, attackers_page = victim.client.cookies, attacker.page
        for page in ("", attackers_page, 'name="form_token" value="v1.AAAA"'):
            attacker.page = page
            assert (await attacker.post("/logout")).status_code == 403
        # A page of another site has the cookie sent along at best, and may not use a token that it found.
        token = re.findall(r'form_token" value="([^"]+)', own_page)[0]
        for heads in ({"origin": "https://elsewhere.example"}, {"origin": ADDRESS, "sec-fetch-site": "cross-site"},
                      {"origin": "http://127.0.0.1:9999"}):  # fmt: skip
            answer = await victim.client.post("/console/logout", data={"form_token": token}, headers=heads)
            assert answer.status_code == 403, heads
        assert (await victim.get("")).status_code == 200
        assert (await victim.post("/logout")).status_code == 303


async def test_a_call_with_a_stolen_cookie_and_a_token_of_another_session_runs_nothing(tmp_path: Path) -> None:
    office, ran = Office(tmp_path), list[str]()
    office.catalog.tool(name="act")(lambda: ran.append("ran"))
    app = http_app(office.catalog, console=True)
    async with app.router.lifespan_context(app), opened(app) as victim, opened(app) as attacker:
        await victim.log_in(office.key["olga"])
        await attacker.log_in(office.key["paul"])
        await attacker.get("/tools/act")
        attacker.client.cookies = victim.client.cookies
        assert (await attacker.post("/tools/act")).status_code == 403
        assert ran == []
        await victim.get("/tools/act")
        assert (await victim.post("/tools/act")).status_code == 200
        assert ran == ["ran"]


async def test_hostile_results_and_arguments_are_text() -> None:
    catalog = Catalog("shop")

    @catalog.tool
    def echo(text: str) -> list[dict[str, str]]:
        return [{MARKUP: text}, {HIDING: text}]

    @catalog.tool
    def long() -> str:
        return HOSTILE * 1_000

    async with console(catalog) as browser:
        await browser.log_in()
        await browser.get("/tools/echo")
        answer = await browser.post("/tools/echo", **{"/text": HOSTILE.replace("\x00", "")})
        assert "pwned" in answer.text
        assert_is_only_text(answer.text)
        await browser.get("/tools/long")
        answer = await browser.post("/tools/long")
        assert "more characters" in answer.text
        assert_is_only_text(answer.text)
        assert len(answer.content) < 600_000


async def test_hostile_parts_of_a_result_are_text(tmp_path: Path) -> None:
    catalog = Catalog("shop")
    parts = (
        ImageContent(HOSTILE.encode(), "image/png"), ImageContent(b"x", HOSTILE), AudioContent(b"x", HOSTILE),
        ResourceContent(uri=HOSTILE, text=HOSTILE), ResourceContent(uri=HOSTILE, blob=b"x", mime_type=HOSTILE),
        ResourceLink(uri=f"javascript:{MARKUP}", name=HOSTILE, description=HOSTILE),
        TextContent(f"+++ {HOSTILE}\n@@ -1 +1 @@\n-{HOSTILE}"), TextContent(json.dumps([{HOSTILE: HOSTILE}])),
    )  # fmt: skip
    catalog.tool(name="parts")(lambda: ToolResult(parts))
    catalog.tool(name="tree")(lambda: {HOSTILE: [HOSTILE, {HOSTILE: HOSTILE * 5_000}]})
    async with console(catalog) as browser:
        await browser.log_in()
        for name in ("parts", "tree"):
            await browser.get(f"/tools/{name}")
            answer = await browser.post(f"/tools/{name}")
            assert "pwned" in answer.text
            assert_is_only_text(answer.text)


async def test_hostile_documents_agents_and_past_calls_are_text(tmp_path: Path) -> None:
    office, space, source = Office(tmp_path), "s" + MARKUP, "x" + MARKUP
    workspace = Workspace(f"sqlite:{tmp_path}/documents.db")
    store = workspace.store
    scope = store.operator_scope(space)
    table = DocumentTable(name="t", columns=(MARKUP, HIDING[:-1]), rows=((MARKUP, HIDING[:-1]),))
    told = {"title": HOSTILE[:-1], MARKUP: HIDING[:-1]}
    documents = [
        NewDocument(path="f/a" + MARKUP.replace("/", "|"), mime="text/" + MARKUP, size_bytes=1, checksum="x",
                    text=HOSTILE[:-1] * 50, metadata=told, tables=(table,)),
        NewDocument(path="broken", mime="x", size_bytes=1, checksum="x", error=HOSTILE[:-1]),
    ]  # fmt: skip
    await store.begin_source(scope, space, source, type_="folder", origin="")
    await store.put(scope, space, source, [prepared(one) for one in documents])
    await store.end_source(scope, space, source)
    await workspace.grant("user:olga", space, "write")
    office.catalog.use_documents(workspace.store)
    office.catalog.profile(Profile(name="desk2", include=("navigation", "search", "document")))
    rights = (rule(key="olga", user="olga", roles=("operator",), profiles=("desk2",)),)
    office.catalog.identity = IdentityRules(key_store=office.keys.path, map=rights)
    office.catalog.agent(agent("evil", description=HOSTILE, prompt=HOSTILE, origin=HOSTILE))
    async with console(office.catalog) as browser:
        await browser.log_in(office.key["olga"])
        pages = ["/documents", f"/documents?{urlencode({'q': 'pwned ' + MARKUP})}", "/agents", "/agents/evil", "/usage",
                 f"/documents?{urlencode({'d_space': HOSTILE, 'source': HOSTILE, 'folder': HOSTILE, 'done': HOSTILE})}",
                 f"/connections?{urlencode({'done': 'revoked', 'of': HOSTILE})}",
                 f"/usage?{urlencode({'by': HOSTILE, 'since': HOSTILE})}"]  # fmt: skip
        first = await browser.get("/documents")
        assert "window.pwned=1" in first.text
        links = [unescape(link) for link in re.findall(r'href="/console(/documents/doc_[^"]+)"', first.text)]
        assert len(links) == 2
        for path in (*pages, *links):
            answer = await browser.get(path)
            assert answer.status_code in (200, 404), path
            assert_is_only_text(answer.text)
        await browser.get("/documents")
        token = re.findall(r'name="form_token" value="([^"]+)', browser.page)[0]
        upload = await browser.client.post(
            f"/console/documents/upload?{urlencode({'d_space': space})}", data={"form_token": token},
            files=[("files", (f"{MARKUP}.pdf", b"x"))], headers={"origin": ADDRESS},
        )  # fmt: skip
        assert_is_only_text(upload.text)
    workspace.close()


async def test_every_answer_forbids_inline_code_frames_and_caches(tmp_path: Path) -> None:
    office = Office(tmp_path)
    async with console(office.catalog) as browser:
        answers = [await browser.get(path) for path in ("", "/login", "/tools/greet", "/nowhere")]
        answers.append(await browser.post("/login", key="wrong"))
        answers.append(await browser.log_in(office.key["olga"]))
        answers += [
            await browser.get(path) for path in ("", "/tools/greet", "/tools/none", "/nowhere", "?profile=none")
        ]
        answers.append(await browser.client.request("PUT", "/console"))
        for answer in answers:
            assert answer.headers["content-security-policy"] == POLICY
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["cache-control"] == "no-store"
            assert answer.headers["x-frame-options"] == "DENY"
        for name in ("console.css", "console.js", "htmx.min.js", "icon.svg"):
            file = await browser.get(f"/static/{name}")
            assert (file.status_code, file.headers["content-security-policy"]) == (200, POLICY)
        for name in ("../pages.py", "..%2fpages.py", "htmx.LICENSE.txt", ""):
            assert (await browser.get(f"/static/{name}")).status_code == 404


@pytest.mark.parametrize("host", ["elsewhere.example", "127.0.0.1.elsewhere.example", "127.0.0.1:8420@elsewhere"])
async def test_a_page_of_another_name_cannot_reach_the_console(host: str) -> None:
    async with console(Catalog("open")) as browser:
        for path in ("", "/login", f"/login?link={LINK}", "/static/console.js"):
            assert (await browser.get(path, host=host)).status_code == 421


async def test_forms_are_bounded_and_of_one_kind() -> None:
    async with console(Catalog("open")) as browser:
        await browser.get("/login")
        post, heads = browser.client.post, {"origin": ADDRESS}
        for body, kind, status in (
            (b"{}", "application/json", 415), (b"a=1", "text/plain", 415),
            (b"&".join(b"a=1" for _ in range(3_000)), "application/x-www-form-urlencoded", 400),
            (b"a=%ff", "application/x-www-form-urlencoded", 400),
            (b"a=" + b"x" * 20_000_000, "application/x-www-form-urlencoded", 413),
        ):  # fmt: skip
            answer = await post("/console/login", content=body, headers={**heads, "content-type": kind})
            assert answer.status_code == status


async def test_no_answer_of_the_console_has_the_key_of_the_session(tmp_path: Path) -> None:
    office = Office(tmp_path)
    async with console(office.catalog) as browser:
        answer = await browser.log_in(office.key["olga"])
        seen = [str(answer.headers) + answer.text]
        for path in ("", "/tools/greet", "/tools/none", "/login"):
            answer = await browser.get(path)
            seen.append(str(answer.headers) + answer.text)
        secret = office.key["olga"].split("_", 2)[2]  # which may have a `_`
        assert [text for text in seen if secret in text] == []
        assert isinstance(browser, Browser)
