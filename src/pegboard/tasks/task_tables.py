"""TaskTables: our tables in the database of tasks: who owns a task, what it asks, and which workers live."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pegboard.model.json_types import JSON
from pegboard.model.task import Question
from pegboard.storage.database import Database
from pegboard.storage.postgres_server import PostgresServer
from pegboard.storage.sqlite_file import SqliteFile
from pegboard.storage.store_schema import Schema, StoreConnection, table_version
from pegboard.storage.store_uri import StoreUri
from pegboard.tasks.records import question_of_json, question_to_json

TASK_STORE_BUSY_S = 5.0  # for another process to let go of the database
_CONNECTIONS = 5  # to PostgreSQL that stay open

SCHEMA = Schema(
    name="tasks",
    sqlite=(
        """
create table if not exists pegboard_tasks (
    task_id varchar primary key, owner varchar not null, expires_at double precision not null,
    fraction double precision, message varchar not null
);
create index if not exists ix_pegboard_tasks_owner on pegboard_tasks (owner);
create index if not exists ix_pegboard_tasks_expires_at on pegboard_tasks (expires_at);
create table if not exists pegboard_task_questions (
    task_id varchar not null, key varchar not null, question text not null, answer text, primary key (task_id, key)
);
create table if not exists pegboard_task_workers (worker varchar primary key, beats_at double precision not null);
""",
    ),
    tables=("pegboard_tasks", "pegboard_task_questions", "pegboard_task_workers"),
    unrecorded=table_version("pegboard_task_workers"),
)
_MAY_CREATE = "select has_database_privilege(current_database(), 'create')"
Notes = Mapping[str, tuple[float | None, str]]


class Kept(NamedTuple):
    """What stands here of one task."""

    fraction: float | None
    message: str
    questions: Mapping[str, Question]


class OtherQuestionError(Exception):
    """Where a task asks something, it had asked something else."""


class TaskTables:
    """The tables of `SCHEMA`, each method one transaction. Blocks: call it from a thread.

    Every method raises `OSError` if the database does not answer.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    @classmethod
    def at(cls, uri: StoreUri) -> TaskTables:
        """Return the tables in the database that DBOS uses, too.

        Raises:
            DefinitionError: the URI cannot be used.
            ImportError: psycopg is not installed.
        """
        if uri.path is None:
            server = PostgresServer(uri.text, SCHEMA, busy_s=TASK_STORE_BUSY_S, statement_s=None, keep=_CONNECTIONS)
            return cls(server)
        return cls(SqliteFile(uri.path, SCHEMA, busy_s=TASK_STORE_BUSY_S, is_wal=True))

    def create(self) -> bool:
        """Create the tables if they do not exist; return whether this user may create tables for DBOS as well."""
        with self._database.transaction() as connection:
            return connection.is_sqlite or bool(connection(_MAY_CREATE)[0][0])

    # -- tasks

    def add(self, task_id: str, owner: str, expires_at: float, *, worker: str) -> bool:
        """Record whose a task is, and that the worker lives that will run it: others find what it leaves by that.

        Returns `False` if others have taken the worker for dead, as `beat` does.
        """
        sql = "insert into pegboard_tasks (task_id, owner, expires_at, message) values (:task_id, :owner, :ends, '')"
        with self._database.transaction() as connection:
            was_known = _renew(connection, worker)
            connection(sql, task_id=task_id, owner=owner, ends=expires_at)
        return was_known

    def note(self, notes: Notes) -> None:
        """Record how far tasks are: a fraction, and words."""
        sql = "update pegboard_tasks set fraction = :fraction, message = :message where task_id = :task_id"
        with self._database.transaction() as connection:
            for task_id, (fraction, message) in notes.items():
                connection(sql, fraction=fraction, message=message, task_id=task_id)

    def of_owner(self, owner: str | None, *, most: int) -> Sequence[str]:
        """Return the ids of one owner's tasks, or of all; those that are kept longest first."""
        where = "" if owner is None else "where owner = :owner"
        sql = f"select task_id from pegboard_tasks {where} order by expires_at desc limit :most"  # noqa: S608 - constants
        with self._database.transaction() as connection:
            return [task_id for (task_id,) in connection(sql, owner=owner, most=most)]

    def kept(self, task_ids: Iterable[str]) -> dict[str, Kept]:
        """Return what stands here of tasks, with the questions that wait."""
        these, ids = _in(task_ids)
        tasks = f"select task_id, fraction, message from pegboard_tasks where task_id in {these}"  # noqa: S608 - our own names
        questions = (
            f"select task_id, key, question from pegboard_task_questions where task_id in {these} "  # noqa: S608 - our own names
            "and answer is null order by key"
        )
        with self._database.transaction() as connection:
            found = {task_id: Kept(fraction, message, {}) for task_id, fraction, message in connection(tasks, **ids)}
            asked = connection(questions, **ids)
        for task_id, key, question in asked:
            if task_id in found:
                waiting = {**found[task_id].questions, key: question_of_json(json.loads(question))}
                found[task_id] = found[task_id]._replace(questions=waiting)
        return found

    def expired(self, now: float) -> Sequence[str]:
        """Return the ids of tasks whose time was over at `now`."""
        with self._database.transaction() as connection:
            rows = connection("select task_id from pegboard_tasks where expires_at <= :now", now=now)
        return [task_id for (task_id,) in rows]

    def forget(self, task_ids: Sequence[str]) -> None:
        """Forget tasks, and what they asked."""
        with self._database.transaction() as connection:
            for task_id in task_ids:
                connection("delete from pegboard_task_questions where task_id = :task_id", task_id=task_id)
                connection("delete from pegboard_tasks where task_id = :task_id", task_id=task_id)

    # -- questions

    def ask(self, task_id: str, key: str, question: Question) -> JSON | None:
        """Record what a task asks; return the answer if it is there already.

        Raises:
            OtherQuestionError: another question was asked there before.
        """
        at, asked = {"task_id": task_id, "key": key}, question_to_json(question)
        known = "select question, answer from pegboard_task_questions where task_id = :task_id and key = :key"
        insert = "insert into pegboard_task_questions (task_id, key, question) values (:task_id, :key, :question)"
        with self._database.transaction() as connection:
            rows = connection(known, **at)
            if not rows:
                connection(insert, **at, question=json.dumps(asked))
                return None
            [(stored, answer)] = rows
            if json.loads(stored) != asked:
                raise OtherQuestionError
            return None if answer is None else json.loads(answer)

    def answer(self, task_id: str, answers: Mapping[str, JSON]) -> None:
        """Record answers; one that is there already holds."""
        sql = (
            "update pegboard_task_questions set answer = :answer "
            "where task_id = :task_id and key = :key and answer is null"
        )
        with self._database.transaction() as connection:
            for key, answer in answers.items():
                connection(sql, task_id=task_id, key=key, answer=json.dumps(answer))

    def answers(self, task_ids: Sequence[str]) -> Sequence[tuple[str, str, JSON]]:
        """Return (task, key, answer) of what was answered."""
        these, ids = _in(task_ids)
        sql = (
            f"select task_id, key, answer from pegboard_task_questions where task_id in {these} "  # noqa: S608 - our own names
            "and answer is not null"
        )
        with self._database.transaction() as connection:
            return [(task_id, key, json.loads(answer)) for task_id, key, answer in connection(sql, **ids)]

    # -- workers

    def beat(self, worker: str) -> bool:
        """Record that a worker lives; `False` if others have taken it for dead, and have its tasks."""
        with self._database.transaction() as connection:
            return _renew(connection, worker)

    def leave(self, worker: str) -> None:
        """Record that a worker has ended: what it left may be taken at once."""
        with self._database.transaction() as connection:
            connection("update pegboard_task_workers set beats_at = 0.0 where worker = :worker", worker=worker)

    def signs(self) -> dict[str, float]:
        """Return the last sign of life of each worker; 0 for one that has left."""
        with self._database.transaction() as connection:
            return dict(connection("select worker, beats_at from pegboard_task_workers"))  # type: ignore[arg-type] - pairs

    def bury(self, worker: str) -> None:
        """Forget a worker that has nothing left."""
        with self._database.transaction() as connection:
            connection("delete from pegboard_task_workers where worker = :worker", worker=worker)

    def close(self) -> None:
        """Close every connection."""
        self._database.close()


def _renew(connection: StoreConnection, worker: str) -> bool:
    # By the clock of the database, which is one for all of its workers.
    now = "extract(epoch from clock_timestamp())"
    if connection.is_sqlite:
        now = "(julianday('now') - 2440587.5) * 86400.0"
    beat = f"update pegboard_task_workers set beats_at = {now} where worker = :worker returning worker"  # noqa: S608 - constants
    if connection(beat, worker=worker):
        return True
    # Another thread of this worker may do the same at this moment.
    sign = f"insert into pegboard_task_workers (worker, beats_at) values (:worker, {now}) on conflict do nothing"  # noqa: S608 - constants
    connection(sign, worker=worker)
    return False


def _in(task_ids: Iterable[str]) -> tuple[str, dict[str, Any]]:
    """Return the words and the values of `in (…)`; an empty list has no match."""
    ids: dict[str, Any] = {f"id{number}": task_id for number, task_id in enumerate(task_ids)}
    return f"({', '.join(f':{name}' for name in ids) or 'null'})", ids
