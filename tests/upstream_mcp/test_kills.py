"""A server that is killed in the middle of calls: each call ends, nothing is sent twice, nothing is left over."""

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from pegboard.core.view import View
from tests.timing import PATIENCE_S, is_within
from tests.upstream_mcp.parts import EVIL, on_stdio, processes_of, processes_with, running, until, view_of

CALLS = 10


async def kill_and_wait(source: Any, view: View, log: Path, round_: int) -> tuple[float, float]:
    """Kill the server with ten writes in flight; return how long they took to end, and the next call from then on."""
    pid = processes_of(log)[0]
    texts = [f"{round_}-{number}" for number in range(CALLS)]
    calls = [asyncio.create_task(view.call("up__write", {"text": text})) for text in texts]
    async with asyncio.timeout(PATIENCE_S):
        while not all(f"wrote {text}" in log.read_text() for text in texts):
            await asyncio.sleep(0.005)
    killed = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    ended = await asyncio.gather(*calls)
    ended_s = time.monotonic() - killed
    assert [result.error and (result.error.kind, result.error.outcome_unknown) for result in ended] == [
        ("upstream_lost", True)
    ] * CALLS
    async with asyncio.timeout(PATIENCE_S):
        while source.state().status != "ok":
            await asyncio.sleep(0.005)
    back = time.monotonic()
    after = await view.call("up__read", {"text": "still there"})
    assert after.text == "still there"
    return ended_s, time.monotonic() - back


async def survive(kills: int, folder: Path) -> tuple[list[float], list[float]]:
    """Kill the server so many times; return the times of the ends and of the next calls."""
    log = folder / "log"
    ends: list[float] = []
    nexts: list[float] = []
    tasks, threads = asyncio.all_tasks(), len(os.listdir("/proc/self/task"))
    async with running(on_stdio(EVIL, "call=hang_write", f"log={log}", trust="any")) as (catalog, source):
        view = view_of(catalog)
        open_files = 0
        for round_ in range(kills):
            # The breaker is tried elsewhere; here it would make a thousand kills last a day.
            source._backoff._failures.clear()
            source._backoff._in_a_row = 0
            end_s, next_s = await kill_and_wait(source, view, log, round_)
            ends.append(end_s)
            nexts.append(next_s)
            if round_ == 0:
                open_files = len(os.listdir("/proc/self/fd"))
        # What the last process left is closed once its end has been noticed.
        await until(lambda: len(os.listdir("/proc/self/fd")) <= open_files)
        assert len(source._connection._in_flight) == 0
    written = [line for line in log.read_text().splitlines() if line.startswith("wrote")]
    assert len(written) == len(set(written)) == kills * CALLS
    assert processes_with(str(log)) == []
    await until(lambda: asyncio.all_tasks() <= tasks)
    assert len(os.listdir("/proc/self/task")) <= threads + 8
    return ends, nexts


async def test_five_kills_with_ten_calls_in_flight(tmp_path: Path) -> None:
    ends, nexts = await survive(5, tmp_path)
    assert is_within(max(ends), 1.0)
    assert is_within(max(nexts), 1.0)


@pytest.mark.soak
async def test_a_thousand_kills_with_ten_calls_in_flight(tmp_path: Path) -> None:
    ends, nexts = await survive(1_000, tmp_path)
    print(f"ends: worst {max(ends):.3f} s; next calls: worst {max(nexts):.3f} s")
    assert is_within(max(ends), 1.0)
    assert is_within(max(nexts), 1.0)
