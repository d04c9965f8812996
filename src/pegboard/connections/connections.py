"""Connections: every person's own accounts at the services behind sources."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit

from pegboard.connections.auth_settings import AuthSettings
from pegboard.connections.client_registration import (
    CLIENT_DOCUMENT_PATH,
    client_document,
    configured_client,
    document_client,
    register,
)
from pegboard.connections.connection_json import connection_detail
from pegboard.connections.connection_records import (
    NO_CHALLENGE,
    AccessToken,
    AwaitedConnection,
    Challenge,
    ConnectFailedError,
    Connection,
    ConnectLink,
    Disconnected,
    PendingConnection,
    Person,
)
from pegboard.connections.connection_required import ConnectionRequiredError
from pegboard.connections.connection_store import SCHEMA, ConnectionStore, Flow, StoredConnection
from pegboard.connections.grants import CLIENT_FAULTS, ENDED, GrantRefusedError, exchange_code, refresh, revoke
from pegboard.connections.issuer_discovery import check_login_page, discover, named_endpoints
from pegboard.connections.issuer_requests import IssuerRequests
from pegboard.connections.issuers import Issuer, OAuthClient, TokenAnswer
from pegboard.connections.limits import (
    CLOSING_S,
    CONNECTION_STORE_BUSY_S,
    FLOW_S,
    FRESH_TOKEN_S,
    REFRESH_LEASE_S,
    REFRESH_POLL_S,
    RENEW_EARLY_S,
    TOKEN_KEPT_S,
)
from pegboard.connections.token_cache import TokenCache
from pegboard.core.after_fork import leave_to_parent, renew_after_fork
from pegboard.core.ports import AuditEvent
from pegboard.egress.connections import Resolve, system_resolve
from pegboard.egress.failures import EgressError
from pegboard.lazy import LazyModule
from pegboard.model.error import CallError, DefinitionError
from pegboard.model.json_types import JSON, JSONValue
from pegboard.model.record import replace
from pegboard.model.secret import Secret
from pegboard.storage.database import Database
from pegboard.storage.postgres_server import PostgresServer
from pegboard.storage.sqlite_file import SqliteFile
from pegboard.storage.store_error import StoreError
from pegboard.storage.store_uri import StoreUri

if TYPE_CHECKING:
    from pegboard.connections import oauth_protocol as oauth
else:
    oauth = LazyModule("pegboard.connections.oauth_protocol")

PAGE_PATH = "/connections"
"""The path of the page that a link opens, below `public_url`; the ticket follows it."""
CALLBACK_PATH = "/connections/callback"
"""The path where an issuer sends the browser back, below `public_url`."""

log = logging.getLogger("pegboard.connections")
_TICKET_BYTES = 32
# The scopes of OpenID Connect: rights to log in and to refresh tokens, which issuers leave out of their answer or send
# under their own names, as Google does.
_OF_OPENID = frozenset({"openid", "profile", "email", "address", "phone", "offline_access"})
POSTGRES_CONNECTIONS_KEPT = 4  # connections to a PostgreSQL store that stay open for the next read
T = TypeVar("T")
OnChange = Callable[[Person, str, bool], object]
NoteChange = Callable[[AuditEvent, JSON, str], object]


class Connections:
    """Connects people to the services behind sources, and returns their tokens to the sources.

    One person agrees once: `begin` gives a link, `opened` says what it is for, `agree` sends the browser to the issuer,
    and `finish` stores the tokens when it comes back. These steps may run in different processes that share the
    database. From then on `token` returns a valid token, refreshed by one worker at a time. `disconnect` ends it.

    A store that does not answer raises `CallError` of the kind `storage_unavailable`.

    Args:
        database: the database with the tables of `connection_store.SCHEMA`.
        keys: secrets of 32 bytes or more: the first encrypts, all decrypt.
        public_url: the URL of this server as browsers reach it, without a slash at its end; `None` without one.
        wall_clock: seconds since 1970, the same for all who share the database.
        resolve: looks up the host names of issuers.
        lease_s: how long one worker alone may refresh a token, in seconds. If it dies, the others wait that long.
        token_kept_s: how long a token is used after the store has confirmed it, in seconds. A disconnection in another
            process counts after that, unless `changed_elsewhere` reports it.
        clock: seconds, monotonic.

    Raises:
        DefinitionError: the database cannot be used, or a key is too short.
    """

    def __init__(
        self,
        database: Database,
        *,
        keys: Sequence[Secret],
        public_url: str | None = None,
        wall_clock: Callable[[], float] | None = None,
        resolve: Resolve = system_resolve,
        lease_s: float = REFRESH_LEASE_S,
        token_kept_s: float = TOKEN_KEPT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.public_url = public_url.rstrip("/") if public_url else None
        self._store = ConnectionStore(database, keys=keys, wall_clock=wall_clock)
        self._resolve, self._lease_s = resolve, lease_s
        self._clock = clock
        self._tokens = TokenCache(self._store, kept_s=token_kept_s, clock=clock)
        self._sources: dict[str, AuthSettings] = {}
        self._renewals: dict[tuple[str, bool], asyncio.Task[StoredConnection | None]] = {}
        self._on_change: list[OnChange] = []
        self._worker = os.urandom(8).hex()
        self.note_change: NoteChange | None = None
        """Records connections and disconnections in the audit; the catalog that has these connections sets it."""
        renew_after_fork(self)

    @classmethod
    def open(
        cls, uri: str | Secret, *, keys: Sequence[Secret], public_url: str | None = None, folder: Path | None = None
    ) -> Connections:
        """Return connections stored in `sqlite:FILE`, relative to `folder`, or in `postgresql://…`.

        Raises:
            DefinitionError: the URI or a key cannot be used.
            ImportError: psycopg is not installed.
        """
        parsed = StoreUri.parse(uri, folder=folder or Path())
        database: Database = (
            SqliteFile(parsed.path, SCHEMA, busy_s=CONNECTION_STORE_BUSY_S)
            if parsed.path is not None
            else PostgresServer(parsed.text, SCHEMA, busy_s=CONNECTION_STORE_BUSY_S, keep=POSTGRES_CONNECTIONS_KEPT)
        )
        return cls(database, keys=keys, public_url=public_url)

    def after_fork(self) -> None:
        """Leave the running refreshes to the parent."""
        leave_to_parent(self._renewals)
        self._renewals, self._worker = {}, os.urandom(8).hex()

    # ---- the sources

    @property
    def sources(self) -> Mapping[str, AuthSettings]:
        """The sources that people connect to, by name."""
        return self._sources

    def add(self, settings: AuthSettings) -> None:
        """Let people connect to a source.

        Raises:
            DefinitionError: its tokens are not those of persons.
        """
        if settings.mode != "user":
            raise DefinitionError(f"mode: {settings.mode!r} is not a mode for people; they connect with `user`")
        self._sources[settings.source] = settings

    def _settings(self, source: str) -> AuthSettings:
        settings = self._sources.get(source)
        if settings is None:
            known = ", ".join(sorted(self._sources)) or "none"
            raise ConnectFailedError("unknown_source", f"No source {source!r} connects people; there are: {known}.")
        return settings

    def issuer_requests(self, settings: AuthSettings) -> IssuerRequests:
        """Return the client that sends a source's requests to its issuer."""
        return IssuerRequests(settings, resolve=self._resolve)

    def subscribe(self, on_change: OnChange) -> Callable[[], None]:
        """Call `on_change(person, source, is_connected)` after somebody connected or disconnected, as far as is known.

        What other processes do is known here only through `changed_elsewhere`.

        Returns a function that ends the subscription.
        """
        self._on_change.append(on_change)
        return lambda: self._on_change.remove(on_change)

    def changed_elsewhere(self, person: Person, source: str, *, is_connected: bool) -> None:
        """Drop everything cached here, after a change that another process has stored."""
        self._notify(person, source, is_connected=is_connected)

    def _notify(self, person: Person, source: str, *, is_connected: bool) -> None:
        self._forget(person, source)
        for notify in tuple(self._on_change):
            notify(person, source, is_connected)

    def _note(self, event: AuditEvent, connection: Connection, *, by: str, **more: JSONValue) -> None:
        if self.note_change is not None:
            self.note_change(event, {**connection_detail(connection), **more}, by)

    def _forget(self, person: Person, source: str) -> None:
        if (settings := self._sources.get(source)) is not None:
            self._tokens.forget(person, settings)

    def client_document(self) -> JSON | None:
        """Return the document at `CLIENT_DOCUMENT_PATH`, whose URL is our client id; `None` without a `public_url`."""
        if self.public_url is None:
            return None
        return client_document(f"{self.public_url}{CLIENT_DOCUMENT_PATH}", f"{self.public_url}{CALLBACK_PATH}")

    # ---- connecting

    async def begin(
        self, person: Person, source: str, challenge: Challenge = NO_CHALLENGE, *, redirect_uri: str | None = None
    ) -> ConnectLink:
        """Return a link for connecting this person to a source; an open link is reused.

        Nothing is sent. `redirect_uri` replaces that of `public_url`, for a command that listens on loopback.

        Raises:
            ConnectFailedError: the source is unknown, or there is neither a redirect URI nor a `public_url`.
            CallError: too many links are open, or the store does not answer.
        """
        settings = self._settings(source)
        redirect = redirect_uri or (f"{self.public_url}{CALLBACK_PATH}" if self.public_url else "")
        if not redirect:
            text = f"People cannot connect to {source!r} in a browser: `connections:` has no `public_url`."
            raise ConnectFailedError("not_supported", text)
        ticket = secrets.token_urlsafe(_TICKET_BYTES)
        with_store = self._store.open_flow(person, settings, challenge, redirect, ticket=ticket, for_s=FLOW_S)
        flow = await _answered(with_store)
        url = "" if self.public_url is None else f"{self.public_url}{PAGE_PATH}/{flow.ticket}"
        return ConnectLink(url=url, ticket=Secret(flow.ticket), expires_at=flow.expires_at)

    async def begin_awaited(self, person: Person, source: str) -> ConnectLink:
        """Return a link as `begin` does, with the rights for which a call of this person waits.

        Raises:
            ConnectFailedError, CallError: as for `begin`.
        """
        flows = await _answered(self._store.open_flows(person))
        challenge = next((flow.challenge for flow in flows if flow.source == source), NO_CHALLENGE)
        return await self.begin(person, source, challenge)

    async def opened(self, ticket: str, *, person: Person | None = None) -> PendingConnection:
        """Return the question for the person who opened a link. The first call discovers the issuer.

        `person` is the reader, if the door knows.

        Raises:
            ConnectFailedError: the link is unknown, used up or another person's, or the issuer cannot be found.
            CallError: the store does not answer.
        """
        flow = await self._discovered(ticket, person)
        assert flow.issuer is not None
        return PendingConnection(
            person=flow.person,
            source=flow.source,
            issuer=flow.issuer.issuer,
            login_page=flow.issuer.authorization_url,
            resource=flow.resource or flow.server,
            scopes=flow.scopes,
            expires_at=flow.expires_at,
        )

    async def agree(self, ticket: str, *, browser: str, person: Person | None = None) -> str:
        """Bind a link to a browser after its person agreed. Return the URL of the issuer to send the browser to.

        `browser` is the value of a cookie that the page has set; no other browser can go on from here.

        Raises:
            ConnectFailedError: as for `opened`; or another browser has agreed, or the issuer knows no client.
            CallError: the store does not answer.
        """
        flow = await self._discovered(ticket, person)
        assert flow.issuer is not None
        _check_page(flow.issuer, self._settings(flow.source))
        pkce, state = oauth.PKCEParameters.generate(), secrets.token_urlsafe(_TICKET_BYTES)
        client = await self._client(flow)
        flow = replace(flow, client=client, verifier=Secret(pkce.code_verifier))
        if not await _answered(self._store.agree(flow, browser=browser, state=state)):
            raise _other_browser()
        more = dict(self._settings(flow.source).authorization_params)
        return _authorization_url(flow, client, challenge=pkce.code_challenge, state=state, more=more)

    async def awaited(self, person: Person | None = None) -> list[AwaitedConnection]:
        """Return the newest open link for each source, of one person or of all.

        Only links to the page are among them: nobody else can open the address of a command.

        Raises:
            CallError: the store does not answer.
        """
        newest: dict[tuple[Person, str], AwaitedConnection] = {}
        for flow in await _answered(self._store.open_flows(person)):
            if self.public_url is not None and flow.redirect_uri == f"{self.public_url}{CALLBACK_PATH}":
                entry = AwaitedConnection(
                    person=flow.person,
                    source=flow.source,
                    scopes=flow.scopes or flow.challenge.scopes,
                    url=f"{self.public_url}{PAGE_PATH}/{flow.ticket}",
                    expires_at=flow.expires_at,
                )
                newest.setdefault((flow.person, flow.source), entry)
        return [*newest.values()]

    async def is_open(self, ticket: str) -> bool:
        """Tell whether a link can still be used. Nothing is sent.

        Raises:
            CallError: the store does not answer.
        """
        return await _answered(self._store.flow(ticket)) is not None

    async def decline(self, ticket: str, *, browser: str) -> None:
        """Invalidate a link after its person declined."""
        await _answered(self._store.drop_flow(ticket, browser=browser))

    async def finish(
        self,
        state: str,
        *,
        browser: str,
        code: str = "",
        iss: str | None = None,
        error: str = "",
        person: Person | None = None,
        redirect_uri: str | None = None,
    ) -> Connection:
        """Exchange the authorization code of the redirect for tokens, and store the connection. Works once.

        Args:
            state: as it came back.
            browser: the value of the browser's cookie.
            code: the code; empty if the issuer refused.
            iss: the issuer that says it answers (RFC 9207), if it does.
            error: the error code of the issuer.
            person: the reader, if the door knows.
            redirect_uri: where the browser came back to; by default the page.

        Raises:
            ConnectFailedError: nothing was connected; the message says why.
            CallError: the store does not answer.
        """
        flow = await _answered(self._store.take_flow(state, browser=browser))
        if flow == "other_browser":
            raise _other_browser()
        if flow is None or flow.issuer is None or flow.client is None:
            raise _unknown_link()
        _check_reader(flow, person)
        settings = self._settings(flow.source)
        _check_redirect(flow, redirect_uri or f"{self.public_url}{CALLBACK_PATH}")
        _check_answer(flow.issuer, iss)
        if error or not code:
            words = f"its login page answered {error[:64]!r}" if error else "its login page sent no code"
            text = f"{flow.source!r} was not connected: {words}. Ask for a new link if you want to try again."
            raise ConnectFailedError("denied", text)
        if settings.server_url != flow.server:
            text = f"The address of {flow.source!r} has changed since the link was made. Ask for a new link."
            raise ConnectFailedError("issuer_changed", text)
        answer = await self._exchanged(flow, settings, flow.issuer, flow.client, code)
        connection = await _answered(self._store.save(flow, answer, renew_early_s=RENEW_EARLY_S))
        log.info(
            "connected: user %r in space %r to %r at %r, scopes %r, connection %s",
            flow.person.user_id, flow.person.space_id, flow.source, connection.issuer, " ".join(connection.scopes),
            connection.id,
        )  # fmt: skip
        self._note("account_connected", connection, by=flow.person.user_id)
        self._notify(flow.person, flow.source, is_connected=True)
        granted = _OF_OPENID.union(connection.scopes)
        return replace(connection, refused_scopes=tuple(scope for scope in flow.scopes if scope not in granted))

    async def _discovered(self, ticket: str, reader: Person | None) -> Flow:
        """Return an open link whose issuer is known, and takes no codes of another issuer's login page."""
        flow = await self._with_issuer(ticket, reader)
        assert flow.issuer is not None
        known = await _answered(self._store.issuers())
        named = [named_endpoints(other) for other in self._sources.values() if other.authorization_url]
        check_login_page(self._settings(flow.source), flow.issuer, (*known, *named))
        return flow

    async def _with_issuer(self, ticket: str, reader: Person | None) -> Flow:
        flow = await _answered(self._store.flow(ticket))
        if flow is None:
            raise _unknown_link()
        _check_reader(flow, reader)
        if flow.issuer is not None:
            return flow
        settings = self._settings(flow.source)
        held, _ = await _answered(self._store.current(flow.person, settings))
        try:
            found = await discover(
                settings,
                self.issuer_requests(settings),
                challenge=flow.challenge,
                held=() if held is None else held.shown.scopes,
            )
        except EgressError as error:
            raise ConnectFailedError("issuer_unavailable", error.error.message) from None
        flow = replace(flow, issuer=found.issuer, resource=found.resource, scopes=found.scopes)
        await _answered(self._store.keep_discovered(flow))
        # Somebody else may have opened it at the same time.
        return await _answered(self._store.flow(ticket)) or flow

    async def _client(self, flow: Flow) -> OAuthClient:
        """Return the client for a link: configured, else a metadata document, else a registered one."""
        assert flow.issuer is not None
        issuer, settings = flow.issuer, self._settings(flow.source)
        # A command that listens on loopback has another redirect URI each time, which no document names.
        is_by_page = self.public_url is not None and flow.redirect_uri == f"{self.public_url}{CALLBACK_PATH}"
        document = f"{self.public_url}{CLIENT_DOCUMENT_PATH}" if is_by_page else None
        client = configured_client(settings, issuer) or document_client(issuer, document)
        if client is None and is_by_page:
            client = await _answered(self._store.client(issuer.issuer, flow.redirect_uri))
        if client is not None:
            return client
        try:
            client, expires_at = await register(
                self.issuer_requests(settings),
                issuer,
                redirect_uri=flow.redirect_uri,
                scopes=flow.scopes,
                is_web=flow.redirect_uri.startswith("https://"),
            )
        except EgressError as error:
            raise ConnectFailedError("issuer_unavailable", error.error.message) from None
        if is_by_page:
            await _answered(self._store.keep_client(client, issuer.issuer, flow.redirect_uri, expires_at))
        return client

    async def _exchanged(
        self, flow: Flow, settings: AuthSettings, issuer: Issuer, client: OAuthClient, code: str
    ) -> TokenAnswer:
        try:
            return await exchange_code(
                self.issuer_requests(settings),
                issuer,
                client,
                code=code,
                verifier=flow.verifier,
                redirect_uri=flow.redirect_uri,
                resource=flow.resource,
            )
        except GrantRefusedError as error:
            log.warning("%r was not connected for user %r: %s", flow.source, flow.person.user_id, error)
            if error.code in CLIENT_FAULTS and not settings.client_id:
                # The issuer has forgotten the client; the next link registers another.
                await _answered(self._store.forget_client(issuer.issuer, flow.redirect_uri))
            text = (
                f"{flow.source!r} was not connected: its login service refused to complete the login ({error.code}). "
                "Ask for a new link."
            )
            raise ConnectFailedError("issuer_refused", text) from None
        except EgressError as error:
            text = f"{flow.source!r} was not connected: {error.error.message} Ask for a new link."
            raise ConnectFailedError("issuer_unavailable", text) from None

    # ---- tokens

    async def token(self, person: Person, source: str) -> AccessToken:
        """Return a valid token of a person for a source, refreshed if it expires soon.

        Raises:
            ConnectionRequiredError: there is no connection, or the issuer no longer refreshes it.
            CallError: the issuer or the store cannot be reached.
        """
        settings = self._settings(source)
        token = self._tokens.get(person, settings)
        if token is None:
            token = await _answered(self._tokens.confirmed(person, settings))
        if token is not None:
            return token
        asked_at = self._clock()
        stored, now = await _answered(self._store.current(person, settings))
        if stored is None:
            raise await self.required(person, source)
        if stored.renew_at is not None and now >= stored.renew_at:
            expires_at = stored.shown.expires_at
            renewed = await self._renewed(stored, settings, must=expires_at is None or now >= expires_at)
            if renewed is None:
                if stored.refresh is None:
                    await self._lapse(stored.shown, "its token has expired, and the issuer gave none to refresh it")
                raise await self.required(person, source)
            return _token_of(renewed)
        token = _token_of(stored)
        lasts_s = math.inf if stored.renew_at is None else stored.renew_at - now
        self._tokens.remember(person, settings, token, asked_at=asked_at, lasts_s=lasts_s, now=now)
        return token

    async def renewed(
        self, person: Person, source: str, refused: AccessToken, challenge: Challenge = NO_CHALLENGE
    ) -> AccessToken:
        """Return a new token after the service refused one with 401. Concurrent callers share one refresh.

        Raises:
            ConnectionRequiredError: no other token is available.
            CallError: the issuer or the store cannot be reached.
        """
        settings = self._settings(source)
        self._forget(person, source)
        stored, now = await _answered(self._store.current(person, settings))
        if stored is None:
            raise await self.required(person, source, challenge)
        if (stored.shown.id, stored.shown.version) == (refused.connection_id, refused.version):
            # A short-lived token may have expired on the way.
            is_valid = stored.renew_at is None or now < stored.renew_at
            is_fresh = is_valid and stored.shown.version > 1 and now - stored.shown.updated_at < FRESH_TOKEN_S
            stored = None if is_fresh else await self._renewed(stored, settings, must=True)
            if stored is None:
                raise await self.required(person, source, challenge)
        return _token_of(stored)

    async def required(
        self, person: Person | None, source: str, challenge: Challenge = NO_CHALLENGE
    ) -> ConnectionRequiredError:
        """Return the error that says that a person must connect, with a link if there is a page."""
        if person is None:
            text = (
                f"{source!r} needs an account of the caller, and this caller has no user. Call with a "
                "credential that names one."
            )
            return ConnectionRequiredError("connection_required", text, details={"source": source})
        more = f" with the scopes {' '.join(challenge.scopes)!r}" if challenge.wants_more and challenge.scopes else ""
        details: dict[str, object] = {"source": source, "scopes": list(challenge.scopes)}
        how = f"Run `pegboard connect {source}`, then call again."
        if self.public_url is not None:
            try:
                link = await self.begin(person, source, challenge)
            except CallError as error:
                if error.error.kind != "busy":
                    raise
                how = error.error.message
            else:
                how = f"Open {link.url} in a browser within ten minutes, then call again."
                details |= {"url": link.url, "expires_at": link.expires_at}
        text = f"{person.user_id!r} must connect to {source!r}{more} first. {how}"
        return ConnectionRequiredError("connection_required", text, details=details)

    async def _renewed(
        self, stored: StoredConnection, settings: AuthSettings, *, must: bool
    ) -> StoredConnection | None:
        """Return the connection with refreshed tokens; `None` if that is impossible for good.

        Unless it `must` be refreshed, the token at hand is returned while another worker refreshes it or the issuer
        cannot be reached.
        """
        # One that may give up early must not answer for one that may not.
        key = (stored.shown.id, must)
        task = self._renewals.get(key)
        if task is None or task.get_loop() is not asyncio.get_running_loop():
            # A separate task: a call that is cancelled must not lose a token that was rotated already.
            task = asyncio.create_task(self._renew(stored, settings, must=must), name=f"refresh-{settings.source}")
            self._renewals[key] = task
            task.add_done_callback(lambda done: self._over(key, done))
        return await asyncio.shield(task)

    def _over(self, key: tuple[str, bool], task: asyncio.Task[StoredConnection | None]) -> None:
        if self._renewals.get(key) is task:
            del self._renewals[key]
        if not task.cancelled():
            task.exception()  # callers that waited have received it

    async def _renew(self, stored: StoredConnection, settings: AuthSettings, *, must: bool) -> StoredConnection | None:
        shown, by = stored.shown, f"{self._worker}:{os.urandom(4).hex()}"
        while True:
            lease_until = self._clock() + self._lease_s
            lease = await _answered(self._store.lease(shown.id, shown.version, by=by, for_s=self._lease_s))
            if lease.state in ("newer", "gone"):
                return lease.stored
            if lease.state == "mine":
                break
            if not must:
                return stored
            await asyncio.sleep(REFRESH_POLL_S)
        assert lease.stored is not None
        current = lease.stored
        if current.refresh is None:
            await _answered(self._store.release(shown.id, by=by))
            return current if not must else None
        # The operator may have given the client another secret since.
        own = configured_client(settings, current.issuer)
        client = own if own is not None and own.client_id == current.client.client_id else current.client
        requests = self.issuer_requests(settings)
        try:
            answer = await refresh(
                requests, current.issuer, client, refresh_token=current.refresh, resource=shown.resource
            )
        except GrantRefusedError as error:
            if client is own and error.code == "invalid_client":
                # Not the person's fault: nobody's connection ends because of a wrong secret in the config.
                await _answered(self._store.release(shown.id, by=by))
                if not must:
                    return current
                text = f"The issuer of {shown.source!r} refuses our client: {error.code}."
                raise EgressError("upstream_auth", f"{text} The operator must correct it.") from None
            log.warning(
                "The connection %s of user %r to %r is not refreshed: %s The person must connect again.",
                shown.id, shown.person.user_id, shown.source, error,
            )  # fmt: skip
            if error.code in ENDED or (client is not own and error.code in CLIENT_FAULTS):
                await self._lapse(shown, f"the issuer does not refresh it: {error.code}")
            else:
                # The answer may come from a proxy in between and not from the issuer, or mean the client: Atlassian
                # says `unauthorized_client` of refresh tokens that have ended.
                await _answered(self._store.release(shown.id, by=by))
            return None
        except (EgressError, ConnectFailedError) as error:
            await _answered(self._store.release(shown.id, by=by))
            if not must:
                log.info("The token of connection %s was not refreshed before it expires: %s", shown.id, error)
                return current
            if isinstance(error, ConnectFailedError):
                raise CallError("upstream_auth", str(error)) from None
            raise
        renewed = await _answered(self._stored(current, answer, by=by, until=lease_until))
        if renewed is not None:
            return renewed
        after = await _answered(self._store.lease(shown.id, shown.version, by=by, for_s=0.0))
        if after.state == "gone":
            # Disconnected meanwhile: the new tokens must not stay valid.
            await self._revoked(replace(current, access=answer.access, refresh=answer.refresh), requests)
        return after.stored if after.state == "newer" else None

    async def _stored(
        self, before: StoredConnection, answer: TokenAnswer, *, by: str, until: float
    ) -> StoredConnection | None:
        """Store refreshed tokens, as `ConnectionStore.renew` does, and try again while the store does not answer.

        The issuer may not accept the earlier refresh token again: without the new one, the person must connect again.
        After `until`, on the monotonic clock, the lease is over and another worker may use the earlier one.
        """
        while True:
            try:
                return await self._store.renew(before, answer, by=by, renew_early_s=RENEW_EARLY_S)
            except StoreError:
                if self._clock() >= until:
                    log.error(
                        "The refreshed tokens of connection %s could not be stored and are lost.", before.shown.id
                    )
                    raise
            await asyncio.sleep(REFRESH_POLL_S)

    async def _lapse(self, shown: Connection, reason: str) -> None:
        """End a connection whose tokens cannot be used any more, so that lists say that its person must connect."""
        await _answered(self._store.lapse(shown.id, shown.version))
        self._note("account_disconnected", shown, by="", reason=reason)
        self._notify(shown.person, shown.source, is_connected=False)

    # ---- connections

    async def listed(self, *, person: Person | None = None, source: str | None = None) -> list[Connection]:
        """Return connections without their tokens, the newest first; of one person, or to one source.

        Raises:
            CallError: the store does not answer.
        """
        return await _answered(self._store.listed(person=person, source=source))

    async def shown(self, connection_id: str) -> Connection | None:
        """Return one connection; `None` if there is none with this id.

        Raises:
            CallError: the store does not answer.
        """
        return await _answered(self._store.shown(connection_id))

    async def connected(self, person: Person) -> frozenset[str]:
        """Return the sources that a person has a live connection to.

        Raises:
            CallError: the store does not answer.
        """
        return frozenset(each.source for each in await self.listed(person=person) if each.is_live)

    async def disconnect(self, connection_id: str, *, by: str = "") -> Disconnected | None:
        """Delete a connection and revoke its tokens at the issuer; `None` if there is none with this id.

        `by` names who ends it, for the audit.

        Raises:
            CallError: the store does not answer.
        """
        removed = await _answered(self._store.remove(connection_id))
        if removed is None:
            return None
        shown, stored = removed
        self._note("account_disconnected", shown, by=by)
        self._notify(shown.person, shown.source, is_connected=False)
        log.info("disconnected: user %r from %r, connection %s", shown.person.user_id, shown.source, shown.id)
        if stored is None:
            return Disconnected(connection=shown, is_revoked=False, reason="its tokens were deleted before")
        settings = self._sources.get(shown.source)
        if settings is None or settings.server_url != stored.server:
            reason = "the source is no longer configured, so its issuer may not be asked"
            return Disconnected(connection=shown, is_revoked=False, reason=reason)
        reason = await self._revoked(stored, self.issuer_requests(settings))
        return Disconnected(connection=shown, is_revoked=not reason, reason=reason)

    async def _revoked(self, stored: StoredConnection, requests: IssuerRequests) -> str:
        """Revoke tokens; return the reason if that failed, else an empty text."""
        if not stored.issuer.revocation_url:
            return f"the issuer {stored.issuer.issuer!r} offers no revocation"
        tokens = [] if stored.refresh is None else [(stored.refresh, "refresh_token")]
        try:
            for token, hint in (*tokens, (stored.access, "access_token")):
                await revoke(requests, stored.issuer, stored.client, token=token, hint=hint)
        except (EgressError, GrantRefusedError, ConnectFailedError) as error:
            log.warning("The tokens of connection %s were not revoked: %s", stored.shown.id, error)
            return str(error)
        return ""

    async def close(self) -> None:
        """Close the store, after refreshes that still run have stored their tokens."""
        loop = asyncio.get_running_loop()
        if refreshes := [task for task in self._renewals.values() if task.get_loop() is loop and not task.done()]:
            await asyncio.wait(refreshes, timeout=CLOSING_S)
        await self._tokens.close()
        await asyncio.to_thread(self._store.database.close)

    async def probe(self) -> None:
        """Check that the store answers; see `core.ports.Probed`.

        Raises:
            OSError: it does not.
        """
        await asyncio.to_thread(self._store.database.probe)


