"""DBOS setup: how DBOS is run here: JSON in its records, patience with a full database, and its private members."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import sqlalchemy as sa
from dbos import DBOS, DBOSClient, Serializer
from dbos import _sys_db as dbos_database  # type: ignore[reportPrivateUsage] - where it says for what it waits
from dbos._utils import INTERNAL_QUEUE_NAME
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from pegboard.model.json_types import is_object

TASK_QUEUE_LOOK_S = 0.25  # between two looks of a worker for what others have left behind

# What SQLite and PostgreSQL say of a store that takes nothing for now, beside that it is away: full, or read only.
_PASSING_TEXTS = ("disk is full", "disk I/O error", "readonly database", "unable to open database file")
_PASSING_STATES = frozenset({"25006", "42501", "53100"})

# What was recorded by one version is read by the next: it changes only where recorded steps mean something else.
_PROTOCOL = "pegboard-tasks-1"
_ERROR = "pegboard/error"


class JsonSerializer(Serializer):
    """Writes JSON, where DBOS would pickle: what is read from a database must not be able to run."""

    def serialize(self, data: Any) -> str:
        """Return JSON; an error as its type and text."""
        if isinstance(data, BaseException):
            data = {_ERROR: {"type": type(data).__name__, "text": str(data)}}
        return json.dumps(data)

    def deserialize(self, serialized_data: str) -> Any:
        """Return the value; an error as one."""
        data: Any = json.loads(serialized_data)
        is_error = is_object(data) and data.keys() == {_ERROR}
        return KeptError(data[_ERROR]) if is_error else data

    def name(self) -> str:
        """Return what it is called in the database."""
        return "pegboard_json"


_passes_for_dbos = dbos_database.retriable_postgres_exception  # type: ignore[reportPrivateImportUsage] - as above


def passes(error: Exception) -> bool:
    """Tell whether what the database says may be otherwise in a moment, so that the same is to be tried again."""
    if _passes_for_dbos(error):
        return True
    if not isinstance(error, DBAPIError):
        return False
    text, state = str(error.orig), getattr(error.orig, "sqlstate", None)
    return state in _PASSING_STATES or (state is None and any(words in text for words in _PASSING_TEXTS))


# DBOS waits where its connection is lost; where a disk is full for a moment it has a task failed, whose steps are done.
dbos_database.retriable_postgres_exception = passes  # type: ignore[reportPrivateImportUsage] - as above


# Read-only transaction, missing privilege, full disk: these messages speak to operators and quote no stored data.
_TELLING_STATES = frozenset({"25006", "42501", "53100"})


def reason_of(error: SQLAlchemyError) -> str:
    """Return why a database refused, for operators: its kind, since the text of most errors quotes stored data."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    if getattr(cause, "sqlstate", None) in _TELLING_STATES:
        return str(cause).partition("\n")[0]
    return type(cause).__name__


class KeptError(Exception):
    """An error that ended the run of a task, as it was kept."""


async def launch(url: sa.URL, worker: str, *, may_make_tables: bool) -> None:
    """Begin to run DBOS, on the loop that this runs on."""
    dbos = DBOS(
        config={
            "name": "pegboard",
            "system_database_url": url.render_as_string(hide_password=False),
            "serializer": JsonSerializer(),
            "executor_id": worker,
            "application_version": _PROTOCOL,
            "log_level": "CRITICAL",
            # A user who may not finds them made; DBOS then looks whether they are those that it needs.
            "run_migrations": may_make_tables,
        }
    )
    # What others left behind is taken from this queue, at which DBOS looks but once a second.
    queue = dbos._registry.get_internal_queue()  # type: ignore[reportPrivateUsage] - DBOS has no public way
    queue._polling_interval_sec = TASK_QUEUE_LOOK_S  # type: ignore[reportPrivateUsage] - as above
    # On this loop, which DBOS then takes for the runs that it begins itself.
    await asyncio.sleep(0)
    DBOS.launch()


def client_of(url: sa.URL) -> DBOSClient:
    """Return what asks the database; it blocks."""
    database = url.render_as_string(hide_password=False)
    return DBOSClient(system_database_url=database, serializer=JsonSerializer(), retry_connection_errors=False)


def requeue(client: DBOSClient, task_id: str, worker: str) -> bool:
    """Put a task that a worker began in the queue; `False` where it has ended, or others were before."""
    # Not `resume_workflow`, which takes up what was cancelled as well, and forgets how often a task was begun.
    database = client._sys_db  # type: ignore[reportPrivateUsage] - DBOS has no public way
    return database.reenqueue_for_recovery(task_id, [worker], INTERNAL_QUEUE_NAME)


async def end_all() -> None:
    """End whatever still waits on the loop of DBOS."""
    waiting = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
