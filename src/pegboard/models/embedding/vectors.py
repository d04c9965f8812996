"""Vectors: ask any embedder, and get rows that can be compared: as many as asked, of one dimension, of length 1."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import isawaitable
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from pegboard.core.ports import Embedder

EMBED_TEXT_CHARS = 8_000  # of one text that a model reads
EMBED_DIMENSIONS = 8_192  # of one vector, at most

Vectors: TypeAlias = NDArray[np.float32]


async def embedded(texts: Sequence[str], embedder: Embedder, *, dimension: int | None = None) -> Vectors:
    """Return one row of length 1 a text, or of zeros for a text of which the embedder knows nothing.

    Args:
        texts: what is read; of each its first 8,000 characters.
        embedder: is not trusted to keep to its port.
        dimension: how long the rows must be, where vectors that they are compared with are there already.

    Raises:
        ValueError: the rows are not as many or as long as they must be, or not of finite numbers.
        Exception: whatever the embedder raises.
    """
    if not texts:
        return np.zeros((0, dimension or embedder.dimension or 0), dtype=np.float32)
    # One that is not async is taken as well.
    rows: object = embedder.embed([text[:EMBED_TEXT_CHARS] for text in texts])
    if isawaitable(rows):
        rows = await rows
    return unit_rows(rows, count=len(texts), dimension=dimension or embedder.dimension, model_id=embedder.model_id)


async def loaded(embedder: Embedder) -> None:
    """Wait until an embedder that has a model to load from this machine has done so.

    Raises:
        Exception: whatever the embedder raises.
    """
    if isinstance(embedder, Loading):
        await embedder.load()


@runtime_checkable
class Loading(Protocol):
    """An embedder that loads a model before its first answer, which takes longer than a search may wait each time."""

    async def load(self) -> None: ...


def unit_rows(rows: object, *, count: int, dimension: int | None, model_id: str) -> Vectors:
    """Return rows of numbers as vectors of length 1.

    Raises:
        ValueError: they are not `count` rows of one dimension, or not of finite numbers.
    """
    try:
        vectors = np.asarray(rows, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise ValueError(f"The embedder {model_id!r} returned something else than rows of numbers: {error}.") from None
    length = vectors.shape[1] if vectors.ndim == 2 else 0
    if vectors.shape != (count, dimension or length) or not 0 < length <= EMBED_DIMENSIONS:
        raise ValueError(
            f"The embedder {model_id!r} returned vectors of shape {vectors.shape}, not {(count, dimension or 'any')}."
            " Check its `dimension` and that it answers every text."
        )
    if not np.isfinite(vectors).all():
        raise ValueError(f"The embedder {model_id!r} returned a vector with a value that is no finite number.")
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.float32(1e-12))
