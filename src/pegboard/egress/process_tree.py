"""Process tree: finds all descendants of a launched process, and ends them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

PROGRAM_ID = "PEGBOARD_PROGRAM_ID"
"""The environment variable that names the config and its entry that a program runs for. Descendants inherit it."""

_PROC = Path("/proc")


class ProcessId(NamedTuple):
    """One process, distinguished from a later one with the same number by its start time (in clock ticks)."""

    pid: int
    started: int


class _Entry(NamedTuple):
    started: int
    parent: int
    group: int
    session: int
    is_zombie: bool
    is_stopped: bool


def find_tree(
    leader: int,
    *,
    known: Iterable[ProcessId] = (),
    pipes: frozenset[int] = frozenset(),
    folder: Path | None = None,
) -> frozenset[ProcessId]:
    """Return the living descendants of a session leader, including itself, and the living ones of `known`.

    A process counts if it is in the leader's session or group, or descends from a process that counts. A process
    younger than the leader also counts if it can write to one of its output pipes (`pipes`: inode numbers) or runs in
    its private `folder`; this finds a daemon that left the session. A daemon that also closed the pipes and changed its
    folder cannot be found. Without /proc the result is empty.
    """
    table = _process_table()
    ours = os.getpid()
    tree = {each.pid for each in known if each.pid in table and table[each.pid].started == each.started}
    tree |= {pid for pid, entry in table.items() if leader in (pid, entry.group, entry.session)}
    home = None if folder is None else os.path.realpath(folder)
    names = frozenset(f"pipe:[{inode}]" for inode in pipes)
    # Processes older than the leader are not its descendants, so most files of a busy machine are not read.
    births = {pid: entry.started for pid, entry in table.items()} | {each.pid: each.started for each in known}
    born = births.get(leader, 0)
    younger = {pid for pid, entry in table.items() if entry.started >= born}
    tree |= {pid for pid in younger - tree - {ours} if _writes_to(pid, names) or _is_at_home(pid, home)}
    children: dict[int, list[int]] = {}
    for pid, entry in table.items():
        children.setdefault(entry.parent, []).append(pid)
    waiting = list(tree)
    while waiting:
        fresh = [pid for pid in children.get(waiting.pop(), ()) if pid not in tree]
        tree.update(fresh)
        waiting.extend(fresh)
    return frozenset(ProcessId(pid, table[pid].started) for pid in tree if pid != ours and not table[pid].is_zombie)


def living(processes: Iterable[ProcessId]) -> frozenset[ProcessId]:
    """Return the processes that still run, without zombies."""

    def lives(process: ProcessId) -> bool:
        entry = _entry(process.pid)
        return entry is not None and entry.started == process.started and not entry.is_zombie

    return frozenset(filter(lives, processes))


def signal_all(processes: Iterable[ProcessId], signum: signal.Signals) -> None:
    """Send a signal to each process through a handle, so that a reused number is not hit."""
    for each in processes:
        with suppress(ProcessLookupError, PermissionError):
            handle = os.pidfd_open(each.pid)
            try:
                if living([each]):
                    signal.pidfd_send_signal(handle, signum)
            finally:
                os.close(handle)


def is_seen() -> bool:
    """Tell whether the process table can be read here."""
    return _PROC.joinpath("self/stat").exists()


def start_of(pid: int) -> int | None:
    """Return the start time of a running process, in clock ticks; `None` if there is none."""
    entry = _entry(pid)
    return None if entry is None or entry.is_zombie else entry.started


def stopped_programs() -> list[tuple[int, str]]:
    """Return the number and the program id of each process that a signal has stopped.

    Processes without an id are left out, and those whose environment we may not read. Without /proc there are none.
    """
    numbers = sorted(pid for pid, entry in _process_table().items() if entry.is_stopped)
    return [(pid, program_id) for pid in numbers if (program_id := _program_id(pid))]


def _program_id(pid: int) -> str:
    try:
        variables = _PROC.joinpath(str(pid), "environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    start = f"{PROGRAM_ID}=".encode()
    return next((os.fsdecode(each.removeprefix(start)) for each in variables if each.startswith(start)), "")


def reap(processes: Iterable[ProcessId]) -> None:
    """Reap orphans that became our children because we are process 1 or a subreaper."""
    for each in processes:
        with suppress(ChildProcessError):
            os.waitpid(each.pid, os.WNOHANG)


def _process_table() -> dict[int, _Entry]:
    if not is_seen():
        return {}
    numbers = (int(folder.name) for folder in _PROC.iterdir() if folder.name.isdigit())
    return {pid: entry for pid in numbers if (entry := _entry(pid))}


def _entry(pid: int) -> _Entry | None:
    try:
        stat = _PROC.joinpath(str(pid), "stat").read_bytes()
    except OSError:
        return None
    # The name in parentheses may contain anything, so fields are counted after its end. Source: proc(5).
    fields = stat[stat.rindex(b")") + 2 :].split()
    return _Entry(
        started=int(fields[19]),
        parent=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
        is_zombie=fields[0] in (b"Z", b"X"),
        # Not `t`: a debugger continues the process itself.
        is_stopped=fields[0] == b"T",
    )


def _is_at_home(pid: int, home: str | None) -> bool:
    if home is None:
        return False
    with suppress(OSError):
        # The kernel appends a word to the path of a folder that was removed.
        place = str(_PROC.joinpath(str(pid), "cwd").readlink())
        return place.removesuffix(" (deleted)") == home or place.startswith(f"{home}/")
    return False


def _writes_to(pid: int, names: frozenset[str]) -> bool:
    if not names:
        return False
    with suppress(OSError):
        for handle in _PROC.joinpath(str(pid), "fd").iterdir():
            # A forked copy of ourselves holds the reading ends only; the mode of the link shows which.
            with suppress(OSError):
                if str(handle.readlink()) in names and handle.lstat().st_mode & 0o200:
                    return True
    return False
