"""The installed command, as a process: on a terminal, in a pipe, and how little it loads."""

import gc
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import orjson
import pytest

from tests import forking
from tests.cli.conftest import Run
from tests.timing import PATIENCE_S

ROOT = Path(__file__).parents[2]
PEGBOARD = Path(sys.executable).with_name("pegboard")
STYLE = re.compile(rb"\x1b\[[0-9;]*m")
HEAVY = (
    "httpx2",
    "mcp",
    "mcp_types",
    "numpy",
    "pegboard.config",
    "pegboard.server",
    "pydantic",
    "pygments",
    "rich.markdown",
    "yaml",
    "starlette",
    "uvicorn",
)


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("TERM", "xterm-256color")


def piped(*words: str) -> subprocess.CompletedProcess[bytes]:
    return forking.run(["pegboard", *words])


def typed(*words: str, answer: bytes = b"") -> tuple[int, bytes]:
    """Run on a terminal of its own, type `answer` at the first question, and return what stood on the screen."""
    ours, theirs = pty.openpty()
    process = forking.fork(["pegboard", *words], files=(theirs, theirs, theirs))
    os.close(theirs)
    screen, is_asked = b"", False
    while select.select([ours], [], [], 60)[0]:
        try:
            read = os.read(ours, 65536)
        except OSError:
            break
        screen += read
        if b"[y/N] " in screen and not is_asked:
            is_asked = True
            os.write(ours, answer)
    os.close(ours)
    return process.wait(), screen


@pytest.mark.parametrize(("word", "ends"), [("--help", 0), ("--version", 0), ("lisst", 2), ("--confg", 2)])
def test_help_version_and_a_slip_load_no_command_and_nothing_heavy(word: str, ends: int) -> None:
    code = (
        "import gc, sys\nfrom pegboard.cli import main\n"
        "def collected(): return [one['collections'] for one in gc.get_stats()[1:]]\n"
        "before = collected()\n"
        f"code = main([{word!r}])\n"
        "print(code, collected() == before, *sorted(sys.modules), file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    code, is_left_alone, *loaded = ran.stderr.splitlines()[-1].split()
    assert (code, is_left_alone) == (str(ends), "True"), "what stays was looked through for garbage"
    assert [name for name in loaded if name in HEAVY or name.startswith("pegboard.cli.commands")] == []


def test_what_a_command_leaves_behind_is_collected(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "asking_module.py").write_text("import gc\nIS_COLLECTING = gc.isenabled()\n", encoding="utf-8")
    (folder / "pegboard.yaml").write_text("python: [asking_module]\n", encoding="utf-8")
    monkeypatch.syspath_prepend(folder)
    has_set_aside = gc.get_freeze_count() > 0
    assert run("list").code == 0
    assert sys.modules.pop("asking_module").IS_COLLECTING
    assert (gc.isenabled(), gc.get_freeze_count() > 0) == (True, has_set_aside)


@pytest.mark.usefixtures("folder")
def test_in_a_pipe_there_are_no_colours_and_the_exit_code_tells() -> None:
    ran = piped("list", "--all", "--profile", "chat")
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert b"\x1b" not in ran.stdout
    assert piped("why", "delete_page", "--profile", "chat").returncode == 1
    assert piped("list", "--profile", "nobody").returncode == 2


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "words",
    [
        ["list", "--all"],
        ["show", "shout"],
        ["call", "shout"],
        ["call", "shout", "--json"],
        ["export", "mcp"],
        ["why", "\x1b[2J\x9b"],
    ],
)
def test_ui_01_on_a_terminal_what_comes_from_outside_is_inert(words: list[str]) -> None:
    code, screen = typed(*words)
    assert code == (words[0] == "why")
    text = STYLE.sub(b"", screen).decode()
    assert not [c for c in text if c not in "\r\n" and (ord(c) < 32 or 127 <= ord(c) < 160 or c == "\u202e")]
    # The sequences of the tool are spelled out; only our own styles were sent.
    assert not {b"\x1b[31m", b"\x1b[2J", b"\x1b]0"} & set(re.findall(rb"\x1b(?:\[31m|\[2J|\]0)", screen))


