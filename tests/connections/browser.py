"""Browser: a person's browser without a window: it keeps cookies, follows redirects, and sends the forms of pages."""

from __future__ import annotations

import re
from html import unescape
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

import httpx2

from tests.connections.agreeing import PUBLIC_URL

_FIELD = re.compile(r'<input type="hidden" name="([^"]+)" value="([^"]*)">')
_NEXT = re.compile(r'http-equiv="refresh" content="0;url=([^"]+)"')


class Browser:
    """One browser, with the pages of `app` at `PUBLIC_URL`; everything else is reached over loopback."""

    def __init__(self, app: Any, headers: dict[str, str] | None = None) -> None:
        heads = {"sec-fetch-site": "none", **(headers or {})}
        self.ours = httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url=PUBLIC_URL, headers=heads)
        self.elsewhere = httpx2.AsyncClient()

    async def __aenter__(self) -> Browser:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.ours.aclose()
        await self.elsewhere.aclose()

    async def go(self, url: str) -> httpx2.Response:
        """Open a URL, and follow redirects and pages that go on by themselves."""
        while True:
            client = self.ours if url.startswith(PUBLIC_URL) else self.elsewhere
            page = await client.get(url)
            if page.status_code in (302, 303):
                url = page.headers["location"]
            elif (onward := _NEXT.search(page.text)) is not None:
                url = unescape(onward[1])
            else:
                return page

    async def press(self, page: httpx2.Response, answer: str, **fields: str) -> httpx2.Response:
        """Send the form of a page of ours with one of its buttons, and go where that leads."""
        sent = await self.send(page, answer, **fields)
        onward = _NEXT.search(sent.text)
        return sent if onward is None else await self.go(unescape(onward[1]))

    async def send(self, page: httpx2.Response, answer: str, **fields: str) -> httpx2.Response:
        """Send the form of a page of ours, and stay with the answer."""
        hidden = {name: unescape(value) for name, value in _FIELD.findall(page.text)}
        parts = urlsplit(PUBLIC_URL)
        heads = {"origin": f"{parts.scheme}://{parts.netloc}", "sec-fetch-site": "same-origin"}
        return await self.ours.post(str(page.url), data={**hidden, **fields, "answer": answer}, headers=heads)
