"""Instructions: what one request makes a server execute in user space, counted by callgrind, against an echo.

Processor time swings by 10 to 40 % on a machine that is busy with other work; a count of instructions does not, so it
can compare two commits. Each server runs under valgrind. After a warm-up the same request is sent N and 2N times over
one connection; the difference, median of three rounds, is free of start-up and connection. The echo (bare Starlette
in the same uvicorn with uvloop and httptools) gets the same bytes. Uvicorn's timer is off, since a slow simulation
would count it too often. The clients are those of the bench `clients` and send an API key. Rows without an echo are
one call inside a process, and whole processes from their start.

`change` compares with the figures in `bench/instructions.json`. `BENCH_SRC=../other/src make bench ARGS=instructions`
measures the package of another checkout, `python -m bench.instructions baseline SRC COMMIT` keeps its figures there.
`ARGS="instructions --only clients"` measures one piece of: requests, methods, clients, in-process, start.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from bench import http, stdio
from bench.clients import answer, clients, opened
from bench.http import CALL, ECHO, LIST, META, OURS
from bench.measure import THOROUGH, Effort

ROOT = Path(__file__).parents[1]
PROGRAM = ("-m", "bench.instructions")
BASELINE = Path(__file__).with_suffix(".json")
WARM = 60
"""Requests before anything is counted: the interpreter specialises code that runs often."""
TIMES, ROUNDS = 25, 3
"""A round sends so many requests, then twice as many; the difference is what counts."""
PIECES = ("requests", "methods", "clients", "in-process", "start")
RESOURCE, TASK_TOOL = "bench://text", "later"
TASKS = {"extensions": {"io.modelcontextprotocol/tasks": {}}}


@dataclass(frozen=True, kw_only=True)
class Counted:
    """The instructions of one request, call or process.

    `echo` are those of an echo of the same bytes, `hold` is the ratio to it that must not be passed, and `change_hold`
    the ratio to the baseline.
    """

    what: str
    count: int
    echo: int | None = None
    hold: float | None = None
    change_hold: float | None = None

    def cells(self, baseline: int | None) -> Iterator[str]:
        """Yield the cells of a table's row."""
        ratio = None if self.echo is None else self.count / self.echo
        change = None if baseline is None else self.count / baseline
        yield self.what
        yield f"{self.count:,}"
        yield "" if ratio is None else f"{ratio:.2f}×"
        yield "" if self.hold is None else f"≤ {self.hold:g}×"
        yield "" if baseline is None else f"{baseline:,}"
        yield "" if change is None else f"{change - 1:+.1%}"
        yield "" if self.change_hold is None else f"≤ {self.change_hold - 1:+.0%}"
        held = [(found, most) for found, most in ((ratio, self.hold), (change, self.change_hold)) if found and most]
        yield ("PASS" if all(found <= most for found, most in held) else "short") if held else "beside"


def lines(effort: Effort = THOROUGH, only: Sequence[str] = PIECES) -> Iterator[str]:
    """Yield the table; `only` names some of `PIECES`."""
    if shutil.which("valgrind") is None:
        yield "Skipped: valgrind is not installed (`apt-get install valgrind`)."
        return
    kept = json.loads(BASELINE.read_text(encoding="utf-8")) if BASELINE.exists() else {"commit": "-", "figures": {}}
    yield f"| what | instructions | against the echo | hold | {kept['commit']} | change | hold | |"
    yield "|---|---:|---:|---:|---:|---:|---:|---|"
    for row in counted(effort, only):
        yield "| " + " | ".join(row.cells(kept["figures"].get(row.what))) + " |"


