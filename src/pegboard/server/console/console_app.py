"""Console app: the guards of every request to the console, login and logout, and its table of pages."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import quote, urlencode

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Match, Route
from starlette.types import Receive, Scope, Send

from pegboard.auth.keys import id_of
from pegboard.auth.rules import ConsoleRules
from pegboard.core.names import legal
from pegboard.model.bounds import KIB
from pegboard.model.error import CallError
from pegboard.model.json_types import is_awaitable
from pegboard.model.rate_limit import RateLimit
from pegboard.server.authenticator import Authenticated, network_of
from pegboard.server.body_reader import ClientLeftError
from pegboard.server.connect_login import ConnectLogin
from pegboard.server.consent_inbox import APPROVER, AT_TERMINAL
from pegboard.server.console.agents_page import AgentsPage
from pegboard.server.console.audit_page import AuditPage
from pegboard.server.console.board import BoardPage
from pegboard.server.console.compare_page import ComparePage
from pegboard.server.console.connections_page import ConnectionsPage
from pegboard.server.console.documents_page import UPLOAD_PATH, DocumentsPage
from pegboard.server.console.find_page import FindPage
from pegboard.server.console.frame import frame
from pegboard.server.console.inbox_page import InboxPage, refused
from pegboard.server.console.issuer_login import LOGIN_S, IssuerLogin, LoginFailedError
from pegboard.server.console.live import LivePage
from pegboard.server.console.login_link import LoginLink
from pegboard.server.console.login_session import SESSION_S, Session, Sessions, cookie_name, login_cookie_name
from pegboard.server.console.matrix_page import MatrixPage
from pegboard.server.console.page_error import PageError, busy, no_such_page, no_such_profile
from pegboard.server.console.pages import SECURITY_HEADERS, Pages
from pegboard.server.console.pending_config import PendingConfig
from pegboard.server.console.sent_form import NO_FORM, SentForm, read_form
from pegboard.server.console.sources_page import SourcesPage
from pegboard.server.console.tasks_page import TasksPage
from pegboard.server.console.tool_detail import ToolPage
from pegboard.server.console.usage_page import UsagePage
from pegboard.server.console.visit import Lens, Visit, seen_through
from pegboard.server.health import OPERATOR
from pegboard.server.host_guard import OTHER_PAGE, Refusal, is_of_another_page
from pegboard.server.http_api.api_app import Api
from pegboard.server.http_api.problem_details import ProblemError
from pegboard.server.principal import ANONYMOUS, Identity, Principal
from pegboard.telemetry.part_states import PartStates
from pegboard.version import __version__
from pegboard.workspace.upload import UPLOAD_S

LOGIN_TRIES = RateLimit(max_calls=10, window_s=600.0)  # of one address, and of one key
LOGIN_NEXT_CHARS = 1_000  # of the page to go to after a login at the issuer
CREDENTIAL_CHARS = 8_192  # of a credential that a person types in
UPLOAD_FORM_BYTES = 64 * KIB  # of a form with a file, without the file

log = logging.getLogger("pegboard.console")
PATH = "/console"
# Anybody who reads the terminal can run `pegboard consent` there, too.
_PERSON_AT_TERMINAL = Identity(credential=AT_TERMINAL, roles=(OPERATOR, APPROVER))


class _Visitor(Struct, frozen=True, kw_only=True):
    """The sender of a request: the session of the browser, and the caller if the person is logged in."""

    session: Session | None
    caller: Authenticated | None = None
    is_local: bool = False
    refusal: Refusal | None = None
    login: str | None = None
    """The sealed state of a login that is under way at an issuer."""

    @property
    def nonce(self) -> str:
        """The value that the tokens of this person's forms are bound to."""
        if self.session is not None:
            return self.session.nonce
        return "" if self.caller is None else self.caller.identity.credential


Answer = Callable[[Visit], Awaitable[Response]]


