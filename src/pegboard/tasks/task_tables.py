"""TaskTables: what stands in the database beside DBOS's own: whose a task is, what it asks, and which workers live."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.event import listen
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.schema import CreateIndex, CreateTable

from pegboard.model.json_types import JSON
from pegboard.model.task import Question
from pegboard.tasks.records import question_of_json, question_to_json

TASK_STORE_BUSY_S = 5.0  # for another process to let go of an SQLite file

_METADATA = sa.MetaData()
_TASKS = sa.Table(
    "pegboard_tasks",
    _METADATA,
    sa.Column("task_id", sa.String, primary_key=True),
    sa.Column("owner", sa.String, nullable=False, index=True),
    sa.Column("expires_at", sa.Float, nullable=False, index=True),
    sa.Column("fraction", sa.Float),
    sa.Column("message", sa.String, nullable=False, default=""),
)
_QUESTIONS = sa.Table(
    "pegboard_task_questions",
    _METADATA,
    sa.Column("task_id", sa.String, primary_key=True),
    sa.Column("key", sa.String, primary_key=True),
    sa.Column("question", sa.Text, nullable=False),
    sa.Column("answer", sa.Text),
)
_WORKERS = sa.Table(
    "pegboard_task_workers",
    _METADATA,
    sa.Column("worker", sa.String, primary_key=True),
    sa.Column("beats_at", sa.Float, nullable=False),
)
_LOCK = "select pg_advisory_xact_lock(7235140913)"  # a number of ours, for making the tables
_MAY_MAKE = "select has_database_privilege(current_database(), 'create')"
# What a user may not, or a database does not take: there PostgreSQL speaks to operators, and quotes nothing stored.
_TELLING_STATES = frozenset({"25006", "42501", "53100"})
Notes = Mapping[str, tuple[float | None, str]]


class Kept(NamedTuple):
    """What stands here of one task."""

    fraction: float | None
    message: str
    questions: Mapping[str, Question]


class OtherQuestionError(Exception):
    """Where a task asks something, it had asked something else."""


def reason_of(error: SQLAlchemyError) -> str:
    """Return why a database refused, for operators: its kind, since the text of most errors quotes what was stored."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    if getattr(cause, "sqlstate", None) in _TELLING_STATES:
        return str(cause).partition("\n")[0]
    return type(cause).__name__


