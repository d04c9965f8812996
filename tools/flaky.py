"""Flaky: run the tests several times, each time with another seed, in another order and on a busy machine.

Run as `make flaky [N=3] [ARGS=tests/auth] [SEED=17] [LOAD=2] [STALLS=yes]`. One seed fixes everything that may differ
between two runs: the hashes of strings, the examples of hypothesis, and the order of the test files and of the tests
in them (`tests/conftest.py` shuffles by PEGBOARD_SHUFFLE). LOAD processes keep the machine busy until the last run has
ended. With STALLS, random processes of the tests stand still for up to two seconds each while the clocks go on, as on a
machine without CPU to spare.

Prints every test that failed at least once, with the seeds that it failed with, and exits 1 if there is one.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from random import Random, SystemRandom

# PYTHONHASHSEED takes no more.
MAX_SEED = 2**32 - 1
# Ends by itself when its parent is gone, also if that was killed.
BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: pass"
STALLS_S = (0.2, 0.5, 1.0, 2.0)
RED = re.compile(r"^(?:FAILED|ERROR) (tests/\S.*?)(?: - .*)?$")


@contextmanager
def load(processes: int) -> Iterator[None]:
    """Keep so many cores busy for the length of a block."""
    busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def below(ancestor: int) -> list[int]:
    """Return the ids of all running processes that a process started, directly or not."""
    parents: dict[int, int] = {}
    for place in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, parent = place.read_text().rpartition(")")[2].split()[:2]
            if state not in "TZ":  # a test stopped it, or it has ended
                parents[int(place.parent.name)] = int(parent)
    found = [ancestor]
    for process in found:
        found += [child for child, parent in parents.items() if parent == process]
    return found[1:]


@contextmanager
def stalls(ancestor: int, seed: int) -> Iterator[None]:
    """Let one process of the tests after the other stand still for a moment, for the length of a block."""
    chance, is_over = Random(seed), threading.Event()

    def stall() -> None:
        while not is_over.wait(chance.uniform(0.2, 1.0)):
            if processes := below(ancestor):
                process = chance.choice(processes)
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGSTOP)
                    is_over.wait(chance.choice(STALLS_S))
                    os.kill(process, signal.SIGCONT)

    thread = threading.Thread(target=stall)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def run(command: Sequence[str], seed: int, *, has_stalls: bool) -> tuple[int, list[str]]:
    """Run the tests once, showing what they print; return the exit code and the tests that failed."""
    options = f"{os.environ.get('PYTEST_ADDOPTS', '')} --hypothesis-seed={seed}"
    env = {**os.environ, "PEGBOARD_SHUFFLE": f"{seed}", "PYTHONHASHSEED": f"{seed}", "PYTEST_ADDOPTS": options}
    red: list[str] = []
    with ExitStack() as during:
        tests = during.enter_context(subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True))
        assert tests.stdout is not None
        if has_stalls:
            during.enter_context(stalls(tests.pid, seed))
        for line in tests.stdout:
            print(line, end="", flush=True)
            if match := RED.match(line):
                red.append(match[1])
    return tests.returncode, red


def main() -> int:
    parser = argparse.ArgumentParser(description="Run a command that runs tests several times.")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--load", type=int, default=2, help="processes that keep the machine busy")
    parser.add_argument("--stalls", action="store_true", help="let processes of the tests stand still now and then")
    parser.add_argument("--seed", type=int, help="seed of the first run; the next ones count up from it")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()

    first = SystemRandom().randrange(MAX_SEED - options.runs) if options.seed is None else options.seed
    failed: defaultdict[str, list[int]] = defaultdict(list)
    with load(options.load):
        for seed in range(first, first + options.runs):
            began = time.monotonic()
            code, red = run(options.command, seed, has_stalls=options.stalls)
            for name in red or ["(no test: see the output above)"] if code else []:
                failed[name].append(seed)
            outcome = f"{len(red)} tests failed" if code else "green"
            print(f"== run {seed - first + 1} of {options.runs}, SEED={seed}: {outcome}, "
                  f"{time.monotonic() - began:.0f} s", flush=True)  # fmt: skip
    for name, seeds in failed.items():
        print(f"== failed {len(seeds)} of {options.runs} times: {name}  SEED={' SEED='.join(map(str, seeds))}")
    print(f"== {len(failed)} tests failed at least once" if failed else f"== {options.runs} runs, all green")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
