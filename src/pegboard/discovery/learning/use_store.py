"""Use store: the calls that followed searches, in an SQLite file shared by the processes of one machine.

Quotas are separate: a caller displaces only its own rows, and a space never those of another space.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from pegboard.discovery.limits import SEARCH_QUERY_CHARS
from pegboard.storage.sqlite_file import SqliteFile
from pegboard.storage.store_schema import Schema, StoreConnection, table_version

USE_BUSY_S = 1.0  # seconds to wait for the locked file, on its own thread, and the longest query
USE_SPACE_ROWS = 5_000  # rows of one space in the file
USE_CALLER_ROWS = 200  # rows of one caller in the file
USE_SPACES = 1_000  # spaces in the file
USE_KEPT_S = 90 * 86_400.0  # how long a use counts after its last time, in seconds

SCHEMA = Schema(
    name="learned_use",
    sqlite=(
        """
create table used (
  catalog text not null, space text not null, caller text not null, tool text not null, definition text not null,
  terms text not null, uses integer not null, last_s real not null,
  primary key (catalog, space, caller, tool, definition, terms)
) without rowid;
""",
    ),
    tables=("used",),
    unrecorded=table_version("used"),
)
_ADD = """\
insert into used values (:catalog, :space, :caller, :tool, :definition, :terms, 1, :now)
on conflict do update set uses = uses + 1, last_s = :now"""
_KNOWS_SPACE = "select 1 from used where catalog = :catalog and space = :space limit 1"
_SPACES = "select count(*) from (select distinct catalog, space from used)"
# Delete all but the youngest rows of one quota.
_TRIM = """\
delete from used where catalog = :catalog and space = :space and (:whose is null or caller = :whose) and last_s < (
  select last_s from used where catalog = :catalog and space = :space and (:whose is null or caller = :whose)
  order by last_s desc limit 1 offset :keep)"""


class Use(Struct, frozen=True, kw_only=True):
    """A tool, with its definition at that time, that a caller called after searching for these terms."""

    caller: str
    tool: str
    definition: str
    terms: frozenset[str]


class UseStore:
    """Stores the use of tools. Each operation opens the file and keeps nothing open.

    Args:
        path: the file; created on first use, readable by its owner only.
        catalog: the catalog's name; several may share the file.
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

    def check_place(self) -> None:
        """Refuse a file that cannot be used.

        Raises:
            DefinitionError: its folder does not exist, or other users may write the file.
        """
        SqliteFile(self.path, SCHEMA, busy_s=USE_BUSY_S).check_place()

    def add(self, space: str, use: Use) -> None:
        """Count a use. A space beyond the limit is not recorded: deleting another would change its answers.

        Raises:
            OSError: the file cannot be written.
        """
        of: dict[str, Any] = {"catalog": self._catalog, "space": space, "now": self._wall_clock()}
        with self._transaction() as connection:
            connection("delete from used where last_s < :end", end=self._wall_clock() - USE_KEPT_S)
            if not connection(_KNOWS_SPACE, **of) and connection(_SPACES)[0][0] >= self._spaces:
                return
            row = {"caller": use.caller, "tool": use.tool, "definition": use.definition}
            connection(_ADD, **of, **row, terms=" ".join(sorted(use.terms)))
            connection(_TRIM, **of, whose=use.caller, keep=self._caller_rows - 1)
            connection(_TRIM, **of, whose=None, keep=self._space_rows - 1)

    def of_space(self, space: str) -> tuple[Use, ...]:
        """Return the use in one space.

        Raises:
            OSError: the file cannot be read.
        """
        with self._transaction() as connection:
            rows = connection(
                "select caller, tool, definition, terms from used where catalog = :catalog and space = :space "
                "and last_s >= :since and length(terms) <= :chars limit :most",
                catalog=self._catalog, space=space, since=self._wall_clock() - USE_KEPT_S, chars=SEARCH_QUERY_CHARS,
                most=self._space_rows,
            )  # fmt: skip
        # The file may have been changed by others, with numbers in place of texts.
        return tuple(
            Use(caller=caller, tool=tool, definition=definition, terms=frozenset(terms.split()))
            for caller, tool, definition, terms in rows
            if all(isinstance(cell, str) for cell in (caller, tool, definition, terms))
        )

    @contextmanager
    def _transaction(self) -> Generator[StoreConnection]:
        file = SqliteFile(self.path, SCHEMA, busy_s=USE_BUSY_S, longest_s=USE_BUSY_S)
        try:
            with file.transaction() as connection:
                yield connection
        except ValueError as error:  # a text that SQLite cannot store
            raise OSError(f"{str(self.path)!r}: {error}") from error