async def _answered(asked: Awaitable[T]) -> T:
    """Return the answer of the store.

    Raises:
        CallError: `storage_unavailable`.
    """
    try:
        return await asked
    except StoreError as error:
        log.error("The store of connections: %s", error)
        text = "The store of connections does not answer, so no account can be used now. Try again later."
        raise CallError("storage_unavailable", text) from None


def _token_of(stored: StoredConnection) -> AccessToken:
    shown = stored.shown
    return AccessToken(
        connection_id=shown.id, version=shown.version, value=stored.access, scopes=shown.scopes, issuer=shown.issuer
    )


def _check_reader(flow: Flow, reader: Person | None) -> None:
    if reader is not None and reader != flow.person:
        text = (
            f"This link connects {flow.person.user_id!r}, and you are {reader.user_id!r}. Nothing was connected; ask "
            "for your own link."
        )
        raise ConnectFailedError("other_person", text)


def _check_redirect(flow: Flow, came_to: str) -> None:
    """Refuse an answer that arrived at another address than the redirect URI sent to the issuer."""
    if came_to != flow.redirect_uri:
        text = (
            f"The login page was told to send you back to {flow.redirect_uri!r}, and you came to {came_to!r}. Nothing "
            "was connected; ask for a new link."
        )
        log.warning("A connection of user %r to %r was refused: %s", flow.person.user_id, flow.source, text)
        raise ConnectFailedError("redirect_changed", text)


