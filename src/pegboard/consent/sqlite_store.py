"""SQLite store: used answers in a file that the workers of one machine share."""

from __future__ import annotations

import asyncio
import sqlite3  # noqa: TID251 - a database of ours, not a file that somebody names
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from pegboard.model.bounds import CONSENT_STORE_BUSY_S
from pegboard.model.error import DefinitionError

_TABLE = "create table if not exists used_answers (mark text primary key, until real not null) without rowid"


class SqliteAnswerStore:
    """Uses up answers in an SQLite file; fills `pegboard.core.ports.UsedAnswers`.

    It opens the file for each answer and holds nothing in between, so forks and threads may share it. The file must be
    on a local disk: locks of network file systems do not hold.

    Args:
        path: the file; it is made with the first answer.
        wall_clock: seconds since 1970, the same for all who share the file.

    Raises:
        DefinitionError: its folder does not exist.
    """

    def __init__(self, path: Path, *, wall_clock: Callable[[], float] = time.time) -> None:
        self._path, self._clock = path, wall_clock
        if not path.parent.is_dir():
            raise DefinitionError(f"there is no folder {str(path.parent)!r} for it")

    async def use_up(self, mark: str, *, keep_s: float) -> bool:
        """Use up an answer; see `ports.UsedAnswers`.

        Raises:
            ConnectionError: the file is locked, broken or gone.
        """
        return await asyncio.to_thread(self._use_up, mark, keep_s)

    def _use_up(self, mark: str, keep_s: float) -> bool:
        now = self._clock()
        try:
            with closing(self._connect()) as connection, connection:
                connection.execute(_TABLE)
                connection.execute("delete from used_answers where until < ?", (now,))
                until = (mark, now + keep_s)
                return connection.execute("insert or ignore into used_answers values (?, ?)", until).rowcount == 1
        except sqlite3.Error as error:
            raise ConnectionError(f"{str(self._path)!r}: {error}") from error

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=CONSENT_STORE_BUSY_S)
