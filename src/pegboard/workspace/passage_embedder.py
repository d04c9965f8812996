"""Passage embedder: embeds passages and questions; search continues without it on failure."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Sequence
from typing import Final

from pegboard.core.ports import Embedder
from pegboard.models.embedding.hashing import HashingEmbedder
from pegboard.models.embedding.static_embedder import StaticEmbedder
from pegboard.models.embedding.thread import EmbeddingThread
from pegboard.models.embedding.vectors import Loading, Vectors, embedded, loaded
from pegboard.models.limits import EMBED_LOAD_S, EMBED_READ_S, EMBED_REST_S, EMBED_WAIT_S, LISTED_LINE_CHARS
from pegboard.workspace.analyzer import telling_terms

log = logging.getLogger("pegboard")
NO_EMBEDDER: Final = "there is no embedder, so passages were found by words alone, not by meaning"
NO_ANSWER: Final = "the embedder does not answer, so passages were found by words alone"
# The weight of the vector ranking relative to the word ranking. A letters-only embedder finds passages without matching
# words, and orders equal ones: its best rank is worth less than one step between the first ranks by words.
_OF_MODEL: Final = 1.0
_OF_HASHING: Final = 0.01
_OF_STATIC: Final = 0.2  # word vectors know meanings, but not the order of words
# Prefixes for questions and passages that models were trained with, by model name. Source: their model cards.
# Instruction-following E5 models use no prefix for passages, and a task for questions.
_PREFIXES: Final = (
    (re.compile(r"(?:^|[^a-z0-9])e5-(?!.*(?:instruct|mistral))", re.IGNORECASE), "query: ", "passage: "),
    (re.compile(r"nomic-embed-text", re.IGNORECASE), "search_query: ", "search_document: "),
)
_NO_PREFIXES: Final = ("", "")


class PassageEmbedder:
    """An embedder in its own thread. A search waits briefly for it; after a failure it is not used for a while."""

    def __init__(self, embedder: Embedder, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._embedder, self._clock = embedder, clock
        self._thread = EmbeddingThread()
        self._rests_until = -1.0
        self._length: int | None = None
        self._loads = isinstance(embedder, Loading)
        self._is_hashing = isinstance(embedder, HashingEmbedder)
        self.weight = _OF_HASHING if self._is_hashing else _OF_MODEL
        if isinstance(embedder, StaticEmbedder):
            self.weight = _OF_STATIC

    async def mark(self) -> str:
        """Return the mark that identifies the model and dimension of its vectors.

        Raises:
            Exception: any exception of the embedder; TimeoutError.
        """
        await self._load(EMBED_READ_S)
        length = self._embedder.dimension or self._length
        if length is None:
            # Unknown before its first answer.
            length = self._length = (await self._vectors_within(["dimension"], EMBED_READ_S)).shape[1]
        how = ":terms" if self._is_hashing else ":prefixed" if prefixes_of(self.model_id) != _NO_PREFIXES else ""
        return f"{self._embedder.model_id}:{length}{how}"

    async def of_question(self, text: str) -> Vectors | None:
        """Return the vector of a question, as one row; `None` if the embedder is too slow or does not know the text."""
        if self._clock() < self._rests_until:
            return None
        try:
            await self._load(EMBED_LOAD_S)
            vectors = await self._vectors_within([prefixes_of(self.model_id)[0] + text], EMBED_WAIT_S)
        except Exception as error:  # noqa: BLE001 - boundary: an embedder is foreign code, and no reason to find nothing
            self._rests_until = self._clock() + EMBED_REST_S
            why = f"{type(error).__name__}: {str(error)[:LISTED_LINE_CHARS]}"
            log.warning("The embedder %r failed; documents are searched by words alone: %s", self.model_id, why)
            return None
        return vectors if vectors.any() else None

    async def of_passages(self, texts: Sequence[str]) -> Vectors:
        """Return one row per passage.

        Raises:
            Exception: any exception of the embedder; TimeoutError.
        """
        _, before = prefixes_of(self.model_id)
        return await self._vectors_within([before + text for text in texts], EMBED_READ_S)

    @property
    def model_id(self) -> str:
        """The model id of the embedder."""
        return self._embedder.model_id

    async def _load(self, wait_s: float) -> None:
        # Its name identifies the model only after loading, which continues if nobody waits.
        if self._loads:
            async with asyncio.timeout(wait_s):
                await asyncio.wrap_future(self._thread.start(loaded(self._embedder)))

    async def _vectors_within(self, texts: Sequence[str], wait_s: float) -> Vectors:
        if self._is_hashing:
            # It weighs all words equally, although many words of a sentence carry no meaning.
            texts = [" ".join(telling_terms(text)) for text in texts]
        async with asyncio.timeout(wait_s):
            vectors = await asyncio.wrap_future(self._thread.start(embedded(texts, self._embedder)))
        self._length = vectors.shape[1]
        return vectors


def prefixes_of(model_id: str) -> tuple[str, str]:
    """Return a model's prefixes for questions and for passages; empty for most models."""
    return next(((ask, tell) for named, ask, tell in _PREFIXES if named.search(model_id)), _NO_PREFIXES)
