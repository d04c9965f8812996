"""Meaning: compares tools and requests by an embedder, or gives the reason why it cannot."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import TypeVar

import numpy as np

from pegboard.core.after_fork import leave_to_parent, renew_after_fork
from pegboard.core.bounded_cache import BoundedCache
from pegboard.core.ports import Embedder
from pegboard.discovery.meaning_pairs import PAIRED_TEXTS, knowledge_of
from pegboard.discovery.search.compared import Compared, ToolVectors
from pegboard.discovery.search.index import Index
from pegboard.models.embedding.thread import EmbeddingThread
from pegboard.models.embedding.vectors import Loading, Vectors, embedded, loaded
from pegboard.models.limits import (
    EMBED_BATCH,
    EMBED_LOAD_S,
    EMBED_READ_S,
    EMBED_REST_S,
    EMBED_WAIT_S,
    LISTED_LINE_CHARS,
)

EMBED_QUERIES = 1_000  # vectors of requests in the cache
EMBED_MATRICES = 4  # vector matrices of whole catalogs in the cache

STILL_READING = "the embedder is still reading the tools"
NO_ANSWER = "the embedder does not answer"
# The common part of these texts' vectors is common to all texts: it shows where a model places an average text.
_ANY_TEXTS = (
    "Sends a message to a person.",
    "Returns the weather of a city.",
    "read the lines of a file",
    "the price of a share",
    "create a new record in the database",
    "Which trains leave tomorrow morning?",
    "Deletes what is older than a month.",
    "make a picture smaller",
    "find a recipe without milk",
    "list: Lists all items, page by page.",
    "status: Tells whether a job is done.",
    "translate a sentence into French",
    "add two numbers",
    "play the next song",
    "run the tests of a project",
    "search: Searches for words and returns what was found.",
)

T = TypeVar("T")
log = logging.getLogger("pegboard")


class Meaning:
    """The vectors of a catalog's tools, computed in the background, and those of requests, computed during a search.

    A search waits at most `wait_s`. After a failure the embedder is not used for `rest_s`; vectors computed before
    stay. It runs in its own thread.
    """

    def __init__(
        self,
        embedder: Embedder,
        *,
        wait_s: float = EMBED_WAIT_S,
        rest_s: float = EMBED_REST_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._embedder, self._wait_s, self._rest_s, self._clock = embedder, wait_s, rest_s, clock
        self._thread = EmbeddingThread()
        self._loads = isinstance(embedder, Loading)
        self._tools: dict[str, Vectors]
        self._requests: BoundedCache[str, Vectors]
        self._matrices: BoundedCache[int, tuple[Index, ToolVectors]]
        self._centre: Vectors | None
        self._knowledge: float | None
        self._forget()
        self._reading: Future[None] | None = None
        self._rests_until = -1.0
        self._has_failed = False
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Start again in a child, since the reading thread runs in the parent."""
        leave_to_parent(self._reading)
        self._reading = None

    async def likeness(self, index: Index, queries: Sequence[str]) -> Sequence[Compared] | str:
        """Compare each request with the tools of the index; return a text with the reason if that is impossible."""
        if self._has_failed and self._clock() < self._rests_until:
            return NO_ANSWER
        try:
            await self._load(queries)
            ends = self._clock() + self._wait_s
            async with asyncio.timeout(self._wait_s):
                requests = await self._read_requests(queries)
            matrix = await self._matrix(index, max(ends - self._clock(), 0.0))
            if matrix is None:
                return STILL_READING
            answers = [matrix.beside(row, knowledge=self._knowledge or 0.0) for row in requests]
        except TimeoutError:
            return self._failed(f"it did not answer within {self._wait_s:g} s")
        except (Exception, GeneratorExit) as error:  # noqa: BLE001 - boundary: an embedder is foreign code, and no reason to find nothing
            if isinstance(error, ValueError):
                # Vectors of another dimension: the model was replaced, so the old vectors are useless.
                self._forget()
            return self._failed(f"{type(error).__name__}: {_own_description(error.__str__)}")
        if self._has_failed:
            log.info("The embedder %r answers again.", self._name)
            self._has_failed = False
        return answers

    @property
    def _name(self) -> str:
        return _own_description(lambda: self._embedder.model_id)

    def _failed(self, why: str) -> str:
        if not self._has_failed:
            log.warning("The embedder %r failed, so tools are searched by words alone: %s", self._name, why)
        self._has_failed, self._rests_until = True, self._clock() + self._rest_s
        return NO_ANSWER

    def _forget(self) -> None:
        self._tools = {}
        self._requests = BoundedCache(max_entries=EMBED_QUERIES)
        self._matrices = BoundedCache(max_entries=EMBED_MATRICES)
        self._centre = self._knowledge = None

    async def read(self, index: Index) -> None:
        """Wait until the embedder has read the tools of an index, or has failed, for a minute at most."""
        with suppress(Exception):
            await self._matrix(index, EMBED_READ_S)

    async def _load(self, queries: Sequence[str]) -> None:
        """Wait once for a local model to load, which takes longer than an answer."""
        if self._loads and any(self._requests.get(query) is None for query in queries):
            async with asyncio.timeout(EMBED_LOAD_S):
                await _outcome(self._thread.start(loaded(self._embedder)))

    async def _read_requests(self, queries: Sequence[str]) -> list[Vectors]:
        known = {query: row for query in queries if (row := self._requests.get(query)) is not None}
        missing = [query for query in dict.fromkeys(queries) if query not in known]
        if missing:
            work = self._thread.start(embedded(missing, self._embedder))
            try:
                vectors = await _outcome(work)
            finally:
                work.cancel()
            for query, row in zip(missing, vectors, strict=True):
                known[query] = self._requests.remember(query, row)
        return [known[query] for query in queries]

    async def _matrix(self, index: Index, wait_s: float) -> ToolVectors | None:
        """Return the vectors of an index, one row per tool; `None` if they are not ready in time. Reading continues."""
        at_hand = self._matrices.get(id(index))
        if at_hand is not None and at_hand[0] is index:
            return at_hand[1]
        meanings = index.meanings
        missing = [text for text in dict.fromkeys(meanings) if text not in self._tools]
        if missing:
            if self._reading is None or self._reading.done():
                self._reading = self._thread.start(self._read_tools(missing))
            try:
                async with asyncio.timeout(wait_s):
                    # Reading continues even if nobody waits any longer.
                    await _outcome(self._reading)
            except TimeoutError:
                if not self._reading.done():
                    return None
                raise
        rows = [self._tools.get(text) for text in meanings]
        known = [row for row in rows if row is not None]
        if len(known) < len(rows):
            return None  # another snapshot's tools were read meanwhile
        if len(self._tools) > 2 * len(meanings):
            self._tools = dict(zip(meanings, known, strict=True))
        vectors = ToolVectors(np.stack(known))
        if vectors.wants_codes:
            self._thread.start(self._code(vectors))
        return self._matrices.remember(id(index), (index, vectors))[1]

    async def _read_tools(self, texts: Sequence[str]) -> None:
        tools = self._tools
        for start in range(0, len(texts), EMBED_BATCH):
            batch = texts[start : start + EMBED_BATCH]
            async with asyncio.timeout(EMBED_READ_S):
                rows = await embedded(batch, self._embedder)
            tools.update(zip(batch, rows, strict=True))
        if self._knowledge is None:
            # Until then, and for an embedder that fails here, only tools that stand out beyond chance count.
            async with asyncio.timeout(EMBED_READ_S):
                self._knowledge = knowledge_of(await embedded(PAIRED_TEXTS, self._embedder))

    async def _code(self, tools: ToolVectors) -> None:
        """Compute the codes for fast comparison of many tools; if that fails, full vectors are compared each time."""
        centre = self._centre
        if centre is None:
            async with asyncio.timeout(EMBED_READ_S):
                centre = (await embedded(_ANY_TEXTS, self._embedder)).mean(axis=0)
            self._centre = centre
        for _ in tools.coding(centre):
            await asyncio.sleep(0)  # requests are computed on this thread, too


def _own_description(ask: Callable[[], str]) -> str:
    """Return a shortened description that foreign code gives of itself, or a note that it gives none."""
    try:
        return ask()[:LISTED_LINE_CHARS]
    except Exception:  # noqa: BLE001 - boundary
        return "unnamed"


async def _outcome(work: Future[T]) -> T:
    """Wait for work in the other thread; a cancellation here does not cancel it."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    def tell(_: Future[T]) -> None:
        # The waiting task may be gone, together with its loop.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(ended.set)

    work.add_done_callback(tell)
    await ended.wait()
    if work.cancelled():
        raise RuntimeError("it cancelled itself")
    return work.result()