def counted(effort: Effort = THOROUGH, only: Sequence[str] = PIECES, *, src: Path | None = None) -> Iterator[Counted]:
    """Count each of the pieces, with the package in the folder `src`."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="pegboard-bench-")))
        simulator = Simulator(effort, folder, src or Path(os.environ.get("BENCH_SRC") or ROOT / "src"))
        if {"requests", "methods", "clients"} & set(only):
            echo = stack.enter_context(simulator.serving("echo"))
            for piece, rows in (("requests", _requests), ("methods", _methods), ("clients", _clients)):
                if piece in only:
                    yield from rows(simulator, echo)
        if "in-process" in only:
            yield from _in_process(simulator)
        if "start" in only:
            yield from _starts(simulator)


def _requests(simulator: Simulator, echo: Server) -> Iterator[Counted]:
    floor = echo.count(CALL)
    yield Counted(what="echo of tools/call", count=floor, echo=floor)
    with simulator.serving("plain") as ours:
        yield Counted(what="tools/call", count=ours.count(CALL), echo=floor, hold=2.0, change_hold=1.05)
        yield Counted(
            what="tools/list of 10", count=ours.count(LIST), echo=echo.count(LIST), hold=2.0, change_hold=1.05
        )


def _methods(simulator: Simulator, echo: Server) -> Iterator[Counted]:
    with simulator.serving("methods") as ours:
        task_id = json.loads(ours.ask(_request("tools/call", TASK_TOOL, name=TASK_TOOL, arguments={})))["result"][
            "taskId"
        ]
        for method, target, params in (
            ("resources/read", RESOURCE, {"uri": RESOURCE}),
            ("prompts/get", "review", {"name": "review", "arguments": {"style": "long"}}),
            ("tasks/get", task_id, {"taskId": task_id}),
        ):
            wanted = _request(method, target, **params)
            yield Counted(what=method, count=ours.count(wanted), echo=echo.count(wanted), hold=2.0)


def _clients(simulator: Simulator, echo: Server) -> Iterator[Counted]:
    # The server makes the key: the store is that of the package which is measured.
    with simulator.serving("keyed", str(simulator.folder)) as ours:
        for client in clients((simulator.folder / "key").read_text(encoding="utf-8")):
            for message in (client.call, client.list):
                count, floor = (each.count(asyncio.run(opened(each.port, client, message))) for each in (ours, echo))
                what = f"{client.name}: {message['method']}"
                yield Counted(what=what, count=count, echo=floor, hold=2.0, change_hold=1.05)


def _in_process(simulator: Simulator) -> Iterator[Counted]:
    with simulator.running(*PROGRAM, "calls", folder=ROOT) as program:
        assert program.read() == "ready"

        def call(times: int) -> None:
            program.write(str(times))
            assert program.read() == "done"

        yield Counted(what="one view.call in this process", count=program.median(call), change_hold=1.1)


def _starts(simulator: Simulator) -> Iterator[Counted]:
    from bench.imports import HELP, ONE_CALL

    for name, text in stdio.FILES.items():
        (simulator.folder / name).write_text(text, encoding="utf-8")
    for what, code, requests in (
        ("pegboard --help", HELP, ()),
        ("import, declare one tool, call it once", ONE_CALL, ()),
        ("serve --stdio to the first list", stdio.PEGBOARD, stdio.REQUESTS),
    ):
        # The first of the two leaves its byte code behind.
        counts = [simulator.whole(code, requests) for _ in range(2)]
        yield Counted(what=f"process: {what}", count=counts[1], change_hold=1.1)


def _request(method: str, target: str, **params: object) -> bytes:
    """Return one request of 2026-07-28, byte for byte, of a client that knows tasks."""
    meta = {**META, "io.modelcontextprotocol/clientCapabilities": TASKS}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}).encode()
    heads = {
        "Host": "127.0.0.1:8420",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": method,
        "Mcp-Name": target,
        "Content-Length": str(len(body)),
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in heads.items())
    return f"POST /mcp HTTP/1.1\r\n{lines}\r\n".encode() + body


# ---- programs under callgrind ----------------------------------------------------------------------------------------


class Program:
    """A program under callgrind. It must be idle whenever its counter is zeroed or read."""

    def __init__(self, process: subprocess.Popen[str], out: Path, effort: Effort) -> None:
        self._process, self._out, self._effort, self._dumps = process, out, effort, 0
        self._is_counting = False

    def read(self) -> str:
        """Return the next line that the program prints.

        Raises:
            EOFError: it has ended.
        """
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise EOFError(f"{self._process.args!r} has ended; run it by hand to see why.")
        return line.rstrip("\n")

    def write(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def median(self, work: Callable[[int], object]) -> int:
        """Return the instructions of one piece of work; `work` does it so many times."""
        work(self._effort.times(WARM))
        if not self._is_counting:
            self._tell("instrumentation", "on")
            self._is_counting = True
            # All code is translated anew for counting.
            work(self._effort.times(WARM))
        times = self._effort.times(TIMES)
        rounds = [-self._counted(work, times) + self._counted(work, 2 * times) for _ in range(ROUNDS)]
        return round(statistics.median(rounds) / times)

    def _counted(self, work: Callable[[int], object], times: int) -> int:
        self._tell("zero")
        work(times)
        return self.total()

    def total(self) -> int:
        """Return the instructions since the counter was zeroed."""
        self._tell("dump")
        self._dumps += 1
        return _total_in(Path(f"{self._out}.{self._dumps}"))

    def total_at_end(self) -> int:
        """Return the instructions of the whole process, once it has ended."""
        assert self._process.stdout is not None
        self._process.stdout.read()
        if self._process.wait():
            raise RuntimeError(f"{self._process.args!r} has failed; run it by hand to see why.")
        return _total_in(self._out)

    def _tell(self, *words: str) -> None:
        command = ["vgdb", f"--pid={self._process.pid}", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")


def _total_in(out: Path) -> int:
    found = re.search(r"^totals: (\d+)", out.read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None
    return int(found[1])


class Server:
    """A server under callgrind."""

    def __init__(self, program: Program) -> None:
        self._program, self.port = program, int(program.read())

    def ask(self, wanted: bytes, times: int = 1) -> bytes:
        """Send a request over a new connection, several times; return the last answer's body."""
        return asyncio.run(self._ask(wanted, times))

    def count(self, wanted: bytes) -> int:
        """Return the instructions of one request."""
        return self._program.median(lambda times: self.ask(wanted, times))

    async def _ask(self, wanted: bytes, times: int) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 22)
        body = b""
        for _ in range(times):
            writer.write(wanted)
            head, body = await answer(reader)
            assert head.startswith("HTTP/1.1 200"), (head, body[:500])
            assert b'"error"' not in body, body[:500]
        writer.close()
        await writer.wait_closed()
        return body


