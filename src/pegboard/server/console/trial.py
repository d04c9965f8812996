"""Trial: one call of a tool from a form, through the door of every call, and what came of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pegboard.core.cancellation import cancel_and_wait
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON, JSONValue, is_list, is_object
from pegboard.model.result import ToolResult
from pegboard.server.body_reader import ClientLeftError
from pegboard.server.console.call_recorder import CallRecorder, RecordedCall
from pegboard.server.console.result_blocks import Block, TreeNode, block_of, tree_of
from pegboard.server.console.shown_json import pretty
from pegboard.server.console.shown_time import Stage, stages_of, took
from pegboard.server.console.visit import Visit
from pegboard.server.http_api.api_app import client_gone
from pegboard.server.principal import Principal

TABLE_ROWS = 200  # rows of a result that is shown as a table
TABLE_COLUMNS = 12
CALLS_AT_A_TIME = 4  # of several that one click makes


class TriedCall(NamedTuple):
    """A call to make: a tool and its arguments."""

    name: str
    arguments: JSON


class Table(NamedTuple):
    """A result that is a list of objects with the same simple fields."""

    columns: tuple[str, ...]
    rows: list[list[str]]
    left_out: int


class Outcome(NamedTuple):
    """The outcome of a call, for a page; `fields` are those of a result that is one JSON object."""

    is_error: bool
    kind: str
    message: str
    hint: str
    details: str
    blocks: list[Block]
    structured: str
    fields: Mapping[str, JSONValue]
    tree: TreeNode | None
    table: Table | None
    took: str
    stages: list[Stage]
    nested: list[tuple[str, str, str]]
    call_id: str
    task_id: str


async def tried(visit: Visit, name: str, arguments: JSON) -> Outcome:
    """Call a tool as the person who is logged in; it is cancelled if their browser leaves.

    Raises:
        CallError: the person may not act as the caller that they look at.
        ClientLeftError: the browser disconnected.
    """
    return (await tried_together(visit, [TriedCall(name, arguments)]))[0]


async def tried_together(visit: Visit, calls: Sequence[TriedCall]) -> list[Outcome]:
    """Make several calls as `tried` does, a few at a time; outcomes are in the order of the calls."""
    if visit.acts_as is None or not visit.is_own:
        raise CallError("not_found", "You look through the eyes of another caller, and call tools only as yourself.")
    turn = asyncio.Semaphore(CALLS_AT_A_TIME)
    running = [asyncio.create_task(_tried(visit, visit.acts_as, call, turn)) for call in calls]
    leaving = asyncio.create_task(client_gone(visit.receive))
    ended = asyncio.gather(*running)
    try:
        await asyncio.wait((ended, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not ended.done():
            raise ClientLeftError
        return ended.result()
    finally:
        await cancel_and_wait(ended, *running, leaving)


async def _tried(visit: Visit, acts_as: Principal, call: TriedCall, turn: asyncio.Semaphore) -> Outcome:
    gateway = visit.gateway
    async with turn:
        ctx = gateway.context(acts_as).with_request(door="console")
        recorder = CallRecorder(ctx.request.id)
        forget = gateway.catalog.executor.record(recorder)
        try:
            result = await gateway.exposed(acts_as, ctx).call(call.name, call.arguments)
        finally:
            forget()
    return _outcome(result, recorder.calls)


def _outcome(result: ToolResult, calls: list[RecordedCall]) -> Outcome:
    own = next((call for call in calls if not call.is_nested), None)
    error = result.error
    structured = pretty(result.structured) if result.has_structured else ""
    table = _table(result.structured)
    has_tree = result.has_structured and table is None and (is_object(result.structured) or is_list(result.structured))
    inner: Any = _unwrapped(result.structured)
    fields = dict(inner) if result.has_structured and error is None and is_object(inner) else {}
    details = pretty(dict(error.details)) if error is not None and error.details else ""
    blocks = [block_of(block) for block in result.content]
    # A text that only mirrors the structured result says nothing new.
    if result.has_structured and len(blocks) == 1 and _is_same(blocks[0], result.structured):
        blocks = []
    return Outcome(
        is_error=result.is_error, kind="ok" if error is None else error.kind,
        message="" if error is None else error.message, hint="" if error is None else error.hint, details=details,
        blocks=[] if error is not None else blocks, structured=structured,
        fields=fields,
        tree=tree_of(result.structured) if has_tree else None, table=table,
        took="" if own is None else took(own.duration_s), stages=[] if own is None else stages_of(own.stage_s),
        nested=[(call.tool, call.kind, took(call.duration_s)) for call in calls if call.is_nested],
        call_id="" if own is None else own.call_id, task_id=result.task_id or "",
    )  # fmt: skip


def _is_same(block: Block, structured: object) -> bool:
    try:
        return json.loads(block.text) in (structured, _unwrapped(structured))
    except ValueError:
        return block.text == _unwrapped(structured)


def _unwrapped(value: Any) -> Any:
    return value["result"] if is_object(value) and list(value) == ["result"] else value


def _table(structured: object) -> Table | None:
    """Return a result as a table; `None` if it is not a list of objects with simple values."""
    rows: Any = _unwrapped(structured)
    if not (is_list(rows) and len(rows) > 1 and all(is_object(row) for row in rows)):
        return None
    columns = tuple(dict.fromkeys(str(name) for row in rows[:TABLE_ROWS] for name in row))
    if not 0 < len(columns) <= TABLE_COLUMNS:
        return None
    return Table(columns, [[_cell(row, name) for name in columns] for row in rows[:TABLE_ROWS]], len(rows[TABLE_ROWS:]))


def _cell(row: Mapping[str, Any], name: str) -> str:
    value = row.get(name)
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, default=str)