class TaskTables:
    """The tables, each method one transaction. Blocks: call it from a thread.

    Args:
        url: the database, as SQLAlchemy wants it.

    Raises in all of its methods:
        OSError: the database does not answer.
    """

    def __init__(self, url: str) -> None:
        self._engine = sa.create_engine(url, pool_pre_ping=True)
        self._now = "extract(epoch from clock_timestamp())"
        if self._engine.dialect.name == "sqlite":
            self._now = "(julianday('now') - 2440587.5) * 86400.0"
            listen(self._engine, "connect", _patient)

    @contextmanager
    def _transaction(self) -> Generator[sa.Connection]:
        try:
            with self._engine.begin() as connection:
                yield connection
        except SQLAlchemyError as error:
            raise OSError(f"The database of tasks does not answer: {reason_of(error)}.") from error

    def create(self) -> bool:
        """Make the tables that are not there, while others may do so too; tell whether its user may make tables.

        One that may not finds them made.
        """
        is_sqlite = self._engine.dialect.name == "sqlite"
        with self._transaction() as connection:
            if not is_sqlite:
                connection.execute(sa.text(_LOCK))
            known = sa.inspect(connection).get_table_names()
            for table in _METADATA.sorted_tables:
                if table.name in known:
                    continue
                connection.execute(CreateTable(table, if_not_exists=True))
                for index in table.indexes:
                    connection.execute(CreateIndex(index, if_not_exists=True))
            return is_sqlite or connection.execute(sa.text(_MAY_MAKE)).scalar_one()

    # -- tasks

    def add(self, task_id: str, owner: str, expires_at: float, *, worker: str) -> bool:
        """Note whose a task is, and that the worker lives that will run it: what it leaves behind is found by that.

        `False` where others have taken the worker for dead, as `beat` says it.
        """
        with self._transaction() as connection:
            was_known = self._renew(connection, worker)
            row = {"task_id": task_id, "owner": owner, "expires_at": expires_at, "message": ""}
            connection.execute(sa.insert(_TASKS).values(row))
        return was_known

    def note(self, notes: Notes) -> None:
        """Note how far tasks are: a fraction, and words."""
        with self._transaction() as connection:
            for task_id, (fraction, message) in notes.items():
                change = sa.update(_TASKS).where(_TASKS.c.task_id == task_id)
                connection.execute(change.values(fraction=fraction, message=message))

    def of_owner(self, owner: str | None, *, most: int) -> Sequence[str]:
        """Return the ids of one owner's tasks, or of all; those that are kept longest first."""
        wanted = sa.select(_TASKS.c.task_id).order_by(_TASKS.c.expires_at.desc()).limit(most)
        with self._transaction() as connection:
            if owner is not None:
                wanted = wanted.where(_TASKS.c.owner == owner)
            return list(connection.execute(wanted).scalars())

    def kept(self, task_ids: Iterable[str]) -> dict[str, Kept]:
        """Return what stands here of tasks, with the questions that wait."""
        ids = list(task_ids)
        with self._transaction() as connection:
            rows = connection.execute(sa.select(_TASKS).where(_TASKS.c.task_id.in_(ids))).all()
            asked = connection.execute(
                sa.select(_QUESTIONS.c.task_id, _QUESTIONS.c.key, _QUESTIONS.c.question)
                .where(_QUESTIONS.c.task_id.in_(ids), _QUESTIONS.c.answer.is_(None))
                .order_by(_QUESTIONS.c.key)
            ).all()
        found = {row.task_id: Kept(row.fraction, row.message, {}) for row in rows}
        for task_id, key, question in asked:
            if task_id in found:
                waiting = {**found[task_id].questions, key: question_of_json(json.loads(question))}
                found[task_id] = found[task_id]._replace(questions=waiting)
        return found

    def expired(self, now: float) -> Sequence[str]:
        """Return the ids of tasks whose time was over at `now`."""
        with self._transaction() as connection:
            return list(connection.execute(sa.select(_TASKS.c.task_id).where(_TASKS.c.expires_at <= now)).scalars())

    def forget(self, task_ids: Sequence[str]) -> None:
        """Forget tasks, and what they asked."""
        with self._transaction() as connection:
            connection.execute(sa.delete(_QUESTIONS).where(_QUESTIONS.c.task_id.in_(task_ids)))
            connection.execute(sa.delete(_TASKS).where(_TASKS.c.task_id.in_(task_ids)))

    # -- questions

    def ask(self, task_id: str, key: str, question: Question) -> JSON | None:
        """Note what a task asks; return the answer where it is there already.

        Raises:
            OtherQuestionError: what was asked there before is another question.
        """
        at, asked = (_QUESTIONS.c.task_id == task_id) & (_QUESTIONS.c.key == key), question_to_json(question)
        with self._transaction() as connection:
            known = connection.execute(sa.select(_QUESTIONS.c.question, _QUESTIONS.c.answer).where(at)).first()
            if known is None:
                connection.execute(sa.insert(_QUESTIONS).values(task_id=task_id, key=key, question=json.dumps(asked)))
                return None
            if json.loads(known.question) != asked:
                raise OtherQuestionError
            return None if known.answer is None else json.loads(known.answer)

    def answer(self, task_id: str, answers: Mapping[str, JSON]) -> None:
        """Note answers; one that is there already holds."""
        with self._transaction() as connection:
            for key, answer in answers.items():
                at = (_QUESTIONS.c.task_id == task_id) & (_QUESTIONS.c.key == key) & _QUESTIONS.c.answer.is_(None)
                connection.execute(sa.update(_QUESTIONS).where(at).values(answer=json.dumps(answer)))

    def answers(self, task_ids: Sequence[str]) -> Sequence[tuple[str, str, JSON]]:
        """Return (task, key, answer) of what was answered."""
        wanted = sa.select(_QUESTIONS.c.task_id, _QUESTIONS.c.key, _QUESTIONS.c.answer)
        with self._transaction() as connection:
            rows = connection.execute(
                wanted.where(_QUESTIONS.c.task_id.in_(task_ids), _QUESTIONS.c.answer.is_not(None))
            ).all()
        return [(task_id, key, json.loads(answer)) for task_id, key, answer in rows]

    # -- workers

    def _moment(self) -> sa.ColumnElement[float]:
        """Return the clock of the database, which is one for all of its workers."""
        return sa.literal_column(self._now, sa.Float())

    def beat(self, worker: str) -> bool:
        """Say that a worker lives; `False` where others have taken it for dead, and have its tasks."""
        with self._transaction() as connection:
            return self._renew(connection, worker)

    def _renew(self, connection: sa.Connection, worker: str) -> bool:
        moment = self._moment()
        beating = sa.update(_WORKERS).where(_WORKERS.c.worker == worker).values(beats_at=moment)
        if connection.execute(beating).rowcount == 1:
            return True
        # Another thread of this worker may do the same at this moment.
        sign = f"insert into {_WORKERS.name} values (:worker, {self._now}) on conflict do nothing"  # noqa: S608 - names of ours
        connection.execute(sa.text(sign), {"worker": worker})
        return False

    def leave(self, worker: str) -> None:
        """Say that a worker has ended: what it left behind may be taken at once."""
        with self._transaction() as connection:
            connection.execute(sa.update(_WORKERS).where(_WORKERS.c.worker == worker).values(beats_at=0.0))

    def signs(self) -> dict[str, float]:
        """Return the last sign of life of each worker; that of one that has left is 0."""
        with self._transaction() as connection:
            rows = connection.execute(sa.select(_WORKERS.c.worker, _WORKERS.c.beats_at)).all()
        return {row.worker: row.beats_at for row in rows}

    def bury(self, worker: str) -> None:
        """Forget a worker that has left nothing behind any more."""
        with self._transaction() as connection:
            connection.execute(sa.delete(_WORKERS).where(_WORKERS.c.worker == worker))

    def close(self) -> None:
        """Close every connection."""
        self._engine.dispose()


def _patient(connection: Any, _record: object) -> None:
    connection.execute(f"PRAGMA busy_timeout={int(TASK_STORE_BUSY_S * 1_000)}")
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
