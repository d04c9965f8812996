"""Connection store: connections and open links in a database, with every token encrypted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec
import orjson
from msgspec import Struct

from pegboard.connections.account_name import account_name
from pegboard.connections.auth_settings import AuthSettings, TokenAuthMethod
from pegboard.connections.connection_records import Challenge, Connection, Person
from pegboard.connections.issuers import Issuer, OAuthClient, TokenAnswer
from pegboard.connections.limits import CONNECTIONS_LISTED, OPEN_FLOWS
from pegboard.core.digests import digest
from pegboard.core.identifiers import new_id
from pegboard.core.steady_clock import steady_time
from pegboard.lazy import LazyModule
from pegboard.model.error import CallError, DefinitionError
from pegboard.model.secret import Secret
from pegboard.storage.database import Database
from pegboard.storage.store_schema import Question, Schema, StoreConnection

if TYPE_CHECKING:
    from pegboard.storage import aes_gcm
    from pegboard.storage.aes_gcm import AesGcm
else:
    aes_gcm = LazyModule("pegboard.storage.aes_gcm")

KEY_BYTES = 32  # bytes of a key, at least

T = TypeVar("T")
# The keys of a store may serve other purposes, too; a value sealed for one of those must not open here.
_PURPOSE = b"pegboard/connections/1:"
_TABLES = """
create table connections (
    id text primary key, owner text not null, user_id text not null, space_id text, source text not null,
    server text not null, resource text not null, issuer text not null, metadata text not null,
    client_id text not null, scopes text not null, sealed text not null,
    created_at double precision not null, updated_at double precision not null, expires_at double precision,
    renew_at double precision, version integer not null, is_live integer not null,
    leased_by text, leased_until double precision
);
create unique index connections_by_owner on connections (owner, source, resource, issuer);
create table connection_flows (
    ticket text primary key, state text unique, owner text not null, user_id text not null, space_id text,
    source text not null, server text not null, challenge text not null, browser text, redirect_uri text not null,
    metadata text, client_id text, resource text, scopes text, sealed text not null,
    created_at double precision not null, expires_at double precision not null
);
create index connection_flows_by_owner on connection_flows (owner, source);
create table connection_clients (
    issuer text not null, redirect_uri text not null, sealed text not null, expires_at double precision,
    primary key (issuer, redirect_uri)
);
"""
SCHEMA = Schema(
    name="connections",
    sqlite=(_TABLES, "alter table connections add column account text;"),
    tables=("connections", "connection_flows", "connection_clients"),
    unrecorded=lambda connection: int(connection.has("connections")) + int(connection.has("connections", "account")),
)
_SERVER_TIME = "select cast(extract(epoch from clock_timestamp()) as double precision)"
_VERSIONS = Question(
    sqlite="select id, version, null from json_each(:value) as each left join connections on id = each.value and "
    "is_live = 1",
    postgres=f"select id, version, ({_SERVER_TIME}) from json_array_elements_text(cast($1 as json)) as each (value) "  # noqa: S608 - our own names
    "left join connections on id = value and is_live = 1",
)
_SHOWN = (
    "id, user_id, space_id, source, resource, issuer, client_id, scopes, created_at, updated_at, expires_at, version, "
    "is_live, account"
)
_ROW = f"{_SHOWN}, owner, server, metadata, sealed, renew_at"


class StoredConnection(Struct, frozen=True, kw_only=True):
    """A connection with its tokens, decrypted. Never leaves this folder."""

    shown: Connection
    server: str
    issuer: Issuer
    client: OAuthClient
    access: Secret
    refresh: Secret | None
    renew_at: float | None


class Flow(Struct, frozen=True, kw_only=True):
    """An open link. `issuer`, `client_id` and `scopes` are known once it was opened."""

    ticket: str
    person: Person
    source: str
    server: str
    challenge: Challenge
    redirect_uri: str
    expires_at: float
    is_bound: bool = False
    issuer: Issuer | None = None
    resource: str = ""
    scopes: tuple[str, ...] = ()
    client: OAuthClient | None = None
    verifier: Secret = Secret("")


class Lease(Struct, frozen=True, kw_only=True):
    """Whether this worker may refresh a connection now: `mine`; `busy`, another one does; `newer`, it was; `gone`."""

    state: Literal["mine", "busy", "newer", "gone"]
    stored: StoredConnection | None = None


class _Tokens(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The encrypted part of a connection."""

    access: str
    refresh: str = ""
    client_secret: str = ""
    private_key: str = ""
    private_key_id: str = ""
    method: str = "none"


