"""Flame: where a server's processor time of a call goes, as a flame graph in words.

python -m bench.flame              calls of 2026-07-28, as `wrk` sends them
python -m bench.flame --least 2    frames from 2 % on; 1 without

A timer of processor time looks at the stack of the serving thread a thousand times a second. What C code does belongs
to the function that called it: to read the body is its reader's, to wake up is the event loop's.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import sysconfig
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from bench.capacity import sent_calls
from bench.http import bench_catalog
from pegboard import run_http

TICK_S = 0.001
WARM_CALLS, CALLS = 5_000, 40_000
PLACES = {
    str(Path(sys.modules["pegboard"].__file__ or "").parent) + "/": "",
    # The environment may stand in the repository's folder.
    sysconfig.get_path("purelib") + "/": "",
    str(Path(__file__).parents[1]) + "/": "",
    sysconfig.get_path("stdlib") + "/": "",
}
Stack = tuple[str, ...]


class Sampler:
    """Takes down the stack of the main thread at each tick of processor time."""

    def __init__(self) -> None:
        self.stacks: Counter[Stack] = Counter()

    def start(self) -> None:
        self.stacks.clear()
        signal.setitimer(signal.ITIMER_PROF, TICK_S, TICK_S)

    def stop(self) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)

    def tick(self, _number: int, frame: FrameType | None) -> None:
        stack: list[str] = []
        while frame is not None:
            stack.append(name_of(frame))
            frame = frame.f_back
        self.stacks[tuple(reversed(stack))] += 1


def name_of(frame: FrameType) -> str:
    code = frame.f_code
    file = next(
        (code.co_filename.removeprefix(place) for place in PLACES if code.co_filename.startswith(place)),
        code.co_filename,
    )
    return f"{file} {code.co_qualname}"


def tree(stacks: Counter[Stack], least: float) -> Iterator[str]:
    """Yield a line for each frame that has its share: the share with all that it calls, and its own."""
    whole = sum(stacks.values())
    within: Counter[Stack] = Counter()
    for stack, count in stacks.items():
        for depth in range(1, len(stack) + 1):
            within[stack[:depth]] += count
    # What every stack begins with says nothing.
    shown = [stack for stack, count in within.items() if count >= least * whole]
    roots = {stack for stack in shown if within[stack] > 0.98 * whole}
    base = max((len(stack) for stack in roots), default=1) - 1
    yield f"{whole} looks; with what it calls, by itself"
    yield from below(max(roots, key=len, default=())[:base], shown, within, stacks, whole, base)


def below(
    stack: Stack, shown: list[Stack], within: Counter[Stack], own: Counter[Stack], whole: int, base: int
) -> Iterator[str]:
    children = [one for one in shown if len(one) == len(stack) + 1 and one[: len(stack)] == stack]
    for child in sorted(children, key=lambda one: -within[one]):
        share, alone = within[child] / whole, own[child] / whole
        yield f"{share:5.1%} {alone:5.1%}  {'  ' * (len(child) - base - 1)}{child[-1]}"
        yield from below(child, shown, within, own, whole, base)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.flame", description=__doc__)
    parser.add_argument("--least", type=float, default=1.0, metavar="PERCENT", help="the least share that is shown")
    least: float = parser.parse_args().least / 100
    sampler = Sampler()
    signal.signal(signal.SIGPROF, sampler.tick)

    def load(address: str) -> None:
        port = int(address.split(":")[2].partition("/")[0])

        def send() -> None:
            try:
                sent_calls(port, WARM_CALLS)
                sampler.start()
                sent_calls(port, CALLS)
            finally:
                # Whatever became of them, the server ends.
                sampler.stop()
                os.kill(os.getpid(), signal.SIGTERM)

        threading.Thread(target=send, daemon=True).start()

    run_http(bench_catalog(10), port=0, on_ready=load)
    print(*tree(sampler.stacks, least), sep="\n")


if __name__ == "__main__":
    main()
