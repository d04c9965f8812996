"""A PostgreSQL database of its own for each test of tasks, with the tables made already."""

from __future__ import annotations

import itertools
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache

import psycopg
from dbos import DBOSClient

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
    """Return the URL of a database with the tables of DBOS, which take a second to make, and nothing in them."""
    url = _made(superuser_url, None)
    DBOSClient(system_database_url=url.replace("postgresql://", "postgresql+psycopg://")).destroy()
    return url


def _made(superuser_url: str, template: str | None) -> str:
    name = f"tasks_{next(_numbers)}"
    like = "template1" if template is None else _name(template)
    with psycopg.connect(superuser_url, autocommit=True) as connection:
        connection.execute(f"create database {name} template {like}".encode())
    return superuser_url.replace("/postgres?", f"/{name}?")