class _FlowSecrets(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The encrypted part of an open link."""

    ticket: str
    verifier: str = ""
    client: _Tokens | None = None


def hashed(text: str) -> str:
    """Return the stored form of a ticket, state or cookie: somebody who reads it there cannot use it."""
    return sha256(text.encode()).hexdigest()


def owner_of(person: Person) -> str:
    """Return the key of a person's rows."""
    return digest(["person", person.user_id, person.space_id])


class ConnectionStore:
    """Stores connections, open links and registered clients. Every method raises `StoreError` if it does not answer.

    Args:
        database: the database with the tables of `SCHEMA`.
        keys: secrets of 32 bytes or more: the first encrypts, all decrypt.
        wall_clock: seconds since 1970, the same for all who share the database; by default the clock of the PostgreSQL
            server, or of this machine for SQLite.

    Raises:
        DefinitionError: the location cannot be used, or a key is missing or too short.
    """

    def __init__(
        self, database: Database, *, keys: Sequence[Secret], wall_clock: Callable[[], float] | None = None
    ) -> None:
        if not keys:
            raise DefinitionError("connections need a key: `key: ${CONNECTIONS_KEY}`, 32 random bytes or more")
        for secret in keys:
            if len(secret.reveal().encode()) < KEY_BYTES:
                text = f"has {len(secret.reveal().encode())} bytes; a key of connections has {KEY_BYTES} or more"
                raise DefinitionError(
                    f'key: {text}, such as `python -c "import secrets; print(secrets.token_hex(32))"`'
                )
        database.check_place()
        self.database, self._clock = database, wall_clock
        self._keys = [Secret(key) for key in keys]
        self._opened: AesGcm | None = None

    @property
    def _cipher(self) -> AesGcm:
        if self._opened is None:
            self._opened = aes_gcm.AesGcm([_PURPOSE + key.reveal().encode() for key in self._keys])
        return self._opened

    def __repr__(self) -> str:
        return "<ConnectionStore>"

    async def _do(self, work: Callable[[StoreConnection, float], T], *, only_reads: bool = False) -> T:
        def run() -> T:
            with self.database.transaction(only_reads=only_reads) as connection:
                return work(connection, self._now(connection))

        return await asyncio.to_thread(run)

    def _now(self, run: StoreConnection) -> float:
        if self._clock is not None:
            return self._clock()
        return steady_time() if run.is_sqlite else float(run(_SERVER_TIME)[0][0])

    def version_at_once(self, connection_id: str) -> tuple[int | None, float] | None:
        """Return the version of a live connection, and the time; the version is `None` if there is no such connection.

        Nothing is waited for: `None` alone means that the store cannot be asked so. Call it on an event loop.
        """
        rows = self.database.glance("select version from connections where id = :id and is_live = 1", id=connection_id)
        if rows is None:
            return None
        return (rows[0][0] if rows else None), steady_time() if self._clock is None else self._clock()

    async def versions(self, connection_ids: Sequence[str]) -> tuple[dict[str, int], float]:
        """Return the versions of those of these connections that are live, and the time."""
        rows = await self.database.ask(_VERSIONS, orjson.dumps(connection_ids).decode())
        # The time comes with the rows: a server would have to be asked twice.
        server_time = rows[0][2] if rows else None
        now = self._clock() if self._clock else steady_time() if server_time is None else float(server_time)
        return {connection_id: int(version) for connection_id, version, _ in rows if connection_id is not None}, now

    # -- connections

    async def current(self, person: Person, settings: AuthSettings) -> tuple[StoredConnection | None, float]:
        """Return a person's live connection to a source, and the time. One to another server or issuer is not used."""
        sql = (
            f"select {_ROW} from connections where owner = :owner and source = :source and server = :server "  # noqa: S608 - our own names
            "and is_live = 1 and (:issuer = '' or issuer = :issuer) and (:resource = '' or resource = :resource) "
            "order by created_at desc limit 1"
        )
        values = {
            "owner": owner_of(person), "source": settings.source, "server": settings.server_url,
            "issuer": settings.issuer, "resource": settings.resource,
        }  # fmt: skip

        def work(run: StoreConnection, now: float) -> tuple[StoredConnection | None, float]:
            rows = run(sql, **values)
            return (self._stored(rows[0]) if rows else None), now

        return await self._do(work, only_reads=True)

    async def save(
        self,
        flow: Flow,
        answer: TokenAnswer,
        *,
        renew_early_s: float,
    ) -> Connection:
        """Store a new connection in the place of an earlier one to the same service, under a new id."""
        assert flow.issuer is not None
        assert flow.client is not None
        client, issuer = flow.client, flow.issuer
        connection_id, owner = new_id(), owner_of(flow.person)
        scopes = answer.scopes if answer.scopes is not None else flow.scopes
        bound_to = _bound(connection_id, owner, flow.source, flow.resource, issuer.issuer)
        sealed = self._seal(_tokens_of(client, answer, None), bound_to)

        def work(run: StoreConnection, now: float) -> Connection:
            # Another issuer or resource of the same source ends the earlier connection as well.
            run("delete from connections where owner = :owner and source = :source", owner=owner, source=flow.source)
            # Other links to the same source are no longer needed.
            run(
                "delete from connection_flows where owner = :owner and source = :source",
                owner=owner,
                source=flow.source,
            )
            expires_at, renew_at = _expiry(answer, now, renew_early_s)
            run(
                "insert into connections (id, owner, user_id, space_id, source, server, resource, issuer, metadata, "
                "client_id, scopes, sealed, created_at, updated_at, expires_at, renew_at, version, is_live, "
                "account) values (:id, :owner, :user, :space, :source, :server, :resource, :issuer, :metadata, "
                ":client, :scopes, :sealed, :now, :now, :expires, :renew, 1, 1, :account)",
                id=connection_id, owner=owner, user=flow.person.user_id, space=flow.person.space_id,
                source=flow.source, server=flow.server, resource=flow.resource, issuer=issuer.issuer,
                metadata=issuer.to_json(), client=client.client_id, scopes=" ".join(scopes), sealed=sealed, now=now,
                expires=expires_at, renew=renew_at,
                account=account_name(answer.id_token, issuer=issuer.issuer, client_id=client.client_id, now=now),
            )  # fmt: skip
            return _shown(run(f"select {_SHOWN} from connections where id = :id", id=connection_id)[0])  # noqa: S608 - our own names

        return await self._do(work)

    async def lease(self, connection_id: str, version: int, *, by: str, for_s: float) -> Lease:
        """Let this worker alone refresh a connection that still has this version."""

        def work(run: StoreConnection, now: float) -> Lease:
            rows = run(f"select {_ROW} from connections where id = :id and is_live = 1", id=connection_id)  # noqa: S608 - our own names
            stored = self._stored(rows[0]) if rows else None
            if stored is None:
                return Lease(state="gone")
            if stored.shown.version != version:
                return Lease(state="newer", stored=stored)
            taken = run(
                "update connections set leased_by = :by, leased_until = :until where id = :id and version = :version "
                "and (leased_until is null or leased_until <= :now) returning id",
                by=by, until=now + for_s, id=connection_id, version=version, now=now,
            )  # fmt: skip
            return Lease(state="mine" if taken else "busy", stored=stored)

        return await self._do(work)

    async def release(self, connection_id: str, *, by: str) -> None:
        """Give up a lease."""
        sql = "update connections set leased_by = null, leased_until = null where id = :id and leased_by = :by"
        await self._do(lambda run, now: run(sql, id=connection_id, by=by))

    async def renew(
        self, before: StoredConnection, answer: TokenAnswer, *, by: str, renew_early_s: float
    ) -> StoredConnection | None:
        """Store refreshed tokens; `None` if the connection has ended, or another worker was faster."""
        shown, client = before.shown, before.client
        bound_to = _bound(shown.id, owner_of(shown.person), shown.source, shown.resource, shown.issuer)
        sealed = self._seal(_tokens_of(client, answer, before.refresh), bound_to)
        scopes = answer.scopes if answer.scopes is not None else shown.scopes

        def work(run: StoreConnection, now: float) -> StoredConnection | None:
            expires_at, renew_at = _expiry(answer, now, renew_early_s)
            rows = run(
                "update connections set sealed = :sealed, scopes = :scopes, updated_at = :now, expires_at = :expires, "
                "renew_at = :renew, version = version + 1, leased_by = null, leased_until = null "
                "where id = :id and version = :version and leased_by = :by and is_live = 1 returning id",
                sealed=sealed, scopes=" ".join(scopes), now=now, expires=expires_at, renew=renew_at, id=shown.id,
                version=shown.version, by=by,
            )  # fmt: skip
            if not rows:
                return None
            return self._stored(run(f"select {_ROW} from connections where id = :id", id=shown.id)[0])  # noqa: S608 - our own names

        return await self._do(work)

    async def lapse(self, connection_id: str, version: int) -> None:
        """Delete the tokens of a connection that the issuer no longer refreshes; it stays listed as not live."""
        sql = (
            "update connections set is_live = 0, sealed = '', leased_by = null, leased_until = null, updated_at = :now "
            "where id = :id and version = :version"
        )
        await self._do(lambda run, now: run(sql, id=connection_id, version=version, now=now))

    async def remove(self, connection_id: str) -> tuple[Connection, StoredConnection | None] | None:
        """Delete a connection and return it, with its tokens if they can be decrypted; `None` if there is none."""

        def work(run: StoreConnection, now: float) -> tuple[Connection, StoredConnection | None] | None:
            del now
            rows = run(f"select {_ROW} from connections where id = :id", id=connection_id)  # noqa: S608 - our own names
            run("delete from connections where id = :id", id=connection_id)
            return (_shown(rows[0][: len(_SHOWN.split(","))]), self._stored(rows[0])) if rows else None

        return await self._do(work)

    async def listed(self, *, person: Person | None, source: str | None) -> list[Connection]:
        """Return connections, the newest first."""
        parts = [*(["owner = :owner"] if person else []), *(["source = :source"] if source is not None else [])]
        where = f"where {' and '.join(parts)} " if parts else ""
        sql = f"select {_SHOWN} from connections {where}order by created_at desc, id limit {CONNECTIONS_LISTED}"  # noqa: S608 - our own names
        owner = owner_of(person) if person else None
        rows = await self._do(lambda run, now: run(sql, owner=owner, source=source), only_reads=True)
        return [_shown(row) for row in rows]

    async def shown(self, connection_id: str) -> Connection | None:
        """Return one connection."""
        sql = f"select {_SHOWN} from connections where id = :id"  # noqa: S608 - our own names
        rows = await self._do(lambda run, now: run(sql, id=connection_id), only_reads=True)
        return _shown(rows[0]) if rows else None

    # -- links

    async def open_flow(
        self,
        person: Person,
        settings: AuthSettings,
        challenge: Challenge,
        redirect_uri: str,
        *,
        ticket: str,
        for_s: float,
    ) -> Flow:
        """Return a person's unopened link for this purpose, or store a new one.

        Raises:
            CallError: `busy`, if the person has too many open links.
        """
        owner, wanted = owner_of(person), msgspec.json.encode(challenge).decode()

        def work(run: StoreConnection, now: float) -> Flow:
            run("delete from connection_flows where expires_at <= :now", now=now)
            known = run(
                f"select {_FLOW} from connection_flows where owner = :owner and source = :source and server = :server "  # noqa: S608 - our own names
                "and challenge = :challenge and redirect_uri = :redirect and browser is null and expires_at > :enough "
                "order by created_at desc limit 1",
                owner=owner, source=settings.source, server=settings.server_url, challenge=wanted,
                redirect=redirect_uri, enough=now + for_s / 2,
            )  # fmt: skip
            if known and (flow := self._flow(known[0])) is not None:
                return flow
            (count,), *_ = run("select count(*) from connection_flows where owner = :owner", owner=owner)
            if count >= OPEN_FLOWS:
                text = f"{count} links to connect wait for {person.user_id!r} already. Open one of them, or wait."
                raise CallError("busy", text, retry_after_s=for_s)
            flow = Flow(
                ticket=ticket,
                person=person,
                source=settings.source,
                server=settings.server_url,
                challenge=challenge,
                redirect_uri=redirect_uri,
                expires_at=now + for_s,
            )
            run(
                "insert into connection_flows (ticket, owner, user_id, space_id, source, server, challenge, "
                "redirect_uri, sealed, created_at, expires_at) values (:ticket, :owner, :user, :space, :source, "
                ":server, :challenge, :redirect, :sealed, :now, :expires)",
                ticket=hashed(ticket), owner=owner, user=person.user_id, space=person.space_id, source=settings.source,
                server=settings.server_url, challenge=wanted, redirect=redirect_uri,
                sealed=self._seal(_FlowSecrets(ticket=ticket), _flow_bound(hashed(ticket), owner, settings.source)),
                now=now, expires=flow.expires_at,
            )  # fmt: skip
            return flow

        return await self._do(work)

    async def open_flows(self, person: Person | None) -> list[Flow]:
        """Return the open links, of one person or of all, the newest first."""
        where = "" if person is None else "owner = :owner and "
        sql = (
            f"select {_FLOW} from connection_flows where {where}expires_at > :now "  # noqa: S608 - our own names
            f"order by created_at desc, ticket limit {CONNECTIONS_LISTED}"
        )
        owner = None if person is None else owner_of(person)
        rows = await self._do(lambda run, now: run(sql, owner=owner, now=now), only_reads=True)
        return [flow for row in rows if (flow := self._flow(row)) is not None]

    async def flow(self, ticket: str) -> Flow | None:
        """Return an open link."""
        sql = f"select {_FLOW} from connection_flows where ticket = :ticket and expires_at > :now"  # noqa: S608 - our own names
        rows = await self._do(lambda run, now: run(sql, ticket=hashed(ticket), now=now), only_reads=True)
        return self._flow(rows[0]) if rows else None

    async def keep_discovered(self, flow: Flow) -> None:
        """Store what was discovered for a link, so that what a person is shown is what they agree to."""
        assert flow.issuer is not None
        sql = (
            "update connection_flows set metadata = :metadata, resource = :resource, scopes = :scopes "
            "where ticket = :ticket and metadata is null"
        )
        values = {
            "metadata": flow.issuer.to_json(), "resource": flow.resource, "scopes": " ".join(flow.scopes),
            "ticket": hashed(flow.ticket),
        }  # fmt: skip
        await self._do(lambda run, now: run(sql, **values))

    async def agree(self, flow: Flow, *, browser: str, state: str) -> bool:
        """Bind a link to a browser, and store the client, the verifier and the state of its way to the issuer.

        Return whether it is open, and not bound to another browser.
        """
        assert flow.client is not None
        owner, ticket = owner_of(flow.person), hashed(flow.ticket)
        secrets = _FlowSecrets(
            ticket=flow.ticket, verifier=flow.verifier.reveal(), client=_tokens_of(flow.client, None, None)
        )
        sealed = self._seal(secrets, _flow_bound(ticket, owner, flow.source))
        sql = (
            "update connection_flows set browser = :browser, state = :state, client_id = :client, sealed = :sealed "
            "where ticket = :ticket and expires_at > :now and (browser is null or browser = :browser) returning ticket"
        )
        values = {
            "browser": hashed(browser), "state": hashed(state), "client": flow.client.client_id, "sealed": sealed,
            "ticket": ticket,
        }  # fmt: skip
        return bool(await self._do(lambda run, now: run(sql, now=now, **values)))

    async def take_flow(self, state: str, *, browser: str) -> Flow | Literal["other_browser"] | None:
        """Use up the link that has this state, if it is bound to this browser; another browser does not use it up."""

        def work(run: StoreConnection, now: float) -> Flow | Literal["other_browser"] | None:
            columns = f"browser, {_FLOW}"
            rows = run(
                f"select {columns} from connection_flows where state = :state and expires_at > :now",  # noqa: S608 - our own names
                state=hashed(state), now=now,
            )  # fmt: skip
            if not rows:
                return None
            if rows[0][0] != hashed(browser):
                return "other_browser"
            taken = run("delete from connection_flows where state = :state returning ticket", state=hashed(state))
            return self._flow(rows[0][1:]) if taken else None

        return await self._do(work)

    async def drop_flow(self, ticket: str, *, browser: str) -> None:
        """Delete an open link that is not bound to another browser."""
        sql = "delete from connection_flows where ticket = :ticket and (browser is null or browser = :browser)"
        await self._do(lambda run, now: run(sql, ticket=hashed(ticket), browser=hashed(browser)))

    # -- clients

    async def client(self, issuer: str, redirect_uri: str) -> OAuthClient | None:
        """Return the client that was registered at an issuer for a redirect URI, if its secret has not expired."""
        sql = (
            "select sealed from connection_clients where issuer = :issuer and redirect_uri = :redirect "
            "and (expires_at is null or expires_at > :now)"
        )
        rows = await self._do(lambda run, now: run(sql, issuer=issuer, redirect=redirect_uri, now=now), only_reads=True)
        raw = self._cipher.open(rows[0][0], bound_to=_bound("client", issuer, redirect_uri)) if rows else None
        if raw is None:
            return None
        stored = msgspec.json.decode(raw, type=_StoredClient)
        return OAuthClient(
            client_id=stored.client_id,
            secret=Secret(stored.secret) if stored.secret else None,
            method=stored.method,
        )

    async def keep_client(self, client: OAuthClient, issuer: str, redirect_uri: str, expires_at: float | None) -> None:
        """Store a registered client."""
        secret = client.secret.reveal() if client.secret is not None else ""
        record = _StoredClient(client_id=client.client_id, secret=secret, method=client.method)
        sealed = self._seal(record, _bound("client", issuer, redirect_uri))
        sql = (
            "insert into connection_clients (issuer, redirect_uri, sealed, expires_at) values (:issuer, :redirect, "
            ":sealed, :expires) on conflict (issuer, redirect_uri) do update set sealed = excluded.sealed, "
            "expires_at = excluded.expires_at"
        )
        values = {"issuer": issuer, "redirect": redirect_uri, "sealed": sealed, "expires": expires_at}
        await self._do(lambda run, now: run(sql, **values))

    async def forget_client(self, issuer: str, redirect_uri: str) -> None:
        """Delete a registered client that its issuer no longer knows."""
        sql = "delete from connection_clients where issuer = :issuer and redirect_uri = :redirect"
        await self._do(lambda run, now: run(sql, issuer=issuer, redirect=redirect_uri))

    async def issuers(self) -> list[Issuer]:
        """Return the issuers to which people are connected, as their metadata were then."""
        sql = f"select distinct metadata from connections limit {CONNECTIONS_LISTED}"  # noqa: S608 - our own names
        rows = await self._do(lambda run, now: run(sql), only_reads=True)
        return [Issuer.from_json(metadata) for (metadata,) in rows]

    # -- sealing

    def _seal(self, record: Struct, bound_to: bytes) -> str:
        return self._cipher.seal(msgspec.json.encode(record), bound_to=bound_to)

    def _stored(self, row: Sequence[Any]) -> StoredConnection | None:
        """Return a row with its tokens; `None` if no key opens it, or it was moved from another row."""
        shown = _shown(row[: len(_SHOWN.split(","))])
        owner, server, metadata, sealed, renew_at = row[len(_SHOWN.split(",")) :]
        bound_to = _bound(shown.id, owner_of(shown.person), shown.source, shown.resource, shown.issuer)
        raw = self._cipher.open(sealed, bound_to=bound_to) if owner == owner_of(shown.person) else None
        issuer = Issuer.from_json(metadata)
        if raw is None or issuer.issuer != shown.issuer:
            return None
        tokens = msgspec.json.decode(raw, type=_Tokens)
        return StoredConnection(
            shown=shown,
            server=server,
            issuer=issuer,
            client=_client_of(tokens, shown.client_id),
            access=Secret(tokens.access),
            refresh=Secret(tokens.refresh) if tokens.refresh else None,
            renew_at=renew_at,
        )

    def _flow(self, row: Sequence[Any]) -> Flow | None:
        """Return an open link; `None` if no key opens it."""
        (
            ticket, user_id, space_id, source, server, challenge, redirect_uri, expires_at, browser, metadata,
            client_id, resource, scopes, sealed,
        ) = row  # fmt: skip
        person = Person(user_id=user_id, space_id=space_id)
        raw = self._cipher.open(sealed, bound_to=_flow_bound(ticket, owner_of(person), source))
        if raw is None:
            return None
        secrets = msgspec.json.decode(raw, type=_FlowSecrets)
        return Flow(
            ticket=secrets.ticket,
            person=person,
            source=source,
            server=server,
            challenge=msgspec.json.decode(challenge, type=Challenge),
            redirect_uri=redirect_uri,
            expires_at=expires_at,
            is_bound=browser is not None,
            issuer=Issuer.from_json(metadata) if metadata else None,
            resource=resource or "",
            scopes=tuple((scopes or "").split()),
            client=_client_of(secrets.client, client_id) if secrets.client is not None else None,
            verifier=Secret(secrets.verifier),
        )


_FLOW = (
    "ticket, user_id, space_id, source, server, challenge, redirect_uri, expires_at, browser, metadata, client_id, "
    "resource, scopes, sealed"
)


class _StoredClient(Struct, frozen=True, kw_only=True):
    """The encrypted part of a registered client."""

    client_id: str
    secret: str
    method: TokenAuthMethod


def _bound(*parts: str) -> bytes:
    """Return the row that a sealed value is bound to: moved to another row, the value does not open."""
    return orjson.dumps(parts)


def _flow_bound(ticket: str, owner: str, source: str) -> bytes:
    return _bound("flow", ticket, owner, source)


def _tokens_of(client: OAuthClient, answer: TokenAnswer | None, refresh: Secret | None) -> _Tokens:
    if answer is not None:
        # An issuer that does not rotate sends no new refresh token.
        refresh = answer.refresh or refresh
    return _Tokens(
        access=answer.access.reveal() if answer is not None else "",
        refresh=refresh.reveal() if refresh is not None else "",
        client_secret=client.secret.reveal() if client.secret is not None else "",
        private_key=client.private_key.reveal() if client.private_key is not None else "",
        private_key_id=client.private_key_id,
        method=client.method,
    )


def _client_of(tokens: _Tokens, client_id: str) -> OAuthClient:
    return OAuthClient(
        client_id=client_id,
        secret=Secret(tokens.client_secret) if tokens.client_secret else None,
        private_key=Secret(tokens.private_key) if tokens.private_key else None,
        private_key_id=tokens.private_key_id,
        method=msgspec.convert(tokens.method, TokenAuthMethod),
    )


def _expiry(answer: TokenAnswer, now: float, renew_early_s: float) -> tuple[float | None, float | None]:
    """Return when a token expires and when it should be refreshed, in seconds since 1970; `None` if unknown."""
    if answer.expires_in_s is None:
        return None, None
    # A token of a short life is used for most of it.
    early_s = min(renew_early_s, answer.expires_in_s / 10)
    return now + answer.expires_in_s, now + answer.expires_in_s - early_s


def _shown(row: Sequence[Any]) -> Connection:
    (
        connection_id, user_id, space_id, source, resource, issuer, client_id, scopes, created_at, updated_at,
        expires_at, version, is_live, account,
    ) = row  # fmt: skip
    return Connection(
        id=connection_id,
        person=Person(user_id=user_id, space_id=space_id),
        source=source,
        resource=resource,
        issuer=issuer,
        client_id=client_id,
        scopes=tuple(scopes.split()),
        created_at=created_at,
        updated_at=updated_at,
        expires_at=expires_at,
        version=version,
        is_live=bool(is_live),
        account=account,
    )
