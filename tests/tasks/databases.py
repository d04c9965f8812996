"""A PostgreSQL database of its own for each test of tasks, with the tables made already."""

from __future__ import annotations

import itertools
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import psycopg
from dbos import DBOS

from pegboard.storage.store_uri import StoreUri
from pegboard.tasks.task_tables import TaskTables

_numbers = itertools.count(1)


@contextmanager
def database(superuser_url: str) -> Generator[str]:
    """Give the URL of a database that nobody has used; it is gone afterwards."""
    url = _made(superuser_url, _template(superuser_url))
    yield url
    with psycopg.connect(superuser_url, autocommit=True) as connection:
        connection.execute(f"drop database {_name(url)} with (force)".encode())


def _name(url: str) -> str:
    return url.partition("?")[0].rpartition("/")[2]


@cache
def _template(superuser_url: str) -> str:
    """Return the URL of a database with the tables of DBOS and ours, which take a second to make; they are empty."""
    url = _made(superuser_url, None)
    with_driver = url.replace("postgresql://", "postgresql+psycopg://")
    DBOS.migrate(with_driver)
    tables = TaskTables.at(StoreUri.parse(url, folder=Path()))
    tables.create()
    tables.close()
    return url


def _made(superuser_url: str, template: str | None) -> str:
    name = f"tasks_{next(_numbers)}"
    like = "template1" if template is None else _name(template)
    with psycopg.connect(superuser_url, autocommit=True) as connection:
        connection.execute(f"create database {name} template {like}".encode())
    return superuser_url.replace("/postgres?", f"/{name}?")
