"""DBOS setup: configures DBOS: JSON records, retries while a database is full, and access to private members."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import sqlalchemy as sa
from dbos import DBOS, DBOSClient, Serializer
from dbos import _sys_db as dbos_database  # type: ignore[reportPrivateUsage] - the exceptions that make it retry
from dbos._utils import INTERNAL_QUEUE_NAME
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from pegboard.core.cancellation import cancel_and_wait
from pegboard.model.json_types import is_object

TASK_QUEUE_LOOK_S = 0.25  # seconds between two checks of a worker for tasks that others have left

# Errors of SQLite and PostgreSQL while a store accepts no writes: it is full, or read-only.
_PASSING_TEXTS = ("disk is full", "disk I/O error", "readonly database", "unable to open database file")
_PASSING_STATES = frozenset({"25006", "42501", "53100"})

# Records of one version are read by the next: change this only if recorded steps get another meaning.
_PROTOCOL = "pegboard-tasks-1"
_ERROR = "pegboard/error"


class JsonSerializer(Serializer):
    """Serialises to JSON instead of pickle: data read from a database must not be able to execute code."""

    def serialize(self, data: Any) -> str:
        """Return JSON; an error as its type and text."""
        if isinstance(data, BaseException):
            data = {_ERROR: {"type": type(data).__name__, "text": str(data)}}
        return json.dumps(data)

    def deserialize(self, serialized_data: str) -> Any:
        """Return the value, or the error."""
        data: Any = json.loads(serialized_data)
        is_error = is_object(data) and data.keys() == {_ERROR}
        return StoredError(data[_ERROR]) if is_error else data

    def name(self) -> str:
        """Return the name of this format in the database."""
        return "pegboard_json"


_passes_for_dbos = dbos_database.retriable_postgres_exception  # type: ignore[reportPrivateImportUsage] - as above


def passes(error: Exception) -> bool:
    """Tell whether a database error may be temporary, so that the operation is worth retrying."""
    if _passes_for_dbos(error):
        return True
    if not isinstance(error, DBAPIError):
        return False
    text, state = str(error.orig), getattr(error.orig, "sqlstate", None)
    return state in _PASSING_STATES or (state is None and any(words in text for words in _PASSING_TEXTS))


# DBOS retries after a lost connection; but when a disk is full for a moment, it would fail a task with finished steps.
dbos_database.retriable_postgres_exception = passes  # type: ignore[reportPrivateImportUsage] - as above


# Read-only transaction, missing privilege, full disk: these messages are for operators and quote no stored data.
_TELLING_STATES = frozenset({"25006", "42501", "53100"})


def reason_of(error: SQLAlchemyError) -> str:
    """Return why a database refused, for operators: only the kind, since the text of most errors quotes stored data."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    if getattr(cause, "sqlstate", None) in _TELLING_STATES:
        return str(cause).partition("\n")[0]
    return type(cause).__name__


class StoredError(Exception):
    """An error that ended the run of a task, as stored."""


async def launch(url: sa.URL, worker: str, *, may_make_tables: bool) -> None:
    """Start DBOS on the current loop."""
    dbos = DBOS(
        config={
            "name": "pegboard",
            "system_database_url": url.render_as_string(hide_password=False),
            "serializer": JsonSerializer(),
            "executor_id": worker,
            "application_version": _PROTOCOL,
            "log_level": "CRITICAL",
            # A user without that right finds the tables already created; DBOS then checks them.
            "run_migrations": may_make_tables,
        }
    )
    # Tasks of dead workers are taken from this queue, which DBOS would check only once a second.
    queue = dbos._registry.get_internal_queue()  # type: ignore[reportPrivateUsage] - DBOS has no public way
    queue._polling_interval_sec = TASK_QUEUE_LOOK_S  # type: ignore[reportPrivateUsage] - as above
    # The current loop, which DBOS then uses for the runs that it starts itself.
    await asyncio.sleep(0)
    DBOS.launch()


def client_of(url: sa.URL) -> DBOSClient:
    """Return the client for the database; its methods block."""
    database = url.render_as_string(hide_password=False)
    return DBOSClient(system_database_url=database, serializer=JsonSerializer(), retry_connection_errors=False)


def requeue(client: DBOSClient, task_id: str, worker: str, *, is_counted: bool, wait_s: float = 0.0) -> bool:
    """Queue a task that a worker had started; `False` if it has ended, or another worker was first.

    Without `is_counted`, the run of that worker does not count towards the limit of runs where DBOS gives the task up.
    The next run begins `wait_s` seconds later at the earliest.
    """
    # Not `resume_workflow`, which also resumes cancelled tasks, and resets the number of attempts.
    database = client._sys_db  # type: ignore[reportPrivateUsage] - DBOS has no public way
    rows = database.tables.workflow_status
    this, runs = rows.c.workflow_uuid == task_id, rows.c.recovery_attempts
    if not is_counted:
        # Never less than 1: by a higher number the next run knows that it is not the first.
        here = this & (rows.c.status == "PENDING") & (rows.c.executor_id == worker) & (runs > 1)
        with database.engine.begin() as connection:
            connection.execute(sa.update(rows).where(here).values(recovery_attempts=runs - 1))
    if not database.reenqueue_for_recovery(task_id, [worker], INTERNAL_QUEUE_NAME):
        return False
    if wait_s:
        later = {"status": "DELAYED", "delay_until_epoch_ms": int((time.time() + wait_s) * 1_000)}
        with database.engine.begin() as connection:
            connection.execute(sa.update(rows).where(this, rows.c.status == "ENQUEUED").values(**later))
    return True


def hasten(client: DBOSClient, task_id: str) -> None:
    """Begin a task now that was to begin later."""
    client._sys_db.set_workflow_delay(task_id, delay_seconds=0.0)  # type: ignore[reportPrivateUsage] - as above


async def end_all() -> None:
    """Cancel everything that still waits on the loop of DBOS."""
    waiting = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    await cancel_and_wait(*waiting)
