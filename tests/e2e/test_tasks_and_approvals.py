"""Tasks and approvals with the clients of others: the Python SDK 1.x, and Claude Code on a played model."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pegboard import CallContext, Catalog, Tasks, http_app
from pegboard.consent.sqlite_store import SqliteConsents
from pegboard.testing import CallsTool, ModelRequest, ModelServer
from tests.e2e.test_real_clients import CLIENTS, PYTHON
from tests.server.doors import served
from tests.timing import PATIENCE_S

pytestmark = pytest.mark.e2e


class Shop:
    """A served catalog whose tools need a person, and what they did."""

    def __init__(self, folder: Path) -> None:
        self.store, self.did, self.url = SqliteConsents(folder / "consents.db"), list[str](), ""
        self.catalog = Catalog("shop", consent_store=self.store, tasks=Tasks(f"sqlite:{folder}/tasks.db"))

        @self.catalog.tool(task="optional")
        async def import_orders(ctx: CallContext, source: str) -> str:
            """Import orders."""
            rows = await ctx.step("download", lambda: [1, 2])
            if not await ctx.ask(f"Import {len(rows)} orders?", schema={"type": "boolean"}):
                return "kept"
            return await ctx.step("load", self.done, f"imported {source}")

        @self.catalog.tool(task="optional", consent="always")
        async def pay(to: str) -> str:
            """Pay somebody."""
            return self.done(f"paid {to}")

    def done(self, what: str) -> str:
        self.did.append(what)
        return what


@asynccontextmanager
async def shop_at(folder: Path) -> AsyncGenerator[Shop]:
    shop = Shop(folder)
    async with served(http_app(shop.catalog)) as shop.url:
        yield shop


async def test_the_python_sdk_completes_a_task_and_approvals(tmp_path: Path) -> None:
    async with shop_at(tmp_path) as shop:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(PYTHON, "mcp_1_tasks.py", shop.url, stdout=pipe, cwd=CLIENTS)
        out, _ = await asyncio.wait_for(process.communicate(), 4 * PATIENCE_S)
    assert json.loads(out) == {
        "ended": {"import_orders": ["completed", "imported web"], "pay": ["completed", "paid task"]},
        "paid": "paid call",
        "asked": 3,
    }
    assert shop.did == ["imported web", "paid task", "paid call"]


async def test_claude_code_makes_a_call_that_a_person_approves_meanwhile(tmp_path: Path) -> None:
    outcomes, ids = list[str](), list[str]()

    async with shop_at(tmp_path) as shop:
        loop = asyncio.get_running_loop()

        def answer(request: ModelRequest) -> Any:
            if not request.tools:
                return "done"
            outcomes[:] = [outcome.text for message in request.messages for outcome in message.outcomes]
            if len(outcomes) == 1:
                # The model knows the id, and cannot decide: a person does so, elsewhere.
                approving = asyncio.run_coroutine_threadsafe(approve(), loop)
                ids.extend(approving.result(PATIENCE_S))
            return [CallsTool("mcp__shop__pay", {"to": "bob"})] if len(outcomes) < 2 else "done"

        async def approve() -> list[str]:
            questions = [question.id for question in await shop.store.listed()]
            for question_id in questions:
                await shop.store.decide(question_id, is_yes=True, decided_by="cli:ann")
            return questions

        (program,) = CLIENTS.glob("node_modules/@anthropic-ai/claude-code-*/claude")
        config = tmp_path / "mcp.json"
        config.write_text(json.dumps({"mcpServers": {"shop": {"type": "http", "url": f"{shop.url}/mcp"}}}))
        with ModelServer(answer) as model:
            env = {**os.environ, "HOME": str(tmp_path), "ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "sk-x",
                   "ENABLE_TOOL_SEARCH": "false", "DISABLE_AUTOUPDATER": "1",
                   "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}  # fmt: skip
            process = await asyncio.create_subprocess_exec(
                program, "-p", "Pay bob.", "--mcp-config", str(config), "--strict-mcp-config",
                "--allowedTools", "mcp__shop__pay", "--output-format", "json",
                cwd=tmp_path, env=env, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            )  # fmt: skip
            out, _ = await asyncio.wait_for(process.communicate(), 4 * PATIENCE_S)
    assert (process.returncode, json.loads(out)["result"]) == (0, "done"), out
    assert (len(ids), outcomes[-1], shop.did) == (1, "paid bob", ["paid bob"]), outcomes
    assert ids[0] in outcomes[0]
