"""Connect page: asks a person to let a source use their account, and receives them back from the issuer.

A link is for one person. The page shows who will be connected to what, asks, and binds the link to the browser that
agreed; only that browser can finish. It has no script: the key of a person goes from a form to this server alone.
"""

from __future__ import annotations

import hmac
import logging
import secrets
from html import escape
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, urlsplit

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from pegboard.auth.rules import ConsoleRules
from pegboard.catalog import Catalog
from pegboard.connections.connection_records import ConnectFailedError, PendingConnection, Person
from pegboard.core.safe_text import safe
from pegboard.model.error import CallError
from pegboard.server.authenticator import Authenticator
from pegboard.server.body_reader import BodyError, BodyReader, ClientLeftError
from pegboard.server.connect_login import CONNECT_COOKIE_S, ConnectLogin
from pegboard.server.host_guard import OTHER_PAGE, HostGuard, Refusal, is_of_another_page
from pegboard.server.plain_page import STYLE, STYLE_SOURCE
from pegboard.telemetry.served_request import REQUEST_ID

if TYPE_CHECKING:
    from pegboard.connections.connections import Connections

FORM_BYTES = 32_768  # bytes of the page's form, which has a key or a token
FIELDS = 20  # fields of a query or a form
_COOKIE: Final = "pegboard_connect"
# Browsers accept this name from the host itself only, over https and for the path /: a page of another host
# cannot set the cookie of a link that it opened itself.
_HOST_COOKIE: Final = f"__Host-{_COOKIE}"
_COOKIE_BYTES = 32
_STATUS = {
    "unknown_link": 404, "unknown_source": 404, "other_browser": 403, "other_person": 403, "issuer_changed": 403,
    "redirect_changed": 403,
    "denied": 403, "issuer_unavailable": 502, "issuer_refused": 502, "not_supported": 501,
}  # fmt: skip
_HEADERS = {
    # A form may be sent to this page alone. That would also hold for redirects after it, so the page continues to the
    # issuer by itself.
    "content-security-policy": "default-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    f"style-src {STYLE_SOURCE}",
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    # The link must not reach the issuer; with `no-referrer` browsers would not say where the form comes from.
    "referrer-policy": "same-origin",
    "cache-control": "no-store",
}
_ELSEWHERE = "This form was sent by another page, so nothing was connected. Open the link again."

log = logging.getLogger("pegboard.serve")


