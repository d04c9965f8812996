"""Use store: calls that followed searches, in an SQLite file that the processes of one machine share.

Whoever may fill it fills its own part: a caller pushes out no rows but its own, a space none of another space.
"""

from __future__ import annotations

import sqlite3  # noqa: TID251 - a database of ours, not a file that somebody names
import time
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path

from pegboard.discovery.limits import SEARCH_QUERY_CHARS
from pegboard.frozen import frozen
from pegboard.platforms import platform

USE_BUSY_S = 1.0  # that the file is waited for, on its own thread, and that a question to it may last
USE_STEPS = 10_000  # of SQLite's machine, after which the time is looked at
USE_SPACE_ROWS = 5_000  # of one space in the file
USE_CALLER_ROWS = 200  # and of one caller in it
USE_SPACES = 1_000  # in the file
USE_KEPT_S = 90 * 86_400.0  # that a use counts after its last time

_TABLE = """\
create table if not exists used (
  catalog text not null, space text not null, caller text not null, tool text not null, definition text not null,
  terms text not null, uses integer not null, last_s real not null,
  primary key (catalog, space, caller, tool, definition, terms)
) without rowid"""
_ADD = """\
insert into used values (:catalog, :space, :caller, :tool, :definition, :terms, 1, :now)
on conflict do update set uses = uses + 1, last_s = :now"""
_KNOWS_SPACE = "select 1 from used where catalog = :catalog and space = :space limit 1"
_SPACES = "select count(*) from (select distinct catalog, space from used)"
# Of the rows of one part, all but the youngest go.
_TRIM = """\
delete from used where catalog = :catalog and space = :space and (:whose is null or caller = :whose) and last_s < (
  select last_s from used where catalog = :catalog and space = :space and (:whose is null or caller = :whose)
  order by last_s desc limit 1 offset :keep)"""


@frozen
class Use:
    """A tool, as it was defined then, that a caller called after it had asked for these terms."""

    caller: str
    tool: str
    definition: str
    terms: frozenset[str]


class UseStore:
    """Keeps what was used. Each question opens the file and holds nothing in between; `sqlite3.Error` where it fails.

    Args:
        path: the file; the first question makes it, readable by its owner only.
        catalog: whose use it is; others may share the file.
        wall_clock: seconds since 1970, the same for all who share the file.
    """

    def __init__(
        self,
        path: Path,
        *,
        catalog: str,
        wall_clock: Callable[[], float] = time.time,
        space_rows: int = USE_SPACE_ROWS,
        caller_rows: int = USE_CALLER_ROWS,
        spaces: int = USE_SPACES,
    ) -> None:
        self.path = path
        self._catalog, self._wall_clock = catalog, wall_clock
        self._space_rows, self._caller_rows, self._spaces = space_rows, caller_rows, spaces

    def add(self, space: str, use: Use) -> None:
        """Count a use. A space beyond the thousandth has nothing counted: to forget another would change its answers.

        Raises:
            OSError: the file does not take it.
        """
        of: dict[str, str | float | None] = {"catalog": self._catalog, "space": space, "now": self._wall_clock()}
        with self._transaction() as connection:
            connection.execute("delete from used where last_s < ?", (self._wall_clock() - USE_KEPT_S,))
            is_known = connection.execute(_KNOWS_SPACE, of).fetchone()
            if not is_known and connection.execute(_SPACES).fetchone()[0] >= self._spaces:
                return
            row = {"caller": use.caller, "tool": use.tool, "definition": use.definition}
            connection.execute(_ADD, {**of, **row, "terms": " ".join(sorted(use.terms))})
            connection.execute(_TRIM, {**of, "whose": use.caller, "keep": self._caller_rows - 1})
            connection.execute(_TRIM, {**of, "whose": None, "keep": self._space_rows - 1})

    def of_space(self, space: str) -> tuple[Use, ...]:
        """Return what was used in one space.

        Raises:
            OSError: the file cannot be read.
        """
        with self._transaction() as connection:
            rows = connection.execute(
                "select caller, tool, definition, terms from used"
                " where catalog = ? and space = ? and last_s >= ? and length(terms) <= ? limit ?",
                (self._catalog, space, self._wall_clock() - USE_KEPT_S, SEARCH_QUERY_CHARS, self._space_rows),
            ).fetchall()
        # The file may be anybody's by now, and what it has for texts numbers.
        return tuple(
            Use(caller=caller, tool=tool, definition=definition, terms=frozenset(terms.split()))
            for caller, tool, definition, terms in rows
            if all(isinstance(cell, str) for cell in (caller, tool, definition, terms))
        )

    @contextmanager
    def _transaction(self) -> Generator[sqlite3.Connection]:
        try:
            if not self.path.exists():
                self.path.touch(mode=0o600)
            elif platform.may_everybody_write(self.path.stat()):
                # Whoever writes it can speak for any two callers, and so lift a tool for everybody.
                raise OSError(f"{str(self.path)!r} may be written by everybody; run chmod o-w {self.path}")
            with closing(sqlite3.connect(self.path, timeout=USE_BUSY_S, isolation_level=None)) as connection:
                ends = time.monotonic() + USE_BUSY_S
                # A table of somebody else's making may have no end.
                connection.set_progress_handler(lambda: time.monotonic() > ends, USE_STEPS)
                connection.execute("begin immediate")
                connection.execute(_TABLE)
                yield connection
                connection.execute("commit")
        except (sqlite3.Error, ValueError) as error:  # ValueError: a text that SQLite cannot hold
            raise OSError(f"{str(self.path)!r}: {error}") from error
