"""Binary codes: one bit for each number of a vector, from which cosines are estimated in a fraction of the time.

What counts of a vector is where it lies from a centre that all texts of a model have about. That is turned by a fixed
rotation that mixes all numbers, so that none tells more than another, whatever model they come from; kept is on which
side of 0 each lies then. The estimate is right on average, and its error, some 0.8/√dimension times the two distances
from the centre, is that of chance, for vectors of any kind ("RaBitQ", Gao and Long 2024). A code is made of its own
vector and the centre alone: what else is indexed does not change it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
from numpy.typing import NDArray

from pegboard.discovery.search.ranking import Vector

_BLOCK = 128  # numbers that one step of the rotation mixes
_ROUNDS = 2  # after the second each number depends on all
_REQUEST_BITS = 3  # of each number of a request; a fourth would make the error 5 % smaller
_AT_ONCE = 64  # vectors, so that others have their turn


class BinaryCodes:
    """The codes of many vectors of one dimension, made step by step: see `steps`."""

    def __init__(self, rows: Vector, *, centre: Vector) -> None:
        self._rows, self._centre = rows, centre
        words = -(-rows.shape[1] // _BLOCK) * _BLOCK // 64
        # The n-th 64 bits of all vectors stand together: they are read together.
        self._bits = np.zeros((words, len(rows)), dtype=np.uint64)
        self._scales = np.zeros(len(rows), dtype=np.float32)
        self._ones = self._beside_centre = self._scales

    def steps(self) -> Iterator[None]:
        """Make the codes, a few vectors at each step."""
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
        """Return about what the cosine of a request and each vector is."""
        apart = request - self._centre
        turned = _rotated(apart[None])[0]
        least, most = float(turned.min()), float(turned.max())
        step = max((most - least) / (2**_REQUEST_BITS - 1), 1e-12)
        levels = np.rint((turned - least) / step).astype(np.uint8)
        # How much of the request its levels keep, in its own direction.
        kept = float(np.vecdot(least + step * levels.astype(np.float32), turned)) / max(float(apart @ apart), 1e-12)
        sums = np.zeros(len(self._scales), dtype=np.float32)
        for place in range(_REQUEST_BITS):
            # A word at a time, so that what is counted stays in the processor's own memory.
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
    """Return rows turned, with zeros after their end where their dimension is not a multiple of a block."""
    count, dimension = rows.shape
    turned = np.pad(rows, ((0, 0), (0, -dimension % _BLOCK)))
    width = turned.shape[1]
    for signs in _signs(width):
        turned *= signs
        # Sums and differences, so that a row comes out to the last digit as it would alone.
        apart = 1
        while apart < _BLOCK:
            pairs = turned.reshape(count, -1, 2, apart)
            turned = np.stack((pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]), axis=2)
            apart *= 2
        turned = turned.reshape(count, -1, _BLOCK).swapaxes(1, 2).reshape(count, width)
    return turned / np.float32(_BLOCK ** (_ROUNDS / 2))


@cache
def _signs(width: int) -> Vector:
    """Return the same signs in every process."""
    return np.random.default_rng(1).choice(np.array([-1, 1], dtype=np.float32), size=(_ROUNDS, width))
