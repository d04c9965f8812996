"""SQL audit: the audit in an SQLite file or a PostgreSQL database, which several workers write as one chain."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from pegboard.audit.hash_chain import ChainEnd, Head, HeadSigner, Sealed, Unsealed, hash_of, seal
from pegboard.audit.limits import AUDIT_HEAD_ROWS
from pegboard.storage.database import Database
from pegboard.storage.store_schema import Schema, StoreConnection, table_version

_TABLES = """
create table pegboard_audit (seq bigint primary key, at {real} not null, row text not null, hash text not null);
create index pegboard_audit_at on pegboard_audit (at);
create table pegboard_audit_heads (
  kind text not null, seq bigint not null, at {real} not null, hash text not null, signature text not null,
  primary key (kind, seq)
);
"""
SCHEMA = Schema(
    name="audit",
    sqlite=(_TABLES.format(real="real"),),
    postgres=(_TABLES.format(real="double precision"),),
    tables=("pegboard_audit", "pegboard_audit_heads"),
    unrecorded=table_version("pegboard_audit"),
)
_CHAIN = ""  # the name of the only chain
_LOCK = "select pg_advisory_xact_lock(7235140914)"  # a number of ours, held while a batch is added
_END = "select seq, hash from pegboard_audit order by seq desc limit 1"
_PRUNED = "select seq, hash from pegboard_audit_heads where kind = 'pruned' order by seq desc limit 1"
_ADD = "insert into pegboard_audit (seq, at, row, hash) values (?, ?, ?, ?)"
_ADD_HEAD = (
    "insert into pegboard_audit_heads (kind, seq, at, hash, signature) values (:kind, :seq, :at, :hash, :signature) "
    "on conflict (kind, seq) do nothing"
)
_PAGE_ROWS = 2_000  # read at a time


class SqlAudit:
    """The audit in a database with the tables of `SCHEMA`; implements `AuditStore`. It keeps nothing open."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def append(self, rows: Sequence[Unsealed], signer: HeadSigner, *, closes: bool, now: float) -> None:
        with self._database.transaction() as connection:
            _lock(connection)
            end = _end(connection)
            sealed = seal(rows, end)
            connection.many(_ADD, [(seq, at, raw.decode(), mark) for seq, at, raw, mark in sealed])
            last = ChainEnd(sealed[-1].seq, sealed[-1].hash) if sealed else end
            if last.seq and (closes or last.seq // AUDIT_HEAD_ROWS > end.seq // AUDIT_HEAD_ROWS):
                _add_head(connection, signer.signed(Head("head", _CHAIN, last.seq, now, last.hash)))

    def chains(self) -> list[str]:
        return [_CHAIN]

    def rows(self, chain: str, *, after: int = 0) -> Iterator[Sealed]:
        sql = "select seq, at, row, hash from pegboard_audit where seq > :after order by seq limit :most"
        while True:
            with self._database.reading() as connection:
                page = connection(sql, after=after, most=_PAGE_ROWS)
            for seq, at, row, mark in page:
                yield Sealed(seq, at, str(row).encode("utf-8", "surrogatepass"), str(mark))
            if len(page) < _PAGE_ROWS:
                return
            after = page[-1][0]

    def newest(self, *, since: float) -> Iterator[bytes]:
        sql = "select seq, row from pegboard_audit where at >= :since and seq < :below order by seq desc limit :most"
        below = 1 << 62
        while True:
            with self._database.reading() as connection:
                page = connection(sql, since=since, below=below, most=_PAGE_ROWS)
            for _, row in page:
                yield str(row).encode("utf-8", "surrogatepass")
            if len(page) < _PAGE_ROWS:
                return
            below = page[-1][0]

    def heads(self, chain: str) -> list[Head]:
        sql = "select kind, seq, at, hash, signature from pegboard_audit_heads order by seq, at"
        with self._database.reading() as connection:
            return [Head(kind, _CHAIN, seq, at, mark, signature) for kind, seq, at, mark, signature in connection(sql)]

    def prune(self, before: float, signer: HeadSigner, *, now: float) -> int:
        with self._database.transaction() as connection:
            _lock(connection)
            # Rows are ordered by their end and `at` is their start: the rows up to the first younger one go.
            kept = connection("select min(seq) from pegboard_audit where at >= :before", before=before)[0][0]
            below = 1 << 62 if kept is None else kept
            sql = "select seq, hash from pegboard_audit where seq < :below order by seq desc limit 1"
            last = connection(sql, below=below)
            if not last:
                return 0
            seq, mark = last[0]
            count = connection("select count(*) from pegboard_audit where seq <= :seq", seq=seq)[0][0]
            connection("delete from pegboard_audit where seq <= :seq", seq=seq)
            connection("delete from pegboard_audit_heads where seq <= :seq", seq=seq)
            _add_head(connection, signer.signed(Head("pruned", _CHAIN, seq, now, mark)))
            return count

    def rewrite(self, change: Callable[[bytes], bytes | None], signer: HeadSigner, *, now: float) -> int:
        changed = [(row.seq, text) for row in self.rows(_CHAIN) if (text := change(row.raw)) is not None]
        with self._database.transaction() as connection:
            for seq, text in changed:
                connection("update pegboard_audit set row = :row where seq = :seq", row=text.decode(), seq=seq)
                connection("delete from pegboard_audit_heads where kind = 'forgotten' and seq = :seq", seq=seq)
                _add_head(connection, signer.signed(Head("forgotten", _CHAIN, seq, now, hash_of(text))))
        return len(changed)

    def probe(self) -> None:
        self._database.probe()

    def after_fork(self) -> None:
        """Do nothing: the database forgets its connections itself."""

    def close(self) -> None:
        self._database.close()


def _lock(connection: StoreConnection) -> None:
    """Wait until no other worker adds rows. An SQLite transaction that writes is alone already."""
    if not connection.is_sqlite:
        connection(_LOCK)


def _end(connection: StoreConnection) -> ChainEnd:
    for sql in (_END, _PRUNED):
        for seq, mark in connection(sql):
            return ChainEnd(seq, mark)
    return ChainEnd()


def _add_head(connection: StoreConnection, head: Head) -> None:
    connection(_ADD_HEAD, kind=head.kind, seq=head.seq, at=head.at, hash=head.hash, signature=head.signature)
