"""SQLite store: consents in a file shared by the processes of one machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pegboard.consent.limits import CONSENT_STORE_BUSY_S
from pegboard.consent.sql_records import SCHEMA, SqlConsents
from pegboard.storage.sqlite_file import SqliteFile


class SqliteConsents(SqlConsents):
    """Stores consents in an SQLite file on a local disk; see `SqlConsents`.

    Args:
        path: the file; created on first use, readable by its owner only.
        takes_questions: whether questions are filed in it, for people to decide.
        page: the address of the server with the page for decisions, without a slash at its end.
        wall_clock: seconds since 1970, the same for all who share the file.

    Raises:
        DefinitionError: its folder does not exist, or other users may write the file.
    """

    def __init__(
        self,
        path: Path,
        *,
        takes_questions: bool = True,
        page: str | None = None,
        wall_clock: Callable[[], float] | None = None,
    ) -> None:
        super().__init__(SqliteFile(path, SCHEMA, busy_s=CONSENT_STORE_BUSY_S), page=page, wall_clock=wall_clock)
        self.path, self.takes_questions = path, takes_questions
