"""Seeds: a fixed number of inputs in CI, and in `make soak` fresh ones for a time."""

from __future__ import annotations

import os
import random
import secrets
import time
from collections.abc import Iterator

SOAK_S = float(os.environ.get("PEGBOARD_FUZZ_S", "600"))


def inputs(count: int, *, fresh: bool = False) -> Iterator[tuple[int, random.Random]]:
    """Yield (seed, random numbers from it): `count` known ones, or fresh ones until the time of a soak is over."""
    if not fresh:
        for seed in range(count):
            yield seed, random.Random(seed)
        return
    end, tried = time.monotonic() + SOAK_S, 0
    while time.monotonic() < end:
        seed = secrets.randbits(64)
        yield seed, random.Random(seed)
        tried += 1
    print(f"{tried} fresh seeds in {SOAK_S:.0f} s")
