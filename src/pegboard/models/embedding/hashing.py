"""Hashing: an embedder without a model, which compares words and parts of words but no meanings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from zlib import crc32

import numpy as np
from msgspec import Struct

from pegboard.models.embedding.vectors import Vectors, unit_rows

_WORD = re.compile(r"\w+")
_GRAM = 4  # letters per n-gram, a common choice


class HashingEmbedder(Struct, frozen=True, kw_only=True):
    """Sums words and their 4-grams in hashed dimensions (the "hashing trick"); implements the port `Embedder`.

    A text has the same vector on every machine. For experiments, and where no model is available.
    """

    dimension: int = 512

    @property
    def model_id(self) -> str:
        """Its kind and dimension."""
        return f"hashing-{self.dimension}"

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Return one row of length 1 per text."""
        rows = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            for feature, weight in _features(text.lower()):
                place = crc32(feature.encode(errors="replace"))
                # The highest bit is the sign, so that accidental collisions cancel out on average.
                row[(place & 0x7FFFFFFF) % self.dimension] += weight if place >> 31 else -weight
        return unit_rows(rows, count=len(texts), dimension=self.dimension, model_id=self.model_id) if texts else rows


def _features(text: str) -> Iterator[tuple[str, float]]:
    for word in _WORD.findall(text):
        yield word, 1.0
        marked = f"^{word}$"
        grams = [marked[start : start + _GRAM] for start in range(len(marked) - _GRAM + 1)]
        for gram in grams:
            yield gram, 1.0 / len(grams)
