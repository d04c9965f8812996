"""Process: launches and stops external programs."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from types import TracebackType
from typing import Self

from pegboard.core.after_fork import Threads
from pegboard.egress.launch_record import KILL_S, RECORD
from pegboard.egress.process_pipes import PIPE_LINGER_S, ProcessPipes
from pegboard.egress.process_tree import ProcessId, find_tree, living, reap, signal_all
from pegboard.model.bounds import DEFAULT_BOUNDS
from pegboard.model.error import CallError
from pegboard.platforms import platform

STOP_GRACE_S = 2.0  # seconds for a program to exit before it is killed

_log = logging.getLogger(__name__)
_INHERITED = ("PATH", "HOME", "LANG", "TERM")
_SYSTEM_PATH = "/usr/bin:/bin:/usr/sbin:/sbin:/run/current-system/sw/bin"
_PROGRAMS = (b"\x7fELF", b"#!")
# Windows has no umask.
_UMASK = 0o077 if os.name == "posix" else -1
_POLL_S = 0.02
# Reading the process table takes milliseconds; separate threads cannot be blocked by tools that hang.
_TABLE_READERS = Threads(2, name="pegboard-process-table")


def clean_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return PATH, HOME, LANG and TERM of our environment and the variables in `extra`; nothing else."""
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    return inherited | dict(extra or {})


async def launch(
    command: str,
    args: Sequence[str] = (),
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    line_bytes: int = DEFAULT_BOUNDS.message_line_bytes,
    stderr_bytes: int = DEFAULT_BOUNDS.stderr_ring_bytes,
    keeps_returns: bool = False,
) -> Process:
    """Start a program without a shell, in its own session, with a clean environment and only its three pipes.

    It ends with this process, however that ends: on Linux the kernel kills it, and a reaper its descendants. Its new
    files are readable by this user only. Without `cwd` it runs in a new empty folder, which is removed at its end.

    `env` adds variables to PATH, HOME, LANG and TERM. `line_bytes` limits a line of its stdout; `stderr_bytes` is how
    much of the end of its stderr is kept. `keeps_returns` keeps a carriage return at the end of a line.

    Raises:
        CallError: upstream_unavailable if it cannot be started.
    """
    if platform.NO_PROGRAMS is not None:
        text = f"The command {command!r} cannot be started: {platform.NO_PROGRAMS}."
        raise CallError("upstream_unavailable", text, retryable=False)
    RECORD.open()
    folder = RECORD.new_folder() if cwd is None else None
    try:
        popen = _spawn(command, args, clean_environment(env), cwd or folder)
    except BaseException:
        _remove(folder)
        raise
    pipes = ProcessPipes(command, line_bytes=line_bytes, stderr_bytes=stderr_bytes, keeps_returns=keeps_returns)
    # Shielded from cancellation: otherwise the event loop would watch a closed pipe.
    starting = asyncio.create_task(_attach(pipes, popen, folder))
    try:
        await asyncio.shield(starting)
    except asyncio.CancelledError:
        await asyncio.shield(asyncio.create_task(_abandon(starting, Process(pipes, popen, folder))))
        raise
    return Process(pipes, popen, folder)


async def _attach(pipes: ProcessPipes, popen: subprocess.Popen[bytes], folder: Path | None) -> None:
    assert popen.stdin is not None
    assert popen.stdout is not None
    assert popen.stderr is not None
    try:
        RECORD.add(popen.pid, frozenset(os.fstat(pipe.fileno()).st_ino for pipe in (popen.stdout, popen.stderr)))
        _watch_exit(popen, pipes)
        await pipes.attach(popen.stdin, popen.stdout, popen.stderr)
    except OSError as exc:
        popen.kill()
        popen.wait()
        RECORD.remove(popen.pid)
        _remove(folder)
        for pipe in (popen.stdin, popen.stdout, popen.stderr):
            pipe.close()
        text = f"The command {popen.args!r} cannot be started: {exc.strerror}. Try again later."
        raise CallError("upstream_unavailable", text) from None


async def _abandon(starting: asyncio.Task[None], process: Process) -> None:
    with suppress(CallError):
        await starting
        await process.stop(grace_s=0)


