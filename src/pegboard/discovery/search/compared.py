"""Compared: a request beside the tools of an index, by the vectors that an embedder made of them.

Of thousands of tools only those count that stand out from all others, so of many long vectors not all are read:
estimates from binary codes (see `binary_codes`) tell which may stand out, and these are compared in full. Whatever the
visible tools are compared by is taken from them alone: hidden ones change no digit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from pegboard.discovery.search.binary_codes import BinaryCodes
from pegboard.discovery.search.likeness import ALIKE, by_chance, deviations_of
from pegboard.discovery.search.ranking import Vector

Places = NDArray[np.int64]

_READ_ALL = 4_000_000  # so many numbers are read faster than estimated
_AT_ONCE = 64
_MOST = 0.75  # with more than this share of the rows, to read all is faster
_SAMPLE = 512  # tools by which the others are judged
# One in 700 of the tools that stand out by nothing is missed, fewer the more they do.
_ERRORS = 3.0
_FEW = 0.2  # with more than this share of the tools to be compared in full, all are


class Compared(Protocol):
    """What an embedder says of one request and each tool of an index."""

    def beyond_chance(self, seen: Places) -> Vector:
        """Return by how many deviations each visible tool stands out from all, beyond what chance gives."""
        ...

    def deviations(self, seen: Places) -> Vector:
        """Return by how many deviations each visible tool lies above the middle of all."""
        ...


class ToolVectors:
    """The vectors of all tools of an index, a row each in its order; of length 1, or of zeros."""

    def __init__(self, matrix: Vector) -> None:
        self.matrix = matrix
        self.codes: BinaryCodes | None = None

    @property
    def wants_codes(self) -> bool:
        """Whether there is so much to read that estimates would save time."""
        return self.codes is None and self.matrix.size > _READ_ALL

    def coding(self, centre: Vector) -> Iterator[None]:
        """Make the codes from which cosines are estimated, a few at each step; until then all are read.

        Args:
            centre: about what all vectors of the model have in common; not taken from the tools.
        """
        codes = BinaryCodes(self.matrix, centre=centre)
        yield from codes.steps()
        self.codes = codes

    def beside(self, request: Vector) -> ComparedVectors:
        """Return what is said of a request, a vector of length 1.

        Raises:
            ValueError: it is of another dimension than the tools.
        """
        if request.shape != self.matrix.shape[1:]:
            raise ValueError(f"The request has {len(request)} numbers, the tools have {self.matrix.shape[1]}.")
        return ComparedVectors(tools=self, request=request)

    def cosines(self, request: Vector, places: Places) -> Vector:
        """Return the cosines of a request and the tools at these places."""
        # Not `@`: for a matrix and one row its threads take four times the processor time, most of it waiting.
        if len(places) > _MOST * len(self.matrix):
            return np.vecdot(self.matrix, request)[places]
        cosines = np.empty(len(places), dtype=np.float32)
        rows = np.empty((_AT_ONCE, len(request)), dtype=np.float32)
        # Some at once: megabytes that are copied anew each time cost more than what is compared.
        for start in range(0, len(places), _AT_ONCE):
            some = places[start : start + _AT_ONCE]
            copied = np.take(self.matrix, some, axis=0, out=rows[: len(some)], mode="clip")
            np.vecdot(copied, request, out=cosines[start : start + len(some)])
        return cosines


class Cosines(Struct, frozen=True, kw_only=True):
    """Cosines that are known: one for each tool of the index."""

    known: Vector

    def beyond_chance(self, seen: Places) -> Vector:
        """See `Compared`."""
        return _beyond(self.deviations(seen))

    def deviations(self, seen: Places) -> Vector:
        """See `Compared`."""
        return deviations_of(self.known[seen])


class ComparedVectors(Struct, frozen=True, kw_only=True):
    """Cosines that are read when they are asked for, as few as needed."""

    tools: ToolVectors
    request: Vector

    def beyond_chance(self, seen: Places) -> Vector:
        """See `Compared`."""
        codes = self.tools.codes
        if codes is not None and len(seen) * len(self.request) > _READ_ALL:
            standing = self._standing_out(seen, codes)
            if standing is not None:
                return standing
        return _beyond(self.deviations(seen))

    def deviations(self, seen: Places) -> Vector:
        """See `Compared`."""
        return deviations_of(self.tools.cosines(self.request, seen))

    def _standing_out(self, seen: Places, codes: BinaryCodes) -> Vector | None:
        """Return the same in two steps; `None` where estimates leave too many open."""
        estimates = codes.estimates(self.request)[seen]
        drawn = np.arange(0, len(seen), max(len(seen) // _SAMPLE, 1))
        sample, guessed = self.tools.cosines(self.request, seen[drawn]), estimates[drawn]
        errors = guessed - sample
        # What all estimates say, less what the sample tells of their errors.
        middle = float(np.median(estimates) - np.median(guessed) + np.median(sample))
        spread = max(float(estimates.var() - guessed.var() + sample.var()), 0.0) ** 0.5
        least = middle + spread * by_chance(len(seen))
        near = np.flatnonzero(estimates > least + float(errors.mean()) - _ERRORS * float(errors.std()))
        if spread <= ALIKE or len(near) > _FEW * len(seen):
            return None
        beyond = np.zeros(len(seen), dtype=np.float32)
        beyond[near] = np.maximum(self.tools.cosines(self.request, seen[near]) - least, 0) / spread
        return beyond


def _beyond(deviations: Vector) -> Vector:
    return np.maximum(deviations - by_chance(len(deviations)), 0)
