"""PostgreSQL databases for tests: of a login that may do no more in them than their owner."""

from __future__ import annotations

import asyncio
import itertools

import psycopg

from pegboard.workspace.postgres.postgres_store import PostgresDocumentStore

_numbers = itertools.count(1)
LOGIN = "librarian"


class Databases:
    """Makes databases on the server of the session."""

    def __init__(self, superuser_url: str) -> None:
        self._url = superuser_url
        # Tests of another folder may have made it on the same server.
        self._run(f"do $$ begin create role {LOGIN} login; exception when duplicate_object then null; end $$")
        template = self._made("template1")
        with psycopg.connect(self._url.replace("/postgres?", f"/{template}?"), autocommit=True) as connection:
            connection.execute("create extension vector")
        store = PostgresDocumentStore(self.url_of(template))
        asyncio.run(store.statistics())
        store.close()
        self._template = template

    def url_of(self, name: str) -> str:
        return self._url.replace("//postgres:", f"//{LOGIN}:").replace("/postgres?", f"/{name}?")

    def empty(self) -> str:
        """Return the URL of a database with the tables of the store and nothing in them."""
        return self.url_of(self._made(self._template))

    def copy_of(self, url: str) -> str:
        """Return the URL of a copy of a database that nobody is connected to."""
        return self.url_of(self._made(url.partition("?")[0].rpartition("/")[2]))

    def _made(self, template: str) -> str:
        name = f"documents_{next(_numbers)}"
        self._run(f"create database {name} owner {LOGIN} template {template}")
        return name

    def _run(self, statement: str) -> None:
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute(statement)  # type: ignore[arg-type] - a text of ours
