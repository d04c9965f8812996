"""Forking: commands run in processes of their own, forked from one interpreter that has imported Pegboard already.

A process made so has its own arguments, folder, environment, standard files, signals and exit code, as one that was
started; only the second or two until Python has read everything is spent once instead of each time. What is tested of
the start itself (what is imported, what the installed program is) goes without this.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import io
import json
import os
import runpy
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
IMPORTED = (
    "pegboard.cli.command_line", "pegboard.cli.commands.serve", "pegboard.discovery.tool_page", "cyclopts.help",
    "pegboard.agents.guardrails", "pegboard.config", "pegboard.config.kinds.internal",
    "pegboard.config.kinds.tool_form", "pegboard.cli.http_serving", "pegboard.server.stdio",
    "pegboard.server.mcp.protocol.request_checks", "pegboard.sources.mcp.connection", "pegboard.discovery.search.index",
    "mcp.server.mcpserver",
    "pegboard.auth.verifier", "pegboard.sources.builtin.sqlite_engine", "pegboard.sources.expressions", "pydantic",
    "pegboard.workspace.ingest", "pegboard.workspace.sqlite.sqlite_store", "pegboard.workspace.tools.toolset",
    "docstring_parser", "rich.console", "rich.table", "uvloop", "httptools",
)  # fmt: skip


class Forked:
    """A running command; whoever made it waits for it or kills it."""

    def __init__(self, told: socket.socket) -> None:
        self._told = told
        self.pid = int(told.recv(64))
        self.returncode: int | None = None

    def wait(self) -> int:
        """Return the exit code, as `subprocess` gives it."""
        if self.returncode is None:
            self.returncode = int(self._told.recv(64))
            self._told.close()
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


def fork(
    words: Sequence[str],
    *,
    files: tuple[int, int, int],
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    address: str | None = None,
) -> Forked:
    """Run `pegboard ...` or `python SCRIPT ...` with these as its standard input, output and error."""
    asked = {"words": list(words), "cwd": str(cwd or Path.cwd()), "env": dict(os.environ if env is None else env)}
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as caller:
        caller.connect(address or _address())
        socket.send_fds(caller, [json.dumps(asked).encode()], files)
        return Forked(caller.dup())


def run(
    words: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    given: bytes = b"",
    is_merged: bool = False,
    timeout_s: float = 60,
    address: str | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Run a command to its end with this as its input; give its output and, unless merged into that, its errors."""
    (theirs_in, ours_in), (ours_out, theirs_out), (ours_err, theirs_err) = os.pipe(), os.pipe(), os.pipe()
    written: dict[int, bytes] = {}

    def read(file: int) -> None:
        with open(file, "rb") as stream:
            written[file] = stream.read()

    errors = theirs_out if is_merged else theirs_err
    process = fork(words, files=(theirs_in, theirs_out, errors), cwd=cwd, env=env, address=address)
    for file in (theirs_in, theirs_out, theirs_err):
        os.close(file)
    readers = [threading.Thread(target=read, args=(file,)) for file in (ours_out, ours_err)]
    late = threading.Timer(timeout_s, process.send_signal, (signal.SIGKILL,))
    for thread in (*readers, late):
        thread.start()
    with suppress(BrokenPipeError), open(ours_in, "wb") as stream:
        stream.write(given)
    code = process.wait()
    late.cancel()
    for thread in readers:
        thread.join()
    return subprocess.CompletedProcess(list(words), code, written[ours_out], written[ours_err])


def having(*modules: str) -> str:
    """Return the address of an interpreter that has imported these modules too."""
    return _address(*modules)


@cache
def _address(*more: str) -> str:
    """Start the interpreter, which lives as long as this process does; return where it listens.

    One that has imported `more`, for the tests of one file, is another than that of all the others.
    """
    folder = tempfile.mkdtemp(prefix="forking-", dir="/tmp")
    path = f"{folder}/socket"
    server = subprocess.Popen(
        [sys.executable, "-P", str(Path(__file__)), path, *more],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
    )
    assert server.stdout is not None
    assert server.stdout.readline() == b"ready\n"
    # It has left its parent behind: tests that see to it that no child is left must not meet this one.
    server.wait()

    def end() -> None:
        server.communicate(b"")
        os.unlink(path)
        os.rmdir(folder)

    atexit.register(end)
    return path


# ---- in the interpreter ----------------------------------------------------------------------------------------------