def _check_answer(issuer: Issuer, iss: str | None) -> None:
    """Refuse an answer of another issuer (RFC 9207); both are compared as strings."""
    if iss is None and issuer.sends_iss:
        text = f"The answer does not say that it comes from {issuer.issuer!r}, which always says so."
    elif iss is not None and iss != issuer.issuer:
        text = f"The answer comes from {iss[:200]!r}, and you were sent to {issuer.issuer!r}."
    else:
        return
    log.warning("A connection was refused: %s", text)
    text = (
        f"{text} Somebody may have tried to connect another account than yours. Nothing was connected; ask for a new "
        "link."
    )
    raise ConnectFailedError("issuer_changed", text)


def _check_page(issuer: Issuer, settings: AuthSettings) -> None:
    """Refuse a page without https, which could be read or replaced on the way."""
    url = issuer.authorization_url
    if not url:
        raise ConnectFailedError("not_supported", f"The issuer {issuer.issuer!r} asks no persons.")
    if not (url.startswith("https://") or settings.trusts(url)):
        text = f"The page {url[:200]!r} of the issuer is not https. Name its host under `hosts` if it is yours."
        raise ConnectFailedError("not_supported", text)


def _other_browser() -> ConnectFailedError:
    text = (
        "This link was opened in another browser, and can only be used there. Nothing was connected; go on there, or "
        "ask for a new link."
    )
    return ConnectFailedError("other_browser", text)


