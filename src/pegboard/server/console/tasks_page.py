"""Tasks page: the tasks of a person, or of everybody for operators; those that need somebody first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from starlette.responses import RedirectResponse, Response

from pegboard.model.error import CallError
from pegboard.model.json_types import JSON
from pegboard.model.task import TaskRecord
from pegboard.server.console.frame import frame
from pegboard.server.console.outcome_words import outcome_in_words
from pegboard.server.console.pages import SECURITY_HEADERS, Pages
from pegboard.server.console.shown_json import pretty
from pegboard.server.console.shown_time import ago
from pegboard.server.console.table_file import Cell, iso_time, links_of, table_file
from pegboard.server.console.visit import Visit
from pegboard.tasks.tasks import OPERATOR, Asking, Tasks

TASKS_SHOWN = 500  # tasks on one page
STUCK_S = 300.0  # seconds without any sign of a running task until it is shown first

_COLUMNS = ("id", "tool", "state", "created", "updated", "how_far")
_ORDER = {"stuck": 0, "asks": 1, "failed": 2, "runs": 3, "completed": 4, "cancelled": 5}


class TaskRow(NamedTuple):
    """A task for the list; `state` is one of the words of `_ORDER`, and only a stuck durable task may be resumed."""

    record: TaskRecord
    state: str
    begun: str
    seen: str
    step: str
    may_resume: bool


class TasksPage:
    """`/console/tasks` and below."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages

    async def list(self, visit: Visit) -> Response:
        """Show the tasks, stuck ones first."""
        tasks = _tasks(visit)
        rows = list[TaskRow]()
        if tasks is not None:
            records = [*await tasks.list(_asking(visit))][:TASKS_SHOWN]
            steps = await tasks.last_steps(records)
            now = visit.now()
            rows = sorted(
                (_row(record, now, steps.get(record.task_id, "")) for record in records),
                key=lambda row: (_ORDER[row.state], -row.record.updated_at),
            )
        file = table_file(visit, "tasks", _COLUMNS, lambda: [_cells(row) for row in rows])
        if file is not None:
            return file
        values = {
            "rows": rows,
            "files": links_of(visit, "/tasks"),
            "has_tasks": tasks is not None,
            "done": visit.query.get("done", ""),
        }
        return self._pages.page("tasks.html", {**frame(visit, "tasks"), **values})

    async def show(self, visit: Visit) -> Response:
        """Show one task; its result to its owner, and to operators who may see bodies."""
        tasks = _task_service(visit)
        record = await tasks.get(visit.path["id"], _asking(visit))
        steps = await tasks.last_steps([record])
        shows_result = visit.sees_bodies
        result, error = record.result, record.error
        # The kind of an error says nothing about arguments or results. Operators see it in the audit, too.
        kind = "" if result is None or result.error is None or shows_result else outcome_in_words(result.error.kind)
        values = {
            "row": _row(record, visit.now(), steps.get(record.task_id, "")),
            "result": "" if result is None or not shows_result else pretty(result.structured or result.text),
            "error": kind if error is None else f"{outcome_in_words(error.kind)}: {error.message}",
            "has_result": result is not None, "shows_result": shows_result,
        }  # fmt: skip
        return self._pages.page("task.html", {**frame(visit, "tasks"), **values})

    async def cancel(self, visit: Visit) -> Response:
        """Cancel a task; one that has ended does not change."""
        tasks, task_id = _task_service(visit), visit.path["id"]
        record = await tasks.get(task_id, _asking(visit))
        await tasks.cancel(task_id, _asking(visit))
        visit.note("task_cancelled", _detail(record))
        return _back_to_tasks(visit, "cancelled")

    async def resume(self, visit: Visit) -> Response:
        """Resume an interrupted task; one that runs or has ended does not change."""
        tasks, task_id = _task_service(visit), visit.path["id"]
        record = await tasks.get(task_id, _asking(visit))
        await tasks.resume(task_id, _asking(visit))
        visit.note("task_resumed", _detail(record))
        return _back_to_tasks(visit, "resumed")


def _cells(row: TaskRow) -> Sequence[Cell]:
    record = row.record
    return (
        record.task_id, record.tool, row.state, iso_time(record.created_at), iso_time(record.updated_at),
        record.message or row.step,
    )  # fmt: skip


def _tasks(visit: Visit) -> Tasks | None:
    catalog = visit.gateway.catalog
    return None if catalog.executor.ports.tasks is None else catalog.tasks


def _task_service(visit: Visit) -> Tasks:
    tasks = _tasks(visit)
    if tasks is None:
        raise CallError("not_found", "This server keeps no tasks.")
    return tasks


def _asking(visit: Visit) -> Asking:
    """Return the owner of the listed tasks: everybody for operators, else the person."""
    if visit.is_operator:
        return OPERATOR
    return visit.gateway.context(visit.looks_as)


def _row(record: TaskRecord, now: float, step: str) -> TaskRow:
    quiet_s = now - record.updated_at
    running = "stuck" if quiet_s > STUCK_S else "runs"
    state = {"working": running, "input_required": "asks"}.get(record.state, record.state)
    if record.result is not None and record.result.is_error:
        # The task has ended as it should, but for people its tool has failed.
        state = "failed"
    may_resume = state == "stuck" and record.is_durable
    return TaskRow(record, state, ago(record.created_at, now), ago(record.updated_at, now), step, may_resume)


def _detail(record: TaskRecord) -> JSON:
    """Return which task a person changed, and its state before."""
    return {"task_id": record.task_id, "tool": record.tool, "state": record.state}


def _back_to_tasks(visit: Visit, what: str) -> Response:
    return RedirectResponse(visit.url("/tasks", done=what), status_code=303, headers=SECURITY_HEADERS)
