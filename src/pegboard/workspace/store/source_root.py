"""Source root: which folder the documents of a source were read from."""

from __future__ import annotations

from typing import Any, NamedTuple

import orjson

from pegboard.workspace.store.connection import Connection


class SourceRoot(NamedTuple):
    """A folder, by its path as the operator named it, and by its device and number on this machine."""

    path: str
    device: int
    inode: int

    def is_same_folder(self, other: SourceRoot) -> bool:
        """Tell whether it is the other one, which may have been renamed, or exchanged in its place.

        A link that leads to a newer release keeps its path, and a folder that was mounted again does, too.
        """
        return self.path == other.path or (self.device, self.inode) == (other.device, other.inode)


def root_of(db: Connection, source_n: int) -> SourceRoot | None:
    """Return the folder of a source; `None` where none was recorded."""
    row: Any = db.execute("select value from settings where name = ?", (_setting(db, source_n),)).fetchone()
    return None if row is None else SourceRoot(*orjson.loads(row[0]))


def put_root(db: Connection, source_n: int, root: SourceRoot) -> None:
    """Record the folder of a source."""
    db.execute(
        "insert into settings (name, value) values (?, ?) on conflict (name) do update set value = excluded.value",
        (_setting(db, source_n), orjson.dumps([*root]).decode()),
    )


def remove_root(db: Connection, source_n: int) -> None:
    """Remove the record of a source that is about to be removed."""
    db.execute("delete from settings where name = ?", (_setting(db, source_n),))


def _setting(db: Connection, source_n: int) -> str:
    """Return the name of the setting: by the id of the source, since its number may be given to another one."""
    row: Any = db.execute("select id from sources where n = ?", (source_n,)).fetchone()
    return f"root of {row[0]}"
