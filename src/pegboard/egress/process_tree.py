"""Kin: find every process that a launched one has brought into the world, and end it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")


class Kin(NamedTuple):
    """One process, told apart from a later one with the same number by its start time (in clock ticks)."""

    pid: int
    started: int


class _Entry(NamedTuple):
    started: int
    parent: int
    group: int
    session: int
    is_zombie: bool


def find_kin(leader: int, *, known: Iterable[Kin] = (), pipes: frozenset[int] = frozenset()) -> frozenset[Kin]:
    """Return the living descendants of a session leader, itself included, and what lives of `known`.

    A process counts when it is in the leader's session or group, descends from a process that counts, or can still
    write to one of the leader's output pipes (`pipes`: inode numbers), which betrays a daemon that left its session
    after its parent died. A daemon that also closed those pipes cannot be found. Without /proc the answer is empty.
    """
    table = _process_table()
    ours = os.getpid()
    found = {kin.pid for kin in known if kin.pid in table and table[kin.pid].started == kin.started}
    found |= {pid for pid, entry in table.items() if leader in (pid, entry.group, entry.session)}
    found |= {pid for pid in table.keys() - found - {ours} if _writes_to(pid, pipes)}
    children: dict[int, list[int]] = {}
    for pid, entry in table.items():
        children.setdefault(entry.parent, []).append(pid)
    waiting = list(found)
    while waiting:
        fresh = [pid for pid in children.get(waiting.pop(), ()) if pid not in found]
        found.update(fresh)
        waiting.extend(fresh)
    return frozenset(Kin(pid, table[pid].started) for pid in found if pid != ours and not table[pid].is_zombie)


def living(kin: Iterable[Kin]) -> frozenset[Kin]:
    """Return those that still run; a zombie does not."""
    return frozenset(
        one for one in kin if (entry := _entry(one.pid)) and entry.started == one.started and not entry.is_zombie
    )


def signal_kin(kin: Iterable[Kin], signum: signal.Signals) -> None:
    """Send a signal to each, through a handle, so that a number given to a new process in between is spared."""
    for one in kin:
        with suppress(ProcessLookupError, PermissionError):
            handle = os.pidfd_open(one.pid)
            try:
                if living([one]):
                    signal.pidfd_send_signal(handle, signum)
            finally:
                os.close(handle)


def reap(kin: Iterable[Kin]) -> None:
    """Take the exit status of orphans that were given to us because we are process 1 or a subreaper."""
    for one in kin:
        with suppress(ChildProcessError):
            os.waitpid(one.pid, os.WNOHANG)


def _process_table() -> dict[int, _Entry]:
    if not _PROC.joinpath("self/stat").exists():
        return {}
    numbers = (int(folder.name) for folder in _PROC.iterdir() if folder.name.isdigit())
    return {pid: entry for pid in numbers if (entry := _entry(pid))}


def _entry(pid: int) -> _Entry | None:
    try:
        stat = _PROC.joinpath(str(pid), "stat").read_bytes()
    except OSError:
        return None
    # The name in parentheses may hold anything, so the fields are counted from its end. Source: proc(5).
    fields = stat[stat.rindex(b")") + 2 :].split()
    return _Entry(
        started=int(fields[19]),
        parent=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
        is_zombie=fields[0] in (b"Z", b"X"),
    )


def _writes_to(pid: int, pipes: frozenset[int]) -> bool:
    names = {f"pipe:[{inode}]" for inode in pipes}
    with suppress(OSError):
        for handle in _PROC.joinpath(str(pid), "fd").iterdir():
            # A forked copy of ourselves holds the reading ends only; the mode of the link tells them apart.
            with suppress(OSError):
                if str(handle.readlink()) in names and handle.lstat().st_mode & 0o200:
                    return True
    return False