class ConnectPage:
    """Answers `/connections/{ticket}`, `/connections/callback` and `/.well-known/pegboard-client.json`.

    Args:
        catalog: has the connections, if it connects anybody.
        host_guard: checks Host and Origin.
        authenticator: identifies the reader.
        login: knows the reader who came from the console.
        console: how people log in to the console; `None` if there is none.
    """

    def __init__(
        self,
        catalog: Catalog,
        host_guard: HostGuard,
        authenticator: Authenticator,
        login: ConnectLogin,
        *,
        console: ConsoleRules | None,
    ) -> None:
        self._catalog, self._host_guard, self._authenticator = catalog, host_guard, authenticator
        self._login, self._console = login, console
        self._body_reader = BodyReader(catalog.registry.bounds)

    @property
    def routes(self) -> list[Route]:
        return [
            Route("/connections/callback", endpoint=self._finish, methods=["GET"]),
            Route("/connections/{ticket}", endpoint=self._ask, methods=["GET", "POST"]),
            Route("/.well-known/pegboard-client.json", endpoint=self._document, methods=["GET"]),
        ]

    # ---- the three paths

    async def _document(self, request: Request) -> Response:
        """Answer with the document whose URL is the client id of this server."""
        refusal = self._host_guard.refusal(request.scope["headers"])
        if refusal is not None:
            return PlainTextResponse(refusal.text, status_code=refusal.status)
        connections = self._catalog.connections
        document = None if connections is None else connections.client_document()
        if document is None:
            return PlainTextResponse("Not found", status_code=404)
        return JSONResponse(document, headers={"cache-control": "max-age=300", "x-content-type-options": "nosniff"})

    async def _ask(self, request: Request) -> Response:
        """Ask whether to connect; after a yes, go on to the issuer."""
        connections = self._catalog.connections
        refused = self._refused(request)
        if refused is not None or connections is None:
            return refused or _refusal("This server connects nobody.", 404)
        ticket: str = request.path_params["ticket"]
        try:
            if request.method == "POST":
                return await self._answered(request, connections, ticket)
            reader = await self._reader(request, "")
            if isinstance(reader, Refusal):
                return _refusal(f"{reader.text} Log in first, then open the link again.", reader.status)
            reader = reader or self._login.person(request, ticket)
            if reader is None and self._asks_login:
                await connections.opened(ticket)
                return self._login_first(connections)
            browser = _browser(request, connections) or secrets.token_urlsafe(_COOKIE_BYTES)
            pending = await connections.opened(ticket, person=reader)
            return self._question(connections, pending, ticket, browser, asks_key=self._asks_key and reader is None)
        except ConnectFailedError as error:
            return _failed(error)
        except CallError as error:
            return _refusal(error.error.message, 503)

    async def _answered(self, request: Request, connections: Connections, ticket: str) -> Response:
        browser, form = _browser(request, connections), await self._form(request)
        if isinstance(form, Response):
            return form
        if browser is None or not hmac.compare_digest(form.get("check", ""), _check(browser, ticket)):
            text = "Your browser did not send the cookie of this page. Allow it, and open the link again."
            return _refusal(text, 403, failure="no_cookie")
        reader = await self._reader(request, form.get("key", "").strip()) or self._login.person(request, ticket)
        if isinstance(reader, Refusal) or (reader is None and self._asks_key):
            pending = await connections.opened(ticket)
            text = reader.text if isinstance(reader, Refusal) else "Enter your key first."
            log.warning("connect_refused: the reader of a link to %r has no valid credential", pending.source)
            return self._question(connections, pending, ticket, browser, asks_key=True, problem=text, status=401)
        if reader is None and self._asks_login:
            return self._login_first(connections)
        if form.get("answer") != "connect":
            await connections.opened(ticket, person=reader)
            await connections.decline(ticket, browser=browser)
            return _page("Nothing was connected", "<p>You can close this page.</p>")
        url = await connections.agree(ticket, browser=browser, person=reader)
        shown = escape(url, quote=True)
        text = f"<p>You are on the way to {_text(urlsplit(url).netloc)}.</p>" + f'<p><a href="{shown}">Go on</a></p>'
        return _page("One moment", text, head=f'<meta http-equiv="refresh" content="0;url={shown}">')

    async def _finish(self, request: Request) -> Response:
        """Take the issuer's answer, and store the connection."""
        connections = self._catalog.connections
        refused = self._refused(request)
        if refused is not None or connections is None:
            return refused or _refusal("This server connects nobody.", 404)
        answer = _words(request.scope["query_string"].decode("latin-1"))
        if answer is None or not answer.get("state"):
            return _refusal("This address is for the way back from an issuer, and lacks its answer.", 400)
        browser = _browser(request, connections)
        if browser is None:
            text = "This browser did not open the link, or no longer has its cookie. Nothing was connected."
            return _refusal(f"{text} Open the link in the browser in which you log in.", 403, failure="other_browser")
        reader = await self._reader(request, "")
        if isinstance(reader, Refusal):
            return _refusal(reader.text, reader.status)
        try:
            connected = await connections.finish(
                answer["state"],
                browser=browser,
                code=answer.get("code", ""),
                iss=answer.get("iss"),
                error=answer.get("error", ""),
                person=reader,
            )
        except ConnectFailedError as error:
            return _failed(error)
        except CallError as error:
            return _refusal(error.error.message, 503)
        account = {"Account there": connected.account} if connected.account else {}
        rows = _rows({
            "Connected for": connected.person.user_id, "Service": connected.source, **account,
            "Logged in at": connected.issuer,
            "Rights": ", ".join(connected.scopes) or "those that the service gives",
            **({"Not granted": ", ".join(connected.refused_scopes)} if connected.refused_scopes else {}),
        })  # fmt: skip
        text = "<p>You can close this page, and go back to your agent: the same call works now.</p>"
        if self._console is not None:
            text += f'<p><a href="{_console_address(connections)}">Back to the console</a></p>'
        return _page("Connected", f"{rows}{text}")

    # ---- checks

    def _refused(self, request: Request) -> Response | None:
        # httptools keeps whitespace around values (RFC 9110, 5.5).
        request.scope["headers"] = [(name, value.strip(b" \t")) for name, value in request.scope["headers"]]
        refusal = self._host_guard.refusal(request.scope["headers"])
        if refusal is not None:
            return PlainTextResponse(refusal.text, status_code=refusal.status)
        if request.method == "POST" and is_of_another_page(request.scope):
            return _refusal(_ELSEWHERE, OTHER_PAGE.status, failure="other_page")
        return None

    @property
    def _asks_key(self) -> bool:
        """Whether a person can be asked for their key; people who log in with tokens have none."""
        rules = self._catalog.registry.declarations.identity
        return rules is not None and rules.key_store is not None and rules.tokens is None

    @property
    def _asks_login(self) -> bool:
        """Whether people log in to the console at the issuer of their tokens: then no link is good without that."""
        rules = self._catalog.registry.declarations.identity
        has_tokens = rules is not None and rules.tokens is not None
        return has_tokens and self._console is not None and bool(self._console.client_id)

    def _login_first(self, connections: Connections) -> Response:
        log.warning("connect_refused: the reader of a link is not logged in")
        text = (
            "<p>This server must know who you are before it connects an account. Log in to the console, and connect "
            f'the account there.</p><p><a href="{_console_address(connections)}">Go to the console</a></p>'
        )
        return _page("Log in first", text, status=401)

    async def _reader(self, request: Request, key: str) -> Person | Refusal | None:
        """Return the reader of the page, known by the key in the form or a login in front; `None` if unknown."""
        if self._authenticator.is_open:
            return None
        headers = [pair for pair in request.scope["headers"] if not key or pair[0] != b"authorization"]
        if key:
            try:
                headers.append((b"authorization", f"Bearer {key}".encode("ascii")))
            except UnicodeEncodeError:
                return Refusal(status=401, text="The key is not valid.")
        elif self._authenticator.needs_header and all(name != b"authorization" for name, _ in headers):
            return None
        caller = await self._authenticator.identify({**request.scope, "headers": headers})
        if isinstance(caller, Refusal):
            return Refusal(status=401, text="The key is not valid.") if key else caller
        identity = caller.identity
        if identity.user is None:
            return Refusal(status=403, text="This login names no user, so it can have no connections.")
        return Person(user_id=identity.user, space_id=identity.space)

    async def _form(self, request: Request) -> dict[str, str] | Response:
        headers = dict(request.scope["headers"])
        try:
            raw = await self._body_reader.read(headers, request.receive, limit_bytes=FORM_BYTES)
        except BodyError as error:
            return _refusal(error.text, error.status)
        except ClientLeftError:
            return PlainTextResponse("")
        return _words(raw.decode("latin-1")) or _refusal("The form is not complete.", 400)

    def _question(
        self, connections: Connections, pending: PendingConnection, ticket: str, browser: str, *,
        asks_key: bool, problem: str = "", status: int = 200,
    ) -> Response:  # fmt: skip
        person, scopes = pending.person, pending.scopes
        whose = person.user_id if person.space_id is None else f"{person.user_id} (space {person.space_id})"
        page, issuer = urlsplit(pending.login_page).netloc, urlsplit(pending.issuer).netloc
        rows = _rows({
            "Who": whose,
            "Service": f"{pending.source}: {pending.resource}",
            # The address of the login page is what the person sees next.
            "Log in at": pending.issuer if page == issuer else f"{pending.issuer} (login page at {page})",
            "Rights": ", ".join(scopes) or "those that the service gives",
        })  # fmt: skip
        key = (
            '<div class="fields"><label class="grow">Your key of this server '
            '<input name="key" type="password" required></label></div>'
        )
        check = f'<input type="hidden" name="check" value="{_check(browser, ticket)}">'
        name = _text(self._catalog.name)
        body = (
            f"<p>Tools of <b>{name}</b> will use an account at this service for <b>{_text(person.user_id)}</b>. "
            f"If that is not you, or you did not ask for it, do not go on.</p>{rows}"
            + (f'<p role="alert">{_text(problem)}</p>' if problem else "")
            + f'<form method="post" autocomplete="off">{check}'
            + (key if asks_key else "")
            + '<div class="actions"><button class="main" name="answer" value="connect">Connect</button> '
            '<button name="answer" value="no" formnovalidate>Do not connect</button></div></form>'
        )
        response = _page(f"Connect {_text(pending.source)}?", body, status=status)
        place = urlsplit(connections.public_url or "")
        is_secure = place.scheme == "https"
        response.set_cookie(
            _cookie_of(connections), browser, max_age=CONNECT_COOKIE_S,
            path="/" if is_secure else f"{place.path}/connections", secure=is_secure, httponly=True, samesite="lax",
        )  # fmt: skip
        return response


