"""Source settings: which folder the documents of a source were read from, and in which encoding its texts are."""

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
    value = _value(db, source_n, "root")
    return None if value is None else SourceRoot(*orjson.loads(value))


def put_root(db: Connection, source_n: int, root: SourceRoot) -> None:
    """Record the folder of a source."""
    _put(db, source_n, "root", orjson.dumps([*root]).decode())


def encoding_of(db: Connection, source_n: int) -> str:
    """Return the encoding that was set for the texts of a source; empty where it is detected."""
    return _value(db, source_n, "encoding") or ""


def put_encoding(db: Connection, source_n: int, encoding: str) -> None:
    """Set the encoding of the texts of a source; an empty one has it detected."""
    _put(db, source_n, "encoding", encoding)


def remove_settings(db: Connection, source_n: int) -> None:
    """Remove the settings of a source that is about to be removed."""
    for name in ("root", "encoding"):
        db.execute("delete from settings where name = ?", (_setting(db, source_n, name),))


def _value(db: Connection, source_n: int, name: str) -> str | None:
    row: Any = db.execute("select value from settings where name = ?", (_setting(db, source_n, name),)).fetchone()
    return None if row is None else str(row[0])


def _put(db: Connection, source_n: int, name: str, value: str) -> None:
    db.execute(
        "insert into settings (name, value) values (?, ?) on conflict (name) do update set value = excluded.value",
        (_setting(db, source_n, name), value),
    )


def _setting(db: Connection, source_n: int, name: str) -> str:
    """Return the name of a setting: by the id of the source, since its number may be given to another one."""
    row: Any = db.execute("select id from sources where n = ?", (source_n,)).fetchone()
    return f"{name} of {row[0]}"
