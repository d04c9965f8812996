"""Tasks over plain HTTP and on the command line."""

from __future__ import annotations

import asyncio
import json
import textwrap
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest

from pegboard import CallContext, Catalog, Tasks, http_app
from tests import forking
from tests.server.doors import served
from tests.timing import PATIENCE_S

TOOLS = '''
from pegboard import CallContext, default_catalog

@default_catalog.tool(task="required")
async def ask(ctx: CallContext, what: str) -> dict[str, object]:
    """Ask a person."""
    return {"answer": await ctx.ask(what, schema={"type": "string"})}

@default_catalog.tool(task="optional")
async def double(n: int) -> int:
    """Double a number."""
    return 2 * n
'''
CONFIG = """\
python: [tools]
allow_imports: [tools]
tasks: {store: "sqlite:./tasks.db", ttl_seconds: 600}
"""


async def test_over_http_a_task_is_begun_shown_answered_and_ended() -> None:
    catalog = Catalog(tasks=Tasks())

    @catalog.tool(task="required")
    async def ask(ctx: CallContext) -> dict[str, object]:
        """Ask a person."""
        return {"answer": await ctx.ask("Which?", schema={"type": "string"})}

    @catalog.tool(task="optional")
    async def double(n: int) -> int:
        """Double a number."""
        return 2 * n

    async with served(http_app(catalog)) as url, httpx2.AsyncClient(timeout=PATIENCE_S) as client:

        async def until(task_id: str, state: str) -> Any:
            async with asyncio.timeout(PATIENCE_S):
                while (shown := (await client.get(f"{url}/v1/tasks/{task_id}")).json())["state"] != state:
                    pass
            return shown

        direct = (await client.post(f"{url}/v1/tools/double/call", json={"n": 2})).json()
        assert (direct["structuredContent"], "taskId" in direct) == (4, False)
        wished = (await client.post(f"{url}/v1/tools/double/call?as_task=true", json={"n": 3})).json()
        assert (await until(wished["taskId"], "completed"))["result"]["structuredContent"] == 6
        made = (await client.post(f"{url}/v1/tools/ask/call", json={})).json()["taskId"]
        [(key, question)] = (await until(made, "input_required"))["questions"].items()
        assert question["message"] == "Which?"
        unfit = await client.post(f"{url}/v1/tasks/{made}/answer", json={key: {"action": "accept", "content": {}}})
        odd = await client.post(f"{url}/v1/tasks/{made}/answer", json={key: "this"})
        assert (unfit.status_code, odd.status_code) == (422, 422)
        yes = {"action": "accept", "content": {"answer": "this"}}
        for strange in ({"answers": {key: yes}}, {}, {key: yes, "other": yes}):
            refused = await client.post(f"{url}/v1/tasks/{made}/answer", json=strange)
            assert (refused.status_code, refused.json()["questions"]) == (422, [key])
            assert f"Answer {key!r}" in refused.json()["detail"]
        assert (await client.post(f"{url}/v1/tasks/{made}/answer", json={key: yes})).status_code == 200
        assert (await until(made, "completed"))["result"]["structuredContent"] == {"answer": "this"}
        late = await client.post(f"{url}/v1/tasks/{made}/answer", json={key: yes})
        assert (late.status_code, late.json()["questions"]) == (422, [])
        other = (await client.post(f"{url}/v1/tools/ask/call", json={})).json()["taskId"]
        assert (await client.post(f"{url}/v1/tasks/{other}/cancel")).json()["state"] == "cancelled"
        assert (await client.post(f"{url}/v1/tasks/{other}/resume")).json()["state"] == "cancelled"
        # Nobody vouches for this caller: his tasks are those whose ids he holds, and no list has them.
        assert (await client.get(f"{url}/v1/tasks")).json() == {"tasks": []}
        unknown = await client.get(f"{url}/v1/tasks/{'f' * 32}")
        assert (unknown.status_code, unknown.json()["kind"]) == (404, "not_found")


async def test_a_server_without_tasks_knows_none() -> None:
    async with served(http_app(Catalog())) as url, httpx2.AsyncClient() as client:
        assert (await client.get(f"{url}/v1/tasks")).status_code == 404


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "tools.py").write_text(TOOLS)
    (tmp_path / "pegboard.yaml").write_text(textwrap.dedent(CONFIG))
    return tmp_path


def pegboard(project: Path, *words: str) -> tuple[int, Any, str]:
    # DBOS takes seconds to load: once, and not for each command.
    loaded = forking.having("pegboard.tasks.dbos_engine", "sqlalchemy.dialects.sqlite.pysqlite", "dbos._sys_db_sqlite")
    done = forking.run(["pegboard", *words, "--json"], cwd=project, timeout_s=PATIENCE_S, address=loaded)
    return done.returncode, json.loads(done.stdout or b"null"), done.stderr.decode()


def test_the_operator_lists_shows_ends_and_resumes_tasks_that_a_process_left(project: Path) -> None:
    code, nothing, said = pegboard(project, "tasks", "ls")
    assert (code, "empty" in said or nothing == {"tasks": []}) == (1, True)
    # The process of each call ends before its task has: it stays in the database.
    made = [pegboard(project, "call", "ask", f"what={word}")[1]["structured"]["task"] for word in ("a", "b")]
    assert [task["durable"] for task in made] == [True, True]
    code, listed, _ = pegboard(project, "tasks", "ls")
    assert (code, {task["id"] for task in listed["tasks"]}) == (0, {task["id"] for task in made})
    for task in listed["tasks"]:
        assert (len(task["worker"]), "owner" in task, task["updated_at"] >= task["created_at"]) == (32, True, True)
        assert datetime.fromisoformat(task["created_at"]).tzinfo is not None
    first = made[0]["id"]
    code, ended, _ = pegboard(project, "tasks", "cancel", first)
    assert (code, ended["state"]) == (0, "cancelled")
    code, _, said = pegboard(project, "tasks", "resume", first)
    assert (code, "has ended (cancelled)" in said) == (1, True)
    code, _, said = pegboard(project, "tasks", "show", "f" * 32)
    assert (code, "No task" in said) == (1, True)
    assert pegboard(project, "tasks", "show")[0] == 2
    doubled = pegboard(project, "call", "double", "n=4")[1]
    assert doubled["structured"] == 8


def test_workers_do_not_keep_tasks_each_for_itself(project: Path) -> None:
    (project / "pegboard.yaml").write_text(CONFIG.replace("sqlite:./tasks.db", "memory"))
    done = forking.run(["pegboard", "serve", "--workers", "2", "--port", "0"], cwd=project, timeout_s=PATIENCE_S)
    assert (done.returncode, "kept in memory" in done.stderr.decode()) == (2, True)
