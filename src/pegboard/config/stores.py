"""Stores: the SQLite files and PostgreSQL databases that a config names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from pegboard.agents import conversations
from pegboard.audit import sql_audit
from pegboard.auth import keys
from pegboard.config.config import Config
from pegboard.config.identity import key_store_of
from pegboard.connections import connection_store
from pegboard.consent import sql_records
from pegboard.discovery.learning import use_store
from pegboard.limits import sql_budgets
from pegboard.model.error import DefinitionError
from pegboard.model.secret import Secret
from pegboard.models.embedding import cache_table
from pegboard.storage.backup import BUSY_S
from pegboard.storage.database import Database, database_of
from pegboard.storage.postgres_server import PostgresServer
from pegboard.storage.store_schema import Schema
from pegboard.storage.store_uri import StoreUri
from pegboard.tasks import task_tables
from pegboard.workspace import document_schema as document_tables

SCHEMAS: dict[str, Schema] = {
    schema.name: schema
    for schema in (
        keys.SCHEMA,
        sql_records.SCHEMA,
        connection_store.SCHEMA,
        task_tables.SCHEMA,
        document_tables.SCHEMA,
        conversations.SCHEMA,
        use_store.SCHEMA,
        sql_budgets.SCHEMA,
        cache_table.SCHEMA,
        sql_audit.SCHEMA,
    )
}


class DeclaredStore(Struct, frozen=True, kw_only=True):
    """One store of a config; `name` is the name of its `storage.Schema`."""

    name: str
    uri: StoreUri


def stores_of(config: Config) -> Iterator[DeclaredStore]:
    """Yield every store in SQLite or PostgreSQL; those in memory and in Redis are not among them."""
    folder = config.path.absolute().parent
    if config.identity is not None and (path := key_store_of(config.identity.value, config.path)) is not None:
        yield DeclaredStore(name="api_keys", uri=_file(path))
    by_uri = (
        ("consents", _text_of(config.consent_store)),
        ("connections", config.connections and _text_of(config.connections.value.store)),
        ("audit", config.audit and _text_of(config.audit.value.store)),
        ("conversations", _text_of(config.agent_store)),
        ("budgets", config.budgets and _text_of(config.budgets.value.store)),
        ("tasks", config.tasks and _text_of(config.tasks.value.store)),
        ("documents", config.workspace and _text_of(config.workspace.value.store)),
    )
    for name, text in by_uri:
        if text:
            # In memory, in Redis or in JSONL; an invalid URI is reported where the store is built.
            with suppress(DefinitionError):
                yield DeclaredStore(name=name, uri=StoreUri.parse(text, folder=folder))
    if config.learn is not None:
        yield DeclaredStore(name="learned_use", uri=_file(folder / config.learn.value.file))
    if config.embedder is not None and config.embedder.value.type != "hashing":
        yield DeclaredStore(name="embedding_cache", uri=_file(folder / config.embedder.value.cache))


def store_database(store: DeclaredStore) -> Database:
    """Return the database of a store.

    Raises:
        ImportError: psycopg is not installed.
    """
    if store.name == "documents" and store.uri.path is None:
        path = document_tables.SEARCH_PATH
        return PostgresServer(store.uri.text, SCHEMAS[store.name], busy_s=BUSY_S, search_path=path)
    return database_of(store.uri, SCHEMAS[store.name], busy_s=BUSY_S)


def _file(path: Path) -> StoreUri:
    return StoreUri.parse(f"sqlite:{path}", folder=Path())


def _text_of(declared: Any) -> str:
    value = getattr(declared, "value", declared)
    return value.reveal() if isinstance(value, Secret) else value or ""
