"""What a killed Pegboard leaves behind: nothing that it launched, and nothing that others may read."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import stat
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pegboard.cli import main
from tests.config.project import Project

PEGBOARD = Path(sys.executable).with_name("pegboard")
EVIL = Path(__file__).parents[1] / "evil" / "server.py"
# A server with a child, a grandchild in its group, and daemons in sessions of their own, some without our pipes.
SERVER = """
import subprocess, sys
_, mark, evil = sys.argv
sleeper = [sys.executable, "-c", "import time; time.sleep(600)", mark]
between = "import subprocess, sys; subprocess.run(sys.argv[1:])"
subprocess.Popen(sleeper)
subprocess.Popen([sys.executable, "-c", between, *sleeper])
subprocess.Popen(sleeper, start_new_session=True)
subprocess.Popen(["sh", "-c", '"$@" &', "sh", *sleeper])
quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
subprocess.Popen(sleeper, start_new_session=True, **quiet)
subprocess.Popen(["sh", "-c", '"$@" &', "sh", *sleeper], start_new_session=True, **quiet)
sys.argv = [evil]
exec(open(evil).read())
"""
TREE = 8  # itself, its children and grandchildren, without the shell


def running(mark: str) -> list[int]:
    """Return the processes that have this word on their command line and are not dead."""
    found: list[int] = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
                state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if mark.encode() in words and state not in "ZX":
                found.append(int(folder.name))
    return found


@pytest.fixture
def mark() -> Iterator[str]:
    mark = f"mark-{random.SystemRandom().randint(0, 2**48)}"
    yield mark
    for pid in running(mark):
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def runtime(tmp_path: Path) -> Path:
    path = tmp_path / "runtime"
    path.mkdir(mode=0o700)
    return path


async def until(claim: object, within_s: float = 60.0) -> None:
    async with asyncio.timeout(within_s):
        while not claim():  # type: ignore[operator] - a plain function
            await asyncio.sleep(0.02)


@asynccontextmanager
async def served(folder: Path, *, runtime: Path) -> AsyncIterator[subprocess.Popen[bytes]]:
    """A real `pegboard serve`, killed at the end if it still runs."""
    with (folder / "said").open("wb") as said:
        server = subprocess.Popen(
            [PEGBOARD, "serve", "--port", "0"], cwd=folder, stdout=said, stderr=said,
            env={**os.environ, "XDG_RUNTIME_DIR": str(runtime)},
        )  # fmt: skip
    try:
        yield server
    finally:
        server.kill()
        server.wait()


def declare(folder: Path, mark: str) -> None:
    (folder / "tree.py").write_text(textwrap.dedent(SERVER))
    words = [str(folder / "tree.py"), mark, str(EVIL)]
    args = ", ".join(f'"{word}"' for word in words)
    (folder / "pegboard.yaml").write_text(
        f'tools: [{{name: up, type: mcp, mcp: {{transport: stdio, command: "{sys.executable}", args: [{args}]}}}}]'
    )


def reaper_of(runtime: Path) -> int:
    (pid,) = [
        int(folder.name)
        for folder in Path("/proc").iterdir()
        if folder.name.isdigit()
        and b"reaper_child.py" in (words := _read(folder / "cmdline"))
        and str(runtime).encode() in words
    ]
    return pid


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


async def test_nothing_of_a_launched_tree_outlives_a_killed_server(tmp_path: Path, runtime: Path, mark: str) -> None:
    declare(tmp_path, mark)
    async with served(tmp_path, runtime=runtime) as server:
        await until(lambda: len(running(mark)) >= TREE)
        server.send_signal(signal.SIGKILL)
        server.wait()
        await until(lambda: not running(mark))
    await until(lambda: not list((runtime / "pegboard").iterdir()))


async def test_what_a_killed_reaper_leaves_too_is_ended_at_the_next_start(
    tmp_path: Path, runtime: Path, mark: str
) -> None:
    declare(tmp_path, mark)
    async with served(tmp_path, runtime=runtime) as server:
        await until(lambda: len(running(mark)) >= TREE)
        os.kill(reaper_of(runtime), signal.SIGKILL)
        server.send_signal(signal.SIGKILL)
        server.wait()
        left = set(running(mark))
        assert left
        # Any process of this user that launches something.
        (tmp_path / "pegboard.yaml").write_text(
            'tools: [{name: other, type: mcp, mcp: {transport: stdio, command: "true"}}]'
        )
        async with served(tmp_path, runtime=runtime):
            await until(lambda: not left & set(running(mark)))


async def test_a_program_is_ended_whose_launcher_was_killed_before_it_could_record_it(runtime: Path) -> None:
    from pegboard.egress.launch_record import end_left_behind

    record = runtime / "pegboard" / "dead"
    (record / "cwd-1").mkdir(parents=True)
    (record / "lock").touch()
    (record / "launched").write_text(f"boot {Path('/proc/sys/kernel/random/boot_id').read_text().strip()}\n")
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    inside = subprocess.Popen(sleep, cwd=record / "cwd-1", start_new_session=True)
    beside = subprocess.Popen(sleep, cwd=runtime, start_new_session=True)
    try:
        await asyncio.to_thread(end_left_behind, runtime / "pegboard")
        assert await asyncio.to_thread(inside.wait, 60) == -signal.SIGKILL
        assert beside.poll() is None
        assert not record.exists()
    finally:
        for process in (inside, beside):
            process.kill()
            process.wait()


async def test_a_server_that_ends_in_good_order_leaves_no_record(tmp_path: Path, runtime: Path, mark: str) -> None:
    declare(tmp_path, mark)
    async with served(tmp_path, runtime=runtime) as server:
        await until(lambda: len(running(mark)) >= TREE)
        (record,) = (runtime / "pegboard").iterdir()
        assert stat.S_IMODE(record.stat().st_mode) == 0o700
        assert {stat.S_IMODE((record / name).stat().st_mode) for name in ("lock", "launched")} == {0o600}
        server.send_signal(signal.SIGTERM)
        await asyncio.to_thread(server.wait)
    assert running(mark) == []
    await until(lambda: not list((runtime / "pegboard").iterdir()))


def test_records_are_kept_in_no_folder_that_others_may_enter(
    tmp_path: Path, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pegboard.egress.launch_record import base_folder

    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    first, second = runtime / "pegboard", tmp_path / f"pegboard-{os.getuid()}"
    assert base_folder() == first
    for mode in (0o701, 0o720):
        first.chmod(mode)
        assert base_folder() == second
    first.rmdir()
    first.symlink_to(second)
    second.chmod(0o704)
    assert base_folder() is None


def test_a_record_from_before_a_restart_of_the_machine_ends_nothing(tmp_path: Path) -> None:
    from pegboard.egress.launch_record import end_recorded
    from pegboard.egress.process_tree import start_of

    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    child = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        for of, has_ended in (("another", False), (boot, True)):
            (tmp_path / of).mkdir()
            (tmp_path / of / "launched").write_text(f"boot {of}\nstart {child.pid} {start_of(child.pid)} 1\n")
            # Its numbers may fit a process of now.
            end_recorded(tmp_path / of)
            assert (child.poll() is not None) == has_ended
    finally:
        child.kill()
        child.wait()


# ---- where a launched program runs, and what of its files others may read


TELL = """
import json, os
mask = os.umask(0); os.umask(mask)
place = os.getcwd()
mode = oct(os.stat(place).st_mode & 0o777)
print(json.dumps({"cwd": place, "files": os.listdir(), "mode": mode, "umask": oct(mask)}))
open("left", "w").close()
"""


async def test_a_program_runs_in_a_private_empty_folder_that_goes_with_it() -> None:
    import json

    from pegboard.egress.process import launch

    places: list[Path] = []
    for _ in range(2):
        process = await launch(sys.executable, ["-c", TELL])
        told = json.loads(await process.read_line() or b"")
        await process.exited()
        places.append(Path(told.pop("cwd")))
        assert told == {"files": [], "mode": "0o700", "umask": "0o77"}
        await process.stop()
    assert places[0] != places[1]
    assert not any(place.exists() for place in places)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("command: x, args: [data]", "data"),
        ("command: x, args: [./data]", "./data"),
        ("command: x, args: [-y, pkg, 'data/in.txt']", "data/in.txt"),
        ("command: x, args: ['--root=./data']", "./data"),
        ("command: x, args: [-m, notes]", "notes.py"),
        ("command: x, args: [.]", "."),
        ("command: ./run.sh", "./run.sh"),
        ("command: x, env: {FILE: ./data/in.txt}", "./data/in.txt"),
        ("command: x, args: ['${WHERE}']", "data"),
    ],
)
def test_a_word_that_lies_beside_the_config_needs_a_folder_to_run_in(
    tmp_path: Path, words: str, named: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHERE", "data")
    project = Project(tmp_path, {"WHERE": "data"})
    for name in ("data/in.txt", "notes.py", "run.sh"):
        project.file(name, "")
    text = "tools: [{{name: up, type: mcp, mcp: {{transport: stdio, {}}}}}]"
    project.write(text.format(words))
    for command in (["check"], ["serve", "--port", "0"]):
        assert main([*command, "--config", str(project.path)]) == 2
        said = "".join(capfd.readouterr())
        assert "add `cwd: .`" in said, said
        assert named in said or "[redacted]" in said
    assert project.write(text.format(f"{words}, cwd: .")).said() == []
    assert project.write(text.format("command: x, args: [-y, 'a b', /data, --data, nothing, '']")).said() == []
