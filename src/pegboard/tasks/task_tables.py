"""TaskTables: our tables in the task database: owners of tasks, their questions and answers, and live workers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pegboard.model.json_types import JSON
from pegboard.model.task import Question
from pegboard.storage.database import Database
from pegboard.storage.postgres_server import PostgresServer
from pegboard.storage.sqlite_file import SqliteFile
from pegboard.storage.store_schema import Schema, StoreConnection
from pegboard.storage.store_uri import StoreUri
from pegboard.tasks.records import question_of_json, question_to_json

TASK_STORE_BUSY_S = 5.0  # seconds to wait for another process that has locked the database
_CONNECTIONS = 5  # PostgreSQL connections that stay open

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
        "alter table pegboard_tasks add column noted_at double precision;",
    ),
    tables=("pegboard_tasks", "pegboard_task_questions", "pegboard_task_workers"),
    unrecorded=lambda connection: (
        int(connection.has("pegboard_task_workers")) + int(connection.has("pegboard_tasks", "noted_at"))
    ),
)
_MAY_CREATE = "select has_database_privilege(current_database(), 'create')"


class Note(NamedTuple):
    """The last sign of a running task, with its time in seconds since 1970, and the progress that it reported.

    A step that was recorded is a sign without a fraction and a message; those before it are kept.
    """

    fraction: float | None
    message: str | None
    noted_at: float | None


Notes = Mapping[str, Note]


class Kept(NamedTuple):
    """The data in these tables about one task."""

    note: Note
    questions: Mapping[str, Question]


class OtherQuestionError(Exception):
    """The task asked another question at this place before."""


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
        """Record the owner of a task, and the worker that will run it, so that others find tasks of dead workers.

        Returns `False` if others consider the worker dead, as `beat` does.
        """
        sql = "insert into pegboard_tasks (task_id, owner, expires_at, message) values (:task_id, :owner, :ends, '')"
        with self._database.transaction() as connection:
            was_known = _renew(connection, worker)
            connection(sql, task_id=task_id, owner=owner, ends=expires_at)
        return was_known

    def note(self, notes: Notes) -> None:
        """Record the last signs of tasks."""
        sql = (
            "update pegboard_tasks set fraction = coalesce(:fraction, fraction), "
            "message = coalesce(:message, message), noted_at = :noted_at where task_id = :task_id"
        )
        with self._database.transaction() as connection:
            for task_id, note in notes.items():
                connection(sql, **note._asdict(), task_id=task_id)

    def of_owner(self, owner: str | None, *, most: int) -> Sequence[str]:
        """Return the ids of one owner's tasks, or of all, the last to expire first."""
        where = "" if owner is None else "where owner = :owner"
        sql = f"select task_id from pegboard_tasks {where} order by expires_at desc limit :most"  # noqa: S608 - constants
        with self._database.transaction() as connection:
            return [task_id for (task_id,) in connection(sql, owner=owner, most=most)]

    def rows_of(self, task_ids: Iterable[str]) -> dict[str, Kept]:
        """Return the stored data of tasks, with their open questions."""
        these, ids = _in(task_ids)
        tasks = f"select task_id, fraction, message, noted_at from pegboard_tasks where task_id in {these}"  # noqa: S608 - our own names
        questions = (
            f"select task_id, key, question from pegboard_task_questions where task_id in {these} "  # noqa: S608 - our own names
            "and answer is null order by key"
        )
        with self._database.transaction() as connection:
            stored = {task_id: Kept(Note(*note), {}) for task_id, *note in connection(tasks, **ids)}
            asked = connection(questions, **ids)
        for task_id, key, question in asked:
            if task_id in stored:
                waiting = {**stored[task_id].questions, key: question_of_json(json.loads(question))}
                stored[task_id] = stored[task_id]._replace(questions=waiting)
        return stored

    def expired(self, now: float) -> Sequence[str]:
        """Return the ids of tasks that had expired at `now`."""
        with self._database.transaction() as connection:
            rows = connection("select task_id from pegboard_tasks where expires_at <= :now", now=now)
        return [task_id for (task_id,) in rows]

    def forget(self, task_ids: Sequence[str]) -> None:
        """Delete tasks and their questions."""
        with self._database.transaction() as connection:
            for task_id in task_ids:
                connection("delete from pegboard_task_questions where task_id = :task_id", task_id=task_id)
                connection("delete from pegboard_tasks where task_id = :task_id", task_id=task_id)

    # -- questions

    def ask(self, task_id: str, key: str, question: Question) -> JSON | None:
        """Record a question of a task; return the answer if there is one already.

        Raises:
            OtherQuestionError: the task asked another question at this place before.
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
        """Record answers; an earlier answer is kept."""
        sql = (
            "update pegboard_task_questions set answer = :answer "
            "where task_id = :task_id and key = :key and answer is null"
        )
        with self._database.transaction() as connection:
            for key, answer in answers.items():
                connection(sql, task_id=task_id, key=key, answer=json.dumps(answer))

    def answers(self, task_ids: Sequence[str]) -> Sequence[tuple[str, str, JSON]]:
        """Return (task, key, answer) for the answered questions."""
        these, ids = _in(task_ids)
        sql = (
            f"select task_id, key, answer from pegboard_task_questions where task_id in {these} "  # noqa: S608 - our own names
            "and answer is not null"
        )
        with self._database.transaction() as connection:
            return [(task_id, key, json.loads(answer)) for task_id, key, answer in connection(sql, **ids)]

    def asking(self) -> frozenset[str]:
        """Return the ids of the tasks with an open question."""
        with self._database.transaction() as connection:
            rows = connection("select distinct task_id from pegboard_task_questions where answer is null")
        return frozenset(task_id for (task_id,) in rows)

    # -- workers

    def beat(self, worker: str) -> bool:
        """Record that a worker lives; `False` if others consider it dead and have taken its tasks."""
        with self._database.transaction() as connection:
            return _renew(connection, worker)

    def leave(self, worker: str) -> None:
        """Record that a worker has ended: its tasks may be taken over at once."""
        with self._database.transaction() as connection:
            connection("update pegboard_task_workers set beats_at = 0.0 where worker = :worker", worker=worker)

    def signs(self) -> dict[str, float]:
        """Return the time of each worker's last heartbeat; 0 for one that has ended."""
        with self._database.transaction() as connection:
            return dict(connection("select worker, beats_at from pegboard_task_workers"))  # type: ignore[arg-type] - pairs

    def bury(self, worker: str) -> None:
        """Delete a worker that has no tasks left."""
        with self._database.transaction() as connection:
            connection("delete from pegboard_task_workers where worker = :worker", worker=worker)

    def close(self) -> None:
        """Close every connection."""
        self._database.close()


def _renew(connection: StoreConnection, worker: str) -> bool:
    # By the clock of the database, which its workers share.
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
