"""Recent calls: a page counts the calls of an audit again and again, and reads only what is new."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from pegboard.audit.audit_query import calls_since
from pegboard.audit.audit_row import AuditRow
from pegboard.audit.audit_store import AuditStore
from pegboard.audit.hash_chain import HeadSigner, Unsealed
from pegboard.audit.jsonl_audit import JsonlAudit
from pegboard.audit.recent_calls import CountedCalls, RecentCalls
from pegboard.audit.sql_audit import SCHEMA, SqlAudit
from pegboard.audit.usage import UsageField, usage
from pegboard.storage.database import database_of
from pegboard.storage.store_uri import StoreUri

SIGNER = HeadSigner(None)
FIELDS: tuple[UsageField, ...] = ("tool", "profile", "user", "space", "door")


@pytest.fixture(params=["sqlite", "jsonl"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], AuditStore]:
    """Return a function that opens one and the same store."""
    tmp_path.chmod(0o700)
    if request.param == "jsonl":
        return lambda: JsonlAudit(tmp_path / "audit.jsonl")
    uri = StoreUri.parse("sqlite:audit.db", folder=tmp_path)
    return lambda: SqlAudit(database_of(uri, SCHEMA, busy_s=5.0))


class Reads:
    """Counts the rows that are read from a store."""

    def __init__(self, store: AuditStore) -> None:
        self._store, self.rows = store, 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    def newest(self, *, since: float) -> Iterator[bytes]:
        for raw in self._store.newest(since=since):
            self.rows += 1
            yield raw


def call(number: int, **fields: object) -> AuditRow:
    outcome = ("ok", "ok", "timeout", "not_found")[number % 4]
    told = {
        "at": float(number), "call_id": f"c{number}", "name": f"t{number % 3}", "outcome": outcome,
        "tool": "" if outcome == "not_found" else f"main.t{number % 3}", "user": f"u{number % 5}", "space": "s",
        "stage_s": {"run": 0.1} if outcome == "timeout" else {}, "duration_s": (number * 7 % 11) / 10,
        "argument_bytes": number, "result_bytes": 2 * number, "costs": {"usd": 0.1} if number % 2 else {},
    }  # fmt: skip
    return AuditRow(**{**told, **fields})  # type: ignore[arg-type]


def add(store: AuditStore, *rows: AuditRow) -> None:
    unsealed = [Unsealed(row.at, msgspec.json.encode(row)) for row in rows]
    store.append(unsealed, SIGNER, closes=False, now=1.0)


def counted(recent: RecentCalls, by: UsageField = "tool", *, since: float = 0.0) -> CountedCalls:
    return recent.counted(by, now=1_000.0, period_s=1_000.0 - since, span_s=100.0)


@pytest.mark.parametrize("by", FIELDS)
def test_counts_equal_those_of_the_command_line(open_store: Callable[[], AuditStore], by: UsageField) -> None:
    store = open_store()
    add(store, *map(call, range(40)), call(40, event="begin", outcome=""), AuditRow(event="config_taken", at=41.0))
    recent = RecentCalls(store)
    for since in (0.0, 17.0, 40.5):
        answer = counted(recent, by, since=since)
        assert (answer.whole, answer.rows) == usage(calls_since(store, since), by)
        assert answer.tools == {row.tool for row in calls_since(store, since)}
    store.close()


def test_calls_are_counted_in_the_span_in_which_they_began(open_store: Callable[[], AuditStore]) -> None:
    store = open_store()
    add(store, *(call(0, at=at) for at in (110.0, 124.9, 125.0, 199.9, 109.9)))
    spans = RecentCalls(store).counted("tool", now=199.9, period_s=89.9, span_s=25.0).spans
    assert [(span.at, span.usage.calls) for span in spans] == [(100.0, 2), (125.0, 1), (150.0, 0), (175.0, 1)]
    store.close()


def test_only_new_rows_are_read_and_a_call_that_ran_then_is_counted_once(open_store: Callable[[], AuditStore]) -> None:
    store = open_store()
    reads = Reads(store)
    recent = RecentCalls(reads)  # type: ignore[arg-type] - it has what a store has
    add(store, *map(call, range(30)), call(30, event="begin", outcome=""))
    assert counted(recent).whole.calls == 31
    before = reads.rows
    add(store, call(30), call(31))
    answer = counted(recent)
    assert reads.rows - before == 3  # the last one is known
    assert (answer.whole.calls, answer.whole) == (32, usage(calls_since(store, 0.0), "tool")[0])
    store.close()


def test_counts_stay_right_while_calls_come_late_grow_old_and_end(open_store: Callable[[], AuditStore]) -> None:
    store = open_store()
    recent = RecentCalls(store, most=60)
    windows: tuple[tuple[UsageField, float], ...] = (("tool", 20.0), ("user", 20.0), ("user", 45.0))
    for number in range(0, 120, 3):
        # The second began before the first, and the third runs until the next round.
        add(store, call(number + 1), call(number), call(number + 2, event="begin", outcome=""))
        if number:
            add(store, call(number - 1))
        now = number + 2.5
        for by, period_s in windows:
            answer = recent.counted(by, now=now, period_s=period_s, span_s=7.0)
            assert (answer.whole, answer.rows) == usage(calls_since(store, now - period_s), by)
            assert sum(span.usage.calls for span in answer.spans) == answer.whole.calls
    store.close()


def test_deleted_rows_and_forgotten_names_are_not_counted_any_more(open_store: Callable[[], AuditStore]) -> None:
    store = open_store()
    recent = RecentCalls(store)
    add(store, *map(call, range(30)))
    assert {row.name for row in counted(recent, "user").rows} == {"u0", "u1", "u2", "u3", "u4"}
    store.close()
    assert store.prune(10.0, SIGNER, now=50.0) == 10
    assert counted(recent).whole.calls == 20
    store.close()
    store.rewrite(lambda raw: raw.replace(b'"u3"', b'"x"') if b'"u3"' in raw else None, SIGNER, now=60.0)
    assert {row.name for row in counted(recent, "user").rows} == {"u0", "u1", "u2", "x", "u4"}
    store.close()


def test_an_audit_that_was_replaced_is_read_anew(open_store: Callable[[], AuditStore], tmp_path: Path) -> None:
    store = open_store()
    recent = RecentCalls(store)
    add(store, *map(call, range(30)))
    assert counted(recent).whole.calls == 30
    store.close()
    for path in tmp_path.glob("audit*"):
        path.unlink()
    add(store, *map(call, range(100, 104)))
    assert counted(recent).whole.calls == 4
    store.close()


def test_only_the_newest_calls_are_held(open_store: Callable[[], AuditStore]) -> None:
    store = open_store()
    recent = RecentCalls(store, most=10)
    add(store, *map(call, range(30)))
    assert counted(recent).whole == usage(calls_since(store, 20.0), "tool")[0]
    add(store, *map(call, range(30, 34)))
    assert counted(recent).whole == usage(calls_since(store, 24.0), "tool")[0]
    store.close()


def test_calls_of_several_processes_are_all_counted(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    stores = [JsonlAudit(tmp_path / "audit.jsonl") for _ in range(2)]
    recent = RecentCalls(stores[0])
    for number in range(6):
        add(stores[number % 2], call(number))
        assert counted(recent).whole.calls == number + 1
    for store in stores:
        store.close()


def test_an_audit_without_rows_has_no_calls(open_store: Callable[[], AuditStore]) -> None:
    store = open_store()
    add(store, AuditRow(event="config_taken", at=1.0))
    answer = counted(RecentCalls(store))
    assert (answer.whole.calls, answer.rows, answer.tools) == (0, [], frozenset())
    store.close()
