"""The JSON of a row, of which most is encoded once for many calls, is that of an `AuditRow`, with each field once."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pegboard import Catalog, RateLimit, Secret, ToolContext
from pegboard.audit import call_rows
from pegboard.audit.audit import Audit
from pegboard.audit.audit_row import AuditRow, read_row
from pegboard.audit.audit_writer import AuditWriter
from pegboard.audit.call_rows import CallPart, CallRows, stages_of
from pegboard.audit.hash_chain import HeadSigner
from pegboard.audit.jsonl_audit import JsonlAudit
from pegboard.core.call.finished_call import stage_seconds


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len(pairs) == len(dict(pairs)), pairs
    return dict(pairs)


async def rows_of_calls(writer: AuditWriter) -> list[AuditRow]:
    catalog = Catalog()
    writer.is_idle = False
    catalog.executor.record(Audit(writer))

    @catalog.tool(rate_limit=RateLimit(max_calls=2, window_s=60.0))
    async def look(text: str = "") -> str:
        """Look at something."""
        return text

    views = [
        catalog.view(ToolContext(user_id=user, secrets={"KEY": Secret(f"secret-of-{user}-0123456789")}))
        for user in ("ann", "bob")
    ]
    for view in views:
        for name in ("look", "look", "look", "hidden"):
            await view.call(name, {"text": f"{name} at secret-of-ann-0123456789"})
    bodies = [each.body for each in CallRows(has_bodies=True).rows_of([*writer.queue], is_last=False)]
    for body in bodies:
        json.loads(body, object_pairs_hook=once)
        assert b"secret-of-ann" not in body or b'"user":"bob"' in body
    return [read_row(body) for body in bodies]


async def test_rows_that_share_fields_keep_those_of_their_own_call(tmp_path: Any) -> None:
    store = JsonlAudit(tmp_path / "audit.jsonl")
    rows = await rows_of_calls(AuditWriter(store, CallRows(has_bodies=True), HeadSigner(None), keep_s=1.0))
    told = [(row.user, row.name, row.tool, row.decision, row.outcome, bool(row.limit_keys)) for row in rows]
    of_one = [
        ("look", "main.look", "visible", "ok", True),
        ("look", "main.look", "visible", "ok", True),
        ("look", "main.look", "visible", "rate_limited", False),
        ("hidden", "", "unknown", "not_found", False),
    ]
    assert told == [(user, *each) for user in ("ann", "bob") for each in of_one]
    assert len({row.call_id for row in rows}) == len({row.at for row in rows}) == 8
    assert [row.salt for row in rows[:4]] == [rows[0].salt] * 4
    assert rows[0].salt != rows[4].salt
    assert rows[0].stage_s["run"] < rows[0].duration_s < 60.0


def test_what_differs_from_call_to_call_are_fields_of_a_row() -> None:
    assert set(CallPart.__struct_fields__) <= set(AuditRow.__struct_fields__)


marks = st.lists(st.sampled_from(["begin", "resolve", "run", "output"]), min_size=1, max_size=5)


@given(marks, st.data())
def test_stages_are_written_as_they_are_counted(names: list[str], data: st.DataObject) -> None:
    times = sorted(data.draw(st.lists(st.floats(0, 1e4), min_size=len(names) + 1, max_size=len(names) + 1)))
    flat = [part for pair in zip(names, times, strict=False) for part in pair]
    written: Mapping[str, float] = msgspec.json.decode(bytes(stages_of(flat, times[-1])), type=dict[str, float])
    assert written == pytest.approx(stage_seconds(flat, times[-1]), abs=1.1e-6)


def test_the_texts_of_stages_that_are_kept_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_rows, "_stage_forms", {})
    monkeypatch.setattr(call_rows, "STAGE_FORMS", 1)
    assert bytes(stages_of(["begin", 0.0], 0.5)) == b'{"begin":0.500000}'
    assert bytes(stages_of(["run", 0.0], 0.5)) == b'{"run":0.5}'
    assert len(call_rows._stage_forms) == 1
