"""Vectors: calls any embedder, and validates the rows: their number, their dimension, and length 1."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import isawaitable
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from pegboard.core.ports import Embedder

EMBED_TEXT_CHARS = 8_000  # characters of one text for an embedder
EMBED_DIMENSIONS = 8_192  # dimensions of one vector

Vectors: TypeAlias = NDArray[np.float32]


async def embedded(texts: Sequence[str], embedder: Embedder, *, dimension: int | None = None) -> Vectors:
    """Return one row of length 1 per text, or of zeros for a text unknown to the embedder.

    Args:
        texts: only the first 8,000 characters of each are read.
        embedder: its results are validated.
        dimension: the required length of rows, if they are compared with existing vectors.

    Raises:
        ValueError: a wrong number or length of rows, or numbers that are not finite.
        Exception: any exception of the embedder.
    """
    if not texts:
        return np.zeros((0, dimension or embedder.dimension or 0), dtype=np.float32)
    # A sync embedder is accepted as well.
    rows: object = embedder.embed([text[:EMBED_TEXT_CHARS] for text in texts])
    if isawaitable(rows):
        rows = await rows
    return unit_rows(rows, count=len(texts), dimension=dimension or embedder.dimension, model_id=embedder.model_id)


async def loaded(embedder: Embedder) -> None:
    """Wait until an embedder has loaded its local model, if it has one.

    Raises:
        Exception: any exception of the embedder.
    """
    if isinstance(embedder, Loading):
        await embedder.load()


@runtime_checkable
class Loading(Protocol):
    """An embedder that loads a model before its first answer, which takes longer than a search may wait."""

    async def load(self) -> None: ...


def unit_rows(rows: object, *, count: int, dimension: int | None, model_id: str) -> Vectors:
    """Return rows of numbers as vectors of length 1.

    Raises:
        ValueError: they are not `count` rows of one dimension, or have numbers that are not finite.
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
        raise ValueError(f"The embedder {model_id!r} returned a vector with a value that is not a finite number.")
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.float32(1e-12))
