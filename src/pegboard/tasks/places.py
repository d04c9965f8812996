"""Places: limits how many tasks run at once, in total and per owner; a task that waits for a person needs none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager
from typing import TypeVar
from weakref import WeakValueDictionary

from pegboard.model.bounds import share_of_one

T = TypeVar("T")


class Place:
    """The place of one run. Made by `Places.taken`, which frees it at the end.

    A run may wait for several people at once, each in its own `asyncio` task. It frees its place while it waits and
    none of its steps runs, and takes one again with the first answer. A part that was answered counts as working until
    it asks again or ends.
    """

    def __init__(self, *queues: asyncio.Semaphore) -> None:
        self._queues, self._is_held, self._waiting, self._steps = queues, False, 0, 0
        self._taking, self._is_over = asyncio.Lock(), False
        self._answered: set[asyncio.Task[object]] = set()

    async def take(self) -> None:
        """Take a place, unless the run has one already; may wait."""
        async with self._taking:
            if self._is_held or self._is_over:
                return
            first, second = self._queues
            await first.acquire()
            try:
                await second.acquire()
            except BaseException:
                first.release()
                raise
            self._is_held = True
            if self._is_over:
                # The run has ended without this part of it.
                self.leave()

    def end(self) -> None:
        """Free the place for good."""
        self._is_over = True
        self.leave()

    def leave(self) -> None:
        """Free the place for the next in the queue."""
        if self._is_held:
            self._is_held = False
            for queue in self._queues:
                queue.release()

    @asynccontextmanager
    async def for_step(self) -> AsyncGenerator[None]:
        """Keep the place during the block, even if other parts of the run wait meanwhile."""
        self._steps += 1
        try:
            await self.take()
            yield
        finally:
            self._steps -= 1
            self._leave_if_idle()

    async def free_for(self, answer: Awaitable[T]) -> T:
        """Wait for an answer without the place, unless other parts of the run are working; then take a place again."""
        asking = asyncio.current_task()
        assert asking is not None
        self._waiting += 1
        self._ended(asking)
        try:
            answered = await answer
        finally:
            self._waiting -= 1
        if self._waiting:
            self._answered.add(asking)
            asking.add_done_callback(self._ended)
        await self.take()
        return answered

    def _ended(self, asking: asyncio.Task[object]) -> None:
        self._answered.discard(asking)
        self._leave_if_idle()

    def _leave_if_idle(self) -> None:
        if self._waiting and not (self._steps or self._answered):
            self.leave()


class Places:
    """The places of one catalog, on one event loop. Runs without a place wait in order; each owner has a limit, too.

    Args:
        most: the number of places.
    """

    def __init__(self, most: int) -> None:
        self._all, self._share = asyncio.Semaphore(most), share_of_one(most)
        self._of_owners: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def taken(self, owner: str) -> AsyncGenerator[Place]:
        """Hold a place during the block, except while it is freed to wait."""
        of_owner = self._of_owners.get(owner)
        if of_owner is None:
            of_owner = self._of_owners[owner] = asyncio.Semaphore(self._share)
        place = Place(of_owner, self._all)
        await place.take()
        try:
            yield place
        finally:
            place.end()
