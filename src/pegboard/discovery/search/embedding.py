"""Embedding: optional vectors of tools and requests, for meaning that no shared word shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pegboard.model.bounds import SEARCH_FUSED_HITS

Vectors = NDArray[np.floating[Any]]

_RECIPROCAL_OFFSET = (
    60  # not a limit: of the paper by Cormack, Clarke, Büttcher, "Reciprocal Rank Fusion", 2009  # not a limit:
)


class Embedder(Protocol):
    """Turns texts into vectors of one dimension, at once."""

    @property
    def model_id(self) -> str: ...

    @property
    def dimension(self) -> int: ...

    def embed(self, texts: Sequence[str]) -> list[list[float]]: ...


def embedded(texts: Sequence[str], embedder: Embedder) -> Vectors:
    """Return one row of length 1 per text.

    Raises:
        ValueError: the embedder gave another number or dimension of vectors than it announced.
    """
    if not texts:
        return np.zeros((0, embedder.dimension), dtype=np.float32)
    vectors = np.asarray(embedder.embed(texts), dtype=np.float32)
    expected = (len(texts), embedder.dimension)
    if vectors.shape != expected:
        raise ValueError(
            f"The embedder {embedder.model_id!r} returned vectors of shape {vectors.shape}, not {expected}."
            " Check its `dimension` and that it answers every text."
        )
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.float32(1e-12))


def fused_ranks(*rankings: Vectors) -> Vectors:
    """Return one score per tool from several by reciprocal rank, the best 1.0; a score of 0 or less is no rank."""
    fused = np.zeros(len(rankings[0]), dtype=np.float32)
    for scores in rankings:
        best = np.argsort(-scores, kind="stable")[:SEARCH_FUSED_HITS]
        best = best[scores[best] > 0]
        fused[best] += 1.0 / (_RECIPROCAL_OFFSET + np.arange(len(best)))
    return fused / max(float(fused.max()), 1e-12)
