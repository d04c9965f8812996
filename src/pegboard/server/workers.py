"""Workers: several processes that answer on one socket, and the parent that starts, replaces and ends them.

The parent keeps the socket open, so what waits in its queue meets the next worker, whichever ends. It reads no config
and runs no code of anybody's: each worker is forked from it and reads everything itself, so a new one has what the
files say now. POSIX alone.
"""

from __future__ import annotations

import mmap  # noqa: TID251 - memory, and no file
import os
import secrets
import select
import signal
import socket  # noqa: TID251 - listens, and calls nobody
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from msgspec import Struct

from pegboard.model.error import PegboardError
from pegboard.model.record import CarriesCredentials
from pegboard.server.limits import SEALING_KEY_BYTES
from pegboard.server.worker_refusals import WorkerRefusals
from pegboard.telemetry.reload_log import log_refusal

CONNECTIONS_AHEAD = 2  # more than another has, up to which a worker takes the next at once
WORKER_RESTART_S = 0.5  # before one that fails again and again is started once more; doubled each time
WORKER_RESTART_MOST_S = 30.0  # up to this
WORKER_SETTLED_S = 10.0  # one that lived for this long did not fail again
WORKER_END_S = 20.0  # for a worker to end, before it is killed

_READY, _DRAIN, _LEAVE = b"r", b"d", b"l"
_REFUSED = 1  # the exit code of a worker that says nothing else


class WorkersError(PegboardError):
    """Workers cannot be had here."""


class Shares:
    """How many connections each worker has, in memory that they and their parent share."""

    _ABSENT = 0xFFFF_FFFF  # the count of a worker that takes none

    def __init__(self, count: int) -> None:
        self._counts = memoryview(mmap.mmap(-1, 4 * count)).cast("I")
        for number in range(count):
            self.leave_out(number)

    def write(self, number: int, connections: int) -> None:
        """Tell the others how many a worker has."""
        self._counts[number] = connections

    def leave_out(self, number: int) -> None:
        """Let nobody wait for a worker that is not there."""
        self._counts[number] = self._ABSENT

    def is_ahead(self, number: int, connections: int) -> bool:
        """Tell whether another has so many fewer that it shall have the next."""
        self._counts[number] = connections
        return min(self._counts) + CONNECTIONS_AHEAD < connections


class Worker(CarriesCredentials, frozen=True, kw_only=True):
    """What one worker has of its parent: the socket to listen on, a key to seal with, and the way back.

    `is_first` is set for the first of all, which says where the server is. Answers of people that were used are
    remembered in `answers`, unless the config says where. `refusals` has the reasons why the last reload was refused.
    """

    number: int
    count: int
    is_first: bool
    listening: socket.socket
    key: bytes
    answers: Path
    refusals: WorkerRefusals
    link: socket.socket
    shares: Shares

    def ready(self) -> None:
        """Tell the parent that calls are answered."""
        with suppress(OSError):
            self.link.send(_READY)

    def told(self) -> str:
        """Return what the parent says: `drain` or `leave`; `gone` where there is none any more."""
        try:
            word = self.link.recv(1)
        except BlockingIOError:
            return ""
        except OSError:
            word = b""
        return {_DRAIN: "drain", _LEAVE: "leave"}.get(word, "gone")


class _Process(Struct, eq=False):
    """One worker, as its parent sees it."""

    pid: int
    number: int
    link: socket.socket
    began: float
    hangup: int
    """The number of the last SIGHUP before it was forked."""
    is_ready: bool = False
    is_silent: bool = False
    is_ending: bool = False


class _Place(Struct):
    """The place of one worker: its process, the successor of that, and when the next start is due.

    `hangup` is the number of the last SIGHUP before the latest start in this place.
    """

    process: _Process | None = None
    successor: _Process | None = None
    failures: int = 0
    due: float | None = None
    hangup: int = 0


