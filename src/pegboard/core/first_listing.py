"""First listing: wait for the tools of sources that have been started and may still connect."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pegboard.core.cancellation import cancel_and_wait
from pegboard.core.ports import StartsSlowly


async def wait_for_listing(sources: Sequence[StartsSlowly], wait_s: float) -> list[bool]:
    """Wait until each source has tried to list its tools; return for each whether it has."""
    if not sources:
        return []
    waits = [asyncio.ensure_future(source.first_listed()) for source in sources]
    try:
        await asyncio.wait(waits, timeout=wait_s)
    finally:
        have_tried = [wait.done() for wait in waits]
        await cancel_and_wait(*waits)
    return have_tried