@dataclass(frozen=True)
class Simulator:
    """Starts programs under callgrind, with the package in the folder `src`."""

    effort: Effort
    folder: Path
    src: Path

    @contextmanager
    def serving(self, name: str, *words: str) -> Iterator[Server]:
        """Run one of this module's servers."""
        with self.running(*PROGRAM, name, *words, folder=ROOT) as program:
            yield Server(program)

    def whole(self, code: str, requests: Sequence[Mapping[str, object]]) -> int:
        """Return the instructions of a process from its start to its answer to the last request, or to its end."""
        with self.running("-c", code, folder=self.folder, from_start=True) as program:
            for request in requests:
                program.write(json.dumps(request))
                if "id" in request:
                    assert '"error"' not in program.read()
            return program.total() if requests else program.total_at_end()

    @contextmanager
    def running(self, *arguments: str, folder: Path, from_start: bool = False) -> Iterator[Program]:
        """Run `python *arguments`; it is counted from its start, or from the first call of `median`."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PEGBOARD"))}
        environment = {
            "PYTHONHASHSEED": "0",
            "PYTHONPATH": str(self.src.resolve()),
            "PYTHONPYCACHEPREFIX": str(self.folder / "byte-code"),
        }
        with TemporaryDirectory(dir=self.folder) as own:
            out = Path(own) / "callgrind.out"
            options = [f"--instr-atstart={'yes' if from_start else 'no'}", f"--callgrind-out-file={out}"]
            process = subprocess.Popen(
                ["valgrind", "-q", "--tool=callgrind", *options, sys.executable, *arguments],
                cwd=folder, env={**inherited, **environment}, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                with process.stdin, process.stdout:
                    yield Program(process, out, self.effort)
            finally:
                process.kill()
                process.wait()


# ---- this module run as a program ------------------------------------------------------------------------------------


def serve(name: str, words: Sequence[str]) -> None:
    """Serve without uvicorn's timer, until the process is killed."""
    import uvicorn

    async def main_loop(self: uvicorn.Server) -> None:
        # One tick, which makes the headers that each answer has.
        await self.on_tick(0)
        await asyncio.Event().wait()

    uvicorn.Server.main_loop = main_loop
    match name:
        case "echo":
            http.main(ECHO)
        case "plain":
            http.main(OURS)
        case "keyed":
            serve_keyed(Path(*words))
        case _:
            serve_methods()


def serve_keyed(folder: Path) -> None:
    """Serve to callers with an API key, which this writes into the folder."""
    from bench import credentials

    (folder / "key").write_text(credentials.made_key(folder / "keys.db"), encoding="utf-8")
    credentials.main(credentials.KEY, str(folder / "keys.db"))


def serve_methods() -> None:
    """Serve a resource, a prompt and a tool that runs as a task."""
    from pegboard import Catalog, Tasks, run_http

    catalog = Catalog("bench", tasks=Tasks())

    @catalog.resources.resource(RESOURCE, name="text")
    async def text() -> str:
        return "text"

    @catalog.resources.prompt
    async def review(style: str = "short") -> str:
        """Review it."""
        return f"Review it: {style}"

    @catalog.tool(name=TASK_TOOL, task="required")
    async def later() -> str:
        """Answer as a task."""
        return "done"

    run_http(catalog, port=0, on_ready=lambda address: print(address.split(":")[2].partition("/")[0], flush=True))


def make_calls() -> None:
    """Make as many calls as each line of standard input says."""
    from bench.calls import ARGUMENTS, guarded_view

    view = guarded_view()

    async def calls(times: int) -> None:
        for _ in range(times):
            assert not (await view.call("add", json.loads(ARGUMENTS))).is_error

    print("ready", flush=True)
    with asyncio.Runner() as runner:
        for line in sys.stdin:
            runner.run(calls(int(line)))
            print("done", flush=True)


def keep_baseline(src: str, commit: str) -> None:
    """Write the figures of another checkout into the file that every run is compared with."""
    figures: dict[str, int] = {}
    for row in counted(src=Path(src)):
        print(f"{row.count:>14,}  {row.what}", flush=True)
        figures[row.what] = row.count
    BASELINE.write_text(json.dumps({"commit": commit, "figures": figures}, indent=1) + "\n", encoding="utf-8")


def main(name: str, *words: str) -> None:
    match name:
        case "baseline":
            keep_baseline(*words)
        case "calls":
            make_calls()
        case _:
            serve(name, words)


if __name__ == "__main__":
    main(*sys.argv[1:])
