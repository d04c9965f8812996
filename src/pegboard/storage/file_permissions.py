"""File permissions: finds users other than the operator who may change a config or a store."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from pegboard.model.error import Problem
from pegboard.platforms import platform

try:
    import grp
    import pwd
except ImportError:  # not on Windows, whose access lists say nothing here
    grp = pwd = None

SIDE_FILES = ("", "-wal", "-shm", "-journal")
"""The endings of the names of an SQLite database and of the files that SQLite keeps next to it."""


def permission_faults(paths: Iterable[Path]) -> Iterator[Problem]:
    """Yield a problem for each of these files, and for each folder above one, that other users may write.

    Root does not count as another user. A user who can write a folder can replace the files in it, and add files.
    """
    if grp is None:
        return
    seen = set[Path]()
    for path in paths:
        for place in {path.absolute(), Path(os.path.realpath(path))}:
            for each in (place, *place.parents):
                if each not in seen:
                    seen.add(each)
                    yield from _faults_of(each, is_beside=each == place.parent)


def store_faults(path: Path) -> Iterator[Problem]:
    """Yield a problem if other users may write the file of a store, SQLite's files next to it, or its folder.

    In a sticky folder such as /tmp others cannot replace our files. Root also trusts the owner of the folder: a folder
    that is mounted into a container keeps the owner that it has on the host.
    """
    if grp is None:
        return
    for place in dict.fromkeys((path.absolute(), Path(os.path.realpath(path)))):
        trusted = _owner_of_folder(place) if os.getuid() == 0 else None
        for end in SIDE_FILES:
            yield from _faults_of(place.with_name(f"{place.name}{end}"), is_beside=False, trusted=trusted)
        yield from _faults_of(place.parent, is_beside=False, trusted=trusted)


def _owner_of_folder(path: Path) -> int | None:
    with suppress(OSError):
        return path.parent.stat().st_uid
    return None


def _faults_of(path: Path, *, is_beside: bool, trusted: int | None = None) -> Iterator[Problem]:
    try:
        status = path.stat()
    except OSError:
        return
    is_folder = stat.S_ISDIR(status.st_mode)
    # In a sticky folder such as /tmp others cannot replace our files, but they can add some.
    if is_folder and status.st_mode & stat.S_ISVTX and not is_beside:
        return
    what = f"{'the folder ' if is_folder else ''}{str(path)!r}"
    if platform.is_of_another_user(status) and status.st_uid != trusted:
        text = f"{what} belongs to another user ({_user(status.st_uid)}), who may change it"
        yield Problem(where=str(path), message=f"{text}; give it to the user that runs Pegboard: chown")
    elif status.st_mode & stat.S_IWOTH:
        yield Problem(where=str(path), message=f"{what} may be written by everybody; run chmod o-w {path}")
    elif status.st_mode & stat.S_IWGRP and not _is_private(status.st_gid, status.st_uid):
        yield Problem(where=str(path), message=f"{what} may be written by its group; run chmod g-w {path}")


def _is_private(group: int, user: int) -> bool:
    """Tell whether a group is a user's own, as many systems make one for each."""
    assert grp is not None
    with suppress(KeyError):
        entry, name = grp.getgrgid(group), _user(user)
        return entry.gr_name == name and set(entry.gr_mem) <= {name}
    return False


def _user(number: int) -> str:
    assert pwd is not None
    with suppress(KeyError):
        return pwd.getpwuid(number).pw_name
    return str(number)
