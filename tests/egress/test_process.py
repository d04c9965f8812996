"""The launcher: what a started program gets, what it may do, and what is left when it is stopped."""

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pegboard.egress.process import Process, launch
from pegboard.egress.process_pipes import PIPE_WAITING_BYTES
from pegboard.model.error import CallError
from tests.timing import PATIENCE_S


@pytest.fixture(params=["asyncio", "uvloop"], autouse=True)
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return ("asyncio", {"use_uvloop": request.param == "uvloop"})


@pytest.fixture(autouse=True)
async def _warm(anyio_backend: object) -> None:
    """Let the event loop open the one descriptor that it keeps, before anybody counts."""
    await (await launch("true")).stop()


@asynccontextmanager
async def program(code: str, *args: str, grace_s: float = 2.0, **options: object) -> AsyncIterator[Process]:
    """A Python program, stopped at the end; nothing of it may be left: no descriptor, no child."""
    before = _descriptors()
    process = await launch(sys.executable, ["-c", code, *args], **options)  # pyright: ignore[reportArgumentType]
    try:
        yield process
    finally:
        await process.stop(grace_s=grace_s)
    # Fewer if what an earlier test forgot was collected meanwhile.
    assert _descriptors() <= before
    assert not _exists(process.pid)


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def _exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


async def until(claim: Callable[[], bool], within_s: float = 60.0) -> None:
    async with asyncio.timeout(within_s):
        while not claim():
            await asyncio.sleep(0.01)


async def test_lines_go_in_and_come_out() -> None:
    async with program("import sys\nfor line in sys.stdin: print(line.upper(), end='', flush=True)") as process:
        await process.write(b"one\ntwo\n")
        assert [await process.read_line(), await process.read_line()] == [b"ONE", b"TWO"]
        process.close_stdin()
        assert await process.read_line() is None
        assert await process.exited() == 0


async def test_a_last_line_without_end_and_windows_line_ends_are_lines_too() -> None:
    async with program("import sys; sys.stdout.buffer.write(b'a\\r\\n\\nb\\0\\xff')") as process:
        assert [line async for line in process.lines()] == [b"a", b"", b"b\0\xff"]


async def test_std_01_no_shell_and_arguments_arrive_unchanged(tmp_path: Path) -> None:
    pwned = tmp_path / "pwned"
    args = ["; id", "$(id)", "`id`", f"&& touch {pwned}", "*", "a  b", "", "\u00e9\n"]
    async with program("import sys, json; print(json.dumps(sys.argv[1:]))", *args) as process:
        assert json.loads(await process.read_line() or b"") == args
    with pytest.raises(CallError) as caught:
        await launch(f"{sys.executable} -c pass && touch {pwned}")
    assert caught.value.error.kind == "upstream_unavailable"
    assert not pwned.exists()


async def test_std_03_the_environment_is_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "DATABASE_URL", "LD_PRELOAD_X", "PYTHONPATH"):
        monkeypatch.setenv(name, "CANARY")
    code = "import os, json; print(json.dumps(dict(os.environ)))"
    async with program(code, env={"GIVEN": "yes"}) as process:
        seen = json.loads(await process.read_line() or b"")
    assert seen.pop("GIVEN") == "yes"
    assert seen.keys() <= {"PATH", "HOME", "LANG", "TERM", "LC_CTYPE"}
    assert "CANARY" not in seen.values()


async def test_std_04_no_descriptor_is_inherited() -> None:
    leaky = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(leaky, True)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.set_inheritable(True)
        # The directory handle that lists them is the fourth.
        async with program("import os; print(len(os.listdir('/proc/self/fd')))") as process:
            assert await process.read_line() == b"4"
    os.close(leaky)


async def test_std_05_a_flood_on_stderr_blocks_nothing_and_is_kept_to_its_end() -> None:
    code = (
        "import sys\nfor _ in range(400): sys.stderr.write('x' * 100_000)\nsys.stderr.write('the end')\nprint('done')"
    )
    async with program(code) as process:
        assert await process.read_line() == b"done"
        await process.exited()
        await until(lambda: process.stderr_tail.endswith("the end"))
        assert len(process.stderr_tail) == 64 * 1024


