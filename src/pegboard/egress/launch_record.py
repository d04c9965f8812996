"""Launch record: the programs that this process launched, so that none outlives it.

Each process that launches programs has a folder that only its user may enter. It holds a lock for the lifetime of the
process, a line for each program, and the programs' private folders. A child (`reaper_child.py`) holds a pipe from the
process. When the process is killed, the child reads the record and kills the remaining programs. If the child was
killed too, the next process that launches a program does this. This module imports little of our code, since the reaper
starts with it.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from pegboard.egress.process_tree import ProcessId, find_tree, is_seen, signal_all, start_of

KILL_S = 2.0  # seconds for a killed program to disappear

try:
    import fcntl
except ImportError:  # not on Windows, where nothing can be found
    fcntl = None

_LOCK, _LAUNCHED = "lock", "launched"
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_REAPER = Path(__file__).with_name("reaper_child.py")
# The shell exits at once: the reaper has no parent in the host, so no host waits for it by mistake.
_DETACHED = '"$@" </dev/null >/dev/null 2>&1 &'
_POLL_S = 0.02


class Launched(NamedTuple):
    """One program: the leader of its session, and its output pipes (inode numbers)."""

    leader: ProcessId
    pipes: frozenset[int]


_UNRECORDED = Launched(ProcessId(-1, 0), frozenset())
"""A program without a line: no process has this number, so only those in a private folder of the record are found."""


class LaunchRecord:
    """The programs of this process. Created at the first launch; a forked child must not use it."""

    def __init__(self) -> None:
        self.folder: Path | None = None
        self._handles: list[int] = []
        self._guard = threading.Lock()

    def open(self) -> None:
        """Create the record and its reaper, once, after ending programs that dead processes left running."""
        with self._guard:
            if self.folder is not None or fcntl is None:
                return
            base = base_folder()
            if base is not None:
                end_left_behind(base)
            self.folder = Path(tempfile.mkdtemp(prefix="", dir=base) if base else tempfile.mkdtemp(prefix="pegboard-"))
            lock = os.open(self.folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file = os.open(self.folder / _LAUNCHED, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            os.write(file, f"boot {_boot()}\n".encode())
            self._handles = [file, lock, _start_reaper(self.folder)]

    def new_folder(self) -> Path:
        """Return a new empty folder that only our user may enter."""
        return Path(tempfile.mkdtemp(prefix="cwd-", dir=self.folder))

    def add(self, pid: int, pipes: frozenset[int]) -> None:
        """Record a started program."""
        started = start_of(pid)
        if self._handles and started is not None:
            self._write(f"start {pid} {started} {' '.join(map(str, sorted(pipes)))}")

    def remove(self, pid: int) -> None:
        """Remove a program that has ended with all its descendants."""
        if self._handles:
            self._write(f"end {pid}")

    def _write(self, line: str) -> None:
        with suppress(OSError):  # A full disk must not keep a program from ending.
            os.write(self._handles[0], f"{line}\n".encode())

    def forget(self) -> None:
        """Close the record's handles in a forked child, since they belong to the parent."""
        for handle in self._handles:
            with suppress(OSError):
                os.close(handle)
        self.folder, self._handles, self._guard = None, [], threading.Lock()

    def close(self) -> None:
        """Remove the record at normal exit. The reaper then finds nothing, and exits."""
        folder = self.folder
        if folder is not None and not any(_running(folder)):
            shutil.rmtree(folder, ignore_errors=True)


RECORD = LaunchRecord()
atexit.register(RECORD.close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=RECORD.forget)


def _start_reaper(folder: Path) -> int:
    """Start the child that outlives us; return our end of the pipe, whose closing signals our end."""
    theirs, ours = os.pipe()
    try:
        words = [sys.executable, "-I", "-S", "-B", str(_REAPER), str(theirs), str(folder)]
        with suppress(OSError):
            subprocess.run(  # noqa: S603 - our own program
                ["/bin/sh", "-c", _DETACHED, "sh", *words],
                pass_fds=(theirs,),
                stdin=subprocess.DEVNULL,
                env={},
                start_new_session=True,
                check=False,
            )
    finally:
        os.close(theirs)
    return ours


def base_folder() -> Path | None:
    """Return the folder of all records of this user; `None` if others can write every candidate."""
    user = os.getuid()
    for path in (Path(os.environ.get("XDG_RUNTIME_DIR") or "/nowhere") / "pegboard", _temporary() / f"pegboard-{user}"):
        if not path.parent.is_dir():
            continue
        with suppress(OSError):
            path.mkdir(mode=0o700, exist_ok=True)
            status = path.lstat()
            if stat.S_ISDIR(status.st_mode) and status.st_uid == user and not status.st_mode & 0o077:
                return path
    return None


def _temporary() -> Path:
    return Path(tempfile.gettempdir())


def _boot() -> str:
    with suppress(OSError):
        return _BOOT.read_text(encoding="ascii").strip()
    return ""


# ---- cleaning up after dead processes


def end_left_behind(base: Path) -> None:
    """End the programs of dead processes, and remove their records."""
    for folder in sorted(base.iterdir()):
        handle = _unheld_lock(folder)
        if handle is not None:
            try:
                end_recorded(folder)
            finally:
                os.close(handle)


def _unheld_lock(folder: Path) -> int | None:
    assert fcntl is not None
    handle = None
    with suppress(OSError):
        handle = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return handle
    if handle is not None:
        os.close(handle)
    return None


def end_recorded(folder: Path) -> None:
    """Kill every program of a record with all its descendants, and remove the record."""
    ends_at = time.monotonic() + KILL_S
    for each in _running(folder):
        _end(each, folder, ends_at)
    if is_seen():
        # The process may have been killed after it launched a program and before it recorded it.
        _end(_UNRECORDED, folder, ends_at)
    shutil.rmtree(folder, ignore_errors=True)


def _end(launched: Launched, folder: Path, ends_at: float) -> None:
    if not is_seen():
        with suppress(OSError):
            os.killpg(launched.leader.pid, signal.SIGKILL)
        return
    tree = frozenset[ProcessId]()
    while True:
        started = start_of(launched.leader.pid)
        # If the number was reused, no group or session with that number is ours.
        leader = launched.leader.pid if started in (None, launched.leader.started) else -1
        tree = find_tree(leader, known=tree, pipes=launched.pipes, folder=folder)
        if not tree or time.monotonic() > ends_at:
            return
        signal_all(tree, signal.SIGKILL)
        time.sleep(_POLL_S)


def _running(folder: Path) -> Iterator[Launched]:
    """Yield the remaining programs of a record, if it was written since the last boot."""
    try:
        lines = (folder / _LAUNCHED).read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return
    launched: dict[int, Launched] = {}
    for line in lines[1:] if lines[:1] == [f"boot {_boot()}"] else ():
        kind, *numbers = line.split()
        if not numbers or not all(number.isdigit() for number in numbers):
            continue
        pid, *rest = map(int, numbers)
        if kind == "start" and rest:
            launched[pid] = Launched(ProcessId(pid, rest[0]), frozenset(rest[1:]))
        else:
            launched.pop(pid, None)
    yield from launched.values()