@pytest.mark.usefixtures("folder")
def test_on_a_terminal_a_person_is_asked() -> None:
    code, screen = typed("call", "delete_page", "page=x", answer=b"y\n")
    assert (code, screen.splitlines()[-1]) == (0, b"deleted x")
    code, screen = typed("call", "delete_page", "page=x", answer=b"n\n")
    assert code == 1
    assert b"consent_declined" in screen


@pytest.mark.usefixtures("folder")
def test_a_reader_that_leaves_is_no_error() -> None:
    with subprocess.Popen([PEGBOARD, "schema"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()
        _, err = process.communicate(timeout=60)
    assert err == b""


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "words", [["list"], ["list", "--json"], ["schema"], ["--help"], ["list", "--nonsense", "--json"]]
)
def test_a_full_disk_is_told_in_one_line(words: list[str]) -> None:
    with (
        Path("/dev/full").open("wb") as full,
        Path("said").open("wb+") as said,
        Path("/dev/null").open("rb") as nothing,
    ):
        files = (nothing.fileno(), full.fileno(), said.fileno())
        code = forking.fork(["pegboard", *words], files=files).wait()
    told = Path("said").read_bytes()
    assert code == 1
    assert told.splitlines()[-1] == b"pegboard: The answer could not be written: No space left on device."
    assert b"Traceback" not in told
    assert b"Exception ignored" not in told


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("words", [["list"], ["--version"]])
def test_a_full_disk_is_told_in_one_line_by_a_python_without_buffers_as_containers_have_it(words: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        env = {**os.environ, "PYTHONUNBUFFERED": "1"}
        ran = subprocess.run([PEGBOARD, *words], stdout=full, stderr=subprocess.PIPE, env=env, timeout=60, check=False)
    told = b"pegboard: The answer could not be written: No space left on device.\n"
    assert (ran.returncode, ran.stderr) == (1, told)


@pytest.mark.usefixtures("folder")
def test_serving_on_a_full_standard_output_ends_quietly() -> None:
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}}
    with Path("/dev/full").open("wb") as full, Path("said").open("wb+") as said, Path("asked").open("w+b") as asking:
        asking.write(json.dumps(asked).encode() + b"\n")
        asking.seek(0)
        code = forking.fork(
            ["pegboard", "serve", "--stdio"], files=(asking.fileno(), full.fileno(), said.fileno())
        ).wait()
    assert (code, Path("said").read_text()) == (0, "")


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("words", "code", "closed"),
    [
        *(("list", 0, closed) for closed in (">&-", "2>&-", ">&- 2>&-", "2>/dev/full", "<&-")),
        *(("list --profile nobody", 2, closed) for closed in ("2>&-", ">&- 2>&-")),
        ("schema", 0, ">&-"),
    ],
)
def test_a_closed_stream_ends_no_command(words: str, code: int, closed: str) -> None:
    ran = subprocess.run(["sh", "-c", f"{PEGBOARD} {words} {closed}"], capture_output=True, timeout=60, check=False)
    assert ran.returncode == code
    assert b"Traceback" not in ran.stderr
    assert b"bug in Pegboard" not in ran.stderr


def test_help_whose_reader_has_gone_ends_quietly() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as gone:
        ran = subprocess.run([PEGBOARD, "list", "--help"], stdout=gone, stderr=subprocess.PIPE, timeout=60, check=False)
    assert (ran.returncode, ran.stderr) == (0, b"")


@pytest.mark.usefixtures("folder")
def interruptible(words: Sequence[object]) -> subprocess.CompletedProcess[str]:
    """Run a command that hears SIGINT, also where the tests run in the background of a shell, which ignores it."""
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    return subprocess.run(
        list(map(str, words)), capture_output=True, text=True, timeout=60, check=False, preexec_fn=heard
    )


