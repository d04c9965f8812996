"""Launch record: which programs this process has launched, so that none outlives it, however it ends.

A folder for each process that launches, which only its user may enter: a lock that is held as long as the process
lives, a line for each program, and the private folders in which programs run. When the process is killed, a child of
its own (`reaper_child.py`), which holds a pipe from it, reads the record and ends what still runs; should that be
killed as well, the next process that launches something does. It imports little of ours, as the reaper
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

KILL_S = 2.0  # for what was killed to be gone

try:
    import fcntl
except ImportError:  # not on Windows, where nothing is left to be found
    fcntl = None

_LOCK, _LAUNCHED = "lock", "launched"
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_REAPER = Path(__file__).with_name("reaper_child.py")
# The shell goes home at once: the reaper is nobody's child, so that no host waits for it by mistake.
_DETACHED = '"$@" </dev/null >/dev/null 2>&1 &'
_POLL_S = 0.02


class Launched(NamedTuple):
    """One program: the leader of its session, and the pipes that it writes to (inode numbers)."""

    leader: ProcessId
    pipes: frozenset[int]


class LaunchRecord:
    """The programs of this process. Made at the first launch; what a fork inherits of it belongs to the parent."""

    def __init__(self) -> None:
        self.folder: Path | None = None
        self._handles: list[int] = []
        self._guard = threading.Lock()

    def open(self) -> None:
        """Make the record and its reaper, once, after what others have left behind was ended."""
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
        """Return a new empty folder that only we may enter."""
        return Path(tempfile.mkdtemp(prefix="cwd-", dir=self.folder))

    def add(self, pid: int, pipes: frozenset[int]) -> None:
        """Record a program that was started."""
        started = start_of(pid)
        if self._handles and started is not None:
            self._write(f"start {pid} {started} {' '.join(map(str, sorted(pipes)))}")

    def remove(self, pid: int) -> None:
        """Record that nothing of a program is left."""
        if self._handles:
            self._write(f"end {pid}")

    def _write(self, line: str) -> None:
        with suppress(OSError):  # A full disk must not keep a program from ending.
            os.write(self._handles[0], f"{line}\n".encode())

    def forget(self) -> None:
        """Let go of the record in a child that was forked: its handles are the parent's."""
        for handle in self._handles:
            with suppress(OSError):
                os.close(handle)
        self.folder, self._handles, self._guard = None, [], threading.Lock()

    def close(self) -> None:
        """Remove the record when the process ends in good order. The reaper finds nothing, and ends."""
        folder = self.folder
        if folder is not None and not any(_running(folder)):
            shutil.rmtree(folder, ignore_errors=True)


RECORD = LaunchRecord()
atexit.register(RECORD.close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=RECORD.forget)


def _start_reaper(folder: Path) -> int:
    """Start the child that outlives us; returns our end of the pipe that tells it of our end."""
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
    """Return the folder of all records of this user; `None` where there is none that others cannot write."""
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


# ---- what a process that is gone has left


def end_left_behind(base: Path) -> None:
    """End what runs of processes that are gone, and remove their records."""
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
    """Kill every program of a record with all that it started, and remove the record."""
    ends_at = time.monotonic() + KILL_S
    for each in _running(folder):
        _end(each, folder, ends_at)
    shutil.rmtree(folder, ignore_errors=True)


def _end(launched: Launched, folder: Path, ends_at: float) -> None:
    if not is_seen():
        with suppress(OSError):
            os.killpg(launched.leader.pid, signal.SIGKILL)
        return
    tree = frozenset[ProcessId]()
    while True:
        started = start_of(launched.leader.pid)
        # Where the number is another's by now, no group and no session of that number is ours.
        leader = launched.leader.pid if started in (None, launched.leader.started) else -1
        tree = find_tree(leader, known=tree, pipes=launched.pipes, folder=folder)
        if not tree or time.monotonic() > ends_at:
            return
        signal_all(tree, signal.SIGKILL)
        time.sleep(_POLL_S)


def _running(folder: Path) -> Iterator[Launched]:
    """Yield the programs of a record that were not ended, if it is of this run of the machine."""
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