def _watch_exit(popen: subprocess.Popen[bytes], pipes: ProcessPipes) -> None:
    """Notify the pipes when the program has exited, and read its exit status."""
    loop = asyncio.get_running_loop()
    if not hasattr(os, "pidfd_open"):
        threading.Thread(target=lambda: (popen.wait(), loop.call_soon_threadsafe(pipes.on_exit)), daemon=True).start()
        return
    handle = os.pidfd_open(popen.pid)

    def ended() -> None:
        loop.remove_reader(handle)
        os.close(handle)
        popen.wait()
        pipes.on_exit()

    loop.add_reader(handle, ended)


def _spawn(
    command: str, args: Sequence[str], env: Mapping[str, str], cwd: str | Path | None
) -> subprocess.Popen[bytes]:
    if cwd is not None and not Path(cwd).is_dir():
        text = f"{command!r} cannot be started: its working directory {str(cwd)!r} does not exist. Create it."
        raise CallError("upstream_unavailable", text, retryable=False)
    try:
        return subprocess.Popen(  # noqa: S603  (an argument list from the operator, never a shell)
            [*_dies_with_us(command, env, cwd), command, *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            cwd=cwd,
            bufsize=0,
            close_fds=True,
            start_new_session=True,
            umask=_UMASK,
        )
    except FileNotFoundError:
        text = f"The command {command!r} is not found. Install it, or give its whole path."
        raise CallError("upstream_unavailable", text, retryable=False) from None
    except (OSError, ValueError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else str(exc)
        text = f"The command {command!r} cannot be started: {reason}. Correct it."
        raise CallError("upstream_unavailable", text, retryable=False) from None


def check_program(command: str, *, cwd: str | Path) -> None:
    """Check that `launch` would find a program.

    Raises:
        FileNotFoundError: there is none.
    """
    place = str(Path(cwd, command)) if os.sep in command else command
    if shutil.which(place, path=clean_environment().get("PATH", os.defpath)) is None:
        raise FileNotFoundError(f"The command {command!r} is not found. Install it, or give its whole path.")


def _dies_with_us(command: str, env: Mapping[str, str], cwd: str | Path | None) -> list[str]:
    """Return the command prefix that lets the kernel kill a program when the thread that started it ends.

    That is the event loop's thread. Empty if the system has no such program, and for a file that is neither a binary
    nor a script with an interpreter line, which `execvp` would pass to a shell.
    """
    setpriv = _setpriv()
    if setpriv is None:
        return []
    place = Path(cwd or ".", command) if os.sep in command else shutil.which(command, path=env.get("PATH", os.defpath))
    with suppress(OSError):
        if place is not None and os.access(place, os.X_OK):
            with Path(place).open("rb") as file:
                return [setpriv, "--pdeathsig", "KILL", "--"] if file.read(4).startswith(_PROGRAMS) else []
    return []


@cache
def _setpriv() -> str | None:
    """Return the program that sets a parent-death signal; BusyBox's version cannot."""
    program = shutil.which("setpriv", path=_SYSTEM_PATH) if sys.platform == "linux" else None
    return None if program is None or "busybox" in Path(program).resolve().name else program


def _remove(folder: Path | None) -> None:
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


class Process:
    """A running program: lines out, bytes in, and a `stop` that leaves nothing behind.

    `stop` must be called at the end, even if the program exited by itself; `async with` does. One task reads.
    """

    def __init__(self, pipes: ProcessPipes, popen: subprocess.Popen[bytes], folder: Path | None) -> None:
        self.pid = popen.pid
        self._folder = folder
        self._pipes = pipes
        self._popen = popen
        self._stopping: asyncio.Task[None] | None = None
        self._must_hurry = False
        self._grace: asyncio.Timeout | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def returncode(self) -> int | None:
        """The exit status, negative for a signal; None while the program runs."""
        return self._popen.returncode

    @property
    def stderr_tail(self) -> str:
        """The end of the program's stderr. Foreign text: redact it before showing it."""
        return self._pipes.stderr.decode("utf-8", "replace")

    async def write(self, payload: bytes) -> None:
        """Send bytes to stdin; waits while the program does not read.

        Raises:
            CallError: upstream_lost if the program exited or closed its stdin; the bytes may have arrived.
        """
        await self._pipes.write(payload)

    def close_stdin(self) -> None:
        """Close stdin, which tells the program that no more input comes."""
        self._pipes.close_stdin()

    async def read_line(self) -> bytes | None:
        """Return the next line of stdout without its line end, or None at the end.

        Raises:
            CallError: protocol_error if a line is longer than `line_bytes`, and on every later read.
        """
        return await self._pipes.read_line()

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield the lines of stdout until it ends."""
        while (line := await self.read_line()) is not None:
            yield line

    async def exited(self) -> int:
        """Wait until the program itself has exited, even if others hold its pipes. Returns its exit status."""
        await self._pipes.exited.wait()
        return self.returncode or 0

    async def ended(self, *, within_s: float) -> int | None:
        """Wait until the program has exited and all its stderr is read; returns its exit status, `None` on timeout.

        Does not wait for a descendant that holds stderr open.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._pipes.exited.wait()
                async with asyncio.timeout(PIPE_LINGER_S):
                    await self._pipes.stderr_ended.wait()
        return self.returncode

    async def stop(self, *, grace_s: float = STOP_GRACE_S) -> None:
        """End the program and all its descendants: close stdin, wait, SIGTERM, wait, SIGKILL.

        Each wait lasts at most `grace_s`; with 0 everything is killed at once. A second call with 0 shortens the waits
        of the first. The call continues to its end even if the caller is cancelled.
        """
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop(grace_s), name=f"stop-{self.pid}")
        elif grace_s == 0:
            self._must_hurry = True
            if self._grace is not None and not self._grace.expired():
                self._grace.reschedule(0.0)
        await asyncio.shield(self._stopping)

    async def _stop(self, grace_s: float) -> None:
        inodes = self._pipes.output_inodes()
        # Searched before anything dies: later, a child that left the session can no longer be found by its parent.
        tree = await self._find_tree(frozenset(), inodes)
        self._pipes.close_stdin()
        if grace_s > 0:
            await self._until_gone(frozenset(), grace_s, is_grace=True)
            tree = await self._find_tree(tree, inodes)
            if (tree or self.returncode is None) and not self._must_hurry:
                self._signal(tree, signal.SIGTERM)
                await self._until_gone(tree, grace_s, is_grace=True)
                tree = await self._find_tree(tree, inodes)
        ended_at = asyncio.get_running_loop().time() + KILL_S
        everyone = tree
        while tree or self.returncode is None:
            self._signal(tree, signal.SIGKILL)
            await self._until_gone(tree, _POLL_S * 5)
            tree = await self._find_tree(tree, inodes)
            everyone |= tree
            if asyncio.get_running_loop().time() > ended_at:
                _log.warning("process %d or its descendants survive SIGKILL; they are left alone", self.pid)
                break
        else:
            RECORD.remove(self.pid)
        await asyncio.get_running_loop().run_in_executor(_TABLE_READERS.executor, _remove, self._folder)
        reap(each for each in everyone if each.pid != self.pid)
        await self._pipes.close()

    async def _find_tree(self, known: frozenset[ProcessId], inodes: frozenset[int]) -> frozenset[ProcessId]:
        search = partial(find_tree, self.pid, known=known, pipes=inodes, folder=self._folder)
        return await asyncio.get_running_loop().run_in_executor(_TABLE_READERS.executor, search)

    def _signal(self, tree: frozenset[ProcessId], signum: signal.Signals) -> None:
        # One SIGTERM each: a second one could interrupt the clean-up that the first one started.
        if tree:
            signal_all(tree, signum)
        elif self.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signum)

    async def _until_gone(self, tree: frozenset[ProcessId], within_s: float, *, is_grace: bool = False) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(0.0 if is_grace and self._must_hurry else within_s) as limit:
                self._grace = limit if is_grace else None
                await self._pipes.exited.wait()
                while living(tree):  # noqa: ASYNC110  (what is not our child sends no event)
                    await asyncio.sleep(_POLL_S)
        self._grace = None