async def test_std_06_a_death_is_seen_at_once_although_a_grandchild_holds_the_pipes() -> None:
    code = "import subprocess, os, signal\nsubprocess.Popen(['sleep', '60'])\nos.kill(os.getpid(), signal.SIGKILL)"
    async with program(code) as process, asyncio.timeout(50):
        assert await process.exited() == -signal.SIGKILL
        assert await process.read_line() is None
        with pytest.raises(CallError) as caught:
            await process.write(b"anyone?\n")
        assert caught.value.error.kind == "upstream_lost"


FAMILY = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
ways = [{}, {"preexec_fn": os.setpgrp}, {"start_new_session": True}]
kin = [subprocess.Popen([sys.executable, "-c", deaf], **way) for way in ways]
print(*[one.pid for one in kin], flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("grace_s", [0.3, 0])
async def test_std_08_a_tree_that_ignores_sigterm_is_killed_whole(grace_s: float) -> None:
    async with program(FAMILY, grace_s=grace_s) as process:
        kin = [int(pid) for pid in (await process.read_line() or b"").split()]
        assert all(_runs(pid) for pid in kin)
    await until(lambda: not any(_runs(pid) for pid in kin))


async def test_a_daemon_whose_parent_died_is_found_by_the_pipe_that_it_still_holds() -> None:
    code = "import subprocess; print(subprocess.Popen(['sleep', '60'], start_new_session=True).pid, flush=True)"
    async with program(code) as process:
        daemon = int(await process.read_line() or b"")
        await process.exited()
        assert _runs(daemon)
    assert not _runs(daemon)


async def test_a_program_that_ends_with_its_stdin_is_not_signalled(tmp_path: Path) -> None:
    note = tmp_path / "note"
    code = f"import sys; print('up', flush=True); sys.stdin.read(); open({str(note)!r}, 'w').write('ended in peace')"
    # It is over when the program is; a busy machine may let that take longer than usual.
    async with program(code, grace_s=PATIENCE_S) as process:
        await process.read_line()
    assert note.read_text() == "ended in peace"


async def test_sigterm_comes_before_sigkill() -> None:
    code = (
        "import signal, sys, time\nsignal.signal(15, lambda *_: sys.exit(7))\nprint('up', flush=True)\ntime.sleep(60)"
    )
    # Twice: until the signal, and for what the program does then.
    async with program(code, grace_s=3.0) as process:
        await process.read_line()
    assert process.returncode == 7


@pytest.mark.parametrize("first_s", [60.0, 0.2])
async def test_a_stop_that_waits_is_cut_short_by_one_that_does_not(first_s: float) -> None:
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    async with program(code, grace_s=0) as process:
        await process.read_line()
        patient = asyncio.create_task(process.stop(grace_s=first_s))
        await asyncio.sleep(0)
        async with asyncio.timeout(60):
            await process.stop(grace_s=0)
            await patient
        assert process.returncode == -signal.SIGKILL


async def test_stop_may_be_called_twice_and_at_once_and_survives_cancellation() -> None:
    async with program("import time; time.sleep(60)", grace_s=0) as process:
        impatient = asyncio.create_task(process.stop(grace_s=0.2))
        await asyncio.sleep(0)
        impatient.cancel()
        await asyncio.gather(process.stop(), process.stop())
        assert process.returncode == -signal.SIGTERM
        await asyncio.gather(impatient, return_exceptions=True)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
async def test_the_unrelated_children_of_the_host_are_left_alone() -> None:
    neighbour = await launch("sleep", ["60"])
    forked = os.fork()  # a worker of the host, which has our ends of every pipe
    if forked == 0:
        signal.pause()
        os._exit(0)
    try:
        async with program("import time; time.sleep(60)", grace_s=0):
            pass
        assert (_runs(forked), _runs(neighbour.pid)) == (True, True)
    finally:
        os.kill(forked, signal.SIGKILL)
        os.waitpid(forked, 0)
        await neighbour.stop(grace_s=0)


async def test_std_10_an_endless_line_is_refused_and_not_kept() -> None:
    code = "import sys\nwhile True: sys.stdout.write('x' * 10_000)"
    async with program(code, grace_s=0, line_bytes=100_000) as process:
        for _ in range(2):
            with pytest.raises(CallError) as caught:
                await process.read_line()
            assert caught.value.error.kind == "protocol_error"


async def test_lines_before_a_too_long_one_are_still_delivered() -> None:
    async with program("print('good'); print('x' * 1000); print('late')", line_bytes=100) as process:
        assert await process.read_line() == b"good"
        with pytest.raises(CallError, match="more than 100 bytes"):
            await process.read_line()


async def test_a_program_that_writes_faster_than_it_is_read_has_to_wait() -> None:
    code = "import sys\nfor n in range(200_000): print(n, '.' * 50)\nsys.stderr.write('all written')"
    async with program(code) as process:
        assert await process.read_line() == b"0 " + b"." * 50
        assert process.stderr_tail == ""
        count = 1
        async for _line in process.lines():
            count += 1
        assert count == 200_000
        await until(lambda: process.stderr_tail == "all written")


async def test_a_writer_waits_for_a_program_that_does_not_read_and_is_told_of_its_death() -> None:
    async with program("import sys, time; sys.stdin.readline(); time.sleep(60)", grace_s=0) as process:
        writer = asyncio.create_task(process.write(b"line\n" + b"x" * 4_000_000))
        done, _ = await asyncio.wait([writer], timeout=0.3)
        assert not done
        os.kill(process.pid, signal.SIGKILL)
        with pytest.raises(CallError) as caught:
            await writer
        assert (caught.value.error.kind, caught.value.error.outcome_unknown) == ("upstream_lost", True)


async def test_what_cannot_be_started_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("no program")
    before = _descriptors()
    for command, args, cwd, reason in [
        ("no-such-command", [], None, "'no-such-command' is not found"),
        (str(text), [], None, "Permission denied"),
        (sys.executable, ["nul\0byte"], None, "null byte"),
        (sys.executable, [], tmp_path / "nowhere", "working directory"),
    ]:
        with pytest.raises(CallError, match=reason) as caught:
            await launch(command, args, cwd=cwd)
        assert (caught.value.error.kind, caught.value.error.retryable) == ("upstream_unavailable", False)
    assert _descriptors() <= before


async def test_a_launch_that_is_cancelled_leaves_nothing() -> None:
    before = _descriptors()
    for ticks in range(8):
        task = asyncio.create_task(launch("sleep", ["60"]))
        for _ in range(ticks):
            await asyncio.sleep(0)
        task.cancel()
        started = await asyncio.gather(task, return_exceptions=True)
        if isinstance(started[0], Process):
            await started[0].stop(grace_s=0)
    await until(lambda: _descriptors() <= before)
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


async def test_the_working_directory_is_where_it_should_be(tmp_path: Path) -> None:
    async with program("import os; print(os.getcwd())", cwd=tmp_path) as process:
        assert await process.read_line() == str(tmp_path.resolve()).encode()


async def test_fifty_starts_and_stops_leave_nothing() -> None:
    before = _descriptors()
    for _ in range(25):
        pair = await asyncio.gather(launch("cat"), launch("cat"))
        await asyncio.gather(*(process.stop() for process in pair))
    assert _descriptors() <= before
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def _written(process: Process) -> int:
    """Return how many bytes a program has written, as the system counts."""
    counts = Path(f"/proc/{process.pid}/io").read_text()
    return int(dict(line.split(": ") for line in counts.splitlines())["wchar"])


async def test_a_program_waits_while_nobody_reads_its_lines_and_none_is_lost() -> None:
    code = "import sys\nfor number in range(80_000): sys.stdout.write(f'{number:0100}\\n')"
    async with program(code) as process:
        await until(lambda: _written(process) > PIPE_WAITING_BYTES // 2)
        # All of it, eight megabytes, would be written long before the last of these looks.
        for _ in range(30):
            await asyncio.sleep(0.01)
            assert _written(process) < 2 * PIPE_WAITING_BYTES
        assert process.returncode is None
        lines = [int(line) async for line in process.lines()]
    assert lines == list(range(80_000))
