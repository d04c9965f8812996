"""Observing: what something costs this process while it runs, told by the kernel and by the event loop itself."""

import asyncio
import gc
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(kw_only=True)
class Cost:
    """The growth of the peak of memory, and the longest time (of CPU) in which the loop ran nothing else."""

    grown_mib: float = 0.0
    longest_block_s: float = 0.0


@asynccontextmanager
async def observed() -> AsyncGenerator[Cost]:
    """Give what the block costs; it is known at its end."""
    cost = Cost()
    Path("/proc/self/clear_refs").write_text("5")
    before = _peak_mib()
    # What was there before is none of the block's garbage.
    gc.freeze()
    ticking = asyncio.create_task(_tick(cost))
    # It ticks before the block begins, so that a first step that waits for nothing counts as well.
    await asyncio.sleep(0)
    try:
        yield cost
        # Its last step counts as well.
        await asyncio.sleep(0)
    finally:
        gc.unfreeze()
        ticking.cancel()
        await asyncio.gather(ticking, return_exceptions=True)
        cost.grown_mib = _peak_mib() - before


async def _tick(cost: Cost) -> None:
    last = time.thread_time()
    while True:
        await asyncio.sleep(0)
        now = time.thread_time()
        cost.longest_block_s, last = max(cost.longest_block_s, now - last), now


def _peak_mib() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
