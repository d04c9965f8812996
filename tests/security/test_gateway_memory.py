"""What a started program can read of Pegboard's own processes: a real child tries, as root and as another user."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has these files in /proc")

PEGBOARD = Path(sys.executable).with_name("pegboard")
# Tries to open four files of its parent, its grandparent (of workers, their parent) and the reaper.
SPY = """
import json, os, sys, time
_, report, runtime, patience_s = sys.argv

def opened(pid):
    found = []
    for name in ("environ", "mem", "maps"):
        try:
            with open(f"/proc/{pid}/{name}", "rb") as file:
                name == "mem" or file.read(1)
            found.append(name)
        except OSError:
            pass
    try:
        found += [os.readlink(f"/proc/{pid}/fd/0")] and ["fd"]
    except OSError:
        pass
    return found

def words(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""

def parent_of(pid):
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])

def reapers():
    pids = filter(str.isdigit, os.listdir("/proc"))
    return [pid for pid in pids if "reaper_child.py" in (line := words(pid)) and runtime in line]

parent = os.getppid()
seen = {"parent": opened(parent)}
if "serve" in words(parent_of(parent)):
    seen["parent of workers"] = opened(parent_of(parent))
# The reaper has an empty environment and no memory of ours; it closes itself while it starts.
ends_at = time.monotonic() + float(patience_s)
while not (mine := reapers()) or any(map(opened, mine)):
    if time.monotonic() > ends_at:
        break
    time.sleep(0.01)
seen["reapers"] = [opened(pid) for pid in mine][:1]
with open(report + ".new", "w") as file:
    json.dump(seen, file)
os.replace(report + ".new", report)
"""
CLOSED = {"parent": [], "reapers": [[]]}
# Root as in a container: without the capabilities that read the memory of every process.
PLAIN_ROOT = (
    "setpriv", "--bounding-set=-sys_ptrace,-perfmon,-sys_admin", "--inh-caps=-sys_ptrace,-perfmon,-sys_admin",
)  # fmt: skip
# Another user who may still read every file, since the interpreter may lie in a folder of root alone.
OTHER_USER = (
    "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=+dac_override",
    "--ambient-caps=+dac_override",
)  # fmt: skip


def _works(prefix: tuple[str, ...]) -> bool:
    has_program = shutil.which("setpriv") is not None
    return has_program and subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode == 0


WHO = {"root": PLAIN_ROOT, "another user": OTHER_USER} if os.geteuid() == 0 else {"user": ()}


@pytest.fixture(params=WHO)
def user(request: pytest.FixtureRequest) -> tuple[str, ...]:
    prefix = WHO[request.param]
    if prefix and not _works(prefix):
        pytest.skip("setpriv cannot change users or capabilities here")
    return prefix


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "runtime").mkdir()
    tmp_path.chmod(0o777)
    (tmp_path / "runtime").chmod(0o777)
    (tmp_path / "spy.py").write_text(SPY)
    words = [str(tmp_path / "spy.py"), str(tmp_path / "report.json"), str(tmp_path / "runtime"), "20"]
    args = ", ".join(f'"{word}"' for word in words)
    (tmp_path / "pegboard.yaml").write_text(
        f'tools: [{{name: up, type: mcp, mcp: {{transport: stdio, command: "{sys.executable}", args: [{args}]}}}}]'
    )
    return tmp_path


@contextmanager
def pegboard(folder: Path, user: tuple[str, ...], *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A running `pegboard`, ended at the end."""
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*user, PEGBOARD, *words], cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            env={**os.environ, "XDG_RUNTIME_DIR": str(folder / "runtime"), "KEY": "canary", "TMPDIR": str(folder)},
        )  # fmt: skip
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(60)
        finally:
            process.kill()
            process.wait()


def report_of(folder: Path, process: subprocess.Popen[bytes]) -> Any:
    report = folder / "report.json"
    ends_at = time.monotonic() + 180
    while not report.exists() and time.monotonic() < ends_at:
        if process.poll() is not None and not report.exists():
            break
        time.sleep(0.02)
    assert report.exists(), (folder / "log").read_text()
    return json.loads(report.read_text())


def test_a_tool_child_reads_nothing_of_the_server_and_its_reaper(folder: Path, user: tuple[str, ...]) -> None:
    with pegboard(folder, user, "serve", "--port", "0") as server:
        assert report_of(folder, server) == CLOSED


def test_a_tool_child_reads_nothing_of_a_worker_and_of_the_parent_of_workers(
    folder: Path, user: tuple[str, ...]
) -> None:
    with pegboard(folder, user, "serve", "--port", "0", "--workers", "2") as server:
        assert report_of(folder, server) == {**CLOSED, "parent of workers": []}


def test_a_tool_child_reads_nothing_of_a_command(folder: Path, user: tuple[str, ...]) -> None:
    with pegboard(folder, user, "list", "--all") as command:
        assert report_of(folder, command) == CLOSED


def test_a_server_that_is_about_to_be_added_reads_nothing_either(folder: Path, user: tuple[str, ...]) -> None:
    words = [str(folder / "spy.py"), str(folder / "report.json"), str(folder / "runtime"), "20"]
    (folder / "pegboard.yaml").write_text("tools: []\n")
    with pegboard(folder, user, "add", "--yes", "--name", "spy", sys.executable, *words) as command:
        assert report_of(folder, command) == CLOSED


def memory_of(folder: Path, user: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """What `pegboard doctor` finds about its memory."""
    (folder / "pegboard.yaml").write_text("tools: []\n")
    ran = subprocess.run(
        [*user, PEGBOARD, "doctor", "--json"], cwd=folder, capture_output=True, check=False,
        env={**os.environ, "XDG_RUNTIME_DIR": str(folder / "runtime")},
    )  # fmt: skip
    return [row for row in orjson.loads(ran.stdout)["findings"] if row["kind"] == "memory"]


def test_doctor_says_that_programs_cannot_read_its_keys(folder: Path, user: tuple[str, ...]) -> None:
    (row,) = memory_of(folder, user)
    assert (row["state"], row["is_wrong"]) == ("closed", False)


def test_doctor_says_when_the_rights_of_root_open_its_keys(folder: Path) -> None:
    status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines())
    if not int(status["CapEff"], 16) >> 19 & 1:  # CAP_SYS_PTRACE
        pytest.skip("only a process with CAP_SYS_PTRACE can see this")
    (row,) = memory_of(folder)
    assert (row["state"], row["is_wrong"]) == ("open", False)
    assert "other than root" in row["to_do"]
