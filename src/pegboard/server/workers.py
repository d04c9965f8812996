"""Workers: several processes that answer on one socket, and the parent that starts, replaces and ends them.

The parent keeps the socket open, so connections in its queue are served even if a worker ends. The parent reads no
config and runs no user code. Each worker is forked from it and reads the files itself, so a new worker sees their
current contents. POSIX only.
"""

from __future__ import annotations

import mmap  # noqa: TID251 - memory, not a file
import os
import secrets
import select
import signal
import socket  # noqa: TID251 - it only listens
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

CONNECTIONS_AHEAD = 2  # a worker that leads another by this many leaves the next connection to it
WORKER_RESTART_S = 0.5  # the first wait before restarting a worker that keeps failing; doubled each time
WORKER_RESTART_MOST_S = 30.0  # the longest such wait
WORKER_SETTLED_S = 10.0  # a worker that ran this long is not counted as failing again
WORKER_END_S = 20.0  # how long a worker may take to end before it is killed

_READY, _DRAIN, _LEAVE, _REPLACED = b"r", b"d", b"l", b"p"
_REFUSED = 1  # the exit code if the first worker does not provide one


class WorkersError(PegboardError):
    """Workers cannot be started in this process."""


class Shares:
    """The number of connections of each worker, in memory shared with their parent."""

    _ABSENT = 0xFFFF_FFFF  # the count of a worker that accepts no connections

    def __init__(self, count: int) -> None:
        self._counts = memoryview(mmap.mmap(-1, 4 * count)).cast("I")
        for number in range(count):
            self.leave_out(number)

    def write(self, number: int, connections: int) -> None:
        """Publish the number of connections of a worker."""
        self._counts[number] = connections

    def leave_out(self, number: int) -> None:
        """Exclude a worker that does not run, so that no other leaves connections to it."""
        self._counts[number] = self._ABSENT

    def is_ahead(self, number: int, connections: int) -> bool:
        """Publish a worker's count; return True if another worker has so few that it should accept the next one."""
        self._counts[number] = connections
        return min(self._counts) + CONNECTIONS_AHEAD < connections