class ConsoleApp:
    """The pages below `/console`, as an ASGI app.

    Every page is made of the view of the person who is logged in, or of the caller that an operator chose. The console
    decides nothing itself.

    Args:
        api: the guards and the gateway that all doors over HTTP share.
        login_token: the secret of the link that logs in the person at the terminal of a server without authentication.
        part_states: the probes of what the catalog depends on.
        has_others: whether other workers answer calls, too.
        has_own_login: whether the host identifies its callers itself, so that the console has no login.
        rules: the client of people who log in at the issuer, and whether operators see bodies.
        pending: the files of the config, which may have changed; `None` if the host made the catalog.
    """

    def __init__(
        self, api: Api, part_states: PartStates, *, login_token: str, has_own_login: bool, has_others: bool,
        rules: ConsoleRules, pending: PendingConfig | None = None,
    ) -> None:  # fmt: skip
        self._rules = rules
        self._api, self._link, self._has_own_login = api, LoginLink(login_token), has_own_login
        self._sessions, self._pages = Sessions(api.sealing), Pages()
        self.live = LivePage(self._pages, has_others=has_others)
        sources = SourcesPage(self._pages, part_states, pending, has_others=has_others)
        tasks, audit = TasksPage(self._pages), AuditPage(self._pages)
        documents, connections, agents = (
            DocumentsPage(self._pages), ConnectionsPage(self._pages, ConnectLogin(api.sealing)),
            AgentsPage(self._pages),
        )  # fmt: skip
        board, tools, inbox = BoardPage(self._pages), ToolPage(self._pages, pending), InboxPage(self._pages)
        self._routes = [
            self._route("", {"GET": board.show}),
            self._route("/tools/{name}", {"GET": tools.show, "POST": tools.call}),
            self._route("/compare", {"GET": ComparePage(self._pages).show}),
            self._route("/find", {"GET": FindPage(self._pages).show}),
            self._route("/tasks", {"GET": tasks.list}),
            self._route("/tasks/{id}", {"GET": tasks.show}),
            self._route("/tasks/{id}/cancel", {"POST": tasks.cancel}),
            self._route("/tasks/{id}/resume", {"POST": tasks.resume}),
            self._route("/documents", {"GET": documents.list}),
            self._route(UPLOAD_PATH, {"POST": documents.upload}),
            self._route("/documents/{id}", {"GET": documents.show}),
            self._route("/documents/{id}/remove", {"POST": documents.remove}),
            self._route("/connections", {"GET": connections.list}),
            self._route("/connections/connect", {"POST": connections.connect}),
            self._route("/connections/{id}/disconnect", {"POST": connections.disconnect}),
            self._route("/live", {"GET": self.live.show}),
            self._route("/live/events", {"GET": self.live.events}),
            self._route("/matrix", {"GET": MatrixPage(self._pages).show}),
            self._route("/agents", {"GET": agents.list}),
            self._route("/agents/{name}", {"GET": agents.show}),
            self._route("/usage", {"GET": UsagePage(self._pages).show}),
            self._route("/sources", {"GET": sources.show}),
            self._route("/sources/{name}/accept", {"POST": sources.accept}),
            self._route("/sources/config/compare", {"POST": sources.compare}),
            self._route("/sources/config/take", {"POST": sources.take}),
            self._route("/audit", {"GET": audit.list}),
            self._route("/audit/{id}", {"GET": audit.show}),
            self._route("/consents", {"GET": inbox.list}),
            self._route("/consents/waiting", {"GET": inbox.waiting}),
            self._route("/consents/look", {"POST": inbox.look}),
            self._route("/consents/{id}", {"GET": inbox.show}),
            self._route("/consents/{id}/approve", {"POST": inbox.approve}),
            self._route("/consents/{id}/edit", {"GET": inbox.edit, "POST": inbox.approve_edited}),
            self._route("/consents/{id}/decline", {"POST": inbox.decline}),
            self._route("/consents/{id}/grant", {"POST": inbox.grant}),
            self._route("/consents/{id}/revoke", {"POST": inbox.revoke}),
        ]

    def _route(self, path: str, answers: Mapping[str, Answer]) -> tuple[Route, Mapping[str, Answer]]:
        return Route(PATH + path, endpoint=_nowhere, methods=[*answers]), answers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            response = await self._answer(scope, receive, send)
        except ClientLeftError:
            return
        except PageError as error:
            response = self._error(scope, error)
        except Exception:  # boundary: the server's outermost handler; a bug says nothing to the person
            log.exception("The console failed at %r.", scope["path"])
            text = "The console could not make this page. The server's log says why."
            response = self._error(scope, PageError(500, "Something went wrong", text))
        await response(scope, receive, send)

    def _error(self, scope: Scope, error: PageError, visit: Visit | None = None) -> Response:
        """Return the page of an error, with the navigation if a person was about to see a page."""
        around = {"visit": None, "base": _base(scope), "version": __version__} if visit is None else frame(visit, "")
        values = {**around, "title": error.title, "text": error.text}
        response = self._pages.page("error.html", values, status=error.status)
        if error.retry_after_s:
            response.headers["retry-after"] = str(error.retry_after_s)
        return response

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> Response:
        # httptools keeps whitespace around values (RFC 9110, 5.5).
        scope["headers"] = [(name, value.strip(b" \t")) for name, value in scope["headers"]]
        refusal = self._api.host_guard.refusal(scope["headers"])
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        if refusal is None and method != "GET" and is_of_another_page(scope):
            refusal = OTHER_PAGE
        if refusal is not None:
            raise PageError(refusal.status, "Refused", refusal.text)
        if method not in ("GET", "POST"):
            raise PageError(405, "Not possible", f"{method[:20]!r} is not possible here; possible: GET, POST.")
        path = _page_path(scope)
        if path.startswith("/static/") and method == "GET":
            file = self._pages.file(path.removeprefix("/static/"))
            if file is None:
                raise no_such_page()
            return file
        if path.endswith("/") and method == "GET":
            return self._without_slash(scope, path)
        if self._api.open.is_full:
            raise busy()
        visitor = await self._visitor(scope)
        if path == UPLOAD_PATH and method == "POST" and visitor.caller is not None:
            return await self._uploaded(scope, receive, send, visitor)
        form = NO_FORM if method == "GET" else await read_form(self._api.body_reader, dict(scope["headers"]), receive)
        if method == "POST":
            self._check_form_token(form, visitor)
        if path == "/login":
            return await self._login(scope, visitor, form.fields)
        if path in ("/login/start", "/login/callback") and method == "GET":
            return await self._issuer_login(scope, visitor, is_start=path == "/login/start")
        if path == "/logout" and method == "POST":
            return self._logged_out(scope)
        if visitor.caller is None:
            return self._to_login(scope, visitor, path)
        return await self._opened(scope, receive, send, visitor, form)

    def _without_slash(self, scope: Scope, path: str) -> Response:
        """Redirect from an address that somebody typed with a slash at its end."""
        query = scope["query_string"].decode("latin-1")
        target = f"{_base(scope)}{quote(path.rstrip('/'))}" + (f"?{query}" if query else "")
        return RedirectResponse(target, status_code=308, headers=SECURITY_HEADERS)

    async def _uploaded(self, scope: Scope, receive: Receive, send: Send, visitor: _Visitor) -> Response:
        """Answer a form with documents, which holds a slot for uploads until they are stored."""
        assert visitor.caller is not None
        try:
            async with self._api.uploads.place(Principal(identity=visitor.caller.identity, profile=None)) as slot:
                limit = self._api.gateway.registry.bounds.upload_bytes + UPLOAD_FORM_BYTES
                reading = read_form(
                    self._api.body_reader, dict(scope["headers"]), slot.counted(receive), limit_bytes=limit,
                    timeout_s=UPLOAD_S,
                )  # fmt: skip
                form = await slot.arrive(reading)
                self._check_form_token(form, visitor)
                return await self._opened(scope, receive, send, visitor, form)
        except ProblemError as problem:
            raise PageError(problem.status, "Not now", problem.detail, retry_after_s=5) from None

    def _check_form_token(self, form: SentForm, visitor: _Visitor) -> None:
        if not self._sessions.is_form_token(form.fields.get("form_token", ""), visitor.nonce):
            text = "This form is of an earlier session. Open the page again, and repeat what you did."
            raise PageError(403, "Not changed", text)

    async def _opened(self, scope: Scope, receive: Receive, send: Send, visitor: _Visitor, form: SentForm) -> Response:
        """Return a page within the limit of open requests."""
        assert visitor.caller is not None
        whose = self._api.open.enter(Principal(identity=visitor.caller.identity, profile=None))
        if whose is None:
            raise busy()
        try:
            return await self._page(scope, receive, send, visitor, form)
        finally:
            self._api.open.leave(whose)

    async def _page(self, scope: Scope, receive: Receive, send: Send, visitor: _Visitor, form: SentForm) -> Response:
        for route, answers in self._routes:
            match, child = route.matches(scope)
            if match is Match.NONE:
                continue
            answer = answers.get("GET" if scope["method"] == "HEAD" else scope["method"])
            if answer is None and scope["method"] == "POST":
                raise PageError(405, "Not possible", f"Possible here: {', '.join(answers)}.")
            visit = await self._visit(scope, receive, send, visitor, form, child.get("path_params", {}))
            if answer is None:
                above = visit.url(self._page_above(visit.here))
                return RedirectResponse(above, status_code=303, headers=SECURITY_HEADERS)
            try:
                return await answer(visit)
            except CallError as error:
                return self._error(scope, refused(error), visit)
            except PageError as error:
                return self._error(scope, error, visit)
        return self._error(scope, no_such_page(), await self._visit(scope, receive, send, visitor, form, {}))

    def _page_above(self, path: str) -> str:
        """Return the nearest page above an address that only takes forms, for people who open its answer again."""
        pages = [route for route, answers in self._routes if "GET" in answers]
        while path:
            path = path.rpartition("/")[0]
            if any(page.path_regex.fullmatch(PATH + path) for page in pages):
                break
        return path

    # -- who

    async def _visitor(self, scope: Scope) -> _Visitor:
        """Return the sender of a request; the credential of the session is checked as one in a header is."""
        authenticator = self._api.authenticator
        if self._has_own_login:
            caller = await authenticator.identify(scope)
            if isinstance(caller, Refusal):
                return _Visitor(session=None, refusal=caller)
            return _Visitor(session=None, caller=caller)
        cookies = Request(scope).cookies
        session, login = self._sessions.open(cookies.get(cookie_name(scope))), cookies.get(login_cookie_name(scope))
        # Pages and tools after this point never see the cookie.
        scope["headers"] = [header for header in scope["headers"] if header[0] not in (b"cookie", b"authorization")]
        if session is None:
            return _Visitor(session=None, login=login)
        if session.is_local:
            is_open = self._api.gateway.registry.declarations.identity is None and authenticator.is_local(scope)
            caller = Authenticated(identity=_PERSON_AT_TERMINAL) if is_open else None
            return _Visitor(session=session, caller=caller, is_local=is_open)
        if not session.key:
            return _Visitor(session=session, login=login)
        caller = await self._identified(scope, session.key)
        if isinstance(caller, Refusal):
            return _Visitor(session=session, refusal=caller, login=login)
        return _Visitor(session=session, caller=caller, login=login)

    async def _identified(self, scope: Scope, key: str) -> Authenticated | Refusal:
        shown = {**scope, "headers": [*scope["headers"], (b"authorization", b"Bearer " + key.encode())]}
        caller = await self._api.authenticator.identify(shown)
        if isinstance(caller, Authenticated) and caller.identity.credential == ANONYMOUS:
            # A server without authentication does not look at keys.
            return Refusal(status=401, text="This server knows no keys.")
        return caller

    async def _visit(
        self, scope: Scope, receive: Receive, send: Send, visitor: _Visitor, form: SentForm,
        path: Mapping[str, str],
    ) -> Visit:  # fmt: skip
        assert visitor.caller is not None
        caller, registry, query = visitor.caller, self._api.gateway.registry, dict(Request(scope).query_params)
        lens, person = Lens.of(query), caller.identity
        is_operator, declared = OPERATOR in person.roles, registry.profiles
        profiles = tuple(declared) if is_operator else self._api.authenticator.profiles_of(caller)
        if not is_operator:
            lens = Lens(profile=lens.profile)
        if lens.profile and lens.profile not in profiles:
            raise no_such_profile(lens.profile, profiles, is_operator=is_operator)
        acts_as = await self._principal(scope, visitor, lens.profile)
        looks_as, is_own = acts_as, not lens.is_of_another
        if looks_as is None or lens.is_of_another:
            # An operator may look at every profile, and calls tools only in their own.
            looks_as, is_own = self._other(lens, person, acts_as), False
        if looks_as is None:
            raise PageError(403, "No profile", "Your credential gives no profile here. Ask the operator for a rule.")
        return Visit(
            gateway=self._api.gateway, person=person, acts_as=acts_as, looks_as=looks_as, is_own=is_own, lens=lens,
            profiles=profiles, base=_base(scope), here=_page_path(scope), path=path, query=query,
            headers=dict(scope["headers"]), form=form.fields, files=form.files,
            form_token=self._sessions.form_token(visitor.nonce), origin=_origin(scope),
            can_log_out=visitor.session is not None, sees_bodies=not is_operator or self._rules.shows_bodies,
            receive=receive, send=send,
        )  # fmt: skip

    async def _principal(self, scope: Scope, visitor: _Visitor, profile: str) -> Principal | None:
        """Return the principal of the person's own calls; `None` if they have no such profile."""
        assert visitor.caller is not None
        authenticator = self._api.authenticator
        if visitor.is_local:
            # Without authentication, the person at the terminal calls tools as everybody does.
            found = await authenticator.authenticate(scope, profile or None)
        else:
            found = authenticator.as_profile(visitor.caller, profile or None, scope)
        return None if isinstance(found, Refusal) else found

    def _other(self, lens: Lens, person: Identity, acts_as: Principal | None) -> Principal | None:
        if OPERATOR not in person.roles:
            return None
        return seen_through(lens, person, acts_as, next(iter(self._api.gateway.registry.profiles), None))

    # -- login and logout

    async def _login(self, scope: Scope, visitor: _Visitor, form: Mapping[str, str]) -> Response:
        base = _base(scope)
        if visitor.caller is not None and not form:
            return RedirectResponse(base, status_code=303, headers=SECURITY_HEADERS)
        if self._has_own_login:
            refusal = visitor.refusal
            raise PageError(
                401, "Log in", "Log in at the app that serves Pegboard." if refusal is None else refusal.text
            )
        if not form:
            return self._login_page(scope, visitor)
        await self._count_try(scope, form.get("key", "").strip())
        session = await self._new_session(scope, form)
        if isinstance(session, str):
            return self._login_page(scope, visitor, fault=session)
        try:
            cookie = self._sessions.sealed(session)
        except ValueError as error:
            return self._login_page(scope, visitor, fault=str(error))
        return self._with_cookie(scope, RedirectResponse(_next(form.get("next", ""), base), status_code=303), cookie)

    async def _new_session(self, scope: Scope, form: Mapping[str, str]) -> Session | str:
        """Return the session of a person who gave a good key or link; else what is wrong."""
        link, key = form.get("link", ""), form.get("key", "").strip()
        if link:
            is_open = self._api.gateway.registry.declarations.identity is None
            if is_open and self._api.authenticator.is_local(scope) and self._link.use(link):
                return self._sessions.new(is_local=True)
            return "This link was used, or is too old. Start the server again for a new one."
        if not key or len(key) > CREDENTIAL_CHARS or not key.isascii() or not key.isprintable() or " " in key:
            return "Type in an API key, such as `pegboard keys add` prints."
        caller = await self._identified(scope, key)
        if isinstance(caller, Refusal):
            if caller.status >= 500:
                raise PageError(caller.status, "Not now", caller.text, retry_after_s=5)
            return "This key is not valid here."
        return self._sessions.new(key=key)

    def _issuer(self) -> IssuerLogin | None:
        """Return the login at the issuer; `None` if people do not log in there."""
        identity = self._api.gateway.registry.declarations.identity
        if not self._rules.client_id or identity is None or identity.tokens is None:
            return None
        return IssuerLogin(self._rules, identity.tokens, self._api.sealing)

    async def _issuer_login(self, scope: Scope, visitor: _Visitor, *, is_start: bool) -> Response:
        """Send a browser to the issuer, or log in the person whom the issuer sends back."""
        login, redirect_uri = self._issuer(), f"{_origin(scope)}{PATH}/login/callback"
        if login is None or self._has_own_login:
            raise no_such_page()
        request = Request(scope)
        try:
            if is_start:
                await self._count_try(scope, "")
                url, cookie = await login.begin(
                    redirect_uri=redirect_uri, wanted=request.query_params.get("next", "")[:LOGIN_NEXT_CHARS]
                )
                response = RedirectResponse(url, status_code=303, headers=SECURITY_HEADERS)
                self._set_login_cookie(scope, response, cookie)
                return response
            answer = dict(request.query_params)
            done = await login.finish(answer, cookie=visitor.login,
                                      redirect_uri=redirect_uri)  # fmt: skip
            caller = await self._identified(scope, done.key)
            if isinstance(caller, Refusal):
                status = caller.status if caller.status >= 500 else 403
                text = (
                    caller.text if status >= 500 else "You are logged in there, but no rule of this server names you."
                )
                raise LoginFailedError(text, status=status)
            cookie = self._sessions.sealed(self._sessions.new(key=done.key))
        except LoginFailedError as error:
            return self._login_page(scope, visitor, fault=error.text, status=error.status)
        except ValueError as error:
            return self._login_page(scope, visitor, fault=str(error))
        # A redirect would still count as coming from the issuer, and the browser would not send the cookie.
        target = _next(done.wanted, _base(scope))
        values = {"base": _base(scope), "version": __version__, "target": target, "refresh": f"0;url={target}"}
        response = self._with_cookie(scope, self._pages.page("logged_in.html", values), cookie)
        self._set_login_cookie(scope, response, "")
        return response

    def _set_login_cookie(self, scope: Scope, response: Response, cookie: str) -> None:
        """Set the cookie of a login that is under way, or delete it; the issuer's answer must bring it along."""
        response.set_cookie(
            login_cookie_name(scope), cookie, max_age=int(LOGIN_S) if cookie else 0, path=f"{_base(scope)}/login",
            httponly=True, samesite="lax", secure=scope["scheme"] == "https",
        )  # fmt: skip

    async def _count_try(self, scope: Scope, key: str) -> None:
        """Count a try to log in, of the address and of the key, with the limits of calls.

        Raises:
            PageError: there were too many, or they cannot be counted.
        """
        client = scope.get("client")
        hits: list[tuple[tuple[str | None, ...], RateLimit]] = [
            (("console login", "address", network_of(str(client[0]) if client else "")), LOGIN_TRIES)
        ]
        if (key_id := id_of(key)) is not None:
            hits.append((("console login", "key", key_id), LOGIN_TRIES))
        try:
            waiting: Any = self._api.gateway.catalog.executor.ports.limits.wait_s(hits, charge=True)
            wait_s: float | None = await waiting if is_awaitable(waiting) else waiting
        except OSError:
            text = "Tries to log in cannot be counted at the moment. Try again in a moment."
            raise PageError(503, "Not now", text, retry_after_s=5) from None
        if wait_s != 0.0:
            seconds = int(wait_s or LOGIN_TRIES.window_s) + 1
            text = f"There were too many tries to log in. Try again in {seconds} s."
            raise PageError(429, "Too many tries", text, retry_after_s=seconds)

    def _login_page(self, scope: Scope, visitor: _Visitor, *, fault: str = "", status: int = 403) -> Response:
        session = visitor.session
        if session is None or session.key or session.is_local:
            # The form needs a session that it belongs to; a new one also ends that of a revoked key.
            session = self._sessions.new()
        query = Request(scope).query_params
        identity = self._api.gateway.registry.declarations.identity
        values = {
            "base": _base(scope), "version": __version__, "fault": fault or _ended(visitor),
            "form_token": self._sessions.form_token(session.nonce), "next": query.get("next", ""),
            "link": query.get("link", ""), "has_identity": identity is not None, "link_is_open": self._link.is_open,
            "has_keys": identity is not None and identity.key_store is not None,
            "issuer": "" if identity is None or identity.tokens is None else identity.tokens.issuer,
            "has_issuer": self._issuer() is not None,
            "start": f"{_base(scope)}/login/start?{urlencode({'next': query.get('next', '')})}",
            "name": legal(self._api.gateway.catalog.name),
        }  # fmt: skip
        response = self._pages.page("login.html", values, status=status if fault else 200)
        return self._with_cookie(scope, response, self._sessions.sealed(session))

    def _to_login(self, scope: Scope, visitor: _Visitor, path: str) -> Response:
        if visitor.refusal is not None and visitor.refusal.status >= 500:
            raise PageError(visitor.refusal.status, "Not now", visitor.refusal.text, retry_after_s=5)
        query = scope["query_string"].decode("latin-1")
        wanted = f"{path}?{query}" if query else path
        target = f"{_base(scope)}/login" + (f"?{urlencode({'next': wanted})}" if wanted else "")
        return RedirectResponse(target, status_code=303, headers=SECURITY_HEADERS)

    def _logged_out(self, scope: Scope) -> Response:
        response = RedirectResponse(f"{_base(scope)}/login", status_code=303, headers=SECURITY_HEADERS)
        response.delete_cookie(cookie_name(scope), path=_base(scope), httponly=True, samesite="strict")
        return response

    def _with_cookie(self, scope: Scope, response: Response, cookie: str) -> Response:
        response.headers.update(SECURITY_HEADERS)
        response.set_cookie(
            cookie_name(scope), cookie, max_age=int(SESSION_S), path=_base(scope), httponly=True, samesite="strict",
            secure=scope["scheme"] == "https",
        )  # fmt: skip
        return response


def _ended(visitor: _Visitor) -> str:
    session = visitor.session
    if session is None or not (session.key or session.is_local):
        return ""
    return "Your session is over: the key was revoked, or the rules changed. Log in again."


def _page_path(scope: Scope) -> str:
    """Return the path of a page in the console."""
    return scope["path"].removeprefix(scope.get("root_path", "")).removeprefix(PATH)


def _base(scope: Scope) -> str:
    return f"{scope.get('root_path', '')}{PATH}"


def _origin(scope: Scope) -> str:
    url = Request(scope).base_url
    return f"{url.scheme}://{url.netloc}{scope.get('root_path', '')}"


def _next(wanted: str, base: str) -> str:
    """Return the page to go to after the login, which is always one of the console."""
    is_ours = wanted.startswith("/") and not wanted.startswith(("//", "/\\")) and wanted.isascii()
    return f"{base}{wanted}" if is_ours and wanted.isprintable() else base


async def _nowhere(_request: Request) -> Response:  # pragma: no cover - routes are only matched
    raise no_such_page()
