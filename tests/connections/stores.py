"""Stores: an empty database for a test."""

from __future__ import annotations


def fresh_database(url: str, name: str) -> str:
    """Create a database on the server, and return its URL."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"create database {name}")  # type: ignore[arg-type]
    base, _, query = url.partition("?")
    return f"{base.rpartition('/')[0]}/{name}?{query}"
