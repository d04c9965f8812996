"""Personal data: finds and deletes the data about a person in the stores of a config."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from msgspec import Struct

from pegboard.agents.conversations import conversation_user
from pegboard.audit.forgotten_user import ForgottenUser
from pegboard.auth.keys import KeyStore
from pegboard.config.audits import audit_store_of, signer_of
from pegboard.config.config import Config
from pegboard.config.identity import key_store_of
from pegboard.config.stores import DeclaredStore, store_database, stores_of
from pegboard.core.steady_clock import steady_time
from pegboard.discovery.learning.search_use import mark_of_user
from pegboard.storage.sqlite_file import SqliteFile
from pegboard.storage.store_schema import StoreConnection


class _Records(NamedTuple):
    """Rows of a table that belong to a person; with `rename`, the column where the name is replaced instead."""

    what: str
    table: str
    where: str
    rename: str = ""


PERSONAL: Final[Mapping[str, tuple[_Records, ...]]] = {
    "consents": (
        _Records("questions, answers, remembered answers and grants", "consents", "user_id = :user"),
        _Records(
            "decisions about calls of other people", "consents", "decided_by in (:user, :shell)", rename="decided_by"
        ),
    ),
    "connections": (
        _Records("connected accounts with their tokens", "connections", "user_id = :user"),
        _Records("accounts whose connection is not complete", "connection_flows", "user_id = :user"),
    ),
    "conversations": (
        _Records("turns of conversations with agents", "pegboard_agent_turns", "user_id = :user_column"),
    ),
    "documents": (_Records("rights on spaces of documents", "grants", "principal = :principal"),),
    "learned_use": (_Records("tool usage learned for search", "used", "caller = :mark"),),
}
"""By store. A table with a column that names a person is here or in `NOT_PERSONAL`, which a test checks."""
NOT_PERSONAL: Final[Mapping[str, str]] = {
    "api_keys": "has names of keys, which are kept and listed",
    "pegboard_tasks": "has a digest of its owner; the task itself is kept until it expires, and listed",
    "connection_clients": "has the registration of this server",
}


class Forgotten(Struct, frozen=True, kw_only=True):
    """The number of records about a person in a store."""

    store: str
    what: str
    count: int


def person_named(user: str, config: Config, *, pseudonym: str = "") -> ForgottenUser:
    """Return a person with the names of the person's API keys, and a new pseudonym if none is given."""
    rules = () if config.identity is None else config.identity.value.map
    keys = frozenset(rule.when.key for rule in rules if rule.user == user and rule.when.key)
    return ForgottenUser(user=user, keys=keys, pseudonym=pseudonym or f"forgotten-{os.urandom(6).hex()}")


def personal_records(config: Config, person: ForgottenUser) -> Iterator[Forgotten]:
    """Count the records of a person, without changing anything.

    Raises:
        StoreError: a store cannot be read.
    """
    for store, records in _existing(config):
        with store_database(store).reading() as connection:
            sql = f"select count(*) from {records.table} where {records.where}"  # noqa: S608 - names of ours
            count = int(connection(sql, **_names(person, connection))[0][0])
        yield Forgotten(store=store.name, what=records.what, count=count)
    if config.audit is not None:
        audit = audit_store_of(config)
        rows = (row.raw for chain in audit.chains() for row in audit.rows(chain))
        count = sum(person.pseudonymised(raw) is not None for raw in rows)
        yield Forgotten(store="audit", what="rows whose names are replaced", count=count)


def forget(config: Config, person: ForgottenUser) -> Iterator[Forgotten]:
    """Delete the records of a person, and replace the names in the audit. Each store is changed in one step.

    Raises:
        StoreError: a store cannot be written; what was yielded before is done.
    """
    files: dict[str, SqliteFile] = {}
    for store, records in _existing(config):
        database = store_database(store)
        with database.transaction() as connection:
            names = _names(person, connection)
            if records.rename:
                sql = f"update {records.table} set {records.rename} = :pseudonym where {records.where} returning 1"  # noqa: S608 - names of ours
            else:
                sql = f"delete from {records.table} where {records.where} returning 1"  # noqa: S608 - names of ours
            count = len(connection(sql, **names))
        if isinstance(database, SqliteFile):
            files[str(database.path)] = database
        yield Forgotten(store=store.name, what=records.what, count=count)
    if config.audit is not None:
        audit = audit_store_of(config)
        count = audit.rewrite(person.pseudonymised, signer_of(config), now=steady_time()) if audit.chains() else 0
        audit.close()
        for store in stores_of(config):
            if store.name == "audit" and isinstance(database := store_database(store), SqliteFile):
                files[str(database.path)] = database
        yield Forgotten(store="audit", what="rows whose names are replaced", count=count)
    for file in files.values():
        # Deleted rows stay in the free pages of a file otherwise.
        file.compact()


def retained_records(config: Config, person: ForgottenUser) -> Iterator[str]:
    """Yield sentences about the data that `forget` does not delete."""
    keys = _stored_keys(config, person)
    for name in sorted(keys):
        yield f"The name of the API key {name!r}. Revoke it first: `pegboard keys revoke {name}`."
    if config.identity is not None and any(rule.user == person.user for rule in config.identity.value.map):
        yield f"Rules under `identity.map` in {config.path.name} that name {person.user!r}. Remove them."
    if config.tasks is not None:
        yield "Tasks of the person, with their arguments and results, until they expire (`ttl_seconds`)."
    if config.workspace is not None:
        yield "Documents, and what they say about the person. Remove them with `pegboard workspace`."
    if config.limit_store is not None:
        yield "Counts of rate limits in Redis, until their windows end."
    if config.audit is not None:
        yield (
            "The rows of the audit, with a pseudonym; names within arguments of other people's calls; and for rows "
            "that an earlier version wrote without `salt`, a hash that can confirm a guessed name."
        )
    if any(store.uri.path is None for store in stores_of(config)):
        yield "On PostgreSQL, deleted rows until `VACUUM`, and its log."
    yield "Logs, traces, alerts that were sent, backups, and the memory of running servers until they are restarted."


def _stored_keys(config: Config, person: ForgottenUser) -> frozenset[str]:
    path = None if config.identity is None else key_store_of(config.identity.value, config.path)
    if path is None or not path.exists():
        return frozenset()
    return person.keys & {key.name for key in KeyStore(path).listed()}


def _existing(config: Config) -> Iterator[tuple[DeclaredStore, _Records]]:
    """Yield the kinds of records in the stores that exist."""
    for store in stores_of(config):
        exists = store.name in PERSONAL and (store.uri.path is None or store.uri.path.exists())
        if exists and store_database(store).stored_version():
            yield from ((store, records) for records in PERSONAL[store.name])


def _names(person: ForgottenUser, connection: StoreConnection) -> dict[str, str]:
    """Return the values of the parameters; SQL uses those that it names."""
    user = person.user
    return {
        "user": user,
        "shell": f"cli:{user}",
        **conversation_user(user, connection),
        "principal": f"user:{user}",
        "mark": mark_of_user(user),
        "pseudonym": person.pseudonym,
    }