def _unknown_link() -> ConnectFailedError:
    text = "This link is unknown: it was used, or is older than ten minutes. Nothing was connected; ask for a new link."
    return ConnectFailedError("unknown_link", text)


def _authorization_url(flow: Flow, client: OAuthClient, *, challenge: str, state: str, more: Mapping[str, str]) -> str:
    """Return the URL of the page at which a person agrees. `more` are parameters that the operator adds."""
    assert flow.issuer is not None
    fields = {
        "response_type": "code",
        "client_id": client.client_id,
        "redirect_uri": flow.redirect_uri,
        "state": state,
        "code_challenge": challenge,
        "code_challenge_method": "S256",
    }
    if flow.scopes:
        fields["scope"] = " ".join(flow.scopes)
        if "offline_access" in flow.scopes:
            fields["prompt"] = "consent"  # OpenID Connect Core, 11: needed for a refresh token
    if flow.resource:
        fields["resource"] = flow.resource
    fields |= more
    # RFC 6749, 3.1: the query of the endpoint stays, and no parameter is sent twice.
    parts = urlsplit(flow.issuer.authorization_url)
    kept = [(name, value) for name, value in parse_qsl(parts.query, keep_blank_values=True) if name not in fields]
    return parts._replace(query=urlencode([*kept, *fields.items()]), fragment="").geturl()