@pytest.mark.parametrize("module", ["orjson", "cyclopts", "yaml", "pydantic"])
def test_ctrl_c_ends_quietly_also_while_something_is_imported(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported = tmp_path / "imported"
    imported.mkdir()
    told = imported / "told"
    (imported / f"{module}.py").write_text(
        f"import os, signal, time\nopen({str(told)!r}, 'w').close()\n"
        "os.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{imported}{os.pathsep}{ROOT}")
    ran = interruptible([PEGBOARD, "list"])
    assert told.exists()
    assert (ran.returncode, ran.stdout, ran.stderr.strip()) in ((130, "", ""), (130, "", "Stopped."))


@pytest.mark.usefixtures("folder")
def test_ctrl_c_ends_quietly_while_the_interpreter_tidies_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    late = "import atexit, os, signal\natexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))\n"
    (tmp_path / "sitecustomize.py").write_text(late)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{ROOT}")
    ran = interruptible([PEGBOARD, "list"])
    assert (ran.returncode, ran.stderr) == (130, "")
    assert "shout" in ran.stdout


@contextmanager
def started(
    *words: str, stdin: int = subprocess.DEVNULL, stderr: int | None = None
) -> Generator[subprocess.Popen[bytes]]:
    """Run beside the test; killed at its end, so that a test that fails does not wait for ever."""
    with subprocess.Popen([PEGBOARD, *words], stdin=stdin, stdout=subprocess.PIPE, stderr=stderr) as process:
        watch = threading.Timer(60, process.kill)
        watch.start()
        try:
            yield process
        finally:
            watch.cancel()
            process.kill()


@pytest.mark.usefixtures("folder")
def test_serve_answers_until_it_is_told_to_end() -> None:
    with started("serve", "--port", "0", stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        said = process.stderr.readline().decode()
        base = said.removeprefix("Serving MCP on ").strip().removesuffix("/mcp")
        with urllib.request.urlopen(f"{base}/healthz", timeout=30) as answer:
            assert answer.read() == b"ok"
        taken = piped("serve", "--port", base.rpartition(":")[2])
        assert (taken.returncode, taken.stdout) == (2, b"")
        assert b"cannot be listened on" in taken.stderr
        process.terminate()
        assert process.wait(timeout=60) == 0
        assert process.stdout.read() == b""


@pytest.mark.usefixtures("folder")
def test_serve_on_stdio_speaks_to_the_program_that_started_it() -> None:
    said = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    request = orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": said})
    with started("serve", "--stdio", "--as", "user=ann,profile=chat", stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(request + b"\n")
        process.stdin.flush()
        assert orjson.loads(process.stdout.readline())["result"]["serverInfo"]["name"] == "acme"
        process.stdin.close()
        assert process.wait(timeout=60) == 0
        assert process.stdout.read() == b""


def test_a_server_on_stdio_ends_with_its_input_while_the_store_of_tasks_is_still_loading(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = "import sys, time\nprint('loading', file=sys.stderr, flush=True)\ntime.sleep(1000)\n"
    # Not in the working directory itself, where it would replace no installed package.
    (folder / "elsewhere").mkdir()
    (folder / "elsewhere" / "dbos.py").write_text(slow, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", f"{folder / 'elsewhere'}{os.pathsep}{ROOT}")
    (folder / "tasks.db").touch()
    with (folder / "pegboard.yaml").open("a", encoding="utf-8") as config:
        config.write("\ntasks: {store: 'sqlite:./tasks.db'}\n")
    with started("serve", "--stdio", stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        while process.stderr.readline() != b"loading\n":
            assert process.poll() is None
        process.stdin.close()
        assert process.wait(timeout=PATIENCE_S) == 0


@pytest.mark.usefixtures("folder")
def test_serve_refuses_an_unknown_profile_before_it_listens() -> None:
    ran = piped("serve", "--profile", "caht", "--port", "0")
    assert (ran.returncode, ran.stdout) == (2, b"")
    assert ran.stderr == b"pegboard: Unknown profile 'caht'. Did you mean 'chat'?\n"


def test_cfg_01_a_secret_of_the_config_is_in_nothing_that_is_printed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY", "kanarienvogel-4711")
    config = folder / "pegboard.yaml"
    config.write_text(
        config.read_text("utf-8")
        .replace("settings: {web: false}", 'settings: {web: false, key: "${CANARY}"}')
        .replace("description: Delete a page.", 'description: "Delete a page with ${CANARY}."'),
        encoding="utf-8",
    )
    emitted = b""
    call = ["call", "delete_page"]
    commands = [["list"], ["show", "delete_page"], ["why", "delete_page"], ["export", "openai"], ["check"]]
    for words in (*commands, [*call, "page=kanarienvogel-4711", "--yes"], [*call, "page:=4711"]):
        for more in ([], ["--json"]):
            ran = piped(*words, *more)
            emitted += ran.stdout + ran.stderr
    assert b"redacted" in emitted
    assert b"kanarienvogel" not in emitted
