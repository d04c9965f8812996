"""A user of PostgreSQL with few rights: made tables serve them, and what they may not is said and loses nothing."""

from __future__ import annotations

import logging

import psycopg
import pytest

from pegboard import CallContext, Catalog, Tasks, ToolContext
from pegboard.consent.postgres_store import PostgresConsents
from pegboard.model.record import replace
from tests.consent.test_inbox import Shop, question_of
from tests.tasks.databases import database
from tests.timing import PATIENCE_S

ANN = ToolContext(user_id="ann", space_id="s1", session_id="one", budget=None)
WRITE = "select, insert, update, delete"
TABLES = "pegboard_tasks, pegboard_task_questions, pegboard_task_workers"


async def test_who_may_not_make_tables_works_in_those_that_are_made_and_is_refused_in_words(
    postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "pegboard")
    with database(postgres_url) as url, psycopg.connect(url, autocommit=True) as owner:
        shop = Shop(PostgresConsents(url))
        await PostgresConsents(url).decide(question_of(await shop.pay()), is_yes=True, decided_by="cli:ann")
        owner.execute("create role clerk login")
        owner.execute(f"grant {WRITE} on {TABLES}, consents, used_answers to clerk".encode())
        owner.execute("grant usage on schema dbos to clerk")
        owner.execute(f"grant {WRITE} on all tables in schema dbos to clerk".encode())
        own = url.replace("//postgres:", "//clerk:")
        catalog = Catalog("clerk", tasks=Tasks(own))

        @catalog.tool(task="required")
        async def work(ctx: CallContext) -> object:
            """Work."""
            return await ctx.step("work", lambda: "done")

        view, shop = catalog.view(replace(ANN)), Shop(PostgresConsents(own))
        begun = await view.call("work")
        assert begun.task_id is not None, begun
        assert (await catalog.tasks.result(begun.task_id, ANN, timeout_s=PATIENCE_S)).text == "done"
        owner.execute("revoke insert on pegboard_tasks from clerk")
        owner.execute("revoke update on consents from clerk")
        for refused in (await view.call("work"), await shop.pay()):
            assert refused.error is not None
            assert (refused.error.kind, refused.error.retryable) == ("storage_unavailable", True)
        assert [text for text in ("pegboard_tasks", "consents") if f"permission denied for table {text}" in caplog.text]
        assert shop.paid == []
        owner.execute(f"grant {WRITE} on {TABLES}, consents to clerk".encode())
        assert (await view.call("work")).error is None
        assert (await shop.pay()).text == "paid", "the yes was not lost"
        assert len(await catalog.tasks.list(ANN)) == 2
        await catalog.close()
        owner.execute("drop owned by clerk")
        owner.execute("drop role clerk")
