"""File permissions: who beside the operator may change what a config is read from. Its text decides what runs."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from pegboard.model.error import Problem
from pegboard.platforms import platform

PYTHON_FILES = 2_000  # of one package beside a config, whose rights are looked at

try:
    import grp
    import pwd
except ImportError:  # not on Windows, whose access lists say nothing here
    grp = pwd = None


def permission_faults(paths: Iterable[Path]) -> Iterator[Problem]:
    """Yield a problem for each of these files, and for each folder on the way to one, that others may write.

    Others are all but the user that runs this and the system's own. Who may write a folder can put another file in
    the place of one, and one that is read where there was none.
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


def python_beside(folder: Path) -> Iterator[Path]:
    """Yield the Python files that a config in this folder may name: modules, and packages with all that is in them."""
    yield from folder.glob("*.py")
    packages = {path.parent for path in folder.glob("*/*.py") if path.parent.name.isidentifier()}
    for package in sorted(packages):
        yield from islice(package.rglob("*.py"), PYTHON_FILES)


def _faults_of(path: Path, *, is_beside: bool) -> Iterator[Problem]:
    try:
        status = path.stat()
    except OSError:
        return
    is_folder = stat.S_ISDIR(status.st_mode)
    # In a sticky folder such as /tmp others cannot replace what is ours, but add to it.
    if is_folder and status.st_mode & stat.S_ISVTX and not is_beside:
        return
    what = f"{'the folder ' if is_folder else ''}{str(path)!r}"
    if platform.is_of_another_user(status):
        text = f"{what} belongs to another user ({_user(status.st_uid)}), who may change what is run here"
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
