"""SQLite store: consents in a file that the processes of one machine share."""

from __future__ import annotations

import sqlite3  # noqa: TID251 - a database of ours, not a file that somebody names
import time
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from pegboard.consent.limits import CONSENT_STORE_BUSY_S
from pegboard.consent.sql_records import TABLES, Run, SqlConsents
from pegboard.model.error import DefinitionError


class SqliteConsents(SqlConsents):
    """Keeps consents in an SQLite file; see `SqlConsents`.

    The file must be on a local disk: locks of network file systems do not hold.

    Args:
        path: the file; the first question makes it, readable by its owner only.
        takes_questions: whether questions are filed in it, for people to decide.
        page: the address of the server whose page lets people decide, without a slash at its end.
        wall_clock: seconds since 1970, the same for all who share the file.

    Raises:
        DefinitionError: its folder does not exist.
    """

    def __init__(
        self,
        path: Path,
        *,
        takes_questions: bool = True,
        page: str | None = None,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(page=page, wall_clock=wall_clock)
        self.path, self.takes_questions = path, takes_questions
        if not path.parent.is_dir():
            raise DefinitionError(f"there is no folder {str(path.parent)!r} for it")

    @contextmanager
    def _transaction(self) -> Generator[Run]:
        try:
            if not self.path.exists():
                self.path.touch(mode=0o600)
            with closing(self._connect()) as connection:
                connection.execute("begin immediate")
                for table in TABLES:
                    connection.execute(table)

                def run(sql: str, **values: Any) -> list[tuple[Any, ...]]:
                    return connection.execute(sql, values).fetchall()

                yield run
                connection.execute("commit")
        except (sqlite3.Error, OSError) as error:
            raise ConnectionError(f"{str(self.path)!r}: {error}") from error

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=CONSENT_STORE_BUSY_S, isolation_level=None)
        # Has the folder flushed, too, when a journal is taken away: one that a power cut brought back would undo a
        # decision, or the use of a yes, that was acknowledged.
        connection.execute("pragma synchronous = extra")
        return connection
