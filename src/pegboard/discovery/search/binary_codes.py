"""Binary codes: one bit per number of a vector, for fast estimates of cosines.

A code describes the position of a vector relative to the centre of all texts of a model. The difference is turned by a
fixed rotation that mixes all numbers, so that each carries equal information for any model. The code holds the signs of
the rotated numbers. The estimate is unbiased; its error is about 0.8/√dimension times both distances from the centre,
for any vectors ("RaBitQ", Gao and Long 2024). A code depends only on its own vector and the centre, not on other
indexed vectors.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
from numpy.typing import NDArray

from pegboard.discovery.search.ranking import Vector

_BLOCK = 128  # numbers mixed by one step of the rotation
_ROUNDS = 2  # rounds of the rotation; after two, each number depends on all
_REQUEST_BITS = 3  # bits per number of a request; a fourth would reduce the error by 5 %
_AT_ONCE = 64  # vectors coded at once, so that other work gets its turn


class BinaryCodes:
    """The codes of many vectors of one dimension, computed step by step: see `steps`."""

    def __init__(self, rows: Vector, *, centre: Vector) -> None:
        self._rows, self._centre = rows, centre
        words = -(-rows.shape[1] // _BLOCK) * _BLOCK // 64
        # The n-th 64 bits of all vectors are adjacent, because they are read together.
        self._bits = np.zeros((words, len(rows)), dtype=np.uint64)
        self._scales = np.zeros(len(rows), dtype=np.float32)
        self._ones = self._beside_centre = self._scales

    def steps(self) -> Iterator[None]:
        """Compute the codes, a few vectors in each step."""
        for start in range(0, len(self._rows), _AT_ONCE):
            apart = self._rows[start : start + _AT_ONCE] - self._centre
            turned = _rotated(apart)
            lengths = np.abs(turned).sum(axis=1)
            squares = np.vecdot(apart, apart)
            self._scales[start : start + _AT_ONCE] = np.divide(
                squares, lengths, out=np.zeros_like(lengths), where=lengths > 0
            )
            self._bits[:, start : start + _AT_ONCE] = _packed(turned > 0).T
            yield
        self._ones = np.bitwise_count(self._bits).sum(axis=0, dtype=np.float32)
        self._beside_centre = np.vecdot(self._rows, self._centre)

    def estimates(self, request: Vector) -> Vector:
        """Return the estimated cosine of a request and each vector."""
        apart = request - self._centre
        turned = _rotated(apart[None])[0]
        least, most = float(turned.min()), float(turned.max())
        step = max((most - least) / (2**_REQUEST_BITS - 1), 1e-12)
        levels = np.rint((turned - least) / step).astype(np.uint8)
        # The share of the request that its quantised form keeps, in its own direction.
        kept = float(np.vecdot(least + step * levels.astype(np.float32), turned)) / max(float(apart @ apart), 1e-12)
        sums = np.zeros(len(self._scales), dtype=np.float32)
        for place in range(_REQUEST_BITS):
            # One word at a time, so that the counts stay in the CPU cache.
            counts = np.zeros(len(self._scales), dtype=np.uint16)
            for bits, asked in zip(self._bits, _packed(levels >> place & 1), strict=True):
                counts += np.bitwise_count(bits & asked)
            sums += np.float32(2 * step * 2**place) * counts
        sums += np.float32(2 * least) * self._ones
        sums -= np.float32(least * len(turned) + step * float(levels.sum()))
        sums *= self._scales / np.float32(max(kept, 1e-12))
        return sums + self._beside_centre + np.float32(apart @ self._centre)


def _packed(bits: NDArray[np.bool_] | NDArray[np.uint8]) -> NDArray[np.uint64]:
    return np.packbits(bits, axis=-1).view(np.uint64)


def _rotated(rows: Vector) -> Vector:
    """Return rotated rows, padded with zeros to a multiple of the block size."""
    count, dimension = rows.shape
    turned = np.pad(rows, ((0, 0), (0, -dimension % _BLOCK)))
    width = turned.shape[1]
    for signs in _signs(width):
        turned *= signs
        # Sums and differences only, so that the result for a row does not depend on other rows.
        apart = 1
        while apart < _BLOCK:
            pairs = turned.reshape(count, -1, 2, apart)
            turned = np.stack((pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]), axis=2)
            apart *= 2
        turned = turned.reshape(count, -1, _BLOCK).swapaxes(1, 2).reshape(count, width)
    return turned / np.float32(_BLOCK ** (_ROUNDS / 2))


@cache
def _signs(width: int) -> Vector:
    """Return signs that are the same in every process."""
    return np.random.default_rng(1).choice(np.array([-1, 1], dtype=np.float32), size=(_ROUNDS, width))