def _console_address(connections: Connections) -> str:
    return f"{escape(urlsplit(connections.public_url or '').path, quote=True)}/console/connections"


def _cookie_of(connections: Connections) -> str:
    return _HOST_COOKIE if urlsplit(connections.public_url or "").scheme == "https" else _COOKIE


def _browser(request: Request, connections: Connections) -> str | None:
    """Return the mark of the browser, if it has been here."""
    value = request.cookies.get(_cookie_of(connections), "")
    return value if 0 < len(value) <= 2 * _COOKIE_BYTES and value.isascii() else None


def _check(browser: str, ticket: str) -> str:
    """Return the form's token, which only a page that this server sent to this browser has."""
    return hmac.digest(browser.encode(), ticket.encode(), "sha256").hex()


def _words(encoded: str) -> dict[str, str] | None:
    """Return the fields of a query or a form; `None` if one is there twice, or there are too many."""
    try:
        pairs = parse_qsl(encoded, keep_blank_values=True, max_num_fields=FIELDS)
    except ValueError:
        return None
    words = dict(pairs)
    return words if len(words) == len(pairs) and "\0" not in "".join(words.values()) else None


def _text(text: str) -> str:
    """Return a text of others for a page; what a browser interprets or hides is spelled out."""
    return escape(safe(text))


def _rows(rows: dict[str, str]) -> str:
    return f"<dl>{''.join(f'<dt>{name}</dt><dd>{_text(value)}</dd>' for name, value in rows.items())}</dl>"


def _page(title: str, body: str, *, status: int = 200, head: str = "") -> HTMLResponse:
    return HTMLResponse(
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{title}</title>{head}'
        f"<style>{STYLE}</style></head>\n<body><main><h1>{title}</h1>{body}</main></body></html>\n",
        status_code=status,
        headers=_HEADERS,
    )


def _failed(error: ConnectFailedError) -> Response:
    return _refusal(str(error), _STATUS.get(error.failure, 403), failure=error.failure)


def _refusal(text: str, status: int, *, failure: str = "") -> Response:
    if failure:
        fields = {"failure": failure, "request_id": REQUEST_ID.get() or ""}
        log.warning("connect_refused: %s: %s", failure, text, extra={"fields": fields})
    return _page("Not connected", f"<p>{_text(text)}</p>", status=status)
