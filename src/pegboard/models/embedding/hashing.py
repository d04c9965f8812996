"""Hashing: an embedder without a model. Texts that share words and parts of words are alike; it knows no meaning."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from zlib import crc32

import numpy as np
from msgspec import Struct

from pegboard.models.embedding.vectors import Vectors, unit_rows

_WORD = re.compile(r"\w+")
_GRAM = 4  # letters of a run, as is usual


class HashingEmbedder(Struct, frozen=True, kw_only=True):
    """Adds up words and their runs of four letters in hashed places (the "hashing trick"); fills the port `Embedder`.

    The same text has the same vector on every machine. For trying things out, and where no model can be had.
    """

    dimension: int = 512

    @property
    def model_id(self) -> str:
        """Its kind and dimension."""
        return f"hashing-{self.dimension}"

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Return one row of length 1 a text."""
        rows = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            for feature, weight in _features(text.lower()):
                place = crc32(feature.encode(errors="replace"))
                # The highest bit is the sign, so that features that meet by chance cancel out as often as they add up.
                row[(place & 0x7FFFFFFF) % self.dimension] += weight if place >> 31 else -weight
        return unit_rows(rows, count=len(texts), dimension=self.dimension, model_id=self.model_id) if texts else rows


def _features(text: str) -> Iterator[tuple[str, float]]:
    for word in _WORD.findall(text):
        yield word, 1.0
        marked = f"^{word}$"
        grams = [marked[start : start + _GRAM] for start in range(len(marked) - _GRAM + 1)]
        for gram in grams:
            yield gram, 1.0 / len(grams)
