"""`pegboard serve` prints where the console is, with a login link where nobody has a key; it can be left out."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import httpx2

from tests.server.console.browsing import Browser
from tests.server.processes import serving

LINE = re.compile(r"^Console, for people: (http://127\.0\.0\.1:\d+)/console/login\?link=([\w-]{32})$", re.MULTILINE)
_LINKED = re.compile(r'<a href="([^"]+)">Open the console</a>')


async def test_the_printed_link_opens_the_console_and_heads_have_no_body(tmp_path: Path) -> None:
    (tmp_path / "pegboard.yaml").write_text("name: shop\ntools: []\n")
    async with serving(tmp_path) as server:
        async with asyncio.timeout(60):
            while (said := LINE.search(server.said.read_text())) is None:
                await asyncio.sleep(0.02)
        address, link = said.groups()
        assert address == server.url
        async with httpx2.AsyncClient(base_url=address) as client:
            browser = Browser(client)
            await browser.get(f"/login?link={link}")
            token = re.findall(r'form_token" value="([^"]+)', browser.page)[0]
            answer = await client.post(
                "/console/login", data={"form_token": token, "link": link}, headers={"origin": address}
            )
            assert answer.status_code == 303
            assert "The board is empty" in (await browser.get("")).text
            for path in ("/console", "/console/static/console.css"):
                head = await client.head(path)
                assert (head.status_code, head.content) == (200, b"")
            start = await client.get("/", headers={"accept": "text/html"})
            assert (await client.get(str(start.url.join(_LINKED.findall(start.text)[0])))).status_code == 200
            assert "/console" in (await client.get("/")).text
            # The connection is still in step.
            assert (await client.get("/healthz")).text == "ok"


async def test_no_console_serves_no_console(tmp_path: Path) -> None:
    (tmp_path / "pegboard.yaml").write_text("name: shop\ntools: []\n")
    async with serving(tmp_path, "--no-console") as server, httpx2.AsyncClient(base_url=server.url) as client:
        assert (await client.get("/console")).status_code == 404
        for accept in ("text/html", "*/*"):
            assert "console" not in (await client.get("/", headers={"accept": accept})).text.casefold()
        assert "Console" not in server.said.read_text()
