"""Browsing: a browser without JavaScript, which keeps cookies and sends the forms of the pages that it got."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from html import unescape
from typing import Any

import httpx2

from pegboard import Catalog
from pegboard.auth.rules import ConsoleRules
from pegboard.server.app import AppOptions, app_of

ADDRESS = "http://127.0.0.1:8420"
LINK = "one-time-secret"
_TOKEN = re.compile(r'name="form_token" value="([^"]+)"')


class Browser:
    """A browser that is used by one person."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self.client = client
        self.page = ""
        self.catalog: Catalog | None = None

    async def get(self, path: str = "", **headers: str) -> httpx2.Response:
        """Open a page of the console."""
        answer = await self.client.get(f"/console{path}", headers=headers, follow_redirects=False)
        self.page = answer.text
        return answer

    async def post(self, path: str, **fields: str) -> httpx2.Response:
        """Send the form of the last page that had one."""
        token = _TOKEN.search(self.page)
        sent = {"form_token": "" if token is None else unescape(token[1]), **fields}
        answer = await self.client.post(f"/console{path}", data=sent, headers={"origin": ADDRESS})
        if answer.status_code == 200:
            self.page = answer.text
        return answer

    async def log_in(self, key: str = "", **fields: str) -> httpx2.Response:
        """Log in with a key, or with the link of the terminal."""
        await self.get("/login" if key else f"/login?link={LINK}")
        return await self.post("/login", **({"key": key} if key else {"link": LINK}), **fields)


@asynccontextmanager
async def opened(app: Any, *, address: str = "127.0.0.1") -> AsyncGenerator[Browser]:
    """Give a browser of a running app."""
    transport = httpx2.ASGITransport(app=app, client=(address, 50_000))
    async with httpx2.AsyncClient(transport=transport, base_url=ADDRESS) as client:
        yield Browser(client)


@asynccontextmanager
async def console(
    catalog: Catalog,
    *,
    rules: ConsoleRules | None = None,
    **options: Any,
) -> AsyncGenerator[Browser]:
    """Give a browser of a new app that serves the catalog with its console; nobody is logged in."""
    app = app_of(catalog, AppOptions(console=rules or True, login_token=LINK, **options))
    async with app.router.lifespan_context(app), opened(app) as browser:
        browser.catalog = catalog
        yield browser


def text_of(page: str) -> str:
    """Return the text of a page, with each run of white space as one blank."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page)).split())
