"""Source settings: the folder and the text encoding of a source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from pegboard.workspace.store.connection import Connection


class SourceRoot(NamedTuple):
    """A place of files: the operator's path or address; of a folder also its device and inode number.

    `inode` is 0 for a place that is not a folder of this machine.
    """

    path: str
    device: int
    inode: int

    def is_same_folder(self, other: SourceRoot) -> bool:
        """Tell whether both are the same folder, even if it was renamed or replaced at its path.

        A link to a newer release keeps its path, and so does a folder that was mounted again.
        """
        is_same_inode = (self.device, self.inode) == (other.device, other.inode)
        return self.path == other.path or (self.inode != 0 and is_same_inode)


class SourceVersion(NamedTuple):
    """The version of a place, such as a commit, that a run has read completely, and its number of documents."""

    version: str
    origin: str
    documents: int


def version_of(db: Connection, source_n: int) -> SourceVersion | None:
    """Return the version that was read last; `None` if the source has changed since, or has no versions."""
    value = _value(db, source_n, "version")
    return SourceVersion(*orjson.loads(value)) if value else None


def put_version(db: Connection, source_n: int, version: SourceVersion | None) -> None:
    """Record the version that was read; `None` for one that is being read."""
    _put(db, source_n, "version", "" if version is None else orjson.dumps([*version]).decode())


def root_of(db: Connection, source_n: int) -> SourceRoot | None:
    """Return the folder of a source; `None` if none was recorded."""
    value = _value(db, source_n, "root")
    return None if value is None else SourceRoot(*orjson.loads(value))


def put_root(db: Connection, source_n: int, root: SourceRoot) -> None:
    """Record the folder of a source."""
    _put(db, source_n, "root", orjson.dumps([*root]).decode())


def encoding_of(db: Connection, source_n: int) -> str:
    """Return the encoding set for the texts of a source; empty means detection."""
    return _value(db, source_n, "encoding") or ""


def put_encoding(db: Connection, source_n: int, encoding: str) -> None:
    """Set the encoding of the texts of a source; empty means detection."""
    _put(db, source_n, "encoding", encoding)


def metadata_of(db: Connection, source_n: int) -> dict[str, str]:
    """Return the metadata that every document of a source gets."""
    return orjson.loads(_value(db, source_n, "metadata") or "{}")


def put_metadata(db: Connection, source_n: int, metadata: Mapping[str, str]) -> None:
    """Set the metadata that every document of a source gets."""
    _put(db, source_n, "metadata", orjson.dumps(metadata, option=orjson.OPT_SORT_KEYS).decode())


def parsers_of(db: Connection, source_n: int) -> dict[str, str]:
    """Return the host's parsers that the last complete run used; see `Parsers.recorded`."""
    return orjson.loads(_value(db, source_n, "parsers") or "{}")


def put_parsers(db: Connection, source_n: int, parsers: Mapping[str, str]) -> None:
    """Record the host's parsers that a run used."""
    _put(db, source_n, "parsers", orjson.dumps(parsers, option=orjson.OPT_SORT_KEYS).decode())


def remove_settings(db: Connection, source_n: int) -> None:
    """Remove the settings of a source before the source is removed."""
    for name in ("root", "encoding", "version", "metadata", "parsers"):
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
    """Return the name of a setting, with the source's id, since numbers are reused."""
    row: Any = db.execute("select id from sources where n = ?", (source_n,)).fetchone()
    return f"{name} of {row[0]}"
