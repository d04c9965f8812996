"""The tables that a tool may not write are those that the stores of a config really make."""

from __future__ import annotations

import asyncio
from pathlib import Path

import psycopg
import pytest

from pegboard.agents.conversations import SessionKey, conversations_of
from pegboard.config.deciding_files import DECIDING_TABLES
from pegboard.consent.postgres_store import PostgresConsents
from pegboard.limits.sql_budgets import SCHEMA, SqlBudgetStore
from pegboard.model.secret import Secret
from pegboard.storage.postgres_server import PostgresServer
from pegboard.storage.store_uri import StoreUri
from tests.tasks.databases import database
from tests.workspace.postgres_databases import Databases

# Threads of others start while it runs, which tracing cannot follow.
pytestmark = pytest.mark.slow

_COLUMNS = """
select table_name, column_name from information_schema.columns
where table_schema not in ('pg_catalog', 'information_schema')
"""
# What DBOS keeps beside the steps, inputs and messages of workflows, and by which model documents were embedded: who
# may write there decides nothing.
_OF_NO_WEIGHT = {
    "application_versions", "dbos_migrations", "event_dispatch_kv", "queues", "settings", "streams",
    "workflow_events_history", "workflow_schedules",
}  # fmt: skip


def columns(url: str) -> set[tuple[str, str]]:
    with psycopg.connect(url) as connection:
        return {(table, column) for table, column in connection.execute(_COLUMNS)}


async def use(url: str) -> None:
    """Have the stores of consents and of talks make their tables."""
    await PostgresConsents(url).stands("none")
    budgets = SqlBudgetStore(PostgresServer(Secret(url), SCHEMA, busy_s=9), catalog="shop")
    await budgets.counters([])
    conversations = conversations_of(StoreUri.parse(url, folder=Path()))
    await conversations.append(SessionKey("a", None, None, "s"), b"", keep=1)


def test_each_table_that_a_store_makes_is_one_that_no_tool_writes(postgres_url: str) -> None:
    documents = Databases(postgres_url).empty()
    with database(postgres_url) as url:
        asyncio.run(use(url))
        made = columns(url) | columns(documents)
    assert made >= DECIDING_TABLES
    guarded = {table for table, _ in DECIDING_TABLES}
    assert {table for table, _ in made} - guarded - _OF_NO_WEIGHT == set()
