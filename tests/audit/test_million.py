"""A million calls: each has one row, also those that were refused, cancelled or killed.

Each store takes about 80 s of CPU: `make soak ARGS="tests/audit/test_million.py -k million-jsonl"`; with `-k short` ten
thousand calls.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from pegboard import Catalog, ToolContext
from pegboard.audit.audit import Audit
from pegboard.audit.audit_query import calls_since
from pegboard.audit.audit_row import read_row
from pegboard.audit.hash_chain import Sealed
from pegboard.audit.verify_chain import check_chain
from pegboard.config import load_catalog
from tests import forking
from tests.timing import PATIENCE_S

CANARY = "canary-of-the-million-0123456789"
USERS = ("ann", "bob", "eve", "joe")
KILLED = 10
KIMS = ["kim"] * KILLED
KILLED_CALLS = f"""
import asyncio
from pathlib import Path
from pegboard import ToolContext
from pegboard.config import load_catalog

async def main():
    catalog, _ = load_catalog(Path("pegboard.yaml"))

    @catalog.tool(timeout_s=3_600)
    async def hang() -> str:
        "Hang."
        await asyncio.Event().wait()
        return ""

    view = catalog.view(ToolContext(user_id="kim", budget=None), profile="chat")
    await asyncio.gather(*(view.call("hang", {{}}) for _ in range({KILLED})))

asyncio.run(main())
"""


@pytest.fixture(params=["sqlite", "jsonl", "postgresql"])
def store(request: pytest.FixtureRequest) -> Iterator[str]:
    """Return the address of an empty store."""
    if request.param != "postgresql":
        yield f"{request.param}:./audit"
        return
    server: str = request.getfixturevalue("postgres_url")
    name = f"million_{uuid4().hex}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"create database {name}")  # type: ignore[arg-type]
    yield server.replace("/postgres?", f"/{name}?")


def audited(folder: Path) -> tuple[Catalog, Audit]:
    """Return the catalog that is declared in a folder, with two tools more, and its audit."""
    catalog, _ = load_catalog(folder / "pegboard.yaml", env={"CANARY": CANARY})

    @catalog.tool
    async def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    @catalog.tool
    async def hang() -> str:
        """Hang."""
        await asyncio.Event().wait()
        return ""

    audit = catalog.executor.ports.audit
    assert isinstance(audit, Audit)
    return catalog, audit


async def calls_of(catalog: Catalog, user: str, count: int) -> Counter[str]:
    """Make calls one after the other; return how they ended."""
    view, ends = catalog.view(ToolContext(user_id=user, space_id="s", budget=None), profile="chat"), Counter[str]()
    for number in range(count):
        match number % 100:
            case 2:
                cancelled = asyncio.create_task(view.call("hang", {}))
                await asyncio.sleep(0)
                cancelled.cancel()
                await asyncio.wait([cancelled])
                ends["cancelled"] += 1
                continue
            case 0:
                result = await view.call("hidden", {})
            case 1:
                result = await view.call("add", {"a": CANARY})
            case _:
                result = await view.call("add", {"a": number, "b": 2})
        ends["ok" if result.error is None else result.error.kind] += 1
    return ends


def counted(rows: Iterable[Sealed], events: Counter[str]) -> Iterator[Sealed]:
    """Yield the rows; count their events, and those with the canary."""
    for row in rows:
        events[read_row(row.raw).event] += 1
        events[CANARY] += CANARY.encode() in row.raw
        yield row


@pytest.mark.soak
@pytest.mark.parametrize("count", [pytest.param(10_000, id="short"), pytest.param(1_000_000, id="million")])
async def test_each_call_has_one_row_and_the_chain_holds(store: str, count: int, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    declared = {
        "groups": {"core": ""},
        "profiles": {"chat": {"deny": ["hidden"]}},
        "limits": {"invalid_calls_per_minute": count},
        "audit": {"store": store, "bodies": "redacted", "sign_key": "a-signing-key-of-this-run"},
        "settings": {"token": "${CANARY}"},
    }
    (tmp_path / "pegboard.yaml").write_text(json.dumps(declared))
    catalog, audit = audited(tmp_path)
    ends = sum(await asyncio.gather(*(calls_of(catalog, user, count // len(USERS)) for user in USERS)), Counter[str]())
    while audit.writer.queue:
        await asyncio.sleep(0.05)
    await catalog.close()

    script, began = tmp_path / "killed.py", time.time() - 1.0
    script.write_text(KILLED_CALLS)
    catalog, audit = audited(tmp_path)
    with (tmp_path / "said").open("wb") as said:
        files = (said.fileno(), said.fileno(), said.fileno())
        process = forking.fork(["python", str(script)], files=files, cwd=tmp_path, env={**os.environ, "CANARY": CANARY})
        try:
            async with asyncio.timeout(PATIENCE_S):
                while [read_row(raw).user for raw in islice(audit.writer.store.newest(since=began), KILLED)] != KIMS:
                    await asyncio.sleep(0.05)
        finally:
            process.send_signal(signal.SIGKILL)
            await asyncio.to_thread(process.wait)
    ends["unknown"] = KILLED

    store_of_all, rows, events = audit.writer.store, Counter[str](), Counter[str]()
    (name,) = store_of_all.chains()
    # In the one reading of a million rows that checks them.
    stored = counted(store_of_all.rows(name), events)
    assert check_chain(name, stored, store_of_all.heads(name), audit.writer.signer).faults == []
    ids = set[str]()
    for row in calls_since(store_of_all, 0.0):
        rows[row.outcome] += 1
        ids.add(row.call_id)
    await catalog.close()
    assert rows == ends
    assert len(ids) == ends.total() == count + KILLED
    assert (events["gap"], events["call"], events[CANARY]) == (0, count, 0)
    assert ends["ok"] == count * 97 // 100
