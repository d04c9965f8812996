"""`/` is a small page in a browser and plain text elsewhere, and names nothing to callers who may use nothing."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from html import unescape
from pathlib import Path

import httpx2

from pegboard import Catalog, Profile, http_app
from pegboard.auth.keys import KeyStore
from pegboard.auth.rules import IdentityRules
from tests.auth.parts import bearer, rule

BROWSER = {"accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}


def office() -> Catalog:
    catalog = Catalog("office")
    catalog.profile(Profile(name="support-desk", include=("core",)))
    catalog.tool(name="add", groups="core")(lambda: "yes")
    return catalog


async def page(catalog: Catalog, **headers: str) -> httpx2.Response:
    app = http_app(catalog)
    async with app.router.lifespan_context(app):
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost:8420") as client:
            return await client.get("/", headers=headers)


async def test_a_browser_gets_a_page_and_everybody_else_plain_text() -> None:
    shown, plain = await page(office(), **BROWSER), await page(office())
    assert shown.headers["content-type"] == "text/html; charset=utf-8"
    assert plain.headers["content-type"] == "text/plain; charset=utf-8"
    assert plain.text.startswith("Pegboard: the tools of office\n")
    assert shown.headers["vary"] == plain.headers["vary"] == "accept"


async def test_the_page_says_how_to_connect_each_client() -> None:
    html = (await page(office(), **BROWSER)).text
    blocks = [unescape(block) for block in re.findall(r'<pre class="copy">(.*?)</pre>', html, re.S)]
    assert blocks[0] == "claude mcp add --transport http office http://localhost:8420/mcp"
    assert all("http://localhost:8420/" in block for block in blocks)
    assert [block for block in blocks if "YOUR_KEY" in block] == []


async def test_the_page_runs_no_script_and_its_style_is_the_one_that_its_policy_allows() -> None:
    answer = await page(office(), **BROWSER)
    [style] = re.findall(r"<style>(.*?)</style>", answer.text, re.S)
    digest = b64encode(sha256(style.encode()).digest()).decode()
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none';")
    assert f"style-src 'sha256-{digest}'" in policy
    assert "<script" not in answer.text
    assert "style=" not in answer.text


async def test_names_of_catalog_and_profiles_are_for_those_who_may_use_them(tmp_path: Path) -> None:
    catalog, keys = office(), KeyStore(tmp_path / "keys.db")
    key = keys.add("ann")[0]
    catalog.identity = IdentityRules(
        key_store=keys.path, map=(rule(key="ann", user="ann", profiles=("support-desk",)),)
    )
    stranger = (await page(catalog, **BROWSER)).text
    assert not any(word in stranger for word in ("office", "support-desk"))
    assert "Authorization: Bearer YOUR_KEY" in unescape(stranger)
    assert "need a credential" in stranger
    known = (await page(catalog, **BROWSER, **bearer(key))).text
    assert "office" in known
    assert "http://localhost:8420/mcp/support-desk" in known
    assert key not in known


async def test_the_address_of_a_request_is_not_read_as_markup() -> None:
    app = http_app(office())
    async with app.router.lifespan_context(app):
        transport = httpx2.ASGITransport(app=app, root_path="/a<b>")
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost:8420") as client:
            shown = (await client.get("/", headers=BROWSER)).text
    assert "<b>" not in shown