@dataclass(kw_only=True)
class Workers:
    """The parent.

    Args:
        count: how many workers there are.
        listening: the bound socket.
        say: told what an operator should know.
        clock: a monotonic clock in seconds.
    """

    count: int
    listening: socket.socket
    say: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    exit_code: int = 0
    _places: list[_Place] = field(init=False)
    _leaving: list[_Process] = field(default_factory=list[_Process], init=False)
    _hangups: int = field(default=0, init=False)
    _refused_hangup: int = field(default=0, init=False)
    """The last SIGHUP after which a successor could not start; a later one gets its own attempt."""
    _refused_at: float = field(default=0.0, init=False)
    """When the worker of the latest refusal was started."""
    _ends_at: float | None = field(default=None, init=False)
    _was_ready: bool = field(default=False, init=False)

    def run(self) -> Worker | None:
        """Start the workers and look after them until a signal; return in each worker, and at the end `None`.

        Raises:
            WorkersError: this process runs threads, which a fork would not copy.
        """
        if threading.active_count() > 1:
            raise WorkersError("Workers are forked, and this process runs threads already. Serve with one worker.")
        self._places = [_Place() for _ in range(self.count)]
        self._shares = Shares(self.count)
        self._key = secrets.token_bytes(SEALING_KEY_BYTES)
        # Listening from now on: who comes before the first worker is ready waits, and is not refused.
        self.listening.listen(socket.SOMAXCONN)
        self.listening.setblocking(False)
        folder = Path(tempfile.mkdtemp(prefix="pegboard-"))
        self._answers, self._refusals = folder / "answers.db", WorkerRefusals(folder)
        with self._signals() as wake:
            worker = self._look_after(wake)
        if worker is None:
            with suppress(OSError):
                for file in folder.iterdir():
                    file.unlink()
                folder.rmdir()
        return worker

    # -- the loop

    def _look_after(self, wake: socket.socket) -> Worker | None:
        worker = self._start(self._places[0], 0)
        while worker is None and any((self._processes(), self._ends_at is None)):
            links = [one.link for one in self._processes() if not one.is_silent]
            readable, _, _ = select.select([wake, *links], [], [], self._patience_s())
            for one in self._processes():
                if one.link in readable:
                    self._hear(one)
            if wake in readable:
                self._take_signals(wake.recv(64))
            self._reap()
            worker = self._move_on()
        return worker

    def _processes(self) -> list[_Process]:
        placed = [one for place in self._places for one in (place.process, place.successor) if one is not None]
        return [*placed, *self._leaving]

    def _patience_s(self) -> float | None:
        due = [place.due for place in self._places if place.due is not None]
        due += [] if self._ends_at is None else [self._ends_at]
        return max(0.0, min(due) - self.clock()) if due else None

    def _hear(self, one: _Process) -> None:
        word = b""
        with suppress(OSError):
            word = one.link.recv(1)
        if word == _READY:
            one.is_ready = self._was_ready = True
            if one.began >= self._refused_at:
                self._refusals.clear()
        # It has ended, or is about to: the signal of that comes.
        one.is_silent = not word

    def _take_signals(self, numbers: bytes) -> None:
        for number in numbers:
            if number in (signal.SIGTERM, signal.SIGINT):
                self._end(0)
            elif number == signal.SIGHUP and self._ends_at is None:
                self._hangups += 1
                self.say(f"SIGHUP {self._hangups}: {self.count} workers are replaced, one after the other.")

    def _end(self, code: int) -> None:
        """Let all workers end; at the second time at once."""
        word = _DRAIN if self._ends_at is None else _LEAVE
        self.exit_code = self.exit_code or code
        self._ends_at = self.clock() + WORKER_END_S if self._ends_at is None else self._ends_at
        for one in self._processes():
            self._tell(one, word)

    def _tell(self, one: _Process, word: bytes) -> None:
        one.is_ending = True
        with suppress(OSError):
            one.link.send(word)

    def _reap(self) -> None:
        for one in self._processes():
            pid, status = os.waitpid(one.pid, os.WNOHANG)
            if pid:
                one.link.close()
                self._ended(one, os.waitstatus_to_exitcode(status))

    def _ended(self, one: _Process, code: int) -> None:
        if one in self._leaving:
            self._leaving.remove(one)
            return
        place = self._places[one.number]
        if place.successor is one:
            place.successor = None
            if self._ends_at is None:
                # What is wrong for one is wrong for all, but a later SIGHUP may have other files.
                self._refused_hangup = one.hangup
                self._refuse(one, f"The new worker {one.number + 1} {_how(code)} before it answered.")
            return
        place.process = None
        self._shares.leave_out(one.number)
        if one.is_ending or self._ends_at is not None:
            return
        if not self._was_ready:
            # The very first: what is wrong is wrong for all of them, and it has said so.
            self._end(code if code > 0 else _REFUSED)
            return
        lived_s = self.clock() - one.began
        place.failures = 0 if one.is_ready and lived_s >= WORKER_SETTLED_S else place.failures + 1
        wait_s = (
            0.0 if place.failures <= 1 else min(WORKER_RESTART_S * 2 ** (place.failures - 2), WORKER_RESTART_MOST_S)
        )
        place.due = self.clock() + wait_s
        when = "now" if not wait_s else f"in {wait_s:g} s"
        self.say(f"Worker {one.number + 1} (process {one.pid}) {_how(code)}. Another takes its place {when}.")
        if self._refusals.has_report(one.pid):
            self._refuse(one, "")

    def _refuse(self, one: _Process, reason: str) -> None:
        """Log in one record why a worker could not start; the other workers report it in /healthz and /metrics."""
        self._refused_at = one.began
        problems = self._refusals.take(one.pid, reason=reason)
        log_refusal(problems, "The workers that already run stay.")

    def _move_on(self) -> Worker | None:
        """Do what is due; return in a worker that was started."""
        if self._ends_at is not None:
            if self.clock() >= self._ends_at:
                for one in self._processes():
                    with suppress(ProcessLookupError):
                        os.kill(one.pid, signal.SIGKILL)
                self._ends_at = self.clock() + WORKER_END_S
            return None
        for number, place in enumerate(self._places):
            if place.successor is not None and place.successor.is_ready:
                if place.process is not None:
                    self._leaving.append(place.process)
                    self._tell(place.process, _DRAIN)
                place.process, place.successor, place.failures, place.due = place.successor, None, 0, None
            is_due = place.due is not None and place.due <= self.clock()
            # The others wait until the first answers: what is wrong with a config is told once.
            is_new = place.process is None and place.due is None and self._was_ready
            if is_due or is_new:
                worker = self._start(place, number)
                if worker is not None:
                    return worker
        if self._hangups > self._refused_hangup and self._was_ready:
            # One by one, each when the successor before it answers: at no time are there fewer workers.
            earlier = [number for number, place in enumerate(self._places) if place.hangup < self._hangups]
            if earlier and all(place.successor is None for place in self._places):
                return self._start(self._places[earlier[0]], earlier[0])
        return None

    # -- one worker

    def _start(self, place: _Place, number: int) -> Worker | None:
        """Fork a worker; return in it what it has of us, and `None` here."""
        ours, theirs = socket.socketpair()
        is_first = not self._was_ready and number == 0
        place.hangup, place.due = self._hangups, None
        pid = os.fork()  # noqa: TID251 - a copy of ourselves, and no program
        if pid:
            theirs.close()
            one = _Process(pid, number, ours, self.clock(), self._hangups)
            if place.process is None:
                place.process = one
            else:
                place.successor = one
            return None
        # Ctrl-C on a terminal is for the parent, which lets its workers end in order.
        os.setpgid(0, 0)
        ours.close()
        for other in self._processes():
            other.link.close()
        theirs.setblocking(False)
        return Worker(
            number=number, count=self.count, is_first=is_first, listening=self.listening, key=self._key,
            answers=self._answers, refusals=self._refusals, link=theirs, shares=self._shares,
        )  # fmt: skip

    @contextmanager
    def _signals(self) -> Generator[socket.socket]:
        """Give a socket on which the numbers of signals arrive."""
        wake, write = socket.socketpair()
        for one in (wake, write):
            one.setblocking(False)
        numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
        before = {number: signal.signal(number, _wake) for number in numbers}
        woken = signal.set_wakeup_fd(write.fileno(), warn_on_full_buffer=False)
        try:
            yield wake
        finally:
            signal.set_wakeup_fd(woken)
            for number, handler in before.items():
                signal.signal(number, handler)
            wake.close()
            write.close()


def _wake(_number: int, _frame: FrameType | None) -> None:
    """Let the number arrive on the socket; a signal without a handler would not."""


def _how(code: int) -> str:
    if code >= 0:
        return f"ended with code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
