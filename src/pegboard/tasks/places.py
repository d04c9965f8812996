"""Places: how many tasks run at once, and how many of them are one owner's; one that waits for a person holds none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager
from typing import TypeVar
from weakref import WeakValueDictionary

from pegboard.model.bounds import share_of_one

T = TypeVar("T")


class Place:
    """The place of one run. Made by `Places.taken`, which gives it back."""

    def __init__(self, *queues: asyncio.Semaphore) -> None:
        self._queues, self._is_held, self._waiting = queues, False, 0

    async def take(self) -> None:
        """Wait for the place, and hold it."""
        first, second = self._queues
        await first.acquire()
        try:
            await second.acquire()
        except BaseException:
            first.release()
            raise
        self._is_held = True

    def leave(self) -> None:
        """Give the place to whoever waits for one."""
        if self._is_held:
            self._is_held = False
            for queue in self._queues:
                queue.release()

    async def free_for(self, answer: Awaitable[T]) -> T:
        """Wait for an answer without the place, and for the place again; not where more than one is waited for."""
        self._waiting += 1
        self.leave()
        try:
            answered = await answer
        finally:
            self._waiting -= 1
        if not (self._waiting or self._is_held):
            await self.take()
        return answered


class Places:
    """The places of one catalog, on one event loop. Who finds none waits, in order; of one owner, for one of theirs.

    Args:
        most: how many there are.
    """

    def __init__(self, most: int) -> None:
        self._all, self._share = asyncio.Semaphore(most), share_of_one(most)
        self._of_owners: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def taken(self, owner: str) -> AsyncGenerator[Place]:
        """Hold a place for the time of the block, but while it is left."""
        of_owner = self._of_owners.get(owner)
        if of_owner is None:
            of_owner = self._of_owners[owner] = asyncio.Semaphore(self._share)
        place = Place(of_owner, self._all)
        await place.take()
        try:
            yield place
        finally:
            place.leave()
