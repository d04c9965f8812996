"""A read that fails is repeated only if its idle connection was dead."""

from collections.abc import Iterator
from typing import Any

import pytest

from pegboard.limits.sql_budgets import SCHEMA
from pegboard.model.secret import Secret
from pegboard.storage.postgres_server import PostgresServer
from pegboard.storage.store_error import StoreError
from tests.timing import PATIENCE_S


@pytest.fixture
def server(postgres_url: str) -> Iterator[PostgresServer]:
    server = PostgresServer(Secret(postgres_url), SCHEMA, busy_s=10, statement_s=PATIENCE_S, keep=3)
    yield server
    server.close()


def _fill(server: PostgresServer) -> list[int]:
    """Leave three idle connections, and return their processes."""

    def pid(connection: Any) -> int:
        return connection("select pg_backend_pid()")[0][0]

    def three(first: Any) -> list[int]:
        return [pid(first), *server.read(lambda second: [pid(second), server.read(pid)])]

    return server.read(three)


def test_a_statement_that_is_too_slow_is_not_repeated_on_the_other_idle_connections(server: PostgresServer) -> None:
    assert len(set(_fill(server))) == 3
    attempts = list[int]()

    def slow(connection: Any) -> None:
        attempts.append(1)
        # A busy machine may be slow with every other statement.
        connection("select set_config('statement_timeout', '100', false)")
        connection("select pg_sleep(600)")

    with pytest.raises(StoreError):
        server.read(slow)
    assert len(attempts) == 1


def test_a_read_over_connections_that_the_server_has_closed_opens_a_new_one(server: PostgresServer) -> None:
    pids = _fill(server)
    with server.transaction() as connection:
        ended = connection(
            "select count(pg_terminate_backend(pid)) from pg_stat_activity "
            "where pid = any(cast(:pids as int[])) and pid <> pg_backend_pid()",
            pids=pids,
        )
    assert ended == [(2,)]
    assert server.read(lambda connection: connection("select 1")) == [(1,)]
