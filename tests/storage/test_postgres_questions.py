"""A question that fails is asked again only if its connection was dead, and never waits for long."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator

import psycopg
import pytest

from pegboard.limits.sql_budgets import SCHEMA
from pegboard.model.secret import Secret
from pegboard.storage import postgres_server
from pegboard.storage.postgres_server import PostgresServer
from pegboard.storage.store_error import StoreError
from pegboard.storage.store_schema import Question
from tests.timing import PATIENCE_S

STOP = (
    "select pg_cancel_backend(pid) from pg_stat_activity where query like '%pg_sleep(%' and state = 'active' "
    "and pid <> pg_backend_pid() and wait_event = 'PgSleep'"
)
WHO = Question(sqlite="", postgres="select pg_backend_pid(), cast($1 as text), null")


@pytest.fixture
async def server(postgres_url: str) -> AsyncIterator[PostgresServer]:
    server = PostgresServer(Secret(postgres_url), SCHEMA, busy_s=10, statement_s=PATIENCE_S, keep=3)
    yield server
    server.close()


async def ask(server: PostgresServer, value: str = "ä") -> int:
    [(pid, said, nothing)] = await server.ask(WHO, value)
    assert (said, nothing) == (value, None)
    return int(pid)


async def test_questions_one_after_another_share_a_connection_and_those_at_once_do_not(server: PostgresServer) -> None:
    first = await ask(server)
    assert await ask(server, "") == first
    assert len({*await asyncio.gather(*(ask(server, str(number)) for number in range(3)))}) == 3


async def test_a_question_that_was_stopped_for_its_time_is_not_asked_again_on_another_connection(
    server: PostgresServer, postgres_url: str
) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as other:
        other.execute("create sequence asked")
        counts = Question(sqlite="", postgres="select nextval('asked'), pg_sleep(cast($1 as int))")
        await asyncio.gather(server.ask(counts, "0"), server.ask(counts, "0"))
        asked = asyncio.create_task(server.ask(counts, "600"))
        async with asyncio.timeout(PATIENCE_S):
            while not other.execute(STOP).fetchall():
                await asyncio.sleep(0.01)
            with pytest.raises(StoreError, match="QueryCanceled"):
                await asked
        assert other.execute("select nextval('asked')").fetchone() == (4,)
        other.execute("drop sequence asked")
    with pytest.raises(StoreError, match="UndefinedTable"):
        await server.ask(counts, "0")


async def test_a_question_that_the_server_cannot_prepare_fails(server: PostgresServer) -> None:
    with pytest.raises(StoreError, match="UndefinedTable"):
        await server.ask(Question(sqlite="", postgres="select $1 from no_such_table"), "x")


async def test_a_question_over_connections_that_the_server_has_closed_opens_a_new_one(
    server: PostgresServer, postgres_url: str
) -> None:
    pids = await asyncio.gather(ask(server), ask(server))
    with psycopg.connect(postgres_url, autocommit=True) as other:
        for pid in pids:
            assert other.execute("select pg_terminate_backend(%s, 60000)", (pid,)).fetchone() == (True,)
    assert await ask(server) not in pids


async def test_a_server_that_hangs_fails_the_question_and_the_next_one_connects_again(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = await ask(server)
    os.kill(pid, signal.SIGSTOP)
    try:
        monkeypatch.setattr(postgres_server, "POSTGRES_STATEMENT_S", 0.2 - postgres_server.POSTGRES_CONNECT_S)
        with pytest.raises(StoreError, match="does not answer"):
            await ask(server)
        monkeypatch.undo()
        assert await ask(server) != pid
    finally:
        os.kill(pid, signal.SIGCONT)


async def test_a_cancelled_question_leaves_no_answer_for_the_next_one(server: PostgresServer) -> None:
    pid = await ask(server)
    asked = asyncio.create_task(ask(server, "cancelled"))
    await asyncio.sleep(0)
    asked.cancel()
    await asyncio.wait([asked])
    assert await ask(server, "next") != pid
