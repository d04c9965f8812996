"""The audit over every store: one row a call, and `verify` names what somebody changed."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import msgspec
import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegboard import Catalog, ToolContext, http_app
from pegboard.audit.audit import Audit
from pegboard.audit.audit_query import AuditFilter, newest_rows
from pegboard.audit.audit_row import read_row
from pegboard.audit.audit_store import AuditStore
from pegboard.audit.audit_writer import AuditWriter
from pegboard.audit.call_rows import CallRows
from pegboard.audit.hash_chain import ChainEnd, Head, HeadSigner, Sealed, Unsealed, hash_of, seal
from pegboard.audit.jsonl_audit import JsonlAudit, line_of, sealed_of
from pegboard.audit.sql_audit import SCHEMA, SqlAudit
from pegboard.audit.verify_chain import check_chain, verify
from pegboard.config import load_catalog
from pegboard.model.secret import Secret
from pegboard.storage.database import database_of
from pegboard.storage.store_error import StoreError
from pegboard.storage.store_uri import StoreUri
from tests.server.doors import call, inside

SIGNER = HeadSigner(Secret("the key of the audit"))
CANARY = "canary-of-somebody-0123456789"
SHOP = """
from pegboard import default_catalog

@default_catalog.tool(read_only=True)
async def look(text: str = "") -> str:
    "Look at something."
    return text

@default_catalog.tool
async def change(text: str = "") -> str:
    "Change something."
    return text
