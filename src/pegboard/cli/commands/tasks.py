"""tasks: list, show, cancel and resume tasks of all callers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from datetime import UTC, datetime
from typing import Annotated

from cyclopts import Parameter

from pegboard.cli.command_error import CommandError, Exit, refused
from pegboard.cli.options import Options, SharedOptions
from pegboard.cli.project import Project, load, opened
from pegboard.cli.terminal import Column, json_text
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON
from pegboard.model.task import TaskRecord
from pegboard.tasks.task_json import task_json
from pegboard.tasks.tasks import OPERATOR, Tasks

_ID = "Id of the task, as `pegboard tasks ls` and the call that became a task show it."
TaskId = Annotated[str, Parameter(help=_ID)]
_COLUMNS = (
    Column(head="Id", style="bold", is_id=True),
    Column(head="Tool"),
    Column(head="Owner"),
    Column(head="State"),
    Column(head="Since"),
    Column(head="Begun"),
    Column(head="Worker"),
    Column(head="Last step"),
    Column(head="How far"),
)


async def ls_command(*, options: SharedOptions) -> None:
    """List the tasks of all callers, newest first."""
    async with _stored(options) as tasks:
        records = [*await tasks.list(OPERATOR)]
        _list(records, await tasks.last_steps(records), options)


async def show_command(task_id: TaskId, /, *, options: SharedOptions) -> None:
    """Print a task with its result."""
    async with _stored(options) as tasks:
        record = await tasks.get(task_id, OPERATOR)
        _show(record, options, await tasks.last_steps([record]))


async def cancel_command(task_id: TaskId, /, *, options: SharedOptions) -> None:
    """Cancel a task."""
    async with _stored(options) as tasks:
        await tasks.cancel(task_id, OPERATOR)
        record = await tasks.get(task_id, OPERATOR)
        _show(record, options, await tasks.last_steps([record]))


async def resume_command(task_id: TaskId, /, *, options: SharedOptions) -> Exit:
    """Run a task that no worker has to its end, in this process."""
    with _refusals():
        return await _resume(task_id, options)


@asynccontextmanager
async def _stored(options: Options) -> AsyncGenerator[Tasks]:
    """Open the store of tasks, without their tools."""
    with _refusals():
        tasks = _task_service(load(options))
        async with aclosing(_Closing(tasks)):
            await tasks.look()
            yield tasks


@contextmanager
def _refusals() -> Generator[None]:
    try:
        yield
    except CallError as error:
        raise refused(error) from None


class _Closing:
    """Closes the store at the end of a block."""

    def __init__(self, tasks: Tasks) -> None:
        self.aclose = tasks.close


def _task_service(project: Project) -> Tasks:
    if project.catalog.executor.ports.tasks is None:
        raise CommandError('There are no tasks: the config has no `tasks: {store: "sqlite:./tasks.db"}`.')
    tasks = project.catalog.tasks
    if not tasks.is_durable:
        text = "Tasks are kept in the memory of the server that runs them: ask it, at /v1/tasks."
        raise CommandError(f'{text} Or keep them: `tasks: {{store: "sqlite:./tasks.db"}}`.')
    return tasks


async def _resume(task_id: str, options: Options) -> Exit:
    async with opened(options) as (project, _):
        tasks = _task_service(project)
        if not await tasks.resume(task_id, OPERATOR):
            record = await tasks.get(task_id, OPERATOR)
            why = f"it has ended ({record.state})" if record.is_over else "a living worker has it"
            raise CommandError(f"The task {task_id!r} was not resumed: {why}.", kind="not_resumed", code=Exit.REFUSED)
        record = await tasks.ended(task_id, OPERATOR)
        _show(record, options, await tasks.last_steps([record]))
        is_good = record.result is not None and not record.result.is_error
        return Exit.DONE if is_good else Exit.REFUSED


def _list(records: list[TaskRecord], last_steps: Mapping[str, str], options: Options) -> None:
    if options.json:
        options.terminal.json({"tasks": [_shown(record, last_steps) for record in records]})
    elif records:
        options.terminal.table(_COLUMNS, [_cells(record, last_steps) for record in records])
    else:
        options.terminal.note("There are no tasks.")


def _cells(record: TaskRecord, last_steps: Mapping[str, str]) -> tuple[str, ...]:
    reached = "" if record.fraction is None else f"{record.fraction:.0%} "
    how_far = f"{reached}{record.message}".strip()
    since, begun = _iso(record.updated_at), _iso(record.created_at)
    last_step = last_steps.get(record.task_id, "")
    return record.task_id, record.tool, record.owner, record.state, since, begun, record.worker, last_step, how_far


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _shown(record: TaskRecord, last_steps: Mapping[str, str]) -> JSON:
    """Return a task as JSON for operators: with its owner, worker and last recorded step, and ISO times."""
    times = {"created_at": record.created_at, "updated_at": record.updated_at}
    times["expires_at"] = record.created_at + record.ttl_s
    iso = {name: _iso(seconds) for name, seconds in times.items()}
    last_step = last_steps.get(record.task_id)
    return {**task_json(record), "owner": record.owner, "worker": record.worker, "last_step": last_step, **iso}


def _show(record: TaskRecord, options: Options, last_steps: Mapping[str, str]) -> None:
    shown = _shown(record, last_steps)
    if options.json:
        options.terminal.json(shown)
    else:
        options.terminal.say(json_text(shown))