def _serve(path: str, *more: str) -> int:
    """Fork for each command that comes, until standard input ends; return the exit code of a command in its process."""
    if os.fork():
        os._exit(0)
    for name in (*IMPORTED, *more):
        importlib.import_module(name)
    gc.freeze()
    assert threading.active_count() == 1, "a process with threads does not fork well"
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path)
        listener.listen(16)
        print("ready", flush=True)
        while 0 not in (ready := select.select([0, listener], [], [])[0]):
            assert ready
            caller, _ = listener.accept()
            asked, files, _, _ = socket.recv_fds(caller, 1 << 20, 3)
            if os.fork() == 0:
                listener.close()
                return _watch(caller, json.loads(asked), files)
            for file in (*files, caller.detach()):
                os.close(file)
    return 0


def _watch(caller: socket.socket, asked: dict[str, object], files: Sequence[int]) -> int:
    """Run the command in a process of its own, and tell the caller its id and how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid == 0:
        caller.close()
        try:
            code = _become(files, **asked)  # type: ignore[arg-type]
        except SystemExit as stopped:
            if not isinstance(stopped.code, int | None):
                raise
            code = stopped.code or 0
        return _leave(code)
    for file in (0, 1, 2, *files):
        os.close(file)
    caller.send(b"%d\n" % pid)
    ended = os.pidfd_open(pid)
    if ended not in select.select([ended, caller], [], [])[0]:
        # Who asked for it is gone, by a kill perhaps: what is forked ends as what stands for it did.
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    with suppress(BrokenPipeError, ConnectionResetError):
        caller.send(b"%d\n" % os.waitstatus_to_exitcode(status))
    os._exit(0)


def _leave(code: int) -> int:
    """End this process without taking all modules apart, which costs several times as much as most commands.

    Everything else that Python does at its end is done: threads end, `atexit` functions run, streams are flushed.
    Returns the code if a stream cannot be flushed: Python has its own way to say that.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    with suppress(OSError, ValueError):
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)
    return code


def _become(files: Sequence[int], *, words: list[str], cwd: str, env: dict[str, str]) -> int:
    for file, place in zip(files, (0, 1, 2), strict=True):
        os.dup2(file, place)
    for file in files:
        os.close(file)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)), encoding="utf-8")
    for name, errors in (("stdout", "strict"), ("stderr", "backslashreplace")):
        place = 1 if name == "stdout" else 2
        text = io.TextIOWrapper(
            io.BufferedWriter(io.FileIO(place, "wb", closefd=False)),
            encoding="utf-8",
            errors=errors,
            line_buffering=place == 2 or os.isatty(place),
        )
        setattr(sys, name, text)
        setattr(sys, f"__{name}__", text)
    program, *words = words
    sys.path[0:0] = [path for path in env.get("PYTHONPATH", "").split(os.pathsep) if path]
    if Path(program).name == "pegboard":
        from pegboard.cli import main

        sys.argv = [program, *words]
        return main()
    sys.argv = words
    sys.path.insert(0, str(Path(words[0]).parent))
    runpy.run_path(words[0], run_name="__main__")
    return 0


# ---- from a shell ----------------------------------------------------------------------------------------------------


def started(*words: str) -> tuple[str, ...]:
    """Return what a program of others starts to have these words forked; killed or told to end, it takes them along."""
    return (sys.executable, "-I", "-S", str(Path(__file__)), _address(), *words)


def command(*words: str) -> str:
    """Return the same as one line for a shell."""
    return shlex.join(started(*words))


@cache
def programs() -> str:
    """Return a folder for the PATH of a shell, in which `pegboard` is the program that is forked."""
    folder = tempfile.mkdtemp(prefix="forking-", dir="/tmp")
    program = Path(folder, "pegboard")
    program.write_text(f'#!/bin/sh\nexec {command("pegboard")} "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    atexit.register(shutil.rmtree, folder)
    return folder


def _stand_for(words: Sequence[str], address: str) -> int:
    """Be the process of a forked command: pass on what it is told, and leave as it does."""
    forked = fork(words, files=(0, 1, 2), address=address)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, lambda number, _: forked.send_signal(signal.Signals(number)))
    for file in (0, 1, 2):
        os.close(file)
    code = forked.wait()
    if code < 0:
        signal.signal(signal.Signals(-code), signal.SIG_DFL) if -code != signal.SIGKILL else None
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    if Path(sys.argv[1]).name == "socket" and not Path(sys.argv[1]).exists():
        sys.exit(_serve(*sys.argv[1:]))
    sys.exit(_stand_for(sys.argv[2:], sys.argv[1]))
