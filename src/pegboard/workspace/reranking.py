"""Reranking: a function of the host orders the passages of a search again."""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any, Final, cast

from pegboard.core.call.handler_threads import WorkerPool
from pegboard.core.digests import digest
from pegboard.model.error import DefinitionError
from pegboard.model.json_types import JSON
from pegboard.models.limits import LISTED_LINE_CHARS

RERANK_PASSAGES = 50  # passages that a reranker gets
RERANK_PASSAGES_MAX = 200  # the most passages that a reranker may be given
RERANK_S = 2.0  # seconds that a search waits for a reranker
RERANK_AT_ONCE = 8  # searches that a reranker works for at once; others keep their order
RERANK_FAILURES = 3  # different queries that fail in a row before a reranker is not asked for a while
RERANK_REST_S = 30.0  # seconds without a reranker after that

Rerank = Callable[[str, Sequence[str]], Sequence[float] | Awaitable[Sequence[float]]]

log = logging.getLogger("pegboard")
NOT_RERANKED: Final = "the reranker does not answer, so passages are in the order of the search itself"


class _BusyError(Exception):
    """The reranker works for as many searches as it may."""


class Reranker:
    """A function that scores passages for a query: `(query, passages) -> scores`; the highest score comes first.

    A sync function runs in a thread. If it fails or is late, the order of the search stays. After three different
    queries in a row have failed, it is not asked for a while. A thread cannot be stopped: a late call keeps running,
    and counts towards the calls that run at the same time.

    Args:
        function: the function, sync or async. It returns a number for each passage.
        passages: how many passages it gets, the best of the search.
        timeout_s: seconds that a search waits for it.
        clock: a monotonic clock in seconds.

    Raises:
        DefinitionError: a limit is out of range.
    """

    def __init__(
        self,
        function: Rerank,
        *,
        passages: int = RERANK_PASSAGES,
        timeout_s: float = RERANK_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not 1 <= passages <= RERANK_PASSAGES_MAX:
            raise DefinitionError(f"A reranker gets 1 to {RERANK_PASSAGES_MAX} passages, not {passages}.")
        if not timeout_s > 0:
            raise DefinitionError(f"The time limit of a reranker has to be greater than 0 seconds, not {timeout_s:g}.")
        self.passages = passages
        self._function, self._timeout_s, self._clock = function, timeout_s, clock
        self._workers = WorkerPool(name="pegboard-reranker")
        self._places = threading.Semaphore(RERANK_AT_ONCE)
        self._rests_until = -math.inf
        self._failed: set[str] = set()  # digests of the queries that failed since the last answer

    async def ordered(self, query: str, hits: Sequence[JSON]) -> list[JSON] | None:
        """Return the hits of a search by the scores of the reranker, each with its `why.reranker_score`.

        Returns `None` if it fails, is late or is busy.
        """
        if not hits:
            return []
        if self._clock() < self._rests_until:
            return None
        try:
            async with asyncio.timeout(self._timeout_s):
                scores = _checked(await self._scores(query, [passage_of(hit) for hit in hits]), len(hits))
        except _BusyError:
            return None
        except Exception as error:  # noqa: BLE001 - boundary: a reranker is foreign code, and no reason to find nothing
            rests = self._note_failure(query)
            late = f"it did not answer within {self._timeout_s:g} s"
            why = late if isinstance(error, TimeoutError) else f"{type(error).__name__}: {error}"[:LISTED_LINE_CHARS]
            kept = f"searches keep their own order for {RERANK_REST_S:g} s" if rests else "a search keeps its own order"
            log.warning("The reranker failed; %s: %s", kept, why)
            return None
        self._failed.clear()
        order = sorted(range(len(hits)), key=lambda each: -scores[each])
        return [
            {**hits[each], "why": {**hits[each]["why"], "reranker_score": round(scores[each], 6)}} for each in order
        ]

    def _note_failure(self, query: str) -> bool:
        """Count a failure; tell whether the reranker rests now.

        A query can make it fail by its own text, so it is asked for other searches until several queries have failed.
        """
        self._failed.add(digest(query))
        if len(self._failed) < RERANK_FAILURES:
            return False
        self._failed.clear()
        self._rests_until = self._clock() + RERANK_REST_S
        return True

    async def _scores(self, query: str, passages: Sequence[str]) -> object:
        def run() -> object:
            # Taken by the thread, which continues when the search stops waiting.
            with self._place():
                return self._function(query, passages)

        if inspect.iscoroutinefunction(self._function):
            with self._place():
                return await self._function(query, passages)
        result = await self._workers.run(run, caller=None)
        return await result if inspect.isawaitable(result) else result

    @contextmanager
    def _place(self) -> Generator[None]:
        if not self._places.acquire(blocking=False):
            raise _BusyError
        try:
            yield
        finally:
            self._places.release()


def passage_of(hit: JSON) -> str:
    """Return the text of a hit with its title and headings, which a reader needs to understand it."""
    headings: Sequence[str] = hit.get("headings", ())
    table_head: str = hit.get("table_head", "")
    above = " > ".join(dict.fromkeys((hit["title"], *headings)))
    return "\n".join(filter(None, (above, table_head, hit["text"])))


def _checked(scores: object, count: int) -> list[float]:
    """Return the scores of a reranker as numbers, also those in an array.

    Raises:
        ValueError: they are not a finite number for each passage.
    """
    numbers = [float(each) for each in cast("Iterable[Any]", scores)]
    if len(numbers) != count or not all(map(math.isfinite, numbers)):
        raise ValueError(f"it returned {len(numbers)} scores for {count} passages, or one that is not finite")
    return numbers
