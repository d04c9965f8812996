"""Document watch: keeps document sources in step while a catalog is served, by the config as it is now."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from pegboard.core.cancellation import cancel_and_wait
from pegboard.core.registry import Registry

DOCUMENT_WATCH_S = 1.0  # seconds between two looks at whether a reload has changed the sources


class DocumentWatch:
    """Runs the `document_sync` of a catalog within `running`, and another one after a reload of the config.

    Args:
        registry: its declarations say what is kept in step.
        sleep: waits between two looks.
    """

    def __init__(self, registry: Registry, *, sleep: Callable[[float], Awaitable[object]] = asyncio.sleep) -> None:
        self._registry, self._sleep = registry, sleep

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Keep the sources in step within the block. No call waits for it."""
        task = asyncio.create_task(self._follow())
        try:
            yield
        finally:
            await cancel_and_wait(task)

    async def _follow(self) -> None:
        while True:
            sync = self._registry.declarations.document_sync
            async with AsyncExitStack() as stack:
                if sync is not None:
                    await stack.enter_async_context(sync.running())
                while self._registry.declarations.document_sync is sync:
                    await self._sleep(DOCUMENT_WATCH_S)