"""


@pytest.fixture(params=["sqlite", "jsonl", "postgresql"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], AuditStore]]:
    """Return a function that opens one and the same store."""
    tmp_path.chmod(0o700)
    if request.param == "jsonl":
        yield lambda: JsonlAudit(tmp_path / "audit.jsonl")
        return
    text = "sqlite:audit.db"
    if request.param == "postgresql":
        server: str = request.getfixturevalue("postgres_url")
        name = f"audit_{uuid4().hex}"
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f"create database {name}")  # type: ignore[arg-type]
        text = server.replace("/postgres?", f"/{name}?")
    uri = StoreUri.parse(text, folder=tmp_path)
    yield lambda: SqlAudit(database_of(uri, SCHEMA, busy_s=5.0))


def rows_of(count: int, *, at: float = 1.0) -> list[Unsealed]:
    return [Unsealed(at + i, json.dumps({"at": at + i, "call_id": f"c{i}"}).encode()) for i in range(count)]


def faults_of(store: AuditStore, *known: Head) -> list[str]:
    return [fault.text for checked in verify(store, SIGNER, known=known) for fault in checked.faults]


def tamper(store: AuditStore, change: Callable[[list[Sealed]], list[Sealed]]) -> None:
    """Change the stored rows as somebody could who may write the store; their numbers stay those of their places."""
    rows = change([*store.rows(store.chains()[0])])
    if isinstance(store, JsonlAudit):
        store.close()
        path = store._path
        path.write_bytes(b"".join(map(line_of, rows)))
        return
    assert isinstance(store, SqlAudit)
    with store._database.transaction() as connection:
        connection("delete from pegboard_audit")
        connection.many(
            "insert into pegboard_audit (seq, at, row, hash) values (?, ?, ?, ?)",
            [(row.seq, row.at, row.raw.decode(), row.hash) for row in rows],
        )


def altered(rows: list[Sealed]) -> list[Sealed]:
    return [*rows[:3], rows[3]._replace(raw=rows[3].raw.replace(b"c3", b"d3")), *rows[4:]]


def altered_with_its_hash(rows: list[Sealed]) -> list[Sealed]:
    raw = rows[3].raw.replace(b"c3", b"d3")
    return [*rows[:3], rows[3]._replace(raw=raw, hash=hash_of(raw)), *rows[4:]]


def swapped(rows: list[Sealed]) -> list[Sealed]:
    return [*rows[:3], rows[4]._replace(seq=4), rows[3]._replace(seq=5), *rows[5:]]


def inserted(rows: list[Sealed]) -> list[Sealed]:
    later = [row._replace(seq=row.seq + 1) for row in rows[4:]]
    return [*rows[:4], seal(rows_of(1), ChainEnd(rows[3].seq, rows[3].hash))[0], *later]


def rewritten(rows: list[Sealed]) -> list[Sealed]:
    """Alter one row and make a chain of all later ones, which only a signature shows."""
    ends = ChainEnd(rows[2].seq, rows[2].hash)
    return [*rows[:3], *seal(rows_of(len(rows) - 3, at=50.0), ends)]


TAMPERINGS = [
    (altered, "row 4 was altered"),
    (altered_with_its_hash, "row 5 does not continue row 4"),
    (lambda rows: [*rows[:3], *rows[4:]], "row 4 is missing"),
    (swapped, "row 4"),
    (inserted, "row 6"),
    (lambda rows: rows[:6], "rows 7 to 8 were cut off"),
    (lambda rows: [], "rows 1 to 8 were cut off"),
    (rewritten, "its head differs"),
]


@pytest.mark.parametrize(("change", "named"), TAMPERINGS)
def test_verify_names_a_row_that_somebody_changed(
    make_store: Callable[[], AuditStore], change: Callable[[list[Sealed]], list[Sealed]], named: str
) -> None:
    store = make_store()
    store.append(rows_of(5), SIGNER, closes=False, now=9.0)
    store.append(rows_of(3, at=6.0), SIGNER, closes=True, now=9.0)
    store.close()
    assert faults_of(make_store()) == []
    tamper(store, change)
    faults = faults_of(make_store())
    assert any(fault.startswith(named) or fault.endswith(named) for fault in faults), faults


def test_a_pruned_chain_is_whole_and_its_last_rows_go_on(make_store: Callable[[], AuditStore]) -> None:
    store = make_store()
    store.append(rows_of(6), SIGNER, closes=True, now=9.0)
    assert store.prune(4.0, SIGNER, now=10.0) == 3
    store.append(rows_of(1, at=7.0), SIGNER, closes=True, now=11.0)
    store.close()
    again = make_store()
    assert [row.seq for row in again.rows(again.chains()[0])] == [4, 5, 6, 7]
    assert faults_of(again) == []
    assert again.prune(100.0, SIGNER, now=12.0) == 4
    again.append(rows_of(1, at=8.0), SIGNER, closes=False, now=13.0)
    assert ([row.seq for row in again.rows(again.chains()[0])], faults_of(again)) == ([8], [])
    again.close()
    forged = HeadSigner(Secret("another key"))
    assert next(iter(verify(make_store(), forged))).faults, "another key does not vouch for what was deleted"


async def test_two_workers_write_one_chain_in_a_database_and_one_each_in_files(
    make_store: Callable[[], AuditStore],
) -> None:
    one, other = make_store(), make_store()
    for _ in range(10):
        await asyncio.gather(
            *(asyncio.to_thread(each.append, rows_of(7), SIGNER, closes=True, now=9.0) for each in (one, other))
        )
    one.close()
    other.close()
    checked = [*verify(make_store(), SIGNER)]
    assert [(chain.rows, chain.faults) for chain in checked] in ([(140, [])], [(70, []), (70, [])])


@given(st.lists(st.dictionaries(st.text(), st.integers() | st.text()), min_size=2, max_size=8), st.data())
def test_a_changed_byte_in_a_chain_always_shows(details: list[dict[str, Any]], data: st.DataObject) -> None:
    bodies = [Unsealed(1.0, msgspec.json.encode({"at": 1.0, "detail": detail})) for detail in details]
    rows = seal(bodies, ChainEnd())
    heads = [SIGNER.signed(Head("head", "", rows[-1].seq, 2.0, rows[-1].hash))]
    assert check_chain("", rows, heads, SIGNER).faults == []
    victim = data.draw(st.integers(0, len(rows) - 1))
    place = data.draw(st.integers(0, len(rows[victim].raw) - 1))
    raw = bytearray(rows[victim].raw)
    raw[place] ^= 1
    rows[victim] = rows[victim]._replace(raw=bytes(raw))
    assert check_chain("", rows, heads, SIGNER).faults
    assert sealed_of(line_of(rows[0])).raw == rows[0].raw


def project(tmp_path: Path, **audit: object) -> Path:
    tmp_path.chmod(0o700)
    (tmp_path / "shop.py").write_text(SHOP)
    path = tmp_path / "pegboard.yaml"
    path.write_text(
        json.dumps({
            "python": ["shop"],
            "groups": {"core": ""},
            "settings": {"token": "${CANARY}"},
            "profiles": {"chat": {"deny": ["change"]}, "default": {}},
            "audit": {"store": "sqlite:./pegboard.db", "sign_key": "${CANARY}-key", **audit},
        })
    )  # fmt: skip
    return path


def opened(path: Path) -> tuple[Catalog, Audit]:
    catalog, _ = load_catalog(path, env={"CANARY": CANARY})
    audit = catalog.executor.ports.audit
    assert isinstance(audit, Audit)
    return catalog, audit


@pytest.mark.parametrize("store", ["sqlite:./pegboard.db", "jsonl:./audit.jsonl"])
async def test_each_call_over_each_door_has_one_row_without_a_secret(tmp_path: Path, store: str) -> None:
    catalog, audit = opened(project(tmp_path, store=store, bodies="redacted"))
    view = catalog.view(ToolContext(user_id="ann", space_id="s1"), profile="chat")
    await view.call("look", {"text": f"the token is {CANARY}"})
    await view.call("change", {"text": CANARY})
    await view.call(CANARY)
    async with inside(http_app(catalog)) as client:
        await client.post("/v1/tools/look/call", json={"text": CANARY})
        await call(client, "look", {"text": 3})
    rows = newest_rows(audit.writer.store, AuditFilter(), limit=50)
    assert [(row.door, row.tool or row.name, row.outcome, row.decision) for row in rows] == [
        ("mcp", "main.look", "invalid_arguments", "visible"),
        ("http", "main.look", "ok", "visible"),
        ("", "[redacted]", "not_found", "unknown"),
        ("", "change", "not_found", "policy"),
        ("", "main.look", "ok", "visible"),
    ]
    assert (rows[3].user, rows[3].space, rows[3].profile) == ("ann", "s1", "chat")
    assert rows[3].rule.startswith(f"{tmp_path}/pegboard.yaml:"), "the rule that denies it"
    assert rows[4].arguments == {"text": "the token is [redacted]"}
    assert "run" in rows[4].stage_s
    assert faults_of(audit.writer.store) != [], "signed with another key"
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.name not in ("pegboard.yaml", "shop.py"))
    assert b"look" in kept
    assert CANARY.encode() not in kept


async def test_a_call_that_never_ends_is_unknown_and_one_that_ends_late_has_one_line(tmp_path: Path) -> None:
    catalog, audit = opened(project(tmp_path))
    reached, going_on = asyncio.Event(), asyncio.Event()

    @catalog.tool
    async def slow() -> str:
        """Wait."""
        reached.set()
        await going_on.wait()
        return "done"

    caller = ToolContext(user_id="ann", agent=f"agent {CANARY}-key")
    running = asyncio.create_task(catalog.view(caller).call("slow"))
    await reached.wait()
    await audit.close()
    store = audit.writer.store
    (begun,) = newest_rows(store, AuditFilter(kind="unknown"), limit=9)
    assert (begun.name, begun.user, begun.outcome_unknown) == ("slow", "ann", True)
    assert begun.agent == "agent [redacted]-key"
    going_on.set()
    await running
    await catalog.close()
    (ended,) = newest_rows(store, AuditFilter(), limit=9)
    assert (ended.call_id, ended.outcome) == (begun.call_id, "ok")


async def test_without_its_required_store_only_reading_goes_on_and_the_gap_is_a_row(tmp_path: Path) -> None:
    catalog, audit = opened(project(tmp_path, required=True))
    view = catalog.view(ToolContext())
    store = FailingStore(audit.writer.store)
    audit.writer.store = cast("AuditStore", store)
    refused = await view.call("change")
    assert refused.error is not None
    assert refused.error.kind == "audit_unavailable"
    assert (await view.call("look")).error is None
    audit.writer.lose()
    store.is_broken = False
    audit.writer._works = None
    assert (await view.call("change")).error is None
    await catalog.close()
    events = [read_row(raw) for raw in store.newest(since=0.0)]
    assert sorted((row.event, row.outcome) for row in events) == [
        ("call", "audit_unavailable"), ("call", "ok"), ("call", "ok"), ("gap", ""),
    ]  # fmt: skip
    assert next(row.detail["lost"] for row in events if row.event == "gap") == 1


class FailingStore:
    """A store that does not work for a while."""

    def __init__(self, store: AuditStore) -> None:
        self._store, self.is_broken = store, True

    def append(self, *args: Any, **options: Any) -> None:
        self.probe()
        self._store.append(*args, **options)

    def probe(self) -> None:
        if self.is_broken:
            raise StoreError("the disk is full")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def test_a_full_queue_loses_no_more_than_it_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pegboard.audit.audit_writer.AUDIT_CROWDED", 2)
    monkeypatch.setattr("pegboard.audit.audit_writer.AUDIT_QUEUE", 3)
    store = JsonlAudit(tmp_path / "audit.jsonl")
    writer = AuditWriter(store, CallRows(has_bodies=False), SIGNER, keep_s=1e9)
    writer.is_idle = False
    for _ in range(5):
        writer.put(None)
    assert not writer.is_up
    writer.queue.clear()
    writer.wake()
    writer.close()
    assert [read_row(row.raw).detail["lost"] for row in store.rows("audit.jsonl")] == [2]


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_a_killed_worker_leaves_a_whole_chain_and_its_running_call_as_unknown(tmp_path: Path) -> None:
    path = project(tmp_path, store="jsonl:./audit.jsonl")
    code = """
        import asyncio, os, signal, sys
        from pegboard import ToolContext
        from pegboard.config import load_catalog

        async def main():
            catalog, _ = load_catalog(sys.argv[1], env={"CANARY": "x" * 20})

            @catalog.tool
            async def hang() -> str:
                "Hang."
                file = sys.argv[1].replace("pegboard.yaml", "audit.jsonl")
                while not (os.path.exists(file) and os.path.getsize(file)):
                    await asyncio.sleep(0.01)
                os.kill(os.getpid(), signal.SIGKILL)

            await catalog.view(ToolContext(user_id="ann")).call("hang")

        asyncio.run(main())
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(path)], check=False, cwd=tmp_path, env={**os.environ}
    )
    assert ended.returncode == -9
    file = tmp_path / "audit.jsonl"
    with file.open("ab") as opened_file:
        opened_file.write(b'{"hash":"a batch that was not finished')
    store = JsonlAudit(file)
    store.append(rows_of(1, at=1e10), SIGNER, closes=True, now=1e10)
    store.close()
    assert faults_of(store) == []
    assert [row.name for row in newest_rows(store, AuditFilter(kind="unknown"), limit=9)] == ["hang"]
    shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)
