"""Start page: answers `/` with a small page in a browser, and with plain text elsewhere."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from pegboard.core.names import legal
from pegboard.server.authenticator import Authenticated, Authenticator
from pegboard.server.gateway import Gateway
from pegboard.server.host_guard import HostGuard, Refusal
from pegboard.server.plain_page import STYLE, STYLE_SOURCE
from pegboard.version import __version__

_HEADERS = {
    "content-security-policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    f"style-src {STYLE_SOURCE}",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "vary": "accept",
}


class StartPage:
    """Answers `/`. Names of the catalog and its profiles are for callers who may use them.

    With `has_console`, it links to the console.
    """

    def __init__(
        self, gateway: Gateway, host_guard: HostGuard, authenticator: Authenticator, *, has_console: bool
    ) -> None:
        self._gateway, self._host_guard, self._authenticator = gateway, host_guard, authenticator
        self._has_console = has_console

    @property
    def routes(self) -> list[Route]:
        return [Route("/", endpoint=self._answer)]

    async def _answer(self, request: Request) -> Response:
        refusal = self._host_guard.refusal(request.scope["headers"])
        if refusal is not None:
            return PlainTextResponse(refusal.text, status_code=refusal.status)
        is_browser = "text/html" in request.headers.get("accept", "")
        base = str(request.base_url).rstrip("/")
        caller = await self._authenticator.identify(request.scope)
        if is_browser:
            return HTMLResponse(self._page(base, caller), headers=_HEADERS)
        return PlainTextResponse(self._text(request.scope.get("root_path", ""), caller), headers={"vary": "accept"})

    def _profiles(self, caller: Authenticated | Refusal) -> Sequence[str]:
        return () if isinstance(caller, Refusal) else self._authenticator.profiles_of(caller)

    def _page(self, base: str, caller: Authenticated | Refusal) -> str:
        """Return the page for a browser. It has no script: one click selects a whole block."""
        profiles = self._profiles(caller)
        name = "pegboard" if isinstance(caller, Refusal) else self._gateway.catalog.name
        needs_key = self._gateway.catalog.identity is not None
        title = "Pegboard" if isinstance(caller, Refusal) else f"{name}: tools for agents"
        version = __version__ if isinstance(caller, Refusal) else f"Pegboard {__version__}"
        parts = [
            f"<h1>{escape(title)} <small>{escape(version)}</small></h1>",
            f"<p>This server offers tools to AI agents over MCP, at <code>{escape(base)}/mcp</code>.</p>",
        ]
        if self._has_console:
            parts.append(
                '<p><a href="console">Open the console</a> to see the tools and decide on calls that wait.</p>'
            )
        parts += _connecting(f"{base}/mcp", legal(name), needs_key=needs_key)
        if profiles:
            items = "".join(f"<li><code>{escape(f'{base}/mcp/{one}')}</code></li>" for one in profiles)
            parts.append(f"<h2>Profiles</h2><p>Each address shows the tools of one profile:</p><ul>{items}</ul>")
        links = (
            ("openapi.json", "the tools over plain HTTP"),
            ("v1/tools", "the list of tools as JSON"),
            ("healthz", "whether the server is well"),
            ("readyz", "whether it takes calls"),
            ("metrics", "Prometheus metrics, for operators"),
        )
        shown = "".join(f'<li><a href="{path}">/{path}</a>: {what}</li>' for path, what in links)
        parts.append(f"<h2>More</h2><ul>{shown}</ul>")
        if isinstance(caller, Refusal):
            parts.append("<p>Calls need a credential. Ask the operator for a key, or log in with your client.</p>")
        return (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n<body><main>{''.join(parts)}</main></body></html>\n"
        )

    def _text(self, root: str, caller: Authenticated | Refusal) -> str:
        name = "" if isinstance(caller, Refusal) else f": the tools of {self._gateway.catalog.name}"
        places = [
            (f"{root}/mcp", "MCP over streamable HTTP, for agents and their hosts"),
            *((f"{root}/mcp/{profile}", f"the same, as profile {profile!r}") for profile in self._profiles(caller)),
            (f"{root}/v1/tools", f"the tools over plain HTTP, which {root}/openapi.json describes"),
            *([(f"{root}/console", "the console, for people in a browser")] if self._has_console else []),
            (f"{root}/healthz", "whether the server is well; also /readyz and /metrics"),
        ]
        width = max(len(path) for path, _ in places)
        lines = [f"Pegboard{name}", "", *(f"{path:<{width}}  {what}" for path, what in places)]
        if isinstance(caller, Refusal):
            lines += ["", "A credential is needed, and none that is good here came with this request."]
        return "\n".join(lines) + "\n"


def _connecting(url: str, name: str, *, needs_key: bool) -> list[str]:
    """Return how to connect each client: a heading and a block to copy."""
    key = ' --header "Authorization: Bearer YOUR_KEY"' if needs_key else ""
    headers = {"headers": {"Authorization": "Bearer YOUR_KEY"}} if needs_key else {}
    entry = {"type": "http", "url": url, **headers}
    curl = f"curl {url.removesuffix('/mcp')}/v1/tools" + (' -H "Authorization: Bearer YOUR_KEY"' if needs_key else "")
    blocks = (
        ("Claude Code", f"claude mcp add --transport http {name} {url}{key}"),
        ("Cursor: .cursor/mcp.json", json.dumps({"mcpServers": {name: {"url": url, **headers}}}, indent=2)),
        ("VS Code: .vscode/mcp.json", json.dumps({"servers": {name: entry}}, indent=2)),
        ("Other clients with an mcp.json", json.dumps({"mcpServers": {name: entry}}, indent=2)),
        ("Shell", curl),
    )
    return [f'<h2>{escape(title)}</h2><pre class="copy">{escape(text)}</pre>' for title, text in blocks]