class Worker(CarriesCredentials, frozen=True, kw_only=True):
    """The values that the parent gives to one worker: a listening socket, a sealing key, and a link to the parent.

    `is_first` is set for the very first worker, which prints the server's address. Used consents are recorded in
    `answers` unless the config names a store. `refusals` has the reasons why the last reload was refused.
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
        """Tell the parent that this worker accepts calls."""
        with suppress(OSError):
            self.link.send(_READY)

    def order(self) -> str:
        """Return the parent's order, `drain`, `replaced` or `leave`; `""` without one, `gone` if the parent has ended.

        A worker that is `replaced` drains too: a successor with the current config answers in its place.
        """
        try:
            word = self.link.recv(1)
        except BlockingIOError:
            return ""
        except OSError:
            word = b""
        return {_DRAIN: "drain", _LEAVE: "leave", _REPLACED: "replaced"}.get(word, "gone")


class _Process(Struct, eq=False):
    """The parent's record of one worker process."""

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
    """The slot of one worker: its process, its successor during a reload, and when the next start is due.

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
        say: prints a message for the operator.
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
    """The last SIGHUP whose successor could not start; a later one gets its own attempt."""
    _refused_at: float = field(default=0.0, init=False)
    """When the worker of the latest refusal was started."""
    _ends_at: float | None = field(default=None, init=False)
    _was_ready: bool = field(default=False, init=False)

    def run(self) -> Worker | None:
        """Start and supervise the workers until a signal; return a `Worker` in each worker, and `None` in the parent.

        Raises:
            WorkersError: this process runs threads, which a fork would not copy.
        """
        if threading.active_count() > 1:
            raise WorkersError("Workers are forked, and this process runs threads already. Serve with one worker.")
        self._places = [_Place() for _ in range(self.count)]
        self._shares = Shares(self.count)
        self._key = secrets.token_bytes(SEALING_KEY_BYTES)
        # Listen from now on: connections before the first worker is ready wait instead of being refused.
        self.listening.listen(socket.SOMAXCONN)
        self.listening.setblocking(False)
        folder = Path(tempfile.mkdtemp(prefix="pegboard-"))
        self._answers, self._refusals = folder / "answers.db", WorkerRefusals(folder)
        with self._signals() as wake:
            worker = self._supervise(wake)
        if worker is None:
            with suppress(OSError):
                for file in folder.iterdir():
                    file.unlink()
                folder.rmdir()
        return worker

    # -- the loop

    def _supervise(self, wake: socket.socket) -> Worker | None:
        worker = self._start(self._places[0], 0)
        while worker is None and any((self._processes(), self._ends_at is None)):
            links = [process.link for process in self._processes() if not process.is_silent]
            readable, _, _ = select.select([wake, *links], [], [], self._time_left_s())
            for process in self._processes():
                if process.link in readable:
                    self._receive(process)
            if wake in readable:
                self._handle_signals(wake.recv(64))
            self._reap()
            worker = self._advance()
        return worker

    def _processes(self) -> list[_Process]:
        placed = [
            process for place in self._places for process in (place.process, place.successor) if process is not None
        ]
        return [*placed, *self._leaving]

    def _time_left_s(self) -> float | None:
        due = [place.due for place in self._places if place.due is not None]
        due += [] if self._ends_at is None else [self._ends_at]
        return max(0.0, min(due) - self.clock()) if due else None

    def _receive(self, process: _Process) -> None:
        word = b""
        with suppress(OSError):
            word = process.link.recv(1)
        if word == _READY:
            process.is_ready = self._was_ready = True
            if process.began >= self._refused_at:
                self._refusals.clear()
        # An empty read means that the process has ended or is about to; SIGCHLD follows.
        process.is_silent = not word

    def _handle_signals(self, numbers: bytes) -> None:
        for number in numbers:
            if number in (signal.SIGTERM, signal.SIGINT):
                self._end(0)
            elif number == signal.SIGHUP and self._ends_at is None:
                self._hangups += 1
                self.say(f"SIGHUP {self._hangups}: {self.count} workers are replaced, one after the other.")

    def _end(self, code: int) -> None:
        """Ask all workers to end; the second request makes them end at once."""
        word = _DRAIN if self._ends_at is None else _LEAVE
        self.exit_code = self.exit_code or code
        self._ends_at = self.clock() + WORKER_END_S if self._ends_at is None else self._ends_at
        for process in self._processes():
            self._send(process, word)

    def _send(self, process: _Process, word: bytes) -> None:
        process.is_ending = True
        with suppress(OSError):
            process.link.send(word)

    def _reap(self) -> None:
        for process in self._processes():
            pid, status = os.waitpid(process.pid, os.WNOHANG)
            if pid:
                process.link.close()
                self._ended(process, os.waitstatus_to_exitcode(status))

    def _ended(self, process: _Process, code: int) -> None:
        if process in self._leaving:
            self._leaving.remove(process)
            return
        place = self._places[process.number]
        if place.successor is process:
            place.successor = None
            if self._ends_at is None:
                # The other workers would fail on the same files, but a later SIGHUP may find different ones.
                self._refused_hangup = process.hangup
                self._refuse(process, f"The new worker {process.number + 1} {_exit_text(code)} before it answered.")
            return
        place.process = None
        self._shares.leave_out(process.number)
        if process.is_ending or self._ends_at is not None:
            return
        if not self._was_ready:
            # The very first worker failed and has reported why; the others would fail in the same way.
            self._end(code if code > 0 else _REFUSED)
            return
        lived_s = self.clock() - process.began
        place.failures = 0 if process.is_ready and lived_s >= WORKER_SETTLED_S else place.failures + 1
        wait_s = (
            0.0 if place.failures <= 1 else min(WORKER_RESTART_S * 2 ** (place.failures - 2), WORKER_RESTART_MOST_S)
        )
        place.due = self.clock() + wait_s
        when = "now" if not wait_s else f"in {wait_s:g} s"
        ended = f"Worker {process.number + 1} (process {process.pid}) {_exit_text(code)}"
        self.say(f"{ended}. Another takes its place {when}.")
        if self._refusals.has_report(process.pid):
            self._refuse(process, "")

    def _refuse(self, process: _Process, reason: str) -> None:
        """Log in one record why a worker could not start; the other workers report it in /healthz and /metrics."""
        self._refused_at = process.began
        problems = self._refusals.take(process.pid, reason=reason)
        log_refusal(problems, "The workers that already run stay.")

    def _advance(self) -> Worker | None:
        """Start, replace or kill workers as due; return a `Worker` in a newly started one."""
        if self._ends_at is not None:
            if self.clock() >= self._ends_at:
                for process in self._processes():
                    with suppress(ProcessLookupError):
                        os.kill(process.pid, signal.SIGKILL)
                self._ends_at = self.clock() + WORKER_END_S
            return None
        for number, place in enumerate(self._places):
            if place.successor is not None and place.successor.is_ready:
                if place.process is not None:
                    self._leaving.append(place.process)
                    self._send(place.process, _REPLACED)
                place.process, place.successor, place.failures, place.due = place.successor, None, 0, None
            is_due = place.due is not None and place.due <= self.clock()
            # Start the others after the first is ready, so that an invalid config is reported once.
            is_new = place.process is None and place.due is None and self._was_ready
            if is_due or is_new:
                worker = self._start(place, number)
                if worker is not None:
                    return worker
        if self._hangups > self._refused_hangup and self._was_ready:
            # Replace one worker at a time, after the previous successor is ready: the number of workers never drops.
            earlier = [number for number, place in enumerate(self._places) if place.hangup < self._hangups]
            if earlier and all(place.successor is None for place in self._places):
                return self._start(self._places[earlier[0]], earlier[0])
        return None

    # -- one worker

    def _start(self, place: _Place, number: int) -> Worker | None:
        """Fork a worker; return a `Worker` in the child, and `None` in the parent."""
        ours, theirs = socket.socketpair()
        is_first = not self._was_ready and number == 0
        place.hangup, place.due = self._hangups, None
        pid = os.fork()  # noqa: TID251 - a copy of this process, not a program
        if pid:
            theirs.close()
            process = _Process(pid, number, ours, self.clock(), self._hangups)
            if place.process is None:
                place.process = process
            else:
                place.successor = process
            return None
        # Ctrl-C on a terminal must reach only the parent, which ends its workers in order.
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
        """Yield a socket that receives the numbers of signals."""
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
    """Do nothing: a signal needs a handler for its number to reach the socket."""


def _exit_text(code: int) -> str:
    if code >= 0:
        return f"ended with code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
